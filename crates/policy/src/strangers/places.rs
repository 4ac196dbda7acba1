//! Who gets a place where there is not one for everybody. A newcomer takes the place of somebody of the source that has
//! most, so whoever holds many connections shuts out himself alone. From half of the places on a source that has more
//! than its share is refused at random, the more often the fewer are left.

use crate::address::Network;
use std::collections::{BTreeMap, HashMap};

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
pub struct WaitingConnections<T> {
    pub(super) of: HashMap<Network, SourceQueue<T>>,
    /// The sources that hold so many: whoever holds most is found without a look at all others.
    by_count: BTreeMap<usize, Vec<Network>>,
    all: usize,
}

/// What one source holds.
#[derive(Debug)]
pub(super) struct SourceQueue<T> {
    pub(super) ones: Vec<T>,
    /// Its place among the sources that hold as many.
    slot: usize,
}

impl<T> Default for WaitingConnections<T> {
    fn default() -> WaitingConnections<T> {
        WaitingConnections {
            of: HashMap::new(),
            by_count: BTreeMap::new(),
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

impl<T: Copy + PartialEq> WaitingConnections<T> {
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

    /// One of the source that weighs most, and how much that source weighs. Of several such sources one by chance. No source
    /// weighs more than it holds, so the look ends at the first stranger: only known sources lie before it.
    pub fn greediest(
        &self,
        is_known: impl Fn(&Network) -> bool,
        random: impl FnOnce() -> u32,
    ) -> Option<(usize, T)> {
        let chance = random() as usize;
        let (mut most, mut greediest) = (None, None);
        for (&count, sources) in self.by_count.iter().rev() {
            if most.is_some_and(|most| count <= most) {
                break;
            }
            let (behind, first) = sources.split_at(chance % sources.len().max(1));
            for source in first.iter().chain(behind) {
                let weight = weight(source, count, &is_known);
                if most.is_none_or(|most| weight > most) {
                    (most, greediest) = (Some(weight), Some((source, sources.len())));
                }
                if weight == count {
                    break;
                }
            }
        }
        let (source, of) = greediest?;
        let ones = &self.of.get(source)?.ones;
        // What is left of the chance, behind the choice of the source.
        Some((most?, ones[chance / of % ones.len()]))
    }

    /// How many a source has.
    pub fn has(&self, source: &Network) -> usize {
        self.of.get(source).map_or(0, |held| held.ones.len())
    }

    /// One more waits.
    pub fn add(&mut self, source: Network, one: T) {
        self.leave(&source);
        let held = self.of.entry(source).or_insert_with(|| SourceQueue {
            ones: Vec::new(),
            slot: 0,
        });
        held.ones.push(one);
        self.enter(source);
        self.all += 1;
    }

    /// It does not wait any more.
    pub fn remove(&mut self, source: &Network, one: T) {
        let Some(held) = self.of.get_mut(source) else {
            return;
        };
        let Some(at) = held.ones.iter().position(|held| *held == one) else {
            return;
        };
        self.leave(source);
        if let Some(held) = self.of.get_mut(source) {
            held.ones.swap_remove(at);
        }
        self.all -= 1;
        match self.has(source) {
            0 => drop(self.of.remove(source)),
            _ => self.enter(*source),
        }
    }

    /// Takes a source from among those that hold as many.
    fn leave(&mut self, source: &Network) {
        let Some(held) = self.of.get(source) else { return };
        let (count, slot) = (held.ones.len(), held.slot);
        let Some(sources) = self.by_count.get_mut(&count) else {
            return;
        };
        sources.swap_remove(slot);
        if let Some(held) = sources.get(slot).and_then(|moved| self.of.get_mut(moved)) {
            held.slot = slot;
        }
        if sources.is_empty() {
            self.by_count.remove(&count);
        }
    }

    /// Puts it among those that hold as many.
    fn enter(&mut self, source: Network) {
        if let Some(held) = self.of.get_mut(&source) {
            let sources = self.by_count.entry(held.ones.len()).or_default();
            held.slot = sources.len();
            sources.push(source);
        }
    }
}
