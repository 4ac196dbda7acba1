//! Whether registered plain sshds are reached from this proxy: the last look at each, and which of them auth has not heard
//! of. `probes` looks; a login's dial counts as a look.

use fleetgate_policy::cluster::Name;
use fleetgate_proto::v1::ReachReport;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The time from one look at a sshd to the next.
const EVERY: Duration = Duration::from_secs(300);
/// The last result for each plain sshd of the inventory.
#[derive(Default)]
pub(crate) struct Reachable(Mutex<BTreeMap<Name, Look>>);

struct Look {
    reached: bool,
    at: Instant,
    is_reported: bool,
}

impl Reachable {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Look>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sshd of the inventory was reached, or was not. A login's dial counts as a look.
    pub(crate) fn note(&self, node: &Name, reached: bool) {
        let look = Look {
            reached,
            at: Instant::now(),
            is_reported: false,
        };
        self.lock().insert(node.clone(), look);
    }

    /// Whether it is time to look again.
    pub(crate) fn is_due(&self, node: &Name) -> bool {
        self.lock()
            .get(node)
            .is_none_or(|look| look.at.elapsed() >= EVERY)
    }

    /// Forgets all others.
    pub(crate) fn keep(&self, is_known: impl Fn(&Name) -> bool) {
        self.lock().retain(|name, _| is_known(name));
    }

    /// Auth forgot: everything is reported again.
    pub(crate) fn report_again(&self) {
        self.lock().values_mut().for_each(|look| look.is_reported = false);
    }

    /// What is to be reported; each once.
    pub(crate) fn take_unreported(&self) -> Vec<ReachReport> {
        let mut looks = self.lock();
        let fresh = looks.iter_mut().filter(|(_, look)| !look.is_reported);
        fresh
            .map(|(name, look)| {
                look.is_reported = true;
                ReachReport {
                    name: name.to_string(),
                    reached: look.reached,
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_look_is_reported_once_and_due_again_later() {
        tokio::time::pause();
        let all = Reachable::default();
        let name = Name::parse("db1").expect("a name");
        let report = |reached| ReachReport {
            name: "db1".into(),
            reached,
        };
        assert!(all.is_due(&name));
        all.note(&name, true);
        assert!(!all.is_due(&name));
        assert_eq!(all.take_unreported(), [report(true)]);
        assert_eq!(all.take_unreported(), [], "once");
        all.report_again();
        assert_eq!(all.take_unreported(), [report(true)], "auth forgot");
        all.note(&name, false);
        assert_eq!(all.take_unreported(), [report(false)]);
        tokio::time::advance(EVERY).await;
        assert!(all.is_due(&name));
        all.keep(|_| false);
        assert!(all.lock().is_empty(), "it is registered no more");
    }
}
