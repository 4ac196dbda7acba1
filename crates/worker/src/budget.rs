//! How much a tunnel may have done for it, and a proxy by way of the tunnel: so much at once, and so much a second. It has no
//! clock.

use fleetgate_policy::cluster::MAX_STATE;
use std::time::Duration;

/// Bytes of documents whose signatures the monitor checks: so many at once, and then so many a second. A tunnel that wants more
/// is ended.
pub const DOCUMENTS: (u64, u64) = (4 * MAX_STATE as u64, 1 << 20);
/// What the tunnel passes on of one proxy, whose next messages wait otherwise: of DOCUMENTS two proxies that lie leave enough for
/// an honest one. Each takes a state of any length at once.
pub const SHARE: (u64, u64) = (DOCUMENTS.0 / 3, DOCUMENTS.1 / 4);
/// What a message costs of a proxy's share beside its length. One that the monitor signs or writes something for: four a second,
/// which leaves others what the monitor signs (STATEMENTS).
pub const WORD: u64 = 64 << 10;
/// Likewise, one that it only reads.
pub const SMALL_WORD: u64 = 256;

/// What is left.
#[derive(Clone, Debug)]
pub struct Budget {
    most: u64,
    per_second: u64,
    left: u64,
    since: Duration,
}

impl Budget {
    /// Full.
    pub const fn new(most: u64, per_second: u64) -> Budget {
        Budget {
            most,
            per_second,
            left: most,
            since: Duration::ZERO,
        }
    }

    /// For how long `cost` cannot be spent yet; zero: it is spent. More than there ever is waits for ever.
    pub fn wait(&mut self, cost: u64, now: Duration) -> Duration {
        if self.spend(cost, now) {
            return Duration::ZERO;
        }
        let missing = cost.saturating_sub(self.left);
        let millis = missing.saturating_mul(1000) / self.per_second.max(1);
        Duration::from_millis(millis.max(1))
    }

    /// Spends `cost`, if there is so much.
    pub fn spend(&mut self, cost: u64, now: Duration) -> bool {
        let passed = now.saturating_sub(self.since).as_millis();
        let earned = u64::try_from(passed * u128::from(self.per_second) / 1000).unwrap_or(u64::MAX);
        if earned > 0 {
            self.left = self.left.saturating_add(earned).min(self.most);
            self.since = now;
        }
        match self.left.checked_sub(cost) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_waited_for_is_there_then() {
        let mut budget = Budget::new(10, 2);
        let mut now = Duration::from_secs(1);
        assert_eq!(budget.wait(10, now), Duration::ZERO);
        for cost in [1, 3, 10] {
            let wait = budget.wait(cost, now);
            assert_eq!(wait, Duration::from_millis(cost * 500));
            now += wait;
            assert_eq!(budget.wait(cost, now), Duration::ZERO, "{cost}");
        }
    }

    #[test]
    fn proxies_that_lie_leave_enough_for_others() {
        let state = MAX_STATE as u64 + WORD;
        assert!(2 * SHARE.0 + state <= DOCUMENTS.0 && 3 * SHARE.1 < DOCUMENTS.1);
        assert!(state <= SHARE.0, "the longest state is passed on");
    }

    #[test]
    fn so_much_at_once_and_so_much_a_second() {
        let mut budget = Budget::new(10, 2);
        let at = Duration::from_millis;
        // (when, cost, whether)
        for (when, cost, granted) in [
            (0, 10, true),
            (0, 1, false),
            (499, 1, false),
            (500, 1, true),
            (500, 1, false),
            (1500, 2, true),
            (60_000, 11, false),
            (60_000, 10, true),
        ] {
            assert_eq!(budget.spend(cost, at(when)), granted, "{when} ms: {cost}");
        }
    }
}
