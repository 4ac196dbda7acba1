//! How often somebody may ask: token buckets in tables that do not grow. It decides nothing about who is right. Times are
//! milliseconds since boot: by the calendar's, a clock that is set back would refuse everybody for as long.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// The most sources or names that are told apart; the others share one bucket.
pub const MAX_BUCKETS: usize = 16_384;
/// So often a table is swept at least where it is small.
const SWEEP_AFTER: usize = 64;
/// How long after the last sweep a table without room is swept again.
const SWEEP_FULL_MS: u64 = 1000;

/// Whom a connection comes from, as far as limits go: an address, of IPv6 its /64, or this machine's own socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Over the network.
    Address(IpAddr),
    /// The unix socket.
    Local,
}

impl Source {
    /// Of a peer's address.
    pub fn of(address: IpAddr) -> Source {
        Source::Address(match address.to_canonical() {
            IpAddr::V6(six) => {
                let whole = u128::from(six) >> 64 << 64;
                IpAddr::V6(Ipv6Addr::from(whole))
            }
            four => four,
        })
    }
}

/// What a bucket holds and how fast it fills.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// So many at once.
    pub burst: u32,
    /// Then one in so many milliseconds.
    pub every_ms: u64,
}

/// Buckets of one rate.
#[derive(Debug)]
pub struct Buckets<K> {
    rate: Rate,
    table: Mutex<Table<K>>,
}

#[derive(Debug)]
struct Table<K> {
    /// When each will be full again, in milliseconds. A sweep leaves out those that are.
    full_at: HashMap<K, u64>,
    others: u64,
    /// How many times one is taken before the next sweep.
    sweep_in: usize,
    /// When the last sweep was.
    swept_ms: u64,
}

impl<K: Eq + Hash> Table<K> {
    /// Forgets full buckets: after as many calls as there were buckets left, so that a call costs the same however many
    /// there are; and once a second where there is no room for another.
    fn sweep(&mut self, now_ms: u64) {
        let is_full = self.full_at.len() >= MAX_BUCKETS;
        if self.sweep_in > 0 && !(is_full && now_ms >= self.swept_ms.saturating_add(SWEEP_FULL_MS)) {
            self.sweep_in -= 1;
            return;
        }
        self.full_at.retain(|_, full| *full > now_ms);
        self.sweep_in = self.full_at.len().max(SWEEP_AFTER);
        self.full_at.shrink_to(2 * self.sweep_in);
        self.swept_ms = now_ms;
    }
}

/// Places that one source, or whatever else they are counted by, may hold at once.
#[derive(Debug)]
pub struct Places<K: Eq + Hash = Source> {
    most: usize,
    held: Mutex<HashMap<K, usize>>,
}

/// A place that is held; given back when it goes.
#[derive(Debug)]
pub struct Place<K: Eq + Hash = Source>(Arc<Places<K>>, K);

impl<K: Eq + Hash + Clone> Places<K> {
    /// So many for each.
    pub fn new(most: usize) -> Arc<Places<K>> {
        Arc::new(Places {
            most,
            held: Mutex::new(HashMap::new()),
        })
    }

    /// One more, if there is one left.
    pub fn take(self: &Arc<Places<K>>, key: K) -> Option<Place<K>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let count = held.entry(key.clone()).or_insert(0);
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Place(self.clone(), key))
    }

    /// How many are held.
    #[cfg(test)]
    pub fn held(&self, key: &K) -> usize {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(key).copied().unwrap_or(0)
    }
}

impl<K: Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let mut held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = held.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.1);
            }
        }
    }
}

impl<K: Eq + Hash + Clone> Buckets<K> {
    /// All full.
    pub fn new(rate: Rate) -> Buckets<K> {
        Buckets {
            rate,
            table: Mutex::new(Table {
                full_at: HashMap::new(),
                others: 0,
                sweep_in: 0,
                swept_ms: 0,
            }),
        }
    }

    /// Takes one for `key`, or says after how many seconds to try again.
    pub fn take(&self, key: &K, now_ms: u64) -> Result<(), u64> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.sweep(now_ms);
        let room = table.full_at.len() < MAX_BUCKETS || table.full_at.contains_key(key);
        let full = match room {
            true => table.full_at.entry(key.clone()).or_insert(now_ms),
            false => &mut table.others,
        };
        let later = (*full).max(now_ms) + self.rate.every_ms;
        let depth = self.rate.every_ms * u64::from(self.rate.burst);
        if later > now_ms + depth {
            return Err((later - now_ms - depth).div_ceil(1000));
        }
        *full = later;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate {
        burst: 3,
        every_ms: 2000,
    };

    #[test]
    fn a_burst_and_then_by_time() {
        let buckets = Buckets::new(RATE);
        let table = [
            ("a", 0, Ok(())),
            ("a", 0, Ok(())),
            ("a", 0, Ok(())),
            ("a", 0, Err(2)),
            ("b", 0, Ok(())),
            ("a", 1500, Err(1)),
            ("a", 2000, Ok(())),
            ("a", 2000, Err(2)),
            ("a", 60_000, Ok(())),
            ("a", 60_000, Ok(())),
            ("a", 60_000, Ok(())),
            ("a", 60_000, Err(2)),
        ];
        for (key, now, said) in table {
            assert_eq!(buckets.take(&key, now), said, "{key} at {now}");
        }
    }

    #[test]
    fn tables_of_limits_do_not_grow() {
        let buckets = Buckets::new(RATE);
        for key in 0..MAX_BUCKETS {
            assert_eq!(buckets.take(&key, 0), Ok(()));
        }
        // The rest shares one.
        for key in 0..3 {
            assert_eq!(buckets.take(&(MAX_BUCKETS + key), 0), Ok(()));
        }
        assert_eq!(buckets.take(&(2 * MAX_BUCKETS), 0), Err(2));
        assert_eq!(buckets.take(&0, 0), Ok(()), "who has a bucket keeps it");
        // Full ones are forgotten.
        assert_eq!(buckets.take(&(2 * MAX_BUCKETS), 60_000), Ok(()));
        assert!(buckets.table.lock().unwrap().full_at.len() <= MAX_BUCKETS);
    }

    #[test]
    fn full_buckets_are_forgotten_long_before_there_is_no_room() {
        let buckets = Buckets::new(RATE);
        let mut most = 0;
        for key in 0..10_000 {
            assert_eq!(buckets.take(&key, key * 60_000), Ok(()));
            most = most.max(buckets.table.lock().unwrap().full_at.len());
        }
        assert!(most <= SWEEP_AFTER + 1, "{most}");
    }

    #[test]
    fn sources_are_addresses_and_networks_of_ipv6() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
