//! How much each user's recordings took of the directory in the last days, as far as this monitor has seen it grow. Where little
//! is left, one user does not take that too, with however many sessions: others are recorded, and come in, until it is full.

use crate::directory::KEPT_DAYS;
use std::collections::BTreeMap;

/// Where little is left, a user who has one part of so many gets no more.
pub const PARTS: u64 = 4;
/// Little is left when so many hundredths are used.
pub const SCARCE: u64 = 75;

/// All users.
#[derive(Debug, Default)]
pub struct Shares(BTreeMap<String, BTreeMap<i64, u64>>);

impl Shares {
    /// A recording of `who` grew on this day.
    pub fn grew(&mut self, who: &str, day: i64, bytes: u64) {
        let days = self.0.entry(who.to_owned()).or_default();
        *days.entry(day).or_default() += bytes;
        days.retain(|known, _| *known >= day - KEPT_DAYS);
    }

    /// What `who` has on this day.
    pub fn of(&self, who: &str, day: i64) -> u64 {
        let days = self.0.get(who).into_iter().flatten();
        days.filter(|(known, _)| **known >= day - KEPT_DAYS)
            .map(|(_, bytes)| bytes)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_what_grew_in_the_last_days() {
        let mut shares = Shares::default();
        for (who, day, bytes) in [("ada", 1, 10), ("ada", 1, 5), ("bob", 2, 7), ("ada", 6, 100)] {
            shares.grew(who, day, bytes);
        }
        assert_eq!(
            (shares.of("ada", 6), shares.of("bob", 6), shares.of("eve", 6)),
            (115, 7, 0)
        );
        assert_eq!(
            (shares.of("ada", 1 + KEPT_DAYS), shares.of("ada", 2 + KEPT_DAYS)),
            (115, 100)
        );
        shares.grew("ada", 20, 1);
        assert_eq!(shares.0["ada"].len(), 1, "older days are forgotten");
    }
}
