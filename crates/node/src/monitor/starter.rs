//! The starter, as the monitor knows it: its socket, and the signals that say the same without one. Both ask for three
//! things: read the configuration again, accept no more, end.

use super::Monitor;
use super::audit::Event;
use super::settings::{can_record, is_reachable, offer};
use super::tunnel::joined;
use super::wakes::{Key, Owner, Wakes};
use crate::config::node_lock::NodeLock;
use crate::config::offer::Offer;
use crate::config::trust::Trust;
use crate::config::{Config, labels};
use fleetgate_seal::FallbackChain;
use fleetgate_sys::poll::READ;
use fleetgate_sys::{Errno, Fd, signals, socket};
use fleetgate_wire::Encode;
use fleetgate_wire::node::front::ToFront;
use fleetgate_wire::node::lobby::ToLobby;
use fleetgate_wire::node::starter::{FromMonitor, ToMonitor};
use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StarterCommand {
    /// Read the configuration again.
    Reload,
    /// Accept no more.
    Drain,
    /// End now.
    End,
}

const CONTROL: u64 = 0;
const SIGNALS: u64 = 1;
/// The longest message.
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
    pub fn hear(&mut self, id: u64) -> Option<StarterCommand> {
        if id == SIGNALS {
            return match signals::next(self.signals.as_ref()?) {
                Ok(Some(signals::HUP)) => Some(StarterCommand::Reload),
                Ok(Some(signals::INT)) => Some(StarterCommand::End),
                Ok(Some(_)) => Some(StarterCommand::Drain),
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
                return Some(StarterCommand::Drain);
            }
        };
        match fleetgate_wire::decode(&buffer[..got.len]) {
            Ok(ToMonitor::Reload) => Some(StarterCommand::Reload),
            Ok(ToMonitor::Drain) => Some(StarterCommand::Drain),
            Ok(ToMonitor::End) => Some(StarterCommand::End),
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

impl Monitor {
    pub(crate) fn starter_woken(&mut self, id: u64) {
        while let Some(said) = self.starter.hear(id) {
            match said {
                StarterCommand::Reload => {
                    let refused = self.reload().err();
                    self.starter.reloaded(refused.as_deref());
                    // Why not, the starter logs.
                    if refused.is_none() {
                        tracing::info!(
                            "the configuration was read again; listen, user, runtime_directory, audit_log, metrics and \
                             selinux count at a restart"
                        );
                    }
                    self.tools.audit.reopen();
                    self.tools.audit.tell(Event::NodeReloaded { refused });
                }
                StarterCommand::Drain => self.drain(),
                StarterCommand::End => {
                    self.drain();
                    for number in self.connections.numbers(|_| true) {
                        self.end(number, "the node ends");
                    }
                    self.done = true;
                }
            }
        }
    }

    /// Reads the configuration again. Whatever is wrong with it, the old one stays whole.
    fn reload(&mut self) -> Result<(), String> {
        let Some(path) = self.config_path.clone() else {
            return Err("this node was started without a file".to_owned());
        };
        let mut config = Config::load(Path::new(&path)).map_err(|e| e.to_string())?;
        config.settle(self.tools.user_mode);
        let pam = config.uses_pam(self.tools.user_mode);
        labels::check(&config)?;
        let joined = joined(&config)?;
        // One that drains has closed its sockets, and takes nobody in whatever it has.
        is_reachable(self.listeners.has_port() || self.draining, joined.is_some())?;
        // It joins now.
        if joined.is_some() && self.node_lock.is_none() && !self.draining {
            self.node_lock = NodeLock::begin(&config.state_directory, Duration::ZERO)?;
        }
        let trust = Trust::new(&config, pam, joined.is_some())?;
        let offer = offer(&config, self.tools.user_mode)?;
        if let Err(why) = can_record(&config) {
            tracing::error!("{why}");
        }
        self.trust = trust.into();
        self.tools.pam = pam;
        self.tools.strangers.set(&config.strangers);
        self.tools.config = config.into();
        self.cluster_reloaded(joined);
        self.offer_this(offer);
        // The host's keys may be others.
        self.plan_renewal(false);
        if self.housekeeping.runs() {
            self.housekeeping.run(&mut self.tools, &self.offer);
        }
        self.tell_facts();
        Ok(())
    }

    /// Offers this to connections that come from now on.
    pub(crate) fn offer_this(&mut self, offer: Arc<Offer>) {
        self.offer = offer;
        let settings = self.offer.settings.clone();
        self.tell_lobby(&ToLobby::Begin { settings });
        for front in self.fronts.ids() {
            let settings = self.offer.settings.clone();
            self.workers
                .say(front, &ToFront::Begin { settings }, Vec::new(), &self.tools.wakes);
        }
    }

    /// Clients that keep a connection for sessions to come are told to make another one.
    fn tell_fronts_of_drain(&mut self) {
        for connection in self.connections.numbers(|c| c.front().is_some()) {
            if let Some(front) = self.connections.get(connection).and_then(|c| c.front()) {
                let word = ToFront::Draining { connection };
                self.workers.say(front, &word, Vec::new(), &self.tools.wakes);
            }
        }
    }

    /// Accepts no more; what is there goes on to its end.
    fn drain(&mut self) {
        if !self.draining {
            self.draining = true;
            self.listeners.close(&self.tools.wakes);
            // The next monitor wants its port and its lock, and starts once the starter has heard that we drain.
            self.page = None;
            self.node_lock = None;
            self.tell_lobby(&ToLobby::Drain);
            self.tell_fronts_of_drain();
            self.drain_tunnel();
            // The next monitor is sent what the cluster says, keeps it, and delivers what both write to the log.
            self.tools.audit.ship(None);
            self.tools.state_writer = None;
            self.follow_next();
            self.starter.draining();
            tracing::info!(connections = self.connections.len(), "accepting no more");
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
        assert_eq!(starter.hear(CONTROL), Some(StarterCommand::Reload));
        assert_eq!(starter.hear(CONTROL), Some(StarterCommand::End));
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
        assert_eq!(starter.hear(CONTROL), Some(StarterCommand::Drain));
        assert_eq!(starter.hear(CONTROL), None);
    }
}
