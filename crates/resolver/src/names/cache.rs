//! What was found a moment ago. Short, because behind NSS may stand a directory on the network whose changes nobody
//! tells us; dropped as a whole when a file of this machine changes.

use super::{MS, Nanos};
use fleetgate_wire::names::Found;
use std::collections::HashMap;

/// How long an answer counts: the same for a name that was found and for one that nobody has, or the time of an answer
/// would tell a stranger which it is.
const KEEP: Nanos = 10_000 * MS;
/// The most entries.
const MAX_ENTRIES: usize = 1024;
/// The most bytes of answers, as frames.
const MAX_BYTES: usize = 2 << 20;

/// Answers by the question's frame.
#[derive(Default)]
pub struct Cache {
    entries: HashMap<Vec<u8>, Entry>,
    bytes: usize,
}

struct Entry {
    found: Found,
    until: Nanos,
    size: usize,
}

impl Cache {
    /// The answer, while it counts.
    pub fn get(&self, key: &[u8], now: Nanos) -> Option<&Found> {
        let entry = self.entries.get(key)?;
        (entry.until > now).then_some(&entry.found)
    }

    /// Keeps `found`, unless it says that nobody knows.
    pub fn put(&mut self, key: Vec<u8>, found: &Found, now: Nanos) {
        if matches!(found, Found::TimedOut | Found::Failed { .. }) {
            return;
        }
        let size = key.len() + fleetgate_wire::encode(found).len();
        if self.entries.len() >= MAX_ENTRIES || self.bytes + size > MAX_BYTES {
            self.entries.retain(|_, e| e.until > now);
            self.bytes = self.entries.values().map(|e| e.size).sum();
            // Still full: everything was asked within seconds. Start anew rather than keep an order of use.
            if self.entries.len() >= MAX_ENTRIES || self.bytes + size > MAX_BYTES {
                self.clear();
            }
        }
        let entry = Entry {
            found: found.clone(),
            until: now + KEEP,
            size,
        };
        self.bytes += size;
        if let Some(old) = self.entries.insert(key, entry) {
            self.bytes -= old.size;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_for_their_time() {
        let mut cache = Cache::default();
        cache.put(vec![1], &Found::Group { gid: 7 }, 0);
        cache.put(vec![2], &Found::Unknown, 0);
        cache.put(vec![3], &Found::TimedOut, 0);
        for (key, found) in [(1, Found::Group { gid: 7 }), (2, Found::Unknown)] {
            assert_eq!(cache.get(&[key], KEEP - 1), Some(&found));
            assert_eq!(cache.get(&[key], KEEP), None);
        }
        assert_eq!(cache.get(&[3], 0), None);
        cache.clear();
        assert_eq!(cache.get(&[1], 0), None);
    }

    #[test]
    fn it_is_bounded_in_entries_and_bytes() {
        let mut cache = Cache::default();
        for i in 0..10 * MAX_ENTRIES {
            cache.put(i.to_le_bytes().to_vec(), &Found::Unknown, 0);
            assert!(cache.entries.len() <= MAX_ENTRIES);
        }
        let users = vec![std::ffi::CString::new(vec![b'x'; 60_000]).expect("no zero")];
        let large = Found::Names {
            users,
            groups: Vec::new(),
        };
        for i in 0..100u32 {
            cache.put(i.to_le_bytes().to_vec(), &large, 0);
            assert!(cache.bytes <= MAX_BYTES);
        }
        assert_eq!(cache.bytes, cache.entries.values().map(|e| e.size).sum::<usize>());
    }
}
