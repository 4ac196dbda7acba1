//! Random names that are given out, good once and for a time: nonces and cookies. They are kept in memory, so a restart
//! means to ask again. It does not know what they are for.

use crate::error::Result;
use crate::secret::random;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The most at once; the oldest goes.
pub const MAX: usize = 10_000;
/// So many are never swept.
const SWEEP_AFTER: usize = 64;

/// Names of `LENGTH` bytes, with what each was given out for.
#[derive(Debug)]
pub struct OneTime<const LENGTH: usize, T> {
    good_ms: u64,
    table: Mutex<Table<LENGTH, T>>,
}

#[derive(Debug)]
struct Table<const LENGTH: usize, T> {
    /// Until when each is good, in milliseconds since boot.
    given: HashMap<[u8; LENGTH], (u64, T)>,
    /// How many there are when those that are over are forgotten.
    sweep_at: usize,
}

impl<const LENGTH: usize, T> OneTime<LENGTH, T> {
    /// None yet; each will be good for so many milliseconds.
    pub fn new(good_ms: u64) -> OneTime<LENGTH, T> {
        OneTime {
            good_ms,
            table: Mutex::new(Table {
                given: HashMap::new(),
                sweep_at: SWEEP_AFTER,
            }),
        }
    }

    /// A new one.
    pub fn give(&self, of: T, uptime: u64) -> Result<[u8; LENGTH]> {
        let mut name = [0; LENGTH];
        random(&mut name)?;
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.make_room(uptime);
        table.given.insert(name, (uptime + self.good_ms, of));
        Ok(name)
    }

    /// What it was given out for, if it is good; from now on it is not.
    pub fn take(&self, name: &[u8; LENGTH], uptime: u64) -> Option<T> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, of) = table.given.remove(name)?;
        (uptime < until).then_some(of)
    }

    /// How many are held.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .given
            .len()
    }
}

impl<const LENGTH: usize, T> Table<LENGTH, T> {
    /// Forgets those that are over, whenever there are twice as many as were good the last time: a table that is swept only
    /// when it is full is full of them before long.
    fn make_room(&mut self, uptime: u64) {
        if self.given.len() >= self.sweep_at {
            self.given.retain(|_, (until, _)| *until > uptime);
            self.sweep_at = (2 * self.given.len()).clamp(SWEEP_AFTER, MAX);
            self.given.shrink_to(self.sweep_at);
        }
        if self.given.len() >= MAX
            && let Some(oldest) = self.given.iter().min_by_key(|(_, (until, _))| *until)
            && let name = *oldest.0
        {
            self.given.remove(&name);
        }
    }
}
