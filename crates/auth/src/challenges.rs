//! Nonces for devices' signatures: good once, for a minute. They are kept in memory: a restart means to ask again.

use crate::error::Result;
use crate::secret::random;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// How long one is good, in milliseconds.
pub const GOOD_MS: u64 = 60_000;
/// The most at once; the oldest goes.
pub const MAX_NONCES: usize = 10_000;
/// The bytes of one.
pub const LENGTH: usize = 32;

/// Nonces that were given out.
#[derive(Debug, Default)]
pub struct Challenges(Mutex<HashMap<[u8; LENGTH], u64>>);

impl Challenges {
    /// A new one.
    pub fn give(&self, uptime: u64) -> Result<[u8; LENGTH]> {
        let mut nonce = [0; LENGTH];
        random(&mut nonce)?;
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if given.len() >= MAX_NONCES {
            given.retain(|_, until| *until > uptime);
        }
        if given.len() >= MAX_NONCES
            && let Some(oldest) = given.iter().min_by_key(|(_, until)| **until).map(|(n, _)| *n)
        {
            given.remove(&oldest);
        }
        given.insert(nonce, uptime + GOOD_MS);
        Ok(nonce)
    }

    /// Whether it was given out and is good; from now on it is not.
    pub fn take(&self, nonce: &[u8], uptime: u64) -> bool {
        let Ok(nonce) = <[u8; LENGTH]>::try_from(nonce) else {
            return false;
        };
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        given.remove(&nonce).is_some_and(|until| uptime < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn nonces_are_bounded() {
        let challenges = Challenges::default();
        let first = challenges.give(0).unwrap();
        for _ in 0..MAX_NONCES {
            challenges.give(1).unwrap();
        }
        assert_eq!(challenges.0.lock().unwrap().len(), MAX_NONCES);
        assert!(!challenges.take(&first, 1), "the oldest went");
    }
}
