//! Places at which the others give way: one more of whoever has most ends the oldest of his. So whoever takes many takes them
//! from himself. It knows neither what a place is for nor what a source is.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use tokio::sync::oneshot;

/// So many of a favoured one's do not count where it is compared with others.
pub const FAVOUR: usize = 8;

/// Places, by whom they are counted.
#[derive(Debug)]
pub struct Shares<K: Eq + Hash> {
    in_sum: usize,
    of_one: usize,
    when_even: WhenEven,
    table: Mutex<Table<K>>,
}

/// What happens to one more when all places are taken and nobody has more than another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenEven {
    /// The oldest of all ends: for what anybody may begin and leave as it is.
    EndOldest,
    /// It is refused: for those who are known, of whom none shall end another's.
    Refuse,
}

/// Why work was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// All places are taken.
    Full,
    /// Its place went to another.
    GaveWay,
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoPlace::Full => "all places are taken",
            NoPlace::GaveWay => "its place went to another, since there are too many",
        })
    }
}

#[derive(Debug)]
struct Table<K> {
    last: u64,
    in_sum: usize,
    /// Oldest first; whoever drops the sender ends that one.
    of: HashMap<K, VecDeque<(u64, oneshot::Sender<()>)>>,
}

impl<K: Eq + Hash + Clone> Shares<K> {
    /// So many in sum, and of one.
    pub fn new(in_sum: usize, of_one: usize, when_even: WhenEven) -> Shares<K> {
        Shares {
            in_sum,
            of_one,
            when_even,
            table: Mutex::new(Table {
                last: 0,
                in_sum: 0,
                of: HashMap::new(),
            }),
        }
    }

    /// Does `work` on a place of `key`'s. It is ended when its place goes to another. `favoured`: those who come in before
    /// others, as long as they have no more than [`FAVOUR`].
    pub async fn run<T>(
        &self,
        key: K,
        favoured: impl FnOnce() -> HashSet<K>,
        work: impl Future<Output = T>,
    ) -> Result<T, NoPlace> {
        let (number, displaced) = self.begin(&key, favoured).ok_or(NoPlace::Full)?;
        let _entry = Entry {
            shares: self,
            key,
            number,
        };
        tokio::select! {
            done = work => Ok(done),
            _ = displaced => Err(NoPlace::GaveWay),
        }
    }

    fn begin(&self, key: &K, favoured: impl FnOnce() -> HashSet<K>) -> Option<(u64, oneshot::Receiver<()>)> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let own = table.of.get(key).map_or(0, VecDeque::len);
        if own >= self.of_one {
            table.end_oldest(key);
        } else if table.in_sum >= self.in_sum {
            let (other, is_even) = table.gives_way(key, &favoured())?;
            if is_even && self.when_even == WhenEven::Refuse {
                return None;
            }
            table.end_oldest(&other);
        }
        let (keep, displaced) = oneshot::channel();
        table.last += 1;
        table.in_sum += 1;
        let number = table.last;
        table.of.entry(key.clone()).or_default().push_back((number, keep));
        Some((number, displaced))
    }
}

impl<K: Eq + Hash + Clone> Table<K> {
    /// Who has most with one more of `key`'s, of several the one with the oldest; and whether `key` has nothing yet and the
    /// other no more than `key` would have. None: `key` would have most with its first.
    fn gives_way(&self, key: &K, favoured: &HashSet<K>) -> Option<(K, bool)> {
        let weight = |of: &K, has: usize| match favoured.contains(of) {
            true => has.saturating_sub(FAVOUR),
            false => has,
        };
        let own = self.of.get(key).map_or(0, VecDeque::len);
        let with_one_more = weight(key, own + 1);
        let others = self.of.iter().filter(|(other, _)| *other != key);
        let oldest = |held: &VecDeque<(u64, _)>| held.front().map_or(u64::MAX, |(number, _)| *number);
        let greediest = others
            .map(|(other, held)| (weight(other, held.len()), u64::MAX - oldest(held), other))
            .max_by_key(|(weight, age, _)| (*weight, *age));
        match greediest {
            Some((most, _, other)) if most > with_one_more => Some((other.clone(), false)),
            _ if own > 0 => Some((key.clone(), false)),
            Some((most, _, other)) if most == with_one_more => Some((other.clone(), true)),
            _ => None,
        }
    }

    fn end_oldest(&mut self, key: &K) {
        let Some(held) = self.of.get_mut(key) else {
            return;
        };
        if held.pop_front().is_some() {
            self.in_sum -= 1;
        }
        if held.is_empty() {
            self.of.remove(key);
        }
    }
}

/// Gives a place back when its work ends, however it ends.
struct Entry<'a, K: Eq + Hash> {
    shares: &'a Shares<K>,
    key: K,
    number: u64,
}

impl<K: Eq + Hash> Drop for Entry<'_, K> {
    fn drop(&mut self) {
        let mut table = self.shares.table.lock().unwrap_or_else(PoisonError::into_inner);
        let table = &mut *table;
        let Some(held) = table.of.get_mut(&self.key) else {
            return;
        };
        // Its place may be another's by now.
        if let Some(at) = held.iter().position(|(number, _)| *number == self.number) {
            held.remove(at);
            table.in_sum -= 1;
        }
        if held.is_empty() {
            table.of.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Waker};

    type Run<'a> = Pin<Box<dyn Future<Output = Result<(), NoPlace>> + 'a>>;

    /// Work that never ends by itself.
    struct Work<'a>(Option<Run<'a>>);

    fn begin<'a>(shares: &'a Shares<u32>, key: u32, favoured: &[u32]) -> Work<'a> {
        let favoured = favoured.iter().copied().collect::<HashSet<u32>>();
        let work = shares.run(key, move || favoured, std::future::pending());
        let mut work = Work(Some(Box::pin(work)));
        // It takes its place at the first look.
        is_on(&mut work);
        work
    }

    fn is_on(work: &mut Work<'_>) -> bool {
        let context = &mut Context::from_waker(Waker::noop());
        let is_over = match &mut work.0 {
            Some(future) => future.as_mut().poll(context).is_ready(),
            None => true,
        };
        if is_over {
            work.0 = None;
        }
        !is_over
    }

    #[test]
    fn one_more_of_whoever_has_most_ends_the_oldest_of_his() {
        let shares = Shares::new(4, 3, WhenEven::EndOldest);
        let mut held: Vec<_> = [1, 1, 2, 1].map(|key| begin(&shares, key, &[])).into();
        assert!(held.iter_mut().all(is_on), "there is room");
        // A third one comes in, the oldest of those with most goes.
        held.push(begin(&shares, 3, &[]));
        let on: Vec<bool> = held.iter_mut().map(is_on).collect();
        assert_eq!(on, [false, true, true, true, true]);
        drop(held.remove(0));
        // With one more the first has most again, and takes its own.
        held.push(begin(&shares, 1, &[]));
        let on: Vec<bool> = held.iter_mut().map(is_on).collect();
        assert_eq!(on, [false, true, true, true, true], "the older of its two");
        drop(held);
        let table = shares.table.lock().unwrap();
        assert!(table.in_sum == 0 && table.of.is_empty());
    }

    #[test]
    fn of_one_there_are_no_more_than_its_share_however_much_room_there_is() {
        let shares = Shares::new(10, 2, WhenEven::Refuse);
        let mut held: Vec<_> = [1, 1, 1].map(|key| begin(&shares, key, &[])).into();
        assert_eq!(
            held.iter_mut().map(is_on).collect::<Vec<_>>(),
            [false, true, true]
        );
    }

    #[test]
    fn where_all_have_the_same_the_oldest_goes_or_the_newest_is_refused() {
        for (when_even, newest) in [(WhenEven::EndOldest, true), (WhenEven::Refuse, false)] {
            let shares = Shares::new(3, 2, when_even);
            let mut held: Vec<_> = [1, 2, 3, 4].map(|key| begin(&shares, key, &[])).into();
            let on: Vec<bool> = held.iter_mut().map(is_on).collect();
            assert_eq!(on, [!newest, true, true, newest], "{when_even:?}");
        }
    }

    #[test]
    fn favoured_ones_come_in_before_very_many_others_and_take_no_more_than_their_favour() {
        let shares = Shares::new(16, 16, WhenEven::EndOldest);
        let mut proxy = begin(&shares, 0, &[0]);
        let others: Vec<_> = (1..1_000).map(|key| begin(&shares, key, &[0])).collect();
        assert!(is_on(&mut proxy), "it was first, and is there");
        drop((proxy, others));
        // The control: without favour it goes.
        let mut proxy = begin(&shares, 0, &[]);
        let others: Vec<_> = (1..1_000).map(|key| begin(&shares, key, &[])).collect();
        assert!(!is_on(&mut proxy));
        drop((proxy, others));
        // A favoured one that takes all makes room for a stranger.
        let many: Vec<_> = (0..16).map(|_| begin(&shares, 0, &[0])).collect();
        let mut stranger = begin(&shares, 1, &[0]);
        let again = begin(&shares, 0, &[0]);
        assert!(is_on(&mut stranger), "the favoured one takes its own");
        drop((many, stranger, again));
        // Where all others are favoured and have no more than that, none of them ends for a stranger.
        let many: Vec<_> = (0..16).map(|n| begin(&shares, n % 2, &[0, 1])).collect();
        let mut stranger = begin(&shares, 2, &[0, 1]);
        assert!(!is_on(&mut stranger));
        drop((many, stranger));
    }
}
