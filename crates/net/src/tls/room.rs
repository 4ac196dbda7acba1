//! Buffers of connections at work. A connection that waits has none: it gives its own back to its thread's stock, where the
//! next one finds it warm.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Large enough that a mebibyte takes eight system calls, small enough for the second-level cache.
pub(super) const ROOM: usize = 128 * 1024;
/// Rooms that a thread keeps: as many as two connections that carry bulk have, for each direction.
const STOCK: usize = 4;

thread_local! {
    static FREE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of [`ROOM`] bytes, lent.
pub(super) struct Room(Box<[u8]>);

impl Room {
    pub(super) fn take() -> Room {
        let free = FREE.with_borrow_mut(Vec::pop);
        Room(free.unwrap_or_else(|| vec![0; ROOM].into_boxed_slice()))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let room = std::mem::take(&mut self.0);
        // At a thread's end there is no stock any more.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < STOCK {
                free.push(room);
            }
        });
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Gives this thread's stock back to the system: for a process that is to be small while it waits.
pub fn rest() {
    FREE.with_borrow_mut(|free| *free = Vec::new());
}
