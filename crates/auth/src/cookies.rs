//! Cookies for the key exchanges that users make with a proxy that stands for a plain sshd. The cookie is in the exchange,
//! the exchange's hash in what the user signs: so his signature is of now, counts once, and for that node. They are kept in
//! memory: a restart means to connect again.

use crate::error::Result;
use crate::one_time::OneTime;
use fleetgate_policy::cluster::Name;

/// How long one is good, in milliseconds: a login at a proxy takes a minute at most.
pub const GOOD_MS: u64 = 120_000;
/// The bytes of one, by RFC 4253 §7.1.
pub const LENGTH: usize = 16;

/// Cookies that were given out.
#[derive(Debug)]
pub struct Cookies(OneTime<LENGTH, Exchange>);

/// What one was given out for.
#[derive(Debug)]
struct Exchange {
    node: Name,
    host_key: Vec<u8>,
}

impl Default for Cookies {
    fn default() -> Cookies {
        Cookies(OneTime::new(GOOD_MS))
    }
}

impl Cookies {
    /// A new one, for an exchange in which this key, without its certificate, stands for this node.
    pub fn give(&self, node: &Name, host_key: &[u8], uptime: u64) -> Result<[u8; LENGTH]> {
        let of = Exchange {
            node: node.clone(),
            host_key: host_key.to_vec(),
        };
        self.0.give(of, uptime)
    }

    /// Whether it was given out for this and is good; from now on it is not.
    pub fn take(&self, cookie: &[u8; LENGTH], node: &Name, host_key: &[u8], uptime: u64) -> bool {
        let of = self.0.take(cookie, uptime);
        of.is_some_and(|of| of.node == *node && of.host_key == host_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::one_time::MAX;

    #[test]
    fn a_cookie_is_good_once_in_its_time_for_its_node_and_key() {
        let cookies = Cookies::default();
        let (db1, db2) = (Name::parse("db1").unwrap(), Name::parse("db2").unwrap());
        let give = || cookies.give(&db1, b"key", 0).unwrap();
        let good = give();
        assert!(cookies.take(&good, &db1, b"key", GOOD_MS - 1));
        assert!(!cookies.take(&good, &db1, b"key", 0), "used");
        assert!(!cookies.take(&give(), &db1, b"key", GOOD_MS), "late");
        assert!(!cookies.take(&give(), &db2, b"key", 0), "of another node");
        assert!(!cookies.take(&give(), &db1, b"other", 0), "with another key");
        assert!(!cookies.take(&[0; LENGTH], &db1, b"key", 0), "never given");
    }

    #[test]
    fn cookies_that_nobody_used_are_forgotten_long_before_there_is_no_room() {
        let cookies = Cookies::default();
        let node = Name::parse("db1").unwrap();
        let mut most = 0;
        for minute in 0..MAX as u64 {
            cookies.give(&node, b"", minute * 60_000).unwrap();
            most = most.max(cookies.0.len());
        }
        assert!(most < 100, "{most}, of which two are good at once");
    }

    #[test]
    fn cookies_are_bounded() {
        let cookies = Cookies::default();
        let node = Name::parse("db1").unwrap();
        let first = cookies.give(&node, b"", 0).unwrap();
        for _ in 0..MAX {
            cookies.give(&node, b"", 1).unwrap();
        }
        assert_eq!(cookies.0.len(), MAX);
        assert!(!cookies.take(&first, &node, b"", 1), "the oldest went");
    }
}
