//! What the audit log says of requests that were refused: a line for the first few of a source in each minute, a sum of the
//! rest, by the rules of `fleetgate_policy::strangers`, as nodes and proxies do. So a stranger cannot push history out of the
//! log. It refuses nobody.
//!
//! A caller counts as known only by what he has proven. By the name that he typed, the time that a line takes would tell
//! whether there is such a user.

use fleetgate_policy::strangers::{Lines, Settings, Sum};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Refusals of this minute.
pub struct Refusals {
    settings: Settings,
    minute: Mutex<Minute>,
}

struct Minute {
    lines: Lines<u64>,
    /// Sums of a minute that is over, until the audit log has them.
    unwritten: VecDeque<Sum<u64>>,
}

impl Default for Refusals {
    fn default() -> Refusals {
        let settings = Settings::default();
        Refusals {
            minute: Mutex::new(Minute {
                lines: Lines::new(settings.lines),
                unwritten: VecDeque::new(),
            }),
            settings,
        }
    }
}

impl Refusals {
    /// Whether this refusal has a line of its own. If not, it was added to a sum. `millis` is the calendar's time.
    pub(crate) fn has_line(
        &self,
        source: IpAddr,
        what: &'static str,
        is_known: bool,
        millis: u64,
        uptime: u64,
    ) -> bool {
        let source = self.settings.source(source);
        let now = Duration::from_millis(uptime);
        self.lock().lines.has_line(source, what, is_known, millis, now)
    }

    /// The sums to be written now: those of minutes that are over, or all. While some could not be written, the minute goes
    /// on, so that there are never more than those of one.
    pub(crate) fn take(&self, uptime: u64, all: bool) -> VecDeque<Sum<u64>> {
        let now = Duration::from_millis(uptime);
        let mut minute = self.lock();
        let mut sums = std::mem::take(&mut minute.unwritten);
        if all {
            sums.extend(minute.lines.take());
        } else if sums.is_empty() {
            sums.extend(minute.lines.take_due(now));
        }
        sums
    }

    pub(crate) fn put_back(&self, sums: VecDeque<Sum<u64>>) {
        self.lock().unwritten.extend(sums);
    }

    fn lock(&self) -> MutexGuard<'_, Minute> {
        self.minute.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_policy::strangers::MAX_SUMMED;

    fn address(n: u32) -> IpAddr {
        IpAddr::from(std::net::Ipv4Addr::from(0xcb00_7100 + n))
    }

    #[test]
    fn known_callers_have_lines_although_strangers_have_none_left() {
        let refusals = Refusals::default();
        let lines = |is_known: bool, n: u32| {
            (0..2000)
                .filter(|_| refusals.has_line(address(n), "login_refused", is_known, 0, 0))
                .count()
        };
        assert_eq!((lines(false, 1), lines(true, 1)), (10, 100));
        let all: usize = (2..200).map(|n| lines(false, n)).sum();
        assert_eq!(all, 90, "those of one source and those of all others");
        assert_eq!(lines(true, 2), 100);
        assert!(refusals.take(59_999, false).is_empty(), "the minute is not over");
        let sums = refusals.take(60_000, false);
        assert_eq!(sums.len(), MAX_SUMMED + 1 + 2);
        let count: u64 = sums.iter().map(|sum| sum.count).sum();
        assert_eq!(count, 2000 * 199 - 100 + 2 * 1900);
    }

    #[test]
    fn sums_that_were_not_written_wait_and_do_not_grow_in_number() {
        let refusals = Refusals::default();
        for minute in 0..100 {
            for n in 0..1000 {
                refusals.has_line(address(n % 100), "join_refused", false, 0, minute * 60_000);
            }
            let sums = refusals.take((minute + 1) * 60_000, false);
            assert!((1..=MAX_SUMMED + 1).contains(&sums.len()));
            refusals.put_back(sums);
        }
        let before = refusals.take(100 * 60_000, false);
        let rest = refusals.take(100 * 60_000, false);
        let count = |sums: &VecDeque<Sum<u64>>| sums.iter().map(|sum| sum.count).sum::<u64>();
        assert_eq!(
            count(&before) + count(&rest),
            100_000 - 200,
            "lines of two minutes"
        );
    }
}
