//! Another process's memory. What is read there was true at that moment alone: its threads go on writing.

use crate::{Result, syscall};

/// Reads from `at` on; how many bytes there were, until what is not mapped. One system call.
pub fn read(tid: i32, at: u64, into: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes into `into` alone.
    unsafe { transfer(libc::SYS_process_vm_readv, tid, at, into.as_mut_ptr(), into.len()) }
}

/// Writes at `at`; how many bytes were.
pub fn write(tid: i32, at: u64, from: &[u8]) -> Result<usize> {
    // SAFETY: the kernel reads from `from` alone.
    unsafe {
        transfer(
            libc::SYS_process_vm_writev,
            tid,
            at,
            from.as_ptr().cast_mut(),
            from.len(),
        )
    }
}

/// # Safety
/// `own` has `length` bytes, which the call may read, or write where it is process_vm_readv. The other address is looked up
/// in the other process.
unsafe fn transfer(call: i64, tid: i32, at: u64, own: *mut u8, length: usize) -> Result<usize> {
    let part = |base: *mut libc::c_void| libc::iovec {
        iov_base: base,
        iov_len: length,
    };
    let (here, there) = (part(own.cast()), part(at as *mut libc::c_void));
    // SAFETY: the caller's, and two iovecs that live through the call.
    unsafe { syscall!(call, tid, &raw const here, 1, &raw const there, 1, 0) }
}
