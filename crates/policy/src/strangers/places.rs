//! Who gets a place where there is not one for everybody. A newcomer takes the place of somebody of the source that has
//! most, so whoever holds many connections shuts out himself alone. From half of the places on a source that has more
//! than its share is refused at random, the more often the fewer are left.

use crate::address::Network;
use std::collections::HashMap;

/// How many may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// In sum.
    pub all: usize,
    /// Of one source.
    pub of_source: usize,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Others of the source have all that it may have.
    Source,
    /// The source has more than its share, and places are getting few.
    Share,
    /// All places are taken, and no source has more than this one.
    All,
}

/// What becomes of a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission<T> {
    /// There is a place.
    Free,
    /// There is one when this connection has gone.
    InPlaceOf(T),
    /// There is none.
    Refused(Full),
}

/// Connections that wait, by their source.
#[derive(Debug)]
pub struct Waiting<T> {
    pub(super) of: HashMap<Network, Vec<T>>,
    all: usize,
}

impl<T> Default for Waiting<T> {
    fn default() -> Waiting<T> {
        Waiting {
            of: HashMap::new(),
            all: 0,
        }
    }
}

/// A source from which somebody logged in lately counts for a part of what it has: it may be a whole office.
const KNOWN_COUNTS: usize = 4;

fn weight(source: &Network, has: usize, is_known: impl Fn(&Network) -> bool) -> usize {
    match is_known(source) {
        true => has / KNOWN_COUNTS,
        false => has,
    }
}

impl<T: Copy + PartialEq> Waiting<T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.all
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all == 0
    }

    /// What becomes of a newcomer from `source`. `is_known`: whether somebody logged in from there lately.
    pub fn admit(
        &self,
        source: &Network,
        bounds: Bounds,
        is_known: impl Fn(&Network) -> bool,
        random: impl FnOnce() -> u32,
    ) -> Admission<T> {
        let own = self.has(source);
        if own >= bounds.of_source {
            return Admission::Refused(Full::Source);
        }
        let free_for_all = bounds.all.div_ceil(2);
        if self.all < free_for_all {
            return Admission::Free;
        }
        let own = weight(source, own, &is_known);
        if self.all < bounds.all {
            let sources = self.of.len().max(1);
            let scarce = self.all - free_for_all;
            let of = bounds.all - free_for_all;
            let is_greedy = own * sources > self.all;
            let unlucky = || (random() as usize) % of.max(1) < scarce;
            return match is_greedy && unlucky() {
                true => Admission::Refused(Full::Share),
                false => Admission::Free,
            };
        }
        match self.greediest(is_known, random) {
            Some((most, gives_way)) if most > own => Admission::InPlaceOf(gives_way),
            _ => Admission::Refused(Full::All),
        }
    }

    /// One of the source that has most, and for how many that source counts.
    pub fn greediest(
        &self,
        is_known: impl Fn(&Network) -> bool,
        random: impl FnOnce() -> u32,
    ) -> Option<(usize, T)> {
        let weights = self
            .of
            .iter()
            .map(|(source, held)| (weight(source, held.len(), &is_known), held));
        let (most, held) = weights
            .filter(|(_, held)| !held.is_empty())
            .max_by_key(|(weight, _)| *weight)?;
        Some((most, held[random() as usize % held.len()]))
    }

    /// How many a source has.
    pub fn has(&self, source: &Network) -> usize {
        self.of.get(source).map_or(0, Vec::len)
    }

    /// One more waits.
    pub fn add(&mut self, source: Network, one: T) {
        self.of.entry(source).or_default().push(one);
        self.all += 1;
    }

    /// It does not wait any more.
    pub fn remove(&mut self, source: &Network, one: T) {
        let Some(held) = self.of.get_mut(source) else {
            return;
        };
        let Some(at) = held.iter().position(|held| *held == one) else {
            return;
        };
        held.swap_remove(at);
        self.all -= 1;
        if held.is_empty() {
            self.of.remove(source);
        }
    }
}
