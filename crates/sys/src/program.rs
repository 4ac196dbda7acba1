//! What a program without the standard library needs: an allocator, a panic that says where and ends the
//! process, and its arguments. The C start code (musl's, static) calls `main`, which the program defines with
//! [`crate::program_main!`].

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{CStr, c_char};
use core::fmt::Write;

// The start code and the memory functions are the C library's; without std nobody else asks for it. `-bundle`:
// it is linked into the program, not into this library.
#[link(name = "c", kind = "static", modifiers = "-bundle")]
unsafe extern "C" {}

/// The C library's allocator. musl's malloc aligns to 16; more is asked for by `aligned_alloc`.
struct Malloc;

// SAFETY: malloc, aligned_alloc and free are what GlobalAlloc asks for; sizes and alignments are passed on.
unsafe impl GlobalAlloc for Malloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and any power of two is allowed; null on failure, as GlobalAlloc wants.
        unsafe {
            if layout.align() <= 16 {
                libc::malloc(layout.size()).cast()
            } else {
                libc::aligned_alloc(layout.align(), layout.size().next_multiple_of(layout.align())).cast()
            }
        }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, _: Layout) {
        // SAFETY: `ptr` came from `alloc` above.
        unsafe { libc::free(ptr.cast()) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: `ptr` came from `alloc` with this layout; over-aligned blocks are moved by hand.
        unsafe {
            if layout.align() <= 16 {
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
static ALLOCATOR: Malloc = Malloc;

/// Formats onto a descriptor without allocating.
pub struct Stderr;

impl Write for Stderr {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        crate::file::write_all(2, s.as_bytes()).map_err(|_| core::fmt::Error)
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Stderr, "fleetgate-session: a bug: {info}");
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
