//! Nonces for devices' signatures: good once, for a minute. They are kept in memory: a restart means to ask again.

use crate::error::Result;
use crate::one_time::OneTime;

/// How long one is good, in milliseconds.
pub const GOOD_MS: u64 = 60_000;
/// The bytes of one.
pub const LENGTH: usize = 32;

/// Nonces that were given out.
#[derive(Debug)]
pub struct Challenges(OneTime<LENGTH, ()>);

impl Default for Challenges {
    fn default() -> Challenges {
        Challenges(OneTime::new(GOOD_MS))
    }
}

impl Challenges {
    /// A new one.
    pub fn give(&self, uptime: u64) -> Result<[u8; LENGTH]> {
        self.0.give((), uptime)
    }

    /// Whether it was given out and is good; from now on it is not.
    pub fn take(&self, nonce: &[u8], uptime: u64) -> bool {
        let nonce = <[u8; LENGTH]>::try_from(nonce);
        nonce.is_ok_and(|nonce| self.0.take(&nonce, uptime).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::one_time::MAX;

    #[test]
    fn a_nonce_is_good_once_and_for_a_minute() {
        let challenges = Challenges::default();
        let nonce = challenges.give(0).unwrap();
        assert!(challenges.take(&nonce, GOOD_MS - 1));
        assert!(!challenges.take(&nonce, 0), "used");
        let late = challenges.give(0).unwrap();
        assert!(!challenges.take(&late, GOOD_MS));
        assert!(!challenges.take(&[0; LENGTH], 0) && !challenges.take(b"short", 0));
    }

    #[test]
    fn nonces_that_nobody_used_are_forgotten_long_before_there_is_no_room() {
        let challenges = Challenges::default();
        let mut most = 0;
        for minute in 0..MAX as u64 {
            challenges.give(minute * 30_000).unwrap();
            most = most.max(challenges.0.len());
        }
        assert!(most < 100, "{most}, of which two are good at once");
    }

    #[test]
    fn nonces_are_bounded() {
        let challenges = Challenges::default();
        let first = challenges.give(0).unwrap();
        for _ in 0..MAX {
            challenges.give(1).unwrap();
        }
        assert_eq!(challenges.0.len(), MAX);
        assert!(!challenges.take(&first, 1), "the oldest went");
    }
}
