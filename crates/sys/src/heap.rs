//! An allocator that keeps some blocks of the sizes that buffers have for whoever asks next. musl's maps and unmaps nearly
//! every one of them anew: 48 calls, and the page faults behind them, for each mebibyte that a tunnel carries. It is for
//! programs that say so; what is small goes to the system's allocator as ever.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::alloc::System;

/// Blocks up to this size are the system's alone.
const SMALL: usize = 8 * 1024;
/// Sizes that are kept: twice that, and so on by doubling.
const SIZES: usize = 5;
/// Of each size, at most.
const KEPT: usize = 8;
/// What every block is aligned to; musl's are, so nothing is lost.
const ALIGN: usize = 16;

static BLOCKS: [[AtomicPtr<u8>; KEPT]; SIZES] =
    [const { [const { AtomicPtr::new(null_mut()) }; KEPT] }; SIZES];

/// See the module. `#[global_allocator] static HEAP: Keeping = Keeping;`
#[derive(Debug, Clone, Copy)]
pub struct Keeping;

/// Which of the sizes it is a block of.
fn size_of(layout: Layout) -> Option<usize> {
    if layout.size() <= SMALL || layout.align() > ALIGN {
        return None;
    }
    let doublings = layout.size().div_ceil(SMALL).next_power_of_two().trailing_zeros() as usize;
    (doublings <= SIZES).then(|| doublings - 1)
}

/// What the system is asked for.
fn whole(size: usize) -> Layout {
    let bytes = SMALL << (size + 1);
    // Both are powers of two, far below the largest layout.
    Layout::from_size_align(bytes, ALIGN).unwrap_or(Layout::new::<()>())
}

/// Gives what is kept back to the system, and what the system's allocator has free.
pub fn rest() {
    give_back();
    // SAFETY: any thread may call it at any time; it touches nothing that is allocated.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Has the C library map and unmap each block of 128 KB and more by itself, for good. By itself it does so until the first of
/// them is freed, and then takes the next ones from the heap, where small blocks that stay settle in what they leave
/// behind: of 10 KB in 43 that a proxy had for each idle tunnel nobody knew anything. musl has it so anyway.
///
/// What is free at the heap's end goes back above 2 MB. The C library would put that bound up by itself too, and leaves it at
/// 128 KB once the other one is given: then a relay's frames took and gave back the same pages, 30 faults for each mebibyte.
pub fn keep_large_apart() {
    #[cfg(target_env = "gnu")]
    // SAFETY: numbers only; it changes where blocks come from, and none that there are.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 * 1024);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * 1024 * 1024);
    };
}

/// The bytes that are allocated of the C library now, also those that a thread keeps for its next small blocks. Pages that are
/// free between them are not among them: by this a process that loses blocks is told from one whose heap has holes.
#[cfg(target_env = "gnu")]
pub fn in_use() -> usize {
    // SAFETY: any thread may call it at any time; it only counts.
    let counts = unsafe { libc::mallinfo() };
    // They are ints, which are above 2 GB what unsigned ones would be.
    counts.uordblks as u32 as usize + counts.hblkhd as u32 as usize
}

fn give_back() {
    for (size, blocks) in BLOCKS.iter().enumerate() {
        for block in blocks {
            let block = block.swap(null_mut(), Acquire);
            if !block.is_null() {
                // SAFETY: only `dealloc` puts blocks there, each allocated by the system with this layout, and whoever
                // swaps one out is the only one who has it.
                unsafe { System.dealloc(block, whole(size)) };
            }
        }
    }
}

// SAFETY: a block comes from the system with the caller's layout, or, where `size_of` names a size, with the layout of
// that size, which is at least as large and as aligned; which of both it was is found again from the same layout when it is
// given back. A kept block is in one slot only and is taken out by a swap, so it is never lent twice.
unsafe impl GlobalAlloc for Keeping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(size) = size_of(layout) else {
            // SAFETY: the caller's own conditions.
            return unsafe { System.alloc(layout) };
        };
        for slot in &BLOCKS[size] {
            let block = slot.swap(null_mut(), Acquire);
            if !block.is_null() {
                return block;
            }
        }
        // SAFETY: the layout's size is not zero.
        unsafe { System.alloc(whole(size)) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(size) = size_of(layout) else {
            // SAFETY: the caller's own conditions; the system allocated it with this layout.
            return unsafe { System.dealloc(block, layout) };
        };
        for slot in &BLOCKS[size] {
            if slot.compare_exchange(null_mut(), block, Release, Relaxed).is_ok() {
                return;
            }
        }
        // SAFETY: the system allocated it with this layout, and nobody else has it.
        unsafe { System.dealloc(block, whole(size)) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, length: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(length, layout.align()) else {
            return null_mut();
        };
        match (size_of(layout), size_of(wanted)) {
            // SAFETY: the caller's own conditions; the system allocated it with this layout.
            (None, None) => unsafe { System.realloc(block, layout, length) },
            (Some(before), Some(after)) if before == after => block,
            // SAFETY: the caller's own conditions, with the layout that he wants.
            _ => unsafe { move_block(self, block, layout, wanted) },
        }
    }
}

/// A block of the layout `wanted` with what `block` has, which is given back; null: there was no memory, and `block` stays. For
/// allocators, whose `realloc` can leave it neither where it is nor to the system.
///
/// # Safety
/// `block` is one of `heap`'s by `layout`, and nobody uses it any more where a block is returned; `wanted` has a size.
pub(crate) unsafe fn move_block(
    heap: &impl GlobalAlloc,
    block: *mut u8,
    layout: Layout,
    wanted: Layout,
) -> *mut u8 {
    // SAFETY: the caller promises that `wanted` has a size, and that `block` is by `layout`. Both blocks are at least as long as
    // what is copied, and one was given out while the other was, so they do not overlap.
    unsafe {
        let fresh = heap.alloc(wanted);
        if !fresh.is_null() {
            core::ptr::copy_nonoverlapping(block, fresh, layout.size().min(wanted.size()));
            heap.dealloc(block, layout);
        }
        fresh
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
    #[cfg(target_env = "gnu")]
    fn what_is_in_use_is_counted_whatever_its_size() {
        // Tests beside this one allocate too, but not so much.
        const ALL: usize = 64 << 20;
        for block in [1 << 10, ALL] {
            let before = in_use();
            let blocks: Vec<Vec<u8>> = (0..ALL / block).map(|_| Vec::with_capacity(block)).collect();
            assert!(in_use() > before + ALL / 2, "{block}");
            drop(blocks);
            assert!(in_use() < before + ALL / 2, "{block}");
        }
    }

    #[test]
    fn blocks_have_the_size_that_is_asked_for_and_are_lent_once() {
        for (bytes, size) in [
            (1, None),
            (SMALL, None),
            (SMALL + 1, Some(0)),
            (2 * SMALL, Some(0)),
            (2 * SMALL + 1, Some(1)),
            (32 * SMALL, Some(4)),
            (32 * SMALL + 1, None),
        ] {
            assert_eq!(size_of(layout(bytes)), size, "{bytes}");
            assert!(size.is_none_or(|size| whole(size).size() >= bytes), "{bytes}");
        }
        assert_eq!(
            size_of(Layout::from_size_align(3 * SMALL, 4096).expect("a layout")),
            None
        );
        // More of one size than is kept, twice: each is whole and nobody else's.
        let bytes = 20_000;
        for _ in 0..2 {
            let blocks: Vec<*mut u8> = (0..2 * KEPT)
                .map(|n| {
                    // SAFETY: the layout has a size, and the block is as long as what is written.
                    unsafe {
                        let block = Keeping.alloc(layout(bytes));
                        block.write_bytes(n as u8, bytes);
                        block
                    }
                })
                .collect();
            for (n, block) in blocks.into_iter().enumerate() {
                // SAFETY: it was written above; it grows within its size, beyond it, and becomes small, and has all of
                // what it had each time.
                unsafe {
                    let block = Keeping.realloc(block, layout(bytes), 30_000);
                    let block = Keeping.realloc(block, layout(30_000), 100_000);
                    let block = Keeping.realloc(block, layout(100_000), 300);
                    assert!((0..300).all(|at| *block.add(at) == n as u8));
                    Keeping.dealloc(block, layout(300));
                }
            }
        }
        rest();
        let kept = BLOCKS.iter().flatten();
        assert!(kept.into_iter().all(|block| block.load(Relaxed).is_null()));
    }
}
