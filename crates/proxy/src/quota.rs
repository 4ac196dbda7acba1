//! Bounds on how many there may be: in sum, and of one kind of visitor. A slot is free again when its holder is gone. Nobody
//! waits for a slot; for a turn the others wait in line.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Slots, counted by whom they are taken.
pub(crate) struct Quota<K>(Arc<Mutex<Counts<K>>>);

struct Counts<K> {
    in_sum: usize,
    of: HashMap<K, usize>,
    most: usize,
    most_of_one: usize,
}

/// One place, until it is dropped.
pub(crate) struct Slot<K: Hash + Eq> {
    who: K,
    places: Arc<Mutex<Counts<K>>>,
}

impl<K: Hash + Eq + Clone> Quota<K> {
    /// So many, and so many of one.
    pub(crate) fn new(most: usize, most_of_one: usize) -> Quota<K> {
        Quota(Arc::new(Mutex::new(Counts {
            in_sum: 0,
            of: HashMap::new(),
            most,
            most_of_one,
        })))
    }

    /// One of them, if there is one.
    pub(crate) fn take(&self, who: &K) -> Option<Slot<K>> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.in_sum >= taken.most || taken.of.get(who).is_some_and(|n| *n >= taken.most_of_one) {
            return None;
        }
        taken.in_sum += 1;
        *taken.of.entry(who.clone()).or_default() += 1;
        Some(Slot {
            who: who.clone(),
            places: self.0.clone(),
        })
    }
}

impl<K: Hash + Eq> Drop for Slot<K> {
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

/// Turns at what few may do at once. Whoever has many in line waits behind the others.
pub(crate) struct Turns<K> {
    in_sum: Arc<Semaphore>,
    most_of_one: usize,
    of: Mutex<HashMap<K, Weak<Semaphore>>>,
}

/// One turn, until it is dropped.
pub(crate) struct Turn {
    _of_one: OwnedSemaphorePermit,
    _in_sum: OwnedSemaphorePermit,
}

impl<K: Hash + Eq + Clone> Turns<K> {
    /// So many at once, and so many of one.
    pub(crate) fn new(most: usize, most_of_one: usize) -> Turns<K> {
        Turns {
            in_sum: Arc::new(Semaphore::new(most)),
            most_of_one,
            of: Mutex::default(),
        }
    }

    /// Waits for one. No more than `most_of_one` of the same visitor are ever in the line of all.
    pub(crate) async fn wait(&self, who: &K) -> Turn {
        const OPEN: &str = "nobody closes it";
        let own = self.of_one(who);
        let of_one = own.acquire_owned().await.expect(OPEN);
        let in_sum = self.in_sum.clone().acquire_owned().await.expect(OPEN);
        Turn {
            _of_one: of_one,
            _in_sum: in_sum,
        }
    }

    fn of_one(&self, who: &K) -> Arc<Semaphore> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = of.get(who).and_then(Weak::upgrade) {
            return known;
        }
        // Those who have none and wait for none are forgotten.
        of.retain(|_, known| known.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.most_of_one));
        of.insert(who.clone(), Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    #[test]
    fn who_has_many_in_line_waits_behind_those_who_have_one() {
        let turns = Turns::new(3, 2);
        let mut many: Vec<_> = (0..10).map(|_| Box::pin(turns.wait(&"a"))).collect();
        let has: Vec<Option<Turn>> = many.iter_mut().map(|turn| poll(turn.as_mut())).collect();
        assert_eq!(has.iter().flatten().count(), 2);
        let one = poll(pin!(turns.wait(&"b"))).expect("the third");
        let (mut next, mut last) = (Box::pin(turns.wait(&"c")), Box::pin(turns.wait(&"d")));
        assert!(poll(next.as_mut()).is_none() && poll(last.as_mut()).is_none());
        drop(one);
        assert!(poll(next.as_mut()).is_some());
        drop(has);
        let last = poll(last.as_mut()).expect("a turn");
        many.drain(..2);
        let more: Vec<Turn> = many.iter_mut().filter_map(|turn| poll(turn.as_mut())).collect();
        assert_eq!(more.len(), 2, "the others have theirs in the end");
        drop((more, many, last, next));
        turns.of_one(&"e");
        assert_eq!(turns.of.lock().unwrap().len(), 1);
    }

    #[test]
    fn places_are_bounded_in_sum_and_of_one_and_come_back() {
        let places = Quota::new(3, 2);
        let one = places.take(&"a").unwrap();
        let _two = places.take(&"a").unwrap();
        assert!(places.take(&"a").is_none(), "of one");
        let _three = places.take(&"b").unwrap();
        assert!(places.take(&"c").is_none(), "in sum");
        drop(one);
        assert!(places.take(&"c").is_some());
    }
}
