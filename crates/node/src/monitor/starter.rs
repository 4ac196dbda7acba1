//! The monitor's end of the starter's socket, and its signals: who tells it to reload, to drain, to end.

use super::wakes::{Key, Owner, Wakes};
use fleetgate_seal::FallbackChain;
use fleetgate_sys::poll::READ;
use fleetgate_sys::{Errno, Fd, signals, socket};
use fleetgate_wire::Encode;
use fleetgate_wire::node::starter::{FromMonitor, ToMonitor};
use std::ffi::CString;
use std::sync::Arc;

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Read the configuration again.
    Reload,
    /// Accept no more.
    Drain,
    /// End now.
    End,
}

const CONTROL: u64 = 0;
const SIGNALS: u64 = 1;
/// The longest word.
const MAX_WORD: usize = 64;

/// The starter, or nobody.
pub struct Starter {
    control: Option<Fd>,
    signals: Option<Fd>,
    told_ready: bool,
    /// What the starter may go on as.
    image: Option<Arc<FallbackChain>>,
}

impl Starter {
    /// Listens to both.
    pub fn new(
        control: Option<Fd>,
        signals: Option<Fd>,
        image: Option<Arc<FallbackChain>>,
        wakes: &Wakes,
    ) -> Result<Starter, Errno> {
        for (fd, id) in [(&control, CONTROL), (&signals, SIGNALS)] {
            if let Some(fd) = fd {
                wakes.watch(fd, READ, Key::new(Owner::Starter, id))?;
            }
        }
        Ok(Starter {
            control,
            signals,
            told_ready: false,
            image,
        })
    }

    /// The next thing that is wanted.
    pub fn hear(&mut self, id: u64) -> Option<Said> {
        if id == SIGNALS {
            return match signals::next(self.signals.as_ref()?) {
                Ok(Some(signals::HUP)) => Some(Said::Reload),
                Ok(Some(signals::INT)) => Some(Said::End),
                Ok(Some(_)) => Some(Said::Drain),
                Ok(None) | Err(_) => None,
            };
        }
        let mut buffer = [0; MAX_WORD];
        let got = match socket::receive(self.control.as_ref()?, &mut buffer, false) {
            Err(Errno::EAGAIN) => return None,
            Ok(got) if got.len > 0 => got,
            // The starter ended: the service is stopped, or a new one is there already.
            _ => {
                self.control = None;
                return Some(Said::Drain);
            }
        };
        match fleetgate_wire::decode(&buffer[..got.len]) {
            Ok(ToMonitor::Reload) => Some(Said::Reload),
            Ok(ToMonitor::Drain) => Some(Said::Drain),
            Ok(ToMonitor::End) => Some(Said::End),
            Err(e) => {
                tracing::error!("the starter said what cannot be read: {e}");
                None
            }
        }
    }

    /// Connections are accepted; said once.
    pub fn ready(&mut self) {
        if !self.told_ready {
            self.told_ready = true;
            // By now the lobby runs from it. Without it the starter stays what it is.
            let image = self.image.take().and_then(|ladder| ladder.image().ok());
            let image: Vec<i32> = image.iter().map(|image| image.fd().raw()).collect();
            self.say_with(&FromMonitor::Ready, &image);
        }
    }

    /// What became of a reload.
    pub fn reloaded(&self, refused: Option<&str>) {
        let refused = refused.map(|why| CString::new(why.replace('\0', " ")).unwrap_or_default());
        self.say(&FromMonitor::Reloaded { refused });
    }

    /// The listening sockets are closed.
    pub fn draining(&self) {
        self.say(&FromMonitor::Draining);
    }

    fn say(&self, word: &impl Encode) {
        self.say_with(word, &[]);
    }

    fn say_with(&self, word: &impl Encode, fds: &[i32]) {
        if let Some(control) = &self.control {
            // It is gone, or does not listen: nothing depends on it.
            let _ = socket::send_now(control, &fleetgate_wire::encode(word), fds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_heard_and_the_end_means_drain() {
        let wakes = Wakes::new().expect("epoll");
        let (ours, theirs) = socket::pair().expect("pair");
        let mut starter = Starter::new(Some(ours), None, None, &wakes).expect("starter");
        for word in [ToMonitor::Reload, ToMonitor::End] {
            socket::send(&theirs, &fleetgate_wire::encode(&word), &[]).expect("send");
        }
        socket::send(&theirs, b"garbage", &[]).expect("send");
        assert_eq!(starter.hear(CONTROL), Some(Said::Reload));
        assert_eq!(starter.hear(CONTROL), Some(Said::End));
        assert_eq!(starter.hear(CONTROL), None);
        starter.ready();
        starter.ready();
        let mut buffer = [0; 64];
        let got = socket::receive(&theirs, &mut buffer, false).expect("a word");
        assert_eq!(fleetgate_wire::decode(&buffer[..got.len]), Ok(FromMonitor::Ready));
        assert_eq!(
            socket::receive(&theirs, &mut buffer, false).err(),
            Some(Errno::EAGAIN)
        );
        drop(theirs);
        assert_eq!(starter.hear(CONTROL), Some(Said::Drain));
        assert_eq!(starter.hear(CONTROL), None);
    }
}
