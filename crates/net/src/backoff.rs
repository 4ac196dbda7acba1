//! How long to wait before something is tried again. It has no clock and no randomness of its own: both are given, so
//! that a thousand machines that lost the same proxy do not come back in one moment, and tests say what they get.

use std::time::Duration;

/// Each wait is half of the time that was waited already, within two bounds, and drawn from between its half and the whole.
/// So what was away for some time is missed for half as long again at most, and somebody who is away for long is asked
/// rarely.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    waited: Duration,
}

impl Backoff {
    /// Of a connection to the proxy or to auth: from a quarter of a second to half a minute.
    pub const RECONNECT: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(30));
    /// What is remembered of earlier waits where the other side answered; see [`Backoff::answered`].
    pub const ANSWERED: Duration = Duration::from_secs(2);

    /// Without a failure yet.
    #[must_use]
    pub const fn new(first: Duration, most: Duration) -> Backoff {
        Backoff {
            first,
            most,
            waited: Duration::ZERO,
        }
    }

    /// It failed: wait so long. `random` is any number, evenly drawn.
    #[must_use]
    pub fn failed(&mut self, random: u64) -> Duration {
        let whole = (self.waited / 2).max(self.first).min(self.most);
        let least = whole / 2;
        let spread = (whole - least).as_nanos();
        let drawn = spread * u128::from(random) / u128::from(u64::MAX);
        let wait = least + Duration::from_nanos(u64::try_from(drawn).unwrap_or(u64::MAX));
        self.waited = self.waited.saturating_add(wait);
        wait
    }

    /// It worked: the next failure is the first again.
    pub fn worked(&mut self) {
        self.waited = Duration::ZERO;
    }

    /// The other side is there, and did not stay: the next waits are short, and not as short as the first.
    pub fn answered(&mut self) {
        self.waited = self.waited.min(Backoff::ANSWERED);
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

    /// For how long somebody is missed who is away for `outage`, where each number drawn is `random`.
    fn missed(backoff: &mut Backoff, outage: Duration, random: u64) -> Duration {
        let mut elapsed = Duration::ZERO;
        while elapsed < outage {
            elapsed += backoff.failed(random);
        }
        elapsed
    }

    #[test]
    fn what_was_away_is_missed_for_half_as_long_again_at_most() {
        for random in [0, 1 << 62, u64::MAX] {
            for outage in [1, 700, 1_000, 5_000, 20_000, 55_000] {
                let outage = Duration::from_millis(outage);
                let mut backoff = Backoff::RECONNECT;
                let missed = missed(&mut backoff, outage, random);
                let most = (outage + outage / 2).max(Backoff::RECONNECT.first);
                assert!(missed <= most, "{outage:?}: {missed:?} by {random}");
            }
        }
        // Deaths in a row, each after a connection that did not last: no longer than after the first few.
        let mut backoff = Backoff::RECONNECT;
        for _ in 0..10 {
            let missed = missed(&mut backoff, Duration::from_secs(5), u64::MAX);
            assert!(missed <= Duration::from_secs(9), "{missed:?}");
            backoff.answered();
        }
    }

    #[test]
    fn waits_grow_to_the_most_and_begin_anew() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
        let mut seconds = |random| backoff.failed(random).as_secs_f64();
        assert_eq!(
            [u64::MAX, 0, u64::MAX, u64::MAX, u64::MAX].map(&mut seconds),
            [1.0, 0.5, 1.0, 1.25, 1.875]
        );
        for _ in 0..10 {
            let _ = backoff.failed(u64::MAX);
        }
        assert_eq!(backoff.failed(0), Duration::from_secs(5));
        assert_eq!(backoff.failed(u64::MAX), Duration::from_secs(10));
        backoff.worked();
        assert_eq!(backoff.failed(u64::MAX), Duration::from_secs(1));
        for _ in 0..100 {
            assert!(backoff.failed(random()) <= Duration::from_secs(10));
        }
    }
}
