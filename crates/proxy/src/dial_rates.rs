//! How many dials a user may begin: one bucket for each user, whatever the number of connections and certificates. It knows
//! no node.

use crate::config::Config;
use crate::denial::{Why, denied};
use fleetgate_policy::cluster::Name;
use fleetgate_proto::v1::Denied;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A user may begin as many dials at once as come together in so long a time. By the default of 500 a second that is 5,000:
/// a run on a fleet of 1,000 nodes, five times over.
pub const BURST: Duration = Duration::from_secs(10);
/// How long a dial waits for its turn; one that would wait longer is refused.
pub const DIAL_WAIT: Duration = Duration::from_secs(10);
/// Of more users, those whose bucket is full are forgotten.
const USERS: usize = 1_024;

/// The buckets.
pub(crate) struct DialRates {
    per_second: u32,
    /// When a user's bucket is full again; none: it is full.
    full_at: Mutex<HashMap<Name, Instant>>,
}

impl DialRates {
    /// By the configuration.
    pub(crate) fn new(config: &Config) -> DialRates {
        DialRates {
            per_second: config.dials_per_second,
            full_at: Mutex::default(),
        }
    }

    /// Waits for a turn to dial.
    pub(crate) async fn wait(&self, user: &Name) -> Result<(), Denied> {
        match self.reserve(user, Instant::now()) {
            Some(Duration::ZERO) => Ok(()),
            Some(wait) => {
                tokio::time::sleep(wait).await;
                Ok(())
            }
            None => Err(denied(
                Why::Busy,
                &format!(
                    "{user} begins more than {} connections to nodes a second (dials_per_second): \
                     begin fewer at once, or try again in {} s",
                    self.per_second,
                    DIAL_WAIT.as_secs()
                ),
            )),
        }
    }

    /// How long this dial is to wait; None: for too long, and it has no turn.
    fn reserve(&self, user: &Name, now: Instant) -> Option<Duration> {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if full_at.len() >= USERS && !full_at.contains_key(user) {
            full_at.retain(|_, at| *at > now);
        }
        let each = Duration::from_secs(1) / self.per_second.max(1);
        let before = full_at.get(user).map_or(now, |at| (*at).max(now));
        let after = before + each;
        let wait = (after - now).saturating_sub(BURST);
        if wait > DIAL_WAIT {
            return None;
        }
        full_at.insert(user.clone(), after);
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(per_second: u32) -> DialRates {
        DialRates::new(&Config {
            dials_per_second: per_second,
            ..Config::default()
        })
    }

    /// Of so many dials at one moment: how many go at once, wait, are refused.
    fn dials(rates: &DialRates, user: &str, count: usize, now: Instant) -> [usize; 3] {
        let user = Name::parse(user).unwrap();
        let mut became = [0; 3];
        for _ in 0..count {
            became[match rates.reserve(&user, now) {
                Some(Duration::ZERO) => 0,
                Some(wait) => {
                    assert!(wait <= DIAL_WAIT);
                    1
                }
                None => 2,
            }] += 1;
        }
        became
    }

    #[test]
    fn a_user_has_a_burst_then_waits_and_then_is_refused() {
        let (rates, now) = (rates(500), Instant::now());
        assert_eq!(dials(&rates, "alice", 12_000, now), [5_000, 5_000, 2_000]);
        assert_eq!(dials(&rates, "bob", 1, now), [1, 0, 0], "control");
        let later = now + Duration::from_secs(1);
        assert_eq!(dials(&rates, "alice", 501, later), [0, 500, 1]);
        let full = now + Duration::from_secs(60);
        assert_eq!(dials(&rates, "alice", 5_001, full), [5_000, 1, 0]);
    }

    #[test]
    fn honest_tools_never_wait() {
        let rates = rates(Config::default().dials_per_second);
        let mut now = Instant::now();
        // A run on 1,000 nodes at once, and for ten minutes 10,000 checks a minute beside it.
        assert_eq!(dials(&rates, "alice", 1_000, now), [1_000, 0, 0]);
        for _ in 0..600 {
            assert_eq!(dials(&rates, "alice", 167, now), [167, 0, 0]);
            now += Duration::from_secs(1);
        }
    }

    #[test]
    fn users_whose_bucket_is_full_are_forgotten() {
        let (rates, now) = (rates(500), Instant::now());
        for user in 0..USERS {
            dials(&rates, &format!("u{user}"), 1, now);
        }
        dials(&rates, "alice", 1, now + Duration::from_secs(1));
        assert_eq!(rates.full_at.lock().unwrap().len(), 1);
    }
}
