//! How much a tunnel may have done for it: so much at once, and so much a second. It has no clock.

use std::time::Duration;

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
