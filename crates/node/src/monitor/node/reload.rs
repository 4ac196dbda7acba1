//! What the starter says: read the configuration again, accept no more, end. Without a starter, the same by signals.

use super::Node;
use crate::config::Config;
use crate::monitor::audit::Event;
use crate::monitor::label_commands;
use crate::monitor::offer::Offer;
use crate::monitor::running::Running;
use crate::monitor::settings::{is_reachable, joined, offer};
use crate::monitor::starter::Said;
use crate::monitor::trust::Trust;
use crate::monitor::uses_pam;
use fleetgate_wire::node::front::ToFront;
use fleetgate_wire::node::lobby::ToLobby;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

impl Node {
    pub(super) fn starter_woken(&mut self, id: u64) {
        while let Some(said) = self.starter.hear(id) {
            match said {
                Said::Reload => {
                    let refused = self.reload().err();
                    self.starter.reloaded(refused.as_deref());
                    match &refused {
                        None => tracing::info!("the configuration was read again"),
                        Some(why) => tracing::error!("the old configuration stays: {why}"),
                    }
                    self.tools.audit.reopen();
                    self.tools.audit.tell(Event::NodeReloaded { refused });
                }
                Said::Drain => self.drain(),
                Said::End => {
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
        crate::monitor::settle(&mut config, self.tools.user_mode);
        let pam = uses_pam(&config, self.tools.user_mode);
        label_commands::check(&config)?;
        let joined = joined(&config)?;
        // One that drains has closed its sockets, and takes nobody in whatever it has.
        is_reachable(self.arrivals.has_port() || self.draining, joined.is_some())?;
        // It joins now.
        if joined.is_some() && self.running.is_none() && !self.draining {
            self.running = Running::begin(&config.state_directory, Duration::ZERO)?;
        }
        let trust = Trust::new(&config, pam, joined.is_some())?;
        let offer = offer(&config, self.tools.user_mode)?;
        self.trust = trust.into();
        self.tools.pam = pam;
        self.tools.strangers.set(&config.strangers);
        self.tools.config = config.into();
        self.cluster_reloaded(joined);
        self.offer_this(offer);
        self.tell_facts();
        Ok(())
    }

    /// Offers this to connections that come from now on.
    pub(super) fn offer_this(&mut self, offer: Arc<Offer>) {
        self.offer = offer;
        let settings = self.offer.settings.clone();
        self.tell_lobby(&ToLobby::Begin { settings });
        for front in self.fronts.ids() {
            let settings = self.offer.settings.clone();
            self.seats
                .say(front, &ToFront::Begin { settings }, Vec::new(), &self.tools.wakes);
        }
    }

    /// Accepts no more; what is there goes on to its end.
    fn drain(&mut self) {
        if !self.draining {
            self.draining = true;
            self.arrivals.close(&self.tools.wakes);
            // The next monitor wants its port and its lock, and starts once the starter has heard that we drain.
            self.page = None;
            self.running = None;
            self.tell_lobby(&ToLobby::Drain);
            self.drain_tunnel();
            self.starter.draining();
            tracing::info!(connections = self.connections.len(), "accepting no more");
        }
    }
}
