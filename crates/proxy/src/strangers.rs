//! Connections of people who have not shown who they are: how many there may be, whose place goes to somebody else, what a
//! source pays for its offences, and which of them have an audit line of their own. The rules are
//! `fleetgate_policy::strangers`', as on nodes; this file holds the places. It looks at no byte of a connection.

use crate::audit::{Audit, time};
use crate::refusals::{NO_PLACE, Refusals};
use fleetgate_policy::address::Network;
use fleetgate_policy::strangers::{
    Admission, Bounds, Full, Lines, Offence, Penalties, Settings, WINDOW, WaitingConnections,
};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Notify;

/// Why a stranger's connection ends that did nothing.
pub(crate) const GAVE_WAY: &str = "its place went to another source";

/// All of them.
pub(crate) struct Strangers {
    inner: Arc<Mutex<Inner>>,
    settings: Settings,
    bounds: Bounds,
    start: Instant,
    /// There is something to sum.
    sums: Notify,
    refusals: Refusals,
}

struct Inner {
    waiting: WaitingConnections<(u64, Network)>,
    given_up: HashMap<u64, Arc<Notify>>,
    last: u64,
    penalties: Penalties,
    lines: Lines<SystemTime>,
}

/// One stranger's place, until it is dropped.
pub(crate) struct StrangerSlot {
    number: u64,
    source: Network,
    given_up: Arc<Notify>,
    inner: Arc<Mutex<Inner>>,
}

impl Strangers {
    /// So many, by these rules.
    pub(crate) fn new(settings: Settings, bounds: Bounds) -> Strangers {
        Strangers {
            inner: Arc::new(Mutex::new(Inner {
                waiting: WaitingConnections::default(),
                given_up: HashMap::new(),
                last: 0,
                penalties: Penalties::new(settings.clone()),
                lines: Lines::new(settings.lines),
            })),
            settings,
            bounds,
            start: Instant::now(),
            sums: Notify::new(),
            refusals: Refusals::default(),
        }
    }

    /// What was refused, counted.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// What this address counts as.
    pub(crate) fn source(&self, address: IpAddr) -> Network {
        self.settings.source(address)
    }

    /// A place for somebody from this address; why there is none.
    pub(crate) fn enter(&self, address: IpAddr) -> Result<StrangerSlot, String> {
        self.place(address).inspect_err(|_| self.refusals.count(NO_PLACE))
    }

    fn place(&self, address: IpAddr) -> Result<StrangerSlot, String> {
        let now = self.now();
        let mut inner = self.lock();
        if let Some(left) = inner.penalties.refuses_connection(address, now) {
            return Err(format!(
                "its address has penalties for {} s more",
                left.as_secs() + 1
            ));
        }
        let source = self.settings.source(address);
        let is_known = |source: &Network| inner.penalties.is_known(source, now);
        match inner.waiting.admit(&source, self.bounds, is_known, random) {
            Admission::Free => {}
            Admission::InPlaceOf((other, of)) => {
                inner.waiting.remove(&of, (other, of));
                // Whoever has it hears that it is gone.
                if let Some(given_up) = inner.given_up.remove(&other) {
                    given_up.notify_one();
                }
            }
            Admission::Refused(Full::Source) => {
                return Err(
                    "its address has as many strangers as it may (unauthenticated_per_source)".to_owned(),
                );
            }
            Admission::Refused(Full::Share) => {
                return Err(
                    "its address has more than its share of the strangers (unauthenticated)".to_owned(),
                );
            }
            Admission::Refused(Full::All) => {
                return Err("there are as many strangers as may be (unauthenticated)".to_owned());
            }
        }
        inner.last += 1;
        let number = inner.last;
        let given_up = Arc::new(Notify::new());
        inner.waiting.add(source, (number, source));
        inner.given_up.insert(number, given_up.clone());
        Ok(StrangerSlot {
            number,
            source,
            given_up,
            inner: self.inner.clone(),
        })
    }

    /// Somebody there did wrong.
    pub(crate) fn offend(&self, address: IpAddr, offence: Offence) {
        let now = self.now();
        self.lock().penalties.offend(address, offence, now);
    }

    /// Somebody there has shown who he is.
    pub(crate) fn proven(&self, address: IpAddr) {
        let now = self.now();
        self.lock().penalties.logged_in(address, b"", false, now);
    }

    /// Whether this has an audit line of its own; if not it is summed. `is_user`: the cluster knows who it is.
    pub(crate) fn has_line(&self, address: IpAddr, what: &'static str, is_user: bool) -> bool {
        let (now, source) = (self.now(), self.settings.source(address));
        self.refusals.count(what);
        let mut inner = self.lock();
        let is_first = inner.lines.ends().is_none();
        let has_line = inner
            .lines
            .has_line(source, what, is_user, SystemTime::now(), now);
        if is_first {
            self.sums.notify_one();
        }
        has_line
    }

    /// Waits until there is something to sum, and a window longer.
    pub(crate) async fn summed(&self) {
        self.sums.notified().await;
        tokio::time::sleep(WINDOW).await;
    }

    /// Writes the sums down.
    pub(crate) fn tell(&self, audit: &Audit) {
        let sums = self.lock().lines.take();
        for sum in sums {
            let source = sum.source.map(|source| source.short());
            tracing::info!(
                source,
                count = sum.count,
                "more of the same from strangers: {}",
                sum.what
            );
            let fields = json!({
                "of": sum.what,
                "source": source,
                "count": sum.count,
                "first": time(sum.first),
                "last": time(sum.last),
            });
            audit.tell("strangers", &[&fields]);
        }
    }
}

impl StrangerSlot {
    /// Comes when somebody else has this place.
    pub(crate) fn given_up(&self) -> impl Future<Output = ()> + use<> {
        let given_up = self.given_up.clone();
        async move { given_up.notified().await }
    }
}

impl Drop for StrangerSlot {
    fn drop(&mut self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.given_up.remove(&self.number).is_some() {
            inner.waiting.remove(&self.source, (self.number, self.source));
        }
    }
}

/// A number that nobody can guess. Should the kernel have none, the first of those that are greedy gives way.
fn random() -> u32 {
    let mut bytes = [0; 4];
    let _ = SystemRandom::new().fill(&mut bytes);
    u32::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn places_of_strangers_go_to_those_who_have_fewer_and_come_back() {
        let strangers = Strangers::new(Settings::default(), Bounds { all: 6, of_source: 4 });
        let held: Vec<StrangerSlot> = (0..3)
            .map(|_| strangers.enter(ip("192.0.2.1")).unwrap())
            .collect();
        let others = [strangers.enter(ip("192.0.2.2")), strangers.enter(ip("192.0.2.3"))];
        let sixth = strangers.enter(ip("192.0.2.4")).unwrap();
        // Whose place goes hears it, and gives nothing back a second time.
        let third = strangers.enter(ip("192.0.2.5")).unwrap();
        let (gone, _, kept) = futures(held).await;
        assert_eq!(kept.len(), 2);
        drop(gone);
        let error = strangers.enter(ip("192.0.2.1")).err();
        assert!(
            error.is_some_and(|why| why.contains("as many strangers")),
            "it has as many as anybody"
        );
        drop((third, sixth, others, kept));
        assert!(strangers.lock().waiting.is_empty() && strangers.lock().given_up.is_empty());
    }

    /// The one whose place is gone, and the others.
    async fn futures(held: Vec<StrangerSlot>) -> (StrangerSlot, (), Vec<StrangerSlot>) {
        let mut kept = held;
        for at in 0..kept.len() {
            let gone = tokio::time::timeout(Duration::ZERO, kept[at].given_up()).await;
            if gone.is_ok() {
                return (kept.remove(at), (), kept);
            }
        }
        panic!("nobody's place is gone");
    }

    #[tokio::test]
    async fn offences_shut_a_source_out_unless_somebody_showed_who_he_is_there() {
        let strangers = Strangers::new(Settings::default(), Bounds { all: 6, of_source: 4 });
        for source in ["192.0.2.1", "192.0.2.2"] {
            strangers.proven(ip("192.0.2.2"));
            for _ in 0..2 {
                strangers.offend(ip(source), Offence::TooLate);
            }
        }
        assert!(
            strangers
                .enter(ip("192.0.2.1"))
                .err()
                .is_some_and(|why| why.contains("penalties"))
        );
        assert!(strangers.enter(ip("192.0.2.2")).is_ok());
        assert!(strangers.enter(ip("192.0.2.3")).is_ok());
    }
}
