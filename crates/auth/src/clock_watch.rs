//! Notices that the machine's clock was set. Then proxies and nodes get a newer state, by whose time they sign, and nothing that
//! cannot be undone happens by time for an hour, in which the clock can be put right. It judges no certificate.

use crate::audit::{Event, event};
use crate::authorities::SKEW;
use crate::book::Book;
use crate::error::Result;
use crate::ledger::Plan;
use crate::service::Service;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long the clock has to stand after it was set, in seconds, before authorities, locks, invites and tokens are removed
/// because their time is over.
pub const STEADY: u64 = 3600;

/// How far the state's serial may be behind the clock when a certificate is made, in seconds.
const NOTED: u64 = 86_400;

/// When the last of the certificates has ended that were made up to now by whatever clock, and live for `lifetime`.
pub fn all_ended(book: &Book, now: u64, lifetime: u64) -> u64 {
    let latest = now.max(book.last_serial() / 1000 + NOTED);
    // Nodes let a certificate in for a moment after its end.
    latest.saturating_add(lifetime).saturating_add(SKEW)
}

/// What was seen of the clock.
#[derive(Debug, Default)]
pub struct ClockWatch(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// The calendar's time less the time since boot, in milliseconds, at the last look.
    offset: Option<i64>,
    /// Until when, in milliseconds since boot, the clock is not believed.
    unsteady_until: u64,
}

/// What a look at the clock found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    First,
    Same,
    /// It was set, by so many seconds.
    Set(i64),
}

impl ClockWatch {
    fn look(&self, millis: u64, uptime: u64) -> Look {
        let offset = millis as i64 - uptime as i64;
        let mut seen = self.lock();
        let Some(before) = seen.offset.replace(offset) else {
            return Look::First;
        };
        let by = (offset - before) / 1000;
        if by.unsigned_abs() <= SKEW {
            return Look::Same;
        }
        seen.unsteady_until = uptime + STEADY * 1000;
        Look::Set(by)
    }

    /// Whether what cannot be undone may be done by the clock.
    fn is_steady(&self, uptime: u64) -> bool {
        uptime >= self.lock().unsteady_until
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
        self.change(|book| {
            let plan = Plan::new(()).publish(book, millis);
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
        if millis <= self.book().last_serial().saturating_add(NOTED * 1000) {
            return Ok(());
        }
        self.change(|book| Ok(Plan::new(()).publish(book, millis))).await
    }

    /// The latest time that the state holds: of its own last change, or when a node was heard.
    fn latest_known(&self) -> u64 {
        let book = self.book();
        let changed = book.last_serial() / 1000;
        let heard = book.seen.values().flat_map(|shard| shard.document.values());
        heard.copied().max().unwrap_or(0).max(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_is_noticed_and_one_that_is_slewed_is_not() {
        let watch = ClockWatch::default();
        let table = [
            (1_000_000, 0, Look::First, true),
            (1_001_000, 1_000, Look::Same, true),
            (1_032_000, 2_000, Look::Same, true),
            (22_632_000, 2_000, Look::Set(21_600), false),
            (22_633_000, 3_000, Look::Same, false),
            (1_034_000, 4_000, Look::Set(-21_600), false),
            (4_633_000, 3_603_000, Look::Same, false),
            (4_634_000, 3_604_000, Look::Same, true),
        ];
        for (millis, uptime, look, is_steady) in table {
            assert_eq!(watch.look(millis, uptime), look, "{uptime}");
            assert_eq!(watch.is_steady(uptime), is_steady, "{uptime}");
        }
    }
}
