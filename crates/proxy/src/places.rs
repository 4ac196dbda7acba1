//! How many there may be: in sum, and of one kind of visitor. A place is free again when whoever had it is gone.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Places, counted by whom they are taken.
pub(crate) struct Places<K>(Arc<Mutex<Taken<K>>>);

struct Taken<K> {
    in_sum: usize,
    of: HashMap<K, usize>,
    most: usize,
    most_of_one: usize,
}

/// One place, until it is dropped.
pub(crate) struct Place<K: Hash + Eq> {
    who: K,
    places: Arc<Mutex<Taken<K>>>,
}

impl<K: Hash + Eq + Clone> Places<K> {
    /// So many, and so many of one.
    pub(crate) fn new(most: usize, most_of_one: usize) -> Places<K> {
        Places(Arc::new(Mutex::new(Taken {
            in_sum: 0,
            of: HashMap::new(),
            most,
            most_of_one,
        })))
    }

    /// One of them, if there is one.
    pub(crate) fn take(&self, who: &K) -> Option<Place<K>> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.in_sum >= taken.most || taken.of.get(who).is_some_and(|n| *n >= taken.most_of_one) {
            return None;
        }
        taken.in_sum += 1;
        *taken.of.entry(who.clone()).or_default() += 1;
        Some(Place {
            who: who.clone(),
            places: self.0.clone(),
        })
    }
}

impl<K: Hash + Eq> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        taken.in_sum -= 1;
        if let Some(count) = taken.of.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                taken.of.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_in_sum_and_of_one_and_come_back() {
        let places = Places::new(3, 2);
        let one = places.take(&"a").unwrap();
        let _two = places.take(&"a").unwrap();
        assert!(places.take(&"a").is_none(), "of one");
        let _three = places.take(&"b").unwrap();
        assert!(places.take(&"c").is_none(), "in sum");
        drop(one);
        assert!(places.take(&"c").is_some());
    }
}
