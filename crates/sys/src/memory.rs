//! Another process's memory. What is read there was true at that moment alone: its threads go on writing.

use crate::{Result, syscall};

/// Reads from `at` on; how many bytes there were, until what is not mapped. One system call.
pub fn read(tid: i32, at: u64, into: &mut [u8]) -> Result<usize> {
    let here = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let there = libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: into.len(),
    };
    // SAFETY: the kernel writes into `into` alone; the other address is looked up in the other process.
    unsafe {
        syscall!(
            libc::SYS_process_vm_readv,
            tid,
            &raw const here,
            1,
            &raw const there,
            1,
            0
        )
    }
}

/// Writes at `at`; how many bytes were.
pub fn write(tid: i32, at: u64, from: &[u8]) -> Result<usize> {
    let here = libc::iovec {
        iov_base: from.as_ptr().cast_mut().cast(),
        iov_len: from.len(),
    };
    let there = libc::iovec {
        iov_base: at as *mut libc::c_void,
        iov_len: from.len(),
    };
    // SAFETY: the kernel reads from `from` alone; the other address is looked up in the other process.
    unsafe {
        syscall!(
            libc::SYS_process_vm_writev,
            tid,
            &raw const here,
            1,
            &raw const there,
            1,
            0
        )
    }
}
