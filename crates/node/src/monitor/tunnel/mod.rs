//! The monitor's part of the tunnel: who the node is, whom it dials, what the tunnel worker may have signed, and what waits
//! for an answer by it. The worker is believed in nothing: addresses that it names are marked as the proxy's claim, and
//! documents count by their signatures.

mod handler;
mod process;
mod rejoin;
mod renewal;
mod state;
mod statement;

pub use statement::signed_statement;

use super::audit::Batch;
use super::timers::{Timer, now};
use super::wakes::{self, Owner};
use super::workers::WorkerId;
use crate::config::Config;
use crate::config::cluster::Cluster;
use crate::identity::{self, Home, NodeIdentity};
use fleetgate_net::x509::{Certificate, Key};
use fleetgate_sys::{Errno, Fd, epoll};
use fleetgate_wire::node::tunnel::Proxy;
use fleetgate_worker::budget::{Budget, DOCUMENTS};
use std::collections::VecDeque;
use std::ffi::CString;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Signatures for TLS handshakes: of all proxies at once, and then so many a second.
pub const SIGNATURES: (u64, u64) = (512, 10);
/// Statements about the node that are signed, likewise; beyond that the next sign of freshness brings one.
pub const STATEMENTS: (u64, u64) = (512, 16);
/// The most proxies that the node makes statements to.
pub const MAX_STATED: usize = 256;
/// Words about proxies, and of theirs, that are logged, likewise.
const TOLD: (u64, u64) = (100, 1);

/// What a key of [`Owner::Tunnel`] is about: the low bits of its id. Above them is the tunnel's number.
pub mod keys {
    /// The worker is to be started again.
    pub const START: u64 = 0;
    /// Audit lines are there.
    pub const AUDIT: u64 = 1;
    /// Certificates are to be renewed.
    pub const RENEW: u64 = 2;
    /// A proxy's name was looked up.
    pub const NAME: u64 = 3;
    /// So many bits.
    pub const BITS: u32 = 2;
}

/// All of it.
pub struct Tunnel {
    /// Which of this process's tunnels it is: what was to wake an earlier one wakes nobody.
    pub number: u64,
    /// Who the node is.
    pub joined: NodeIdentity,
    /// Its TLS key.
    pub key: Key,
    /// Where what it learns is kept.
    pub home: Home,
    /// The cluster removed the node, and its log says so.
    pub removed: bool,
    /// The worker that dials.
    pub worker: Option<WorkerId>,
    /// Workers that dial no more and have sessions left.
    pub leaving: Vec<WorkerId>,
    /// Since when the worker is there.
    pub since: Duration,
    /// How long the next start waits.
    pub backoff: Duration,
    /// Whom the worker dials.
    pub proxies: Vec<Proxy>,
    /// Ports that its sandbox lets it connect to.
    pub ports: Vec<u16>,
    /// Pieces of a document.
    pub pieces: Vec<u8>,
    /// What may be signed.
    pub signatures: Budget,
    /// What may be checked.
    pub documents: Budget,
    told: Budget,
    /// Proxies that the node makes statements to.
    pub stated: Vec<CString>,
    /// What may be signed for them.
    pub statements: Budget,
    /// The name that is being looked up, for this worker; others wait.
    pub looking: Option<(CString, WorkerId)>,
    /// Those.
    pub wanted: VecDeque<(CString, WorkerId)>,
    /// Audit lines that are under way.
    pub batch: Option<Batch>,
    batches: (mpsc::Sender<Batch>, mpsc::Receiver<Batch>),
    /// Rung when there are lines.
    pub bell: Arc<Fd>,
    /// Renews certificates.
    pub renewal: Option<Timer>,
    /// When newer ones are asked for, Unix seconds.
    pub renew_at: u64,
    /// Starts the worker again.
    pub again: Option<Timer>,
}

impl Tunnel {
    /// Of a machine that joined; none: it did not.
    pub(crate) fn load(state_directory: &Path) -> Result<Option<Tunnel>, String> {
        let Some(joined) = NodeIdentity::load(state_directory).map_err(|e| e.to_string())? else {
            return Ok(None);
        };
        let again = "join again";
        let Some(key) = identity::load_tls_key(state_directory).map_err(|e| e.to_string())? else {
            return Err(format!(
                "this machine joined {}, and its TLS key is missing in {}: {again}",
                joined.cluster,
                state_directory.display()
            ));
        };
        let key = Key::from_pkcs8(&key).map_err(|e| format!("the TLS key: {e}: {again}"))?;
        let proxies = proxies(&joined.proxies);
        let bell = epoll::bell().map_err(|e: Errno| e.to_string())?;
        let tunnel = Tunnel {
            number: 0,
            joined,
            home: Home::of(state_directory, &key),
            key,
            removed: false,
            worker: None,
            leaving: Vec::new(),
            since: Duration::ZERO,
            backoff: Duration::ZERO,
            proxies,
            ports: Vec::new(),
            pieces: Vec::new(),
            signatures: Budget::new(SIGNATURES.0, SIGNATURES.1),
            documents: Budget::new(DOCUMENTS.0, DOCUMENTS.1),
            told: Budget::new(TOLD.0, TOLD.1),
            stated: Vec::new(),
            statements: Budget::new(STATEMENTS.0, STATEMENTS.1),
            looking: None,
            wanted: VecDeque::new(),
            batch: None,
            batches: mpsc::channel(),
            bell: bell.into(),
            renewal: None,
            renew_at: u64::MAX,
            again: None,
        };
        if tunnel.validity().is_none() {
            return Err(format!("the node's TLS certificate cannot be read: {again}"));
        }
        Ok(Some(tunnel))
    }

    /// Whether the other is of the same node of the same cluster. A machine that joined anew has another key, whatever the
    /// names are.
    pub fn is_of(&self, other: &Tunnel) -> bool {
        let names = |tunnel: &Tunnel| (tunnel.joined.cluster.clone(), tunnel.joined.node.clone());
        names(self) == names(other) && self.key.public().spki() == other.key.public().spki()
    }

    /// A wake-up of this tunnel's.
    pub const fn wake(&self, about: u64) -> wakes::Key {
        wakes::Key::new(Owner::Tunnel, self.number << keys::BITS | about)
    }

    /// What a wake-up is about; none: it is an earlier tunnel's.
    pub fn about(&self, id: u64) -> Option<u64> {
        (id >> keys::BITS == self.number).then_some(id & ((1 << keys::BITS) - 1))
    }

    /// Whether this process is a tunnel of ours.
    pub fn is(&self, worker: WorkerId) -> bool {
        self.worker == Some(worker) || self.leaving.contains(&worker)
    }

    /// When the TLS certificate holds.
    pub fn validity(&self) -> Option<Range<u64>> {
        let leaf = self.joined.tls_chain.first()?;
        Some(Certificate::read(leaf).ok()?.validity())
    }

    /// Where the audit log's thread puts lines; the bell is rung for each batch.
    pub fn deliver(&self) -> super::audit::Deliver {
        let (to, bell) = (self.batches.0.clone(), self.bell.clone());
        Box::new(move |batch| {
            // Nobody listens any more: the node ends, or has left the cluster.
            let _ = to.send(batch);
            epoll::ring(&bell);
        })
    }

    /// The lines that came.
    pub fn delivered(&mut self) -> Option<Batch> {
        epoll::quiet(&self.bell);
        self.batches.1.try_iter().last()
    }

    /// Whether a message about a proxy, or of one, is to be logged.
    pub fn tells(&mut self) -> bool {
        self.told.spend(1, now())
    }
}

/// What `fleetgate join` left: all of it or nothing. An error: a part of it is missing or cannot be read.
pub(crate) fn joined(config: &Config) -> Result<Option<(Tunnel, Cluster)>, String> {
    let tunnel = Tunnel::load(&config.state_directory)?;
    Ok(tunnel.zip(Cluster::load(config)?))
}

/// `host:port` each; what is none is passed over: the state was checked by whoever signed it.
pub fn proxies(texts: &[String]) -> Vec<Proxy> {
    texts.iter().filter_map(|text| proxy(text)).collect()
}

fn proxy(text: &str) -> Option<Proxy> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .unwrap_or(host);
    let bounded = 1..=fleetgate_wire::node::tunnel::MAX_HOST;
    Some(Proxy {
        host: CString::new(host)
            .ok()
            .filter(|h| bounded.contains(&h.as_bytes().len()))?,
        port: port.parse().ok().filter(|port| *port != 0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_host_and_a_port() {
        for (text, host, port) in [
            ("proxy.example:443", "proxy.example", 443),
            ("192.0.2.1:1", "192.0.2.1", 1),
            ("[2001:db8::1]:3023", "2001:db8::1", 3023),
        ] {
            let found = proxy(text).expect(text);
            assert_eq!((found.host.to_str(), found.port), (Ok(host), port));
        }
        for bad in ["", ":443", "p", "p:", "p:0", "p:65536", "p:x", "p\0:1"] {
            assert_eq!(proxy(bad), None, "{bad:?}");
        }
        assert_eq!(proxy(&format!("{}:1", "x".repeat(254))), None);
    }
}
