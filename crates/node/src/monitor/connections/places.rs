//! Connections that came by a proxy and are not logged in, by the proxy's name. A proxy that has fewer takes the place of one
//! that has more, so one that fills them with sources that it makes up takes from itself alone. The tunnel tells the names, so
//! all of them together have one bound.

use crate::monitor::strangers::random;
use fleetgate_policy::address::Network;
use fleetgate_policy::strangers::{Admission, Bounds, Full, WaitingConnections};
use fleetgate_wire::node::ConnectionNumber;
use std::collections::HashMap;

/// All of them.
#[derive(Debug, Default)]
pub struct ProxyPlaces {
    of: HashMap<String, WaitingConnections<ConnectionNumber>>,
}

impl ProxyPlaces {
    /// What becomes of a newcomer by `proxy` from `source`. `is_known`: whether somebody logged in from there lately.
    pub fn admit(
        &self,
        proxy: &str,
        source: &Network,
        bounds: Bounds,
        is_known: impl Fn(&Network) -> bool,
    ) -> Admission<ConnectionNumber> {
        let nothing = WaitingConnections::default();
        let own = self.of.get(proxy).unwrap_or(&nothing);
        let in_sum: usize = self.of.values().map(WaitingConnections::len).sum();
        if in_sum < bounds.all {
            return own.admit(source, bounds, is_known, random);
        }
        if own.has(source) >= bounds.of_source {
            return Admission::Refused(Full::Source);
        }
        let greediest = self.of.values().max_by_key(|waiting| waiting.len());
        if let Some(other) = greediest.filter(|other| other.len() > own.len())
            && let Some((_, gives_way)) = other.greediest(&is_known, random)
        {
            return Admission::InPlaceOf(gives_way);
        }
        // What it has is all that it may have.
        let bounds = Bounds {
            all: own.len(),
            ..bounds
        };
        own.admit(source, bounds, is_known, random)
    }

    /// One more waits.
    pub fn add(&mut self, proxy: &str, source: Network, one: ConnectionNumber) {
        self.of.entry(proxy.to_owned()).or_default().add(source, one);
    }

    /// It does not wait any more.
    pub fn remove(&mut self, proxy: &str, source: &Network, one: ConnectionNumber) {
        if let Some(waiting) = self.of.get_mut(proxy) {
            waiting.remove(source, one);
            if waiting.is_empty() {
                self.of.remove(proxy);
            }
        }
    }

    /// Whether there is none.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}
