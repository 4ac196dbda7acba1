//! What a source pays for its offences, as OpenSSH's PerSourcePenalties has it: each kind has a price in seconds, prices
//! add up, the sum decays with time, and a source whose sum reaches a threshold is refused until the sum is gone.
//!
//! Many people may share one address. So a source is *known* for a while after a login from it: it is never refused a
//! connection, only passwords, and keys and certificates still work. An account whose right password came from a source
//! pays there for its own wrong passwords alone: its neighbours' do not count against it, nor its own against them.

use super::Settings;
use crate::address::Network;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;
use std::time::Duration;

/// The most sources whose offences are remembered. When there are more, the quarter that would be forgotten first is
/// forgotten now. As many known sources, and as many people in them.
pub const MAX_SOURCES: usize = 16_384;

/// What a source can do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Offence {
    /// A password, or the answers to PAM's questions, did not do.
    WrongPassword,
    /// A connection ended without a login after keys that would not do, or a certificate that was refused.
    WrongKey,
    /// A connection ended without a login and without a try.
    NoLogin,
    /// A connection was not logged in when its time was over.
    TooLate,
    /// What was sent was no protocol that is spoken here.
    Garbage,
}

/// What each offence costs. Zero: nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// [`Offence::WrongPassword`], each.
    pub wrong_password: Duration,
    /// [`Offence::WrongKey`], each connection.
    pub wrong_key: Duration,
    /// [`Offence::NoLogin`].
    pub no_login: Duration,
    /// [`Offence::TooLate`].
    pub too_late: Duration,
    /// [`Offence::Garbage`].
    pub garbage: Duration,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            wrong_password: Duration::from_secs(5),
            wrong_key: Duration::from_secs(2),
            no_login: Duration::from_secs(1),
            too_late: Duration::from_secs(10),
            garbage: Duration::from_secs(5),
        }
    }
}

impl Costs {
    fn of(&self, offence: Offence) -> Duration {
        match offence {
            Offence::WrongPassword => self.wrong_password,
            Offence::WrongKey => self.wrong_key,
            Offence::NoLogin => self.no_login,
            Offence::TooLate => self.too_late,
            Offence::Garbage => self.garbage,
        }
    }
}

/// Who pays, and until when.
#[derive(Debug, Default)]
pub struct Penalties {
    settings: Settings,
    pub(super) sources: Table<Network, Penalty>,
    known: Table<Network, KnownUser>,
    people: Table<(Network, u64), Person>,
    hash: RandomState,
}

/// A sum that decays: it is gone at `until`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Penalty {
    until: Duration,
    /// It reached the threshold, so it holds until it is gone.
    holds: bool,
}

/// Somebody logged in from there.
#[derive(Clone, Copy, Debug)]
struct KnownUser {
    until: Duration,
}

/// Somebody gave a right password from there.
#[derive(Clone, Copy, Debug)]
struct Person {
    until: Duration,
    penalty: Penalty,
}

impl Penalty {
    fn add(&mut self, cost: Duration, now: Duration, settings: &Settings) {
        self.holds &= self.until > now;
        self.until = (self.until.max(now) + cost).min(now + settings.most);
        self.holds |= self.until - now >= settings.least;
    }

    /// For how long it holds.
    fn left(&self, now: Duration) -> Option<Duration> {
        let left = self.until.checked_sub(now).filter(|left| !left.is_zero());
        left.filter(|_| self.holds)
    }
}

impl Penalties {
    /// Nobody has done anything yet.
    pub fn new(settings: Settings) -> Penalties {
        Penalties {
            settings,
            ..Penalties::default()
        }
    }

    /// By these rules from now on; what was done stays done.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// The rules.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether offences of this address count.
    fn pays(&self, address: IpAddr) -> bool {
        self.settings.penalties && !self.settings.is_exempt(address)
    }

    fn person(&self, address: IpAddr, account: &[u8]) -> (Network, u64) {
        (self.settings.source(address), self.hash.hash_one(account))
    }

    /// Somebody at this address did wrong.
    pub fn offend(&mut self, address: IpAddr, offence: Offence, now: Duration) {
        let cost = self.settings.costs.of(offence);
        if cost.is_zero() || !self.pays(address) {
            return;
        }
        let settings = &self.settings;
        let penalty = self.sources.entry(settings.source(address), now);
        penalty.add(cost, now, settings);
    }

    /// A password for this account was wrong.
    pub fn wrong_password(&mut self, address: IpAddr, account: &[u8], now: Duration) {
        let cost = self.settings.costs.wrong_password;
        if cost.is_zero() || !self.pays(address) {
            return;
        }
        let person = self.person(address, account);
        match self.people.get(&person, now) {
            Some(person) => person.penalty.add(cost, now, &self.settings),
            None => self.offend(address, Offence::WrongPassword, now),
        }
    }

    /// Somebody logged in; `by_password`: by a password among others.
    pub fn logged_in(&mut self, address: IpAddr, account: &[u8], by_password: bool, now: Duration) {
        let until = now + self.settings.known_for;
        if self.settings.known_for.is_zero() {
            return;
        }
        let source = self.settings.source(address);
        *self.known.entry(source, now) = KnownUser { until };
        if by_password {
            let person = self.person(address, account);
            // Whatever he owed he has paid by the right one.
            *self.people.entry(person, now) = Person {
                until,
                penalty: Penalty::default(),
            };
        }
    }

    /// Whether somebody logged in from there lately.
    pub fn is_known(&self, source: &Network, now: Duration) -> bool {
        self.known.at(source).is_some_and(|known| known.until > now)
    }

    /// For how long this address may not connect.
    pub fn refuses_connection(&self, address: IpAddr, now: Duration) -> Option<Duration> {
        let source = self.settings.source(address);
        if !self.pays(address) || self.is_known(&source, now) {
            return None;
        }
        self.sources.at(&source)?.left(now)
    }

    /// For how long nobody at this address is to try a password for this account.
    pub fn refuses_password(&mut self, address: IpAddr, account: &[u8], now: Duration) -> Option<Duration> {
        if !self.pays(address) {
            return None;
        }
        let person = self.person(address, account);
        let penalty = match self.people.get(&person, now) {
            Some(person) => person.penalty,
            None => *self.sources.at(&person.0)?,
        };
        penalty.left(now)
    }
}

/// A table that does not grow.
#[derive(Debug)]
pub(super) struct Table<K, V>(pub(super) HashMap<K, V>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table(HashMap::new())
    }
}

/// An entry of such a table.
pub(super) trait Ends {
    /// Once it has ended it says nothing that its absence would not.
    fn end(&self) -> Duration;
    fn new() -> Self;
}

impl<K: Hash + Eq + Clone, V: Ends> Table<K, V> {
    fn at(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    fn get(&mut self, key: &K, now: Duration) -> Option<&mut V> {
        self.0.get_mut(key).filter(|value| value.end() > now)
    }

    fn entry(&mut self, key: K, now: Duration) -> &mut V {
        if self.0.len() >= MAX_SOURCES && !self.0.contains_key(&key) {
            self.make_room(now);
        }
        self.0.entry(key).or_insert_with(V::new)
    }

    /// A quarter at once: a flood of new sources pays for looking through the table once in thousands.
    fn make_room(&mut self, now: Duration) {
        self.0.retain(|_, value| value.end() > now);
        let room = MAX_SOURCES / 4;
        if self.0.len() + room <= MAX_SOURCES {
            return;
        }
        let mut ends: Vec<Duration> = self.0.values().map(V::end).collect();
        let (_, last, _) = ends.select_nth_unstable(room);
        let last = *last;
        let mut gone = 0;
        self.0.retain(|_, value| {
            // Of those that end at the same time no more than are needed.
            let goes = value.end() <= last && gone < room;
            gone += usize::from(goes);
            !goes
        });
    }
}

impl Ends for Penalty {
    fn end(&self) -> Duration {
        self.until
    }

    fn new() -> Penalty {
        Penalty::default()
    }
}

impl Ends for KnownUser {
    fn end(&self) -> Duration {
        self.until
    }

    fn new() -> KnownUser {
        KnownUser {
            until: Duration::ZERO,
        }
    }
}

impl Ends for Person {
    fn end(&self) -> Duration {
        self.until.max(self.penalty.until)
    }

    fn new() -> Person {
        Person {
            until: Duration::ZERO,
            penalty: Penalty::default(),
        }
    }
}
