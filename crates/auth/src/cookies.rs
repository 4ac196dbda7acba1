//! Cookies for the key exchanges that users make with a proxy that stands for a plain sshd. The cookie is in the exchange,
//! the exchange's hash in what the user signs: so his signature is of now, counts once, and for that node. They are kept in
//! memory: a restart means to connect again.

use crate::error::Result;
use crate::secret::random;
use fleetgate_policy::cluster::Name;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// How long one is good, in milliseconds: a login at a proxy takes a minute at most.
pub const GOOD_MS: u64 = 120_000;
/// The most at once; the oldest goes.
pub const MAX_COOKIES: usize = 10_000;
/// The bytes of one, by RFC 4253 §7.1.
pub const LENGTH: usize = 16;

/// Cookies that were given out.
#[derive(Debug, Default)]
pub struct Cookies(Mutex<HashMap<[u8; LENGTH], Given>>);

#[derive(Debug)]
struct Given {
    until: u64,
    node: Name,
    host_key: Vec<u8>,
}

impl Cookies {
    /// A new one, for an exchange in which this key, without its certificate, stands for this node.
    pub fn give(&self, node: &Name, host_key: &[u8], uptime: u64) -> Result<[u8; LENGTH]> {
        let mut cookie = [0; LENGTH];
        random(&mut cookie)?;
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if given.len() >= MAX_COOKIES {
            given.retain(|_, of| of.until > uptime);
        }
        if given.len() >= MAX_COOKIES
            && let Some(oldest) = given.iter().min_by_key(|(_, of)| of.until).map(|(c, _)| *c)
        {
            given.remove(&oldest);
        }
        let of = Given {
            until: uptime + GOOD_MS,
            node: node.clone(),
            host_key: host_key.to_vec(),
        };
        given.insert(cookie, of);
        Ok(cookie)
    }

    /// Whether it was given out for this and is good; from now on it is not.
    pub fn take(&self, cookie: &[u8; LENGTH], node: &Name, host_key: &[u8], uptime: u64) -> bool {
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        given
            .remove(cookie)
            .is_some_and(|of| uptime < of.until && of.node == *node && of.host_key == host_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn cookies_are_bounded() {
        let cookies = Cookies::default();
        let node = Name::parse("db1").unwrap();
        let first = cookies.give(&node, b"", 0).unwrap();
        for _ in 0..MAX_COOKIES {
            cookies.give(&node, b"", 1).unwrap();
        }
        assert_eq!(cookies.0.lock().unwrap().len(), MAX_COOKIES);
        assert!(!cookies.take(&first, &node, b"", 1), "the oldest went");
    }
}
