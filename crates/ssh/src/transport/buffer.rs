//! Large buffers, taken when there is something to hold and given back when there is not, so that an idle connection
//! has none. Each thread keeps a few for its next connection to be busy. They are never shared between threads.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// A buffer's size: room for a read of 64 KB behind a packet that has not come whole.
pub(crate) const SIZE: usize = 136 * 1024;
/// So many a thread keeps: one to read to and one to write from.
const KEPT: usize = 2;

thread_local! {
    static FREE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer or none. Its bytes are whatever they were.
#[derive(Default)]
pub(crate) struct Buffer(Box<[u8]>);

impl Buffer {
    /// One of at least so many bytes: of the usual size where that will do.
    pub(crate) fn of(at_least: usize) -> Buffer {
        if at_least > SIZE {
            return Buffer(vec![0; at_least.next_multiple_of(SIZE)].into());
        }
        let kept = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
        // From the kernel this comes zeroed, a page at a time as it is used.
        Buffer(kept.unwrap_or_else(|| vec![0; SIZE].into()))
    }

    /// One that holds these bytes and has no room for more.
    pub(crate) fn exact(bytes: &[u8]) -> Buffer {
        Buffer(bytes.into())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.0.len() == SIZE {
            let buffer = std::mem::take(&mut self.0);
            // A thread that is ending keeps nothing.
            let _ = FREE.try_with(|free| {
                let mut free = free.borrow_mut();
                if free.len() < KEPT {
                    free.push(buffer);
                }
            });
        }
    }
}

/// Gives back what this thread keeps: for a process that expects to be idle for long.
pub fn release_buffers() {
    let _ = FREE.try_with(|free| free.borrow_mut().clear());
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
