//! The starter's step from the program that started the service to the small one that only waits.

use super::{IdleStarter, Stage, WaitError};
use crate::start::Format;
use fleetgate_sys::spawn::Strings;
use fleetgate_sys::{Errno, Fd, exe};
use std::ffi::CString;

impl IdleStarter {
    /// Waits until connections are accepted, or the service ends before.
    pub fn until_ready(&mut self) -> Result<Stage, WaitError> {
        loop {
            if let Some(stage) = self.turn()? {
                return Ok(stage);
            }
        }
    }

    /// Goes on as the program in `image`, unless the service is to end anyway; comes back only as it was.
    pub fn become_small(&self, image: &Fd) {
        if !self.ending {
            let why = self.execute(image);
            self.log
                .warn(&format_args!("it stays the large program that it is: {why}"));
        }
    }

    fn execute(&self, image: &Fd) -> Errno {
        let handed = [Some(&self.control), Some(&self.monitor), self.systemd.socket()];
        let survive = |on: bool| handed.iter().flatten().try_for_each(|fd| fd.set_cloexec(!on));
        if let Err(e) = survive(true) {
            return e;
        }
        let mut words = vec![c"fleetgate-front".to_owned(), c"starter".to_owned()];
        for fd in handed {
            let number = fd.map_or_else(|| "-".to_owned(), |fd| fd.raw().to_string());
            words.push(CString::new(number).unwrap_or_default());
        }
        words.push(match self.log.format {
            Format::Json => c"json".to_owned(),
            Format::Text | Format::Monitor => c"text".to_owned(),
        });
        let argv = Strings::new(words.iter().map(CString::as_c_str));
        let nothing = Strings::new(std::iter::empty());
        let why = exe::execute(image, &argv, &nothing);
        let _ = survive(false);
        why
    }
}
