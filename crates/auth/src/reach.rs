//! Whether proxies reach the plain sshds: each proxy's last word. People are shown it. It decides nothing: no label, no login
//! and no rotation depends on it, so a proxy that lies here misleads a reader and nobody else.

use std::collections::{BTreeMap, HashMap};

/// A proxy's word counts for so many seconds; proxies look every five minutes.
pub const LOOKED: u64 = 1000;

/// The last word of each proxy about each plain sshd. Only registered sshds and members get in.
#[derive(Default)]
pub struct Reach(HashMap<String, BTreeMap<String, Look>>);

/// What one proxy said last.
struct Look {
    reached: bool,
    /// Since when it says so, Unix seconds.
    since: u64,
    /// When it last said so, in milliseconds since boot.
    at: u64,
}

impl Reach {
    /// Since when no proxy reaches it; none: one does, or none has tried.
    pub fn unreached_since(&self, node: &str) -> Option<u64> {
        let looks = self.0.get(node)?;
        if looks.values().any(|look| look.reached) {
            return None;
        }
        // The last one to lose it.
        looks.values().map(|look| look.since).max()
    }

    /// A proxy's word. True: what is shown has changed.
    pub fn note(&mut self, node: &str, proxy: &str, reached: bool, now: u64, uptime: u64) -> bool {
        let before = self.unreached_since(node);
        let looks = self.0.entry(node.to_string()).or_default();
        let same = looks.get(proxy).filter(|look| look.reached == reached);
        let since = same.map_or(now, |look| look.since);
        let look = Look {
            reached,
            since,
            at: uptime,
        };
        looks.insert(proxy.to_string(), look);
        before != self.unreached_since(node)
    }

    /// The node is gone.
    pub fn forget(&mut self, node: &str) {
        self.0.remove(node);
    }

    /// Drops what is too old; the nodes of which something else is shown now.
    pub fn expire(&mut self, uptime: u64) -> Vec<String> {
        let mut changed = Vec::new();
        let names: Vec<String> = self.0.keys().cloned().collect();
        for name in names {
            let before = self.unreached_since(&name);
            if let Some(looks) = self.0.get_mut(&name) {
                looks.retain(|_, look| uptime.saturating_sub(look.at) < LOOKED * 1000);
                if looks.is_empty() {
                    self.0.remove(&name);
                }
            }
            if before != self.unreached_since(&name) {
                changed.push(name);
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_proxy_that_reaches_it_is_enough_and_old_words_count_no_more() {
        let mut reach = Reach::default();
        assert_eq!(reach.unreached_since("db1"), None, "nobody has tried");
        assert!(reach.note("db1", "edge", false, 100, 0));
        assert!(!reach.note("db1", "edge", false, 200, 1));
        assert_eq!(reach.unreached_since("db1"), Some(100), "since it was so");
        assert!(reach.note("db1", "west", true, 300, 2));
        assert_eq!(reach.unreached_since("db1"), None);
        assert!(reach.note("db1", "west", false, 400, 3));
        assert_eq!(reach.unreached_since("db1"), Some(400), "the last one to lose it");
        assert!(reach.expire(LOOKED * 1000).is_empty(), "west's word is the same");
        assert_eq!(reach.expire(LOOKED * 1000 + 3), ["db1"]);
        assert!(reach.0.is_empty());
        reach.note("db1", "edge", false, 500, 9);
        reach.forget("db1");
        assert_eq!(reach.unreached_since("db1"), None);
    }
}
