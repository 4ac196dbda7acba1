//! The cluster's state, as it comes by the tunnel, and the tunnel's settings that follow from it: proxies to dial, whom to
//! believe, and what the node says of itself.

use super::{proxies, signed_statement};
use crate::config::cluster::{SignedState, removed_words};
use crate::monitor::Monitor;
use crate::monitor::timers::{now, unix_seconds};
use fleetgate_policy::cluster::{Locks, Target};
use fleetgate_sys::clock;
use fleetgate_wire::node::Blob;
use fleetgate_wire::node::tunnel::{
    Credentials, Label, LockedProxy, MAX_LOCKED, NodeDescription, Settings, ToTunnel,
};
use std::ffi::CString;
use std::time::Duration;

/// How long a node that was removed waits before it asks a proxy again whether it still is.
const REMOVED: Duration = Duration::from_secs(60);
/// What a sign of freshness costs of the budget for documents.
pub(super) const FRESH_COSTS: u64 = 4096;

impl Monitor {
    /// A document of the cluster's state. An error: too many of them.
    pub(super) fn state_came(&mut self, document: &[u8], signature: &[u8]) -> Result<(), &'static str> {
        let (Some(tunnel), Some(cluster)) = (&mut self.tunnel, &mut self.tools.cluster) else {
            return Ok(());
        };
        let known = cluster.signed();
        if known.document == document && known.signature == signature {
            // Another proxy's copy.
            self.leave_if_removed();
            return Ok(());
        }
        if !tunnel.documents.spend(document.len() as u64 + FRESH_COSTS, now()) {
            return Err("documents without end");
        }
        let before = cluster.state().serial;
        self.cluster_state(SignedState {
            document: document.to_vec(),
            signature: signature.to_vec(),
        });
        if self.leave_if_removed() {
            return Ok(());
        }
        if self
            .tools
            .cluster
            .as_ref()
            .is_some_and(|c| c.state().serial != before)
        {
            self.follow_state();
        }
        Ok(())
    }

    /// A node that was removed is closed by every proxy behind the state that says so. It says so once, and asks again
    /// once a minute: who removed it may have taken that back.
    fn leave_if_removed(&mut self) -> bool {
        let Some((tunnel, cluster)) = self.tunnel.as_mut().zip(self.tools.cluster.as_ref()) else {
            return false;
        };
        let is_removed = cluster.is_removed(unix_seconds());
        if is_removed && !tunnel.removed {
            tracing::error!(
                "{}",
                removed_words(cluster.node().as_str(), cluster.state().cluster.as_str())
            );
        }
        tunnel.removed = is_removed;
        if is_removed {
            self.drain_tunnel();
            self.tunnel_again(REMOVED);
        }
        is_removed
    }

    /// Dials whom the state names, believes whom it believes, and says that it is known.
    fn follow_state(&mut self) {
        let Some(settings) = self.settings() else { return };
        let Some((tunnel, cluster)) = self.tunnel.as_mut().zip(self.tools.cluster.as_ref()) else {
            return;
        };
        let named = proxies(&cluster.state().proxies);
        if !named.is_empty() && named != tunnel.proxies {
            tunnel.proxies.clone_from(&named);
            // Ports that its sandbox does not know: another worker takes over, and this one ends with its sessions.
            if named.iter().any(|proxy| !tunnel.ports.contains(&proxy.port)) {
                self.drain_tunnel();
                return self.start_tunnel();
            }
            self.tell_tunnel(&ToTunnel::Proxies { proxies: named });
        }
        self.tell_tunnel(&ToTunnel::Credentials {
            credentials: settings.credentials,
        });
        self.tell_tunnel(&ToTunnel::Facts {
            facts: settings.facts,
        });
        self.renew_statements();
        // It may say that the authority of our certificates signs no more.
        self.plan_renewal(false);
    }

    /// The labels changed.
    pub(crate) fn tell_facts(&mut self) {
        if let Some(settings) = self.settings() {
            self.tell_tunnel(&ToTunnel::Facts {
                facts: settings.facts,
            });
            self.renew_statements();
        }
    }

    /// What the node says of itself changed: it is signed anew for each proxy.
    pub(super) fn renew_statements(&mut self) {
        if let Some(stated) = self.tunnel.as_ref().map(|tunnel| tunnel.stated.clone()) {
            self.make_statements(&stated);
        }
    }

    /// Signs what the node says of itself, for each of these proxies.
    pub(super) fn make_statements(&mut self, proxies: &[CString]) {
        let Some(facts) = self.settings().map(|settings| settings.facts) else {
            return;
        };
        let Some((tunnel, cluster)) = self.tunnel.as_mut().zip(self.tools.cluster.as_ref()) else {
            return;
        };
        let clock = clock::wall();
        let millis = unix_seconds() * 1000 + u64::from(clock.nsec / 1_000_000);
        let times = (cluster.state().as_of, millis);
        let mut messages = Vec::new();
        for proxy in proxies {
            if !tunnel.statements.spend(1, now()) {
                break;
            }
            let name = proxy.to_string_lossy();
            let message = signed_statement(&tunnel.key, &tunnel.joined.node, &name, &facts, times);
            let proxy = proxy.clone();
            messages.push(ToTunnel::Statement { proxy, message });
        }
        for message in &messages {
            self.tell_tunnel(message);
        }
    }

    /// As a tunnel is told them.
    pub(super) fn settings(&self) -> Option<Settings> {
        let (tunnel, cluster) = (self.tunnel.as_ref()?, self.tools.cluster.as_ref()?);
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let blobs = |all: &[Vec<u8>]| -> Vec<Blob> {
            all.iter().map(|bytes| Blob { bytes: bytes.clone() }).collect()
        };
        Some(Settings {
            cluster: text(&tunnel.joined.cluster),
            node: text(&tunnel.joined.node),
            proxies: tunnel.proxies.clone(),
            credentials: Credentials {
                chain: blobs(&tunnel.joined.tls_chain),
                authorities: blobs(&cluster.state().trust.tls_ca),
                locked: locked_proxies(&cluster.state().locks),
            },
            facts: NodeDescription {
                labels: cluster
                    .labels()
                    .iter()
                    .map(|(name, value)| Label {
                        name: text(name),
                        value: text(value),
                    })
                    .collect(),
                version: text(env!("CARGO_PKG_VERSION")),
                address: text(""),
                serial: cluster.state().serial,
            },
        })
    }
}

/// The state's locks on proxies, as the tunnel is told them.
fn locked_proxies(locks: &Locks) -> Vec<LockedProxy> {
    let on_proxies = locks.iter().filter_map(|lock| match &lock.target {
        Target::Proxy(name) => Some((lock.created, name, lock)),
        _ => None,
    });
    let mut newest_first: Vec<_> = on_proxies.collect();
    newest_first.sort_by_key(|(created, ..)| std::cmp::Reverse(*created));
    let told = newest_first.into_iter().take(MAX_LOCKED);
    told.map(|(_, name, lock)| LockedProxy {
        name: CString::new(name.as_str()).unwrap_or_default(),
        serial_before: lock.serial_before.unwrap_or(u64::MAX),
        expires: lock.expires.unwrap_or(u64::MAX),
    })
    .collect()
}
