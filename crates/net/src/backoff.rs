//! How long to wait before something is tried again. It has no clock and no randomness of its own: both are given, so
//! that a thousand machines that lost the same proxy do not come back in one moment, and tests say what they get.

use std::time::Duration;

/// Waits that double from `first` to `most`; each is drawn from between a quarter and the whole.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    /// Of a connection to the proxy or to auth: from half a second to half a minute.
    pub const RECONNECT: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

    /// Without a failure yet.
    #[must_use]
    pub const fn new(first: Duration, most: Duration) -> Backoff {
        Backoff {
            first,
            most,
            failures: 0,
        }
    }

    /// It failed: wait so long. `random` is any number, evenly drawn.
    #[must_use]
    pub fn failed(&mut self, random: u64) -> Duration {
        let whole = self
            .first
            .saturating_mul(1u32.checked_shl(self.failures).unwrap_or(u32::MAX))
            .min(self.most);
        if whole < self.most {
            self.failures += 1;
        }
        let least = whole / 4;
        let spread = (whole - least).as_nanos();
        let drawn = spread * u128::from(random) / u128::from(u64::MAX);
        least + Duration::from_nanos(u64::try_from(drawn).unwrap_or(u64::MAX))
    }

    /// It worked: the next failure is the first again.
    pub fn worked(&mut self) {
        self.failures = 0;
    }
}

/// An evenly drawn number for [`Backoff::failed`].
#[must_use]
pub fn random() -> u64 {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut bytes = [0; 8];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the kernel gives random bytes once it has started");
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_the_most_and_begin_anew() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
        let mut seconds = |random| backoff.failed(random).as_secs_f64();
        assert_eq!(
            [u64::MAX, 0, u64::MAX, u64::MAX, 0, u64::MAX].map(&mut seconds),
            [1.0, 0.5, 4.0, 8.0, 2.5, 10.0]
        );
        backoff.worked();
        assert_eq!(backoff.failed(u64::MAX), Duration::from_secs(1));
        for _ in 0..100 {
            assert!(backoff.failed(random()) <= Duration::from_secs(10));
        }
    }
}
