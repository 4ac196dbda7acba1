//! What a program without the standard library needs: an allocator, a panic that says where and ends the
//! process, and its arguments. The C start code (musl's, static) calls `main`, which the program defines with
//! [`crate::program_main!`].

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::fmt::Write;
use core::sync::atomic::{AtomicUsize, Ordering};

// The start code and the memory functions are the C library's; without std nobody else asks for it. `-bundle`:
// it is linked into the program, not into this library.
#[link(name = "c", kind = "static", modifiers = "-bundle")]
unsafe extern "C" {}

/// Memory for the first allocations, part of the program's zero pages: what a launch needs comes from here, without
/// a system call and without a page touched that is not used. musl's malloc makes five calls before its first
/// block is there, and `exec` ends before it frees anything worth having back.
const ARENA: usize = 128 << 10;
/// Blocks of this size and more are taken from the arena's far end, so that a receive buffer of which a few bytes
/// are used does not spread the small blocks over more pages.
const LARGE: usize = 4096;

/// Takes from the arena until it is used up, then from the C library. A block of the arena that is not the last
/// one of its end is not used again when freed: helpers that live long lose [`ARENA`] bytes at most. The counters
/// stand before the memory, on its first page.
#[repr(C, align(16))]
struct Allocator {
    /// How much is given out at the near end.
    near: AtomicUsize,
    /// How much was ever given out at the near end: above it all is zero still.
    touched: AtomicUsize,
    /// How much is given out at the far end; never taken back, so always zero when given.
    far: AtomicUsize,
    _align: usize,
    memory: UnsafeCell<[u8; ARENA]>,
}

// SAFETY: parts of `memory` are given out, each to one owner, as the atomics decide. Both ends read the other's
// counter before they take; the program has one thread, and a second one could at worst be refused memory it
// might have had: see `take`.
unsafe impl Sync for Allocator {}

impl Allocator {
    fn base(&self) -> usize {
        self.memory.get() as usize
    }

    /// A place in the arena, with the number of its first bytes that may not be zero.
    fn take(&self, layout: Layout) -> Option<(*mut u8, usize)> {
        if layout.align() > 16 {
            return None;
        }
        let size = layout
            .size()
            .checked_next_multiple_of(16)
            .filter(|size| *size <= ARENA)?;
        let (start, dirty) = if size >= LARGE {
            let far = self.far.fetch_add(size, Ordering::SeqCst) + size;
            if far + self.near.load(Ordering::SeqCst) > ARENA {
                self.far.fetch_sub(size, Ordering::SeqCst);
                return None;
            }
            (ARENA - far, 0)
        } else {
            let near = self.near.fetch_add(size, Ordering::SeqCst);
            if near + size + self.far.load(Ordering::SeqCst) > ARENA {
                self.near.fetch_sub(size, Ordering::SeqCst);
                return None;
            }
            let touched = self.touched.fetch_max(near + size, Ordering::SeqCst);
            (near, touched.saturating_sub(near).min(size))
        };
        // SAFETY: `start` is within the arena.
        let place = unsafe { self.memory.get().cast::<u8>().add(start) };
        Some((place, dirty))
    }

    fn is_ours(&self, ptr: *mut u8) -> bool {
        (self.base()..self.base() + ARENA).contains(&(ptr as usize))
    }

    /// Moves the end of the last near block from `old` to `new`, both rounded up; whether it was the last.
    fn resize_last(&self, old: usize, new: usize) -> bool {
        let (old, new) = (old.next_multiple_of(16), new.next_multiple_of(16));
        if new > ARENA.saturating_sub(self.far.load(Ordering::SeqCst)) {
            return false;
        }
        let resized = self
            .near
            .compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if resized {
            self.touched.fetch_max(new, Ordering::SeqCst);
        }
        resized
    }
}

// SAFETY: a block is either a part of the arena that `used` gave to this caller alone, or the C library's; which it
// is shows in its address. malloc, aligned_alloc, calloc and free are what GlobalAlloc asks for.
unsafe impl GlobalAlloc for Allocator {
    // Never inlined: it would be, into every place that allocates, 8 KB of them.
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some((place, _)) = self.take(layout) {
            return place;
        }
        // SAFETY: any size and any power of two is allowed; null on failure, as GlobalAlloc wants.
        unsafe {
            if layout.align() <= 16 {
                libc::malloc(layout.size()).cast()
            } else {
                libc::aligned_alloc(layout.align(), layout.size().next_multiple_of(layout.align())).cast()
            }
        }
    }
    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if let Some((place, dirty)) = self.take(layout) {
            // SAFETY: the first `dirty` bytes lie within the block.
            unsafe { place.write_bytes(0, dirty) };
            return place;
        }
        if layout.align() <= 16 {
            // SAFETY: any size is allowed; fresh memory of the kernel's is not touched.
            return unsafe { libc::calloc(1, layout.size()).cast() };
        }
        // SAFETY: as asked by the caller; a block of `layout.size()` bytes.
        unsafe {
            let place = self.alloc(layout);
            if !place.is_null() {
                place.write_bytes(0, layout.size());
            }
            place
        }
    }
    #[inline(never)]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if self.is_ours(ptr) {
            let start = ptr as usize - self.base();
            self.resize_last(start + layout.size(), start);
        } else {
            // SAFETY: `ptr` came from the C library.
            unsafe { libc::free(ptr.cast()) }
        }
    }
    #[inline(never)]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: `ptr` came from `alloc` with this layout; what cannot grow in place is moved by hand.
        unsafe {
            if self.is_ours(ptr) {
                let start = ptr as usize - self.base();
                let end = start + new_size;
                if self.resize_last(start + layout.size(), end) {
                    return ptr;
                }
            } else if layout.align() <= 16 {
                return libc::realloc(ptr.cast(), new_size).cast();
            }
            let new = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
            if !new.is_null() {
                core::ptr::copy_nonoverlapping(ptr, new, layout.size().min(new_size));
                self.dealloc(ptr, layout);
            }
            new
        }
    }
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator {
    near: AtomicUsize::new(0),
    touched: AtomicUsize::new(0),
    far: AtomicUsize::new(0),
    _align: 0,
    memory: UnsafeCell::new([0; ARENA]),
};

/// Formats onto a descriptor without allocating.
pub struct Stderr;

impl Write for Stderr {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        crate::file::write_all(2, s.as_bytes()).map_err(|_| core::fmt::Error)
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Stderr, "fleetgate: a bug: {info}");
    crate::process::exit(70)
}

/// The prebuilt `alloc` was compiled for unwinding and asks for these two. Nothing here unwinds: a panic ends the
/// process above, so neither is ever called.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    crate::process::exit(70)
}

/// See [`_Unwind_Resume`].
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// The arguments as the kernel gave them.
#[derive(Clone, Copy)]
pub struct Args {
    count: usize,
    first: *const *const c_char,
}

impl Args {
    /// # Safety
    /// `first` must point to `count` strings that live as long as the process: main's `argv`.
    pub unsafe fn new(count: i32, first: *const *const c_char) -> Args {
        Args {
            count: count.max(0) as usize,
            first,
        }
    }

    /// Argument `index`; 0 is the program's name.
    pub fn get(&self, index: usize) -> Option<&'static CStr> {
        // SAFETY: below `count`, each pointer is a string of the process's own stack, never freed.
        (index < self.count).then(|| unsafe { CStr::from_ptr(*self.first.add(index)) })
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &'static CStr> + use<> {
        let this = *self;
        (0..self.count).filter_map(move |i| this.get(i))
    }
}

/// Defines `main` for a no_std program: `program_main!(run)` with `fn run(args: Args) -> i32`.
#[macro_export]
macro_rules! program_main {
    ($run:path) => {
        #[unsafe(no_mangle)]
        extern "C" fn main(argc: i32, argv: *const *const core::ffi::c_char) -> i32 {
            // SAFETY: the C start code passes main's own arguments.
            $run(unsafe { $crate::program::Args::new(argc, argv) })
        }
    };
}
