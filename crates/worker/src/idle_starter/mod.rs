//! The starter once the monitor runs: three descriptors, and messages between the monitor and systemd. It goes on as
//! another program, the small image that the monitor sends with its message Ready: the same process to whoever waits for it,
//! with the same child.

mod error;
mod exec;
mod systemd;

use crate::rest::Rest;
use crate::sandbox::{self, Worker};
use crate::start::{Format, Log};
pub use error::WaitError;
use fleetgate_sys::epoll::{Epoll, Event};
use fleetgate_sys::poll::READ;
use fleetgate_sys::{Errno, Fd, process, signals, socket};
use fleetgate_wire::node::starter::{FromMonitor, ToMonitor};
use fleetgate_wire::{decode, encode};
pub use systemd::Systemd;

/// How long the monitor may take to close its listening sockets when the service stops.
const DRAIN_MS: u32 = 5000;
/// The longest message of the monitor.
const MAX_WORD: usize = 4096;

const SIGNALS: u64 = 0;
const CONTROL: u64 = 1;
const MONITOR: u64 = 2;

/// The log of the starter when it only waits.
pub fn log(format: Format) -> Log {
    Log {
        format,
        name: Worker::Starter.name(),
        timings: false,
    }
}

/// The signals that are for it. They stay blocked over an exec, so none is lost between two programs.
pub fn signals() -> Result<Fd, Errno> {
    signals::descriptor(&[signals::TERM, signals::INT, signals::HUP])
}

/// What the wait came to.
pub enum Stage {
    /// Connections are accepted. The image is that of the small program, where the build has one.
    Ready(Option<Fd>),
    /// The service has ended as it was told.
    Over,
}

/// Everything that the starter waits for.
pub struct IdleStarter {
    /// Where systemd hears from it.
    pub systemd: Systemd,
    control: Fd,
    monitor: Fd,
    signals: Fd,
    epoll: Epoll,
    rest: Rest,
    log: Log,
    /// It was told to end, and waits for the monitor to let go of the listening sockets.
    ending: bool,
}

impl IdleStarter {
    /// Watches the monitor's socket, its end, and signals.
    pub fn new(
        control: Fd,
        monitor: Fd,
        signals: Fd,
        systemd: Systemd,
        log: Log,
    ) -> Result<IdleStarter, Errno> {
        let epoll = Epoll::new()?;
        for (fd, key) in [(&signals, SIGNALS), (&control, CONTROL), (&monitor, MONITOR)] {
            epoll.add(fd, READ, key)?;
        }
        Ok(IdleStarter {
            systemd,
            control,
            monitor,
            signals,
            epoll,
            rest: Rest::now(),
            log,
            ending: false,
        })
    }

    /// Waits until the service ends as it was told.
    pub fn serve(mut self) -> Result<(), WaitError> {
        loop {
            match self.turn()? {
                Some(Stage::Over) => return Ok(()),
                // Said once, before this; an image is of no use any more.
                Some(Stage::Ready(image)) => drop(image),
                None => {}
            }
        }
    }

    fn turn(&mut self) -> Result<Option<Stage>, String> {
        let most = if self.ending {
            Some(DRAIN_MS)
        } else {
            self.rest.wait(None)
        };
        let mut events = [Event::EMPTY; 4];
        let count = self
            .epoll
            .wait(&mut events, most)
            .map_err(|e| format!("waiting: {e}"))?;
        if self.ending && count == 0 {
            self.log
                .warn(&"the monitor did not close its listening sockets in time; it is left to itself");
            return Ok(Some(Stage::Over));
        }
        self.rest.woke(count);
        for event in &events[..count] {
            let stage = match event.key() {
                SIGNALS => self.signalled().map(|()| None)?,
                CONTROL => self.heard()?,
                _ => self.ended().map(Some)?,
            };
            if stage.is_some() {
                return Ok(stage);
            }
        }
        Ok(None)
    }

    fn tell(&self, word: &ToMonitor) {
        if let Err(e) = socket::send_now(&self.control, &encode(word), &[]) {
            self.log
                .warn(&format_args!("the monitor does not take words: {e}"));
        }
    }

    fn signalled(&mut self) -> Result<(), String> {
        while let Some(signal) = signals::next(&self.signals).map_err(|e| format!("reading a signal: {e}"))? {
            match signal {
                signals::HUP => {
                    self.systemd.reloading();
                    self.tell(&ToMonitor::Reload);
                }
                signal => {
                    self.systemd.say("STOPPING=1");
                    // From a terminal the user means all of it; a service manager means this process.
                    self.tell(if signal == signals::INT {
                        &ToMonitor::End
                    } else {
                        &ToMonitor::Drain
                    });
                    self.ending = true;
                }
            }
        }
        Ok(())
    }

    fn heard(&mut self) -> Result<Option<Stage>, String> {
        let mut buffer = [0; MAX_WORD];
        let mut received = match socket::receive(&self.control, &mut buffer, false) {
            Err(Errno::EAGAIN) => return Ok(None),
            Err(e) => return Err(format!("hearing the monitor: {e}")),
            Ok(received) if received.len == 0 => return self.ended().map(Some),
            Ok(received) => received,
        };
        match decode(&buffer[..received.len]) {
            Ok(FromMonitor::Ready) => return Ok(Some(Stage::Ready(received.fds.pop()))),
            Ok(FromMonitor::Reloaded { refused }) => {
                self.systemd.say("READY=1");
                if let Some(why) = refused {
                    let why = why.to_string_lossy();
                    self.log
                        .error(&format_args!("the old configuration stays: {why}"));
                    self.systemd
                        .say(&format!("STATUS=the old configuration stays: {why}"));
                }
            }
            Ok(FromMonitor::Draining) => return Ok(self.ending.then_some(Stage::Over)),
            Ok(FromMonitor::Status { line }) => {
                self.systemd.say(&format!("STATUS={}", line.to_string_lossy()));
            }
            Err(e) => return Err(format!("the monitor said what cannot be read ({e})")),
        }
        Ok(None)
    }

    /// The monitor has ended: as it was told, or the service has failed.
    fn ended(&mut self) -> Result<Stage, String> {
        if self.ending {
            return Ok(Stage::Over);
        }
        let how = match process::wait(&self.monitor, true) {
            Ok(Some(process::Exit::Code(code))) => format!("ended with code {code}"),
            Ok(Some(process::Exit::Signal { number, .. })) => format!("was ended by signal {number}"),
            Ok(None) | Err(_) => "ended".to_owned(),
        };
        Err(format!("the monitor {how}; its log says why"))
    }
}

/// The small program; the exit code. Its arguments are those that `exec` makes: the monitor's socket, its pidfd, the
/// notification socket or `-`, the log's form. None: they are not.
pub(crate) fn run(words: &[&str]) -> Option<i32> {
    let [control, monitor, notify, format] = words else {
        return None;
    };
    let log = log(match *format {
        "text" => Format::Text,
        "json" => Format::Json,
        _ => return None,
    });
    let number = |word: &str| word.parse::<i32>().ok().filter(|n| *n > 2);
    let notify = match *notify {
        "-" => None,
        word => Some(number(word)?),
    };
    let (control, monitor) = (number(control)?, number(monitor)?);
    if control == monitor || notify.is_some_and(|n| n == control || n == monitor) {
        return None;
    }
    let notify = notify.map(Fd::from_raw);
    match go_on(Fd::from_raw(control), Fd::from_raw(monitor), notify, log) {
        Ok(()) => Some(0),
        Err(why) => {
            log.error(&why);
            Some(1)
        }
    }
}

fn go_on(control: Fd, monitor: Fd, notify: Option<Fd>, log: Log) -> Result<(), WaitError> {
    let watching = |e: Errno| format!("watching: {e}");
    for fd in [Some(&control), Some(&monitor), notify.as_ref()]
        .into_iter()
        .flatten()
    {
        fd.set_cloexec(true).map_err(watching)?;
    }
    let signals = signals().map_err(watching)?;
    let starter =
        IdleStarter::new(control, monitor, signals, Systemd::on(notify, log), log).map_err(watching)?;
    let missing = sandbox::enter(Worker::Starter, None, &[]).map_err(|failed| failed.to_string())?;
    for part in missing {
        log.warn(&format_args!("runs {part}"));
    }
    starter.serve()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_words_begin_it() {
        for words in [
            "",
            "3 4 -",
            "3 4 - xml",
            "3 x - text",
            "3 3 - text",
            "3 4 4 text",
            "2 4 - text",
            "-1 4 - text",
            "3 4 - text more",
        ] {
            let words: Vec<&str> = words.split_whitespace().collect();
            assert_eq!(run(&words), None, "{words:?}");
        }
    }
}
