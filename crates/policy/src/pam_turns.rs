//! Whose turn it is to talk to PAM. A conversation that finds no place waits for one; none is refused. It knows numbers
//! and addresses alone, and talks to nobody.
//!
//! A stranger takes no place of somebody who has proven a key, a person who is asked a question takes none of a password
//! that is checked, and whoever comes by a proxy takes none of those who come by themselves. One source has at most a
//! quarter of the places of strangers.

use crate::address::Network as Source;
use std::collections::{HashMap, VecDeque};

/// One source has the places of strangers divided by this.
const SHARE: u32 = 4;

/// A connection's number, as its node gives it.
pub type ConnectionNumber = u64;

/// How many may talk at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Of [`Kind::Decision`].
    pub deciding: u32,
    /// Of [`Kind::Conversation`].
    pub conversations: u32,
}

/// What PAM is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Whether a password is right or an account is good: it ends by itself (`limits.deciding`).
    Decision,
    /// Questions to a person, who may take his time (`limits.conversations`).
    Conversation,
}

/// Where a conversation is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Turn {
    /// What for.
    pub kind: Kind,
    /// A key was proven on the connection.
    pub proven: bool,
    /// The connection came by a proxy.
    pub tunnelled: bool,
}

/// All conversations, and those that wait for their turn.
#[derive(Debug, Default)]
pub struct Turns {
    pools: HashMap<Turn, Pool>,
    of: HashMap<ConnectionNumber, Turn>,
}

#[derive(Debug, Default)]
struct Pool {
    running: HashMap<ConnectionNumber, Source>,
    of_source: HashMap<Source, u32>,
    /// In the order of their coming. Each is a connection that is not logged in, which bounds them.
    waiting: VecDeque<(ConnectionNumber, Source)>,
}

impl Turns {
    /// Whether this connection may talk now. False: it waits, and [`Turns::next`] says when.
    pub fn begin(&mut self, number: ConnectionNumber, turn: Turn, source: Source, places: Places) -> bool {
        if self.of.get(&number).is_some_and(|earlier| *earlier != turn) {
            self.leave(number);
        }
        self.of.insert(number, turn);
        let pool = self.pools.entry(turn).or_default();
        if pool.running.contains_key(&number) {
            return true;
        }
        if pool.waiting.iter().any(|(waits, _)| *waits == number) {
            return false;
        }
        pool.waiting.push_back((number, source));
        // A place that became free a moment ago may be somebody else's: `next` gives it to him.
        let last = pool.waiting.len() - 1;
        pool.first(turn, places) == Some(last) && pool.admit(last).is_some()
    }

    /// Whether it has its turn.
    pub fn is_running(&self, number: ConnectionNumber) -> bool {
        let turn = self.of.get(&number);
        turn.and_then(|turn| self.pools.get(turn))
            .is_some_and(|pool| pool.running.contains_key(&number))
    }

    /// It talks no more, nor waits.
    pub fn leave(&mut self, number: ConnectionNumber) {
        let Some(turn) = self.of.remove(&number) else {
            return;
        };
        let Some(pool) = self.pools.get_mut(&turn) else {
            return;
        };
        pool.remove(number);
        if pool.running.is_empty() && pool.waiting.is_empty() {
            self.pools.remove(&turn);
        }
    }

    /// The next whose turn it is, if there is a place.
    pub fn next(&mut self, places: Places) -> Option<ConnectionNumber> {
        self.pools.iter_mut().find_map(|(turn, pool)| {
            let first = pool.first(*turn, places)?;
            pool.admit(first)
        })
    }
}

impl Pool {
    /// Whose turn it is: of those whose source has the fewest places the first. None: there is no place.
    fn first(&self, turn: Turn, places: Places) -> Option<usize> {
        let places = match turn.kind {
            Kind::Decision => places.deciding,
            Kind::Conversation => places.conversations,
        };
        if self.running.len() >= places as usize {
            return None;
        }
        let share = match turn.proven {
            true => places,
            false => places.div_ceil(SHARE),
        };
        let has = |source: &Source| self.of_source.get(source).copied().unwrap_or(0);
        let waiting = self.waiting.iter().enumerate();
        waiting
            .map(|(at, (_, source))| (has(source), at))
            .filter(|(has, _)| *has < share)
            .min()
            .map(|(_, at)| at)
    }

    /// Gives a place to the one who waits there.
    fn admit(&mut self, at: usize) -> Option<ConnectionNumber> {
        let (number, source) = self.waiting.remove(at)?;
        self.running.insert(number, source);
        *self.of_source.entry(source).or_default() += 1;
        Some(number)
    }

    fn remove(&mut self, number: ConnectionNumber) {
        self.waiting.retain(|(waits, _)| *waits != number);
        if let Some(source) = self.running.remove(&number)
            && let Some(count) = self.of_source.get_mut(&source)
        {
            *count -= 1;
            if *count == 0 {
                self.of_source.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strangers::Prefixes;

    const STRANGER: Turn = Turn {
        kind: Kind::Decision,
        proven: false,
        tunnelled: false,
    };

    fn source(address: &str) -> Source {
        Prefixes::default().source(address.parse().expect("an address"))
    }

    const PLACES: Places = Places {
        deciding: 8,
        conversations: 4,
    };

    #[test]
    fn one_source_has_its_share_and_the_rest_waits_for_it() {
        let mut turns = Turns::default();
        let (one, other) = (source("192.0.2.1"), source("192.0.2.2"));
        let begun: Vec<bool> = (0..4).map(|n| turns.begin(n, STRANGER, one, PLACES)).collect();
        assert_eq!(begun, [true, true, false, false]);
        assert!(turns.begin(10, STRANGER, other, PLACES), "another has a place");
        assert_eq!(turns.next(PLACES), None);
        // Asked twice, it is the same conversation.
        assert!(turns.begin(0, STRANGER, one, PLACES));
        assert!(!turns.begin(2, STRANGER, one, PLACES));
        turns.leave(1);
        assert_eq!(turns.next(PLACES), Some(2));
        assert_eq!(turns.next(PLACES), None);
        turns.leave(3);
        turns.leave(0);
        assert_eq!(turns.next(PLACES), None, "the one that waited has left");
        for number in [2, 10] {
            turns.leave(number);
        }
        assert!(turns.pools.is_empty() && turns.of.is_empty());
    }

    #[test]
    fn who_has_proven_a_key_who_is_asked_and_who_comes_by_a_proxy_are_counted_apart() {
        let mut turns = Turns::default();
        let mut number = 0;
        let mut begins = |turns: &mut Turns, turn: Turn, address: &str| {
            number += 1;
            turns.begin(number, turn, source(address), PLACES)
        };
        for n in 0..40 {
            begins(&mut turns, STRANGER, &format!("192.0.2.{}", n % 8));
        }
        assert!(!begins(&mut turns, STRANGER, "198.51.100.1"), "full");
        let proven = Turn {
            proven: true,
            ..STRANGER
        };
        // Their own places are shared by nobody: all of one source may have them.
        for _ in 0..8 {
            assert!(begins(&mut turns, proven, "192.0.2.1"));
        }
        assert!(!begins(&mut turns, proven, "192.0.2.1"));
        let asked = Turn {
            kind: Kind::Conversation,
            ..STRANGER
        };
        assert!(begins(&mut turns, asked, "192.0.2.1"));
        assert!(!begins(&mut turns, asked, "192.0.2.1"));
        let tunnelled = Turn {
            tunnelled: true,
            ..STRANGER
        };
        assert!(begins(&mut turns, tunnelled, "192.0.2.1"));
    }

    #[test]
    fn sources_take_turns_whoever_came_first() {
        let mut turns = Turns::default();
        for n in 0..8 {
            turns.begin(n, STRANGER, source(&format!("192.0.2.{}", n / 2)), PLACES);
        }
        // All places are taken. One source asks ten times, then another once.
        for n in 100..110 {
            assert!(!turns.begin(n, STRANGER, source("198.51.100.1"), PLACES));
        }
        assert!(!turns.begin(200, STRANGER, source("198.51.100.2"), PLACES));
        let mut order = Vec::new();
        for n in 0..3 {
            turns.leave(n);
            order.extend(turns.next(PLACES));
        }
        assert_eq!(order, [100, 200, 101]);
    }
}
