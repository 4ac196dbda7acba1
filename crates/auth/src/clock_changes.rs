//! What the service does when the machine's clock was set: it publishes a newer state, and says so in the audit log.

use crate::audit::{Event, event};
use crate::clock_watch::{Look, NOTED};
use crate::error::Result;
use crate::ledger::Plan;
use crate::service::Service;
use crate::validity::SKEW;

impl Service {
    /// Whether what cannot be undone may be done by the clock: it was not set lately.
    pub(crate) fn is_clock_steady(&self) -> bool {
        self.clock_watch.is_steady(self.ledger.uptime())
    }

    /// Looks at the clock.
    pub(crate) async fn turn_clock(&self) -> Result<()> {
        let millis = self.ledger.millis();
        let event = match self.clock_watch.look(millis, self.ledger.uptime()) {
            Look::Same => return Ok(()),
            // Nodes may have signs of freshness of a later time than this: they keep the latest of one state.
            Look::First if self.latest_known() <= self.now().saturating_add(SKEW) => return Ok(()),
            Look::First => None,
            Look::Set(by) => {
                tracing::warn!(
                    "the machine's clock was set by {by} s: nothing expires for good within the next hour"
                );
                Some(Event::new(event::CLOCK_SET, millis).with("seconds", by))
            }
        };
        self.change(|cache| {
            let plan = Plan::new(()).publish(cache, millis);
            Ok(match &event {
                Some(event) => plan.event(event.clone()),
                None => plan,
            })
        })
        .await
    }

    /// Before a certificate is made at this time: lets the state's serial follow the clock, from which it is never far behind
    /// then. So a lock that is to outlive all certificates knows by the serial how late the latest of them may end, whatever
    /// the clock shows by then. It changes the state once a day at most where nothing else does.
    pub(crate) async fn note_time(&self, now: u64) -> Result<()> {
        let millis = now.saturating_mul(1000);
        if millis <= self.cache().last_serial().saturating_add(NOTED * 1000) {
            return Ok(());
        }
        self.change(|cache| Ok(Plan::new(()).publish(cache, millis)))
            .await
    }

    /// The latest time that the state holds: of its own last change, or when a node was heard.
    fn latest_known(&self) -> u64 {
        let cache = self.cache();
        let changed = cache.last_serial() / 1000;
        let heard = cache.seen.values().flat_map(|shard| shard.document.values());
        heard.copied().max().unwrap_or(0).max(changed)
    }
}
