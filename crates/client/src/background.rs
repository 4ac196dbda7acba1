//! `-f`: the command goes to the background when the login is done and its forwards stand. A second process of this
//! program does the work from the start, with a socket to the first as its standard input; the first waits for one byte on
//! it and ends. So nothing is copied that runs already, and questions are asked while the shell still waits.

use crate::stderr;
use fleetgate_base::exit;
use fleetgate_sys::{Fd, exec};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// The name under which this program is the second process.
pub const NAME: &str = "fleetgate-background";

/// The first process, as long as it waits.
#[derive(Clone, Debug)]
pub struct Starter(Arc<Mutex<Option<UnixStream>>>);

impl Starter {
    /// For the second process, at its start.
    pub fn find() -> io::Result<Starter> {
        let starter = UnixStream::from(standard_input()?);
        Ok(Starter(Arc::new(Mutex::new(Some(starter)))))
    }

    /// All stands: the first process ends, and the terminal's end is none of ours any more.
    pub fn leave(&self) {
        let starter = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut starter) = starter {
            // It leads no group: it was started by a process that does nothing else.
            let _ = exec::new_session();
            let _ = starter.write_all(&[1]);
        }
    }
}

/// Starts the second process with these words, and waits until all stands or it failed. The exit code.
pub fn start(words: &[OsString]) -> i32 {
    let started = || -> io::Result<i32> {
        let (mut ours, its) = UnixStream::pair()?;
        // Not by its path: this very program, whatever lies there now.
        let mut second = Command::new("/proc/self/exe")
            .arg0(NAME)
            .args(words)
            .stdin(Stdio::from(OwnedFd::from(its)))
            .spawn()?;
        match ours.read(&mut [0])? {
            0 => Ok(second.wait()?.code().unwrap_or(exit::UNREACHABLE)),
            _ => Ok(0),
        }
    };
    started().unwrap_or_else(|e| {
        stderr::line(format_args!("the background: {e}"));
        exit::UNREACHABLE
    })
}

/// Standard input, which is nobody's from now on: `/dev/null` stands in its place.
pub(crate) fn standard_input() -> io::Result<OwnedFd> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let nothing = Fd::from(OwnedFd::from(File::open("/dev/null")?));
    nothing.place_at(0, false)?;
    Ok(input)
}
