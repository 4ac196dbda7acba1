//! An allocator for a program that ends soon: blocks are cut from its own zero pages, one behind the other, and only the last
//! one is taken back. musl's maps memory for the first block of each size, and unmaps it when that one is freed: 40 calls, and
//! the page faults behind them, in a program that needs 100 KB for a millisecond. What does not fit is the system's.

use crate::heap::move_block;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::alloc::System;

const ARENA: usize = 512 << 10;
/// What every block is aligned to, and a multiple of.
const ALIGN: usize = 16;

/// See the module. `#[global_allocator] static HEAP: ShortLived = ShortLived::new();`
#[derive(Debug)]
#[repr(C, align(16))]
pub struct ShortLived {
    memory: UnsafeCell<[u8; ARENA]>,
    /// How much of it is given out.
    used: AtomicUsize,
}

// SAFETY: of `memory` only parts are handed out, each to one owner: `used` changes by compare-and-swap alone, so no two
// callers get the same bytes, and it goes back over a block only while nothing was given out behind it, by that block's owner.
// Giving back releases what was written there, and taking acquires it, so the next owner's writes come after.
unsafe impl Sync for ShortLived {}

impl ShortLived {
    /// With nothing given out.
    pub const fn new() -> ShortLived {
        ShortLived {
            memory: UnsafeCell::new([0; ARENA]),
            used: AtomicUsize::new(0),
        }
    }

    /// Where `block` begins in the arena; none: it is the system's.
    fn start(&self, block: *mut u8) -> Option<usize> {
        let start = (block as usize).checked_sub(self.memory.get() as usize)?;
        (start < ARENA).then_some(start)
    }

    /// Moves the end of the last block; whether it was the last, and there is room.
    fn move_end(&self, from: usize, to: usize) -> bool {
        to <= ARENA && self.used.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }
}

impl Default for ShortLived {
    fn default() -> ShortLived {
        ShortLived::new()
    }
}

/// The length that a block of `size` bytes takes; none: more than there is.
fn length(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(ALIGN)
        .filter(|length| *length <= ARENA)
}

// SAFETY: a block is a part of the arena that nobody else has (see `Sync`), long enough and aligned, or the system's; which of
// both shows in its address. The arena lives as long as the allocator, which is a static.
unsafe impl GlobalAlloc for ShortLived {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some(length) = length(layout.size())
            && layout.align() <= ALIGN
            && let Ok(start) = self.used.fetch_update(Acquire, Relaxed, |used| {
                Some(used + length).filter(|end| *end <= ARENA)
            })
        {
            // SAFETY: `start` lies within the arena.
            return unsafe { self.memory.get().cast::<u8>().add(start) };
        }
        // SAFETY: the caller's own conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match (self.start(block), length(layout.size())) {
            (Some(start), Some(length)) => {
                self.move_end(start + length, start);
            }
            // SAFETY: it is the system's, by this layout.
            _ => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(start) = self.start(block) else {
            // SAFETY: it is the system's, by this layout; the rest is the caller's promise.
            return unsafe { System.realloc(block, layout, size) };
        };
        if let (Some(before), Some(after)) = (length(layout.size()), length(size))
            && (before == after || self.move_end(start + before, start + after))
        {
            return block;
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return core::ptr::null_mut();
        };
        // SAFETY: the caller's own conditions: the block is by this layout, and `size` is not zero.
        unsafe { move_block(self, block, layout, wanted) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).expect("a layout")
    }

    #[test]
    fn blocks_do_not_overlap_and_the_last_one_grows_and_goes_back() {
        static HEAP: ShortLived = ShortLived::new();
        // SAFETY: layouts with a size; each block is used as long as it is, and given back once, by its layout.
        unsafe {
            let first = HEAP.alloc(layout(100));
            first.write_bytes(1, 100);
            let second = HEAP.alloc(layout(10));
            second.write_bytes(2, 10);
            assert_eq!(HEAP.realloc(second, layout(10), 5000), second, "it is the last");
            second.write_bytes(2, 5000);
            let moved = HEAP.realloc(first, layout(100), 200);
            assert_ne!(moved, first);
            assert!((0..100).all(|n| *moved.add(n) == 1) && (0..5000).all(|n| *second.add(n) == 2));
            HEAP.dealloc(moved, layout(200));
            assert_eq!(HEAP.alloc(layout(3)), moved, "what was the last is given again");
            // More than there is, and what no block of the arena is aligned to.
            let large = HEAP.alloc(layout(ARENA));
            assert_eq!(HEAP.start(large), None);
            let large = HEAP.realloc(large, layout(ARENA), 2 * ARENA);
            HEAP.dealloc(large, layout(2 * ARENA));
            let page = Layout::from_size_align(64, 4096).expect("a layout");
            let aligned = HEAP.alloc(page);
            assert_eq!((HEAP.start(aligned), aligned as usize % 4096), (None, 0));
            HEAP.dealloc(aligned, page);
        }
    }

    #[test]
    fn threads_share_it() {
        static HEAP: ShortLived = ShortLived::new();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                scope.spawn(move || {
                    // SAFETY: as above.
                    unsafe {
                        for round in 0..200 {
                            let size = 1 + round % 90;
                            let blocks: Vec<*mut u8> = (0..4).map(|_| HEAP.alloc(layout(size))).collect();
                            for block in &blocks {
                                block.write_bytes(thread, size);
                            }
                            std::thread::yield_now();
                            for block in blocks {
                                assert!((0..size).all(|n| *block.add(n) == thread));
                                HEAP.dealloc(block, layout(size));
                            }
                        }
                    }
                });
            }
        });
    }
}
