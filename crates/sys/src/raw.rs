//! The system call instruction itself. Nothing else in the workspace contains assembly, except the new-stack
//! entry in [`crate::spawn`] and the entry point in `program`.

use crate::{Errno, Result};

/// Turns the kernel's return value into a result: values from -4095 to -1 are error numbers.
#[inline(always)]
pub fn check(ret: isize) -> Result<usize> {
    if (-4095..0).contains(&ret) {
        Err(Errno(-ret as i32))
    } else {
        Ok(ret as usize)
    }
}

/// Makes system call `nr` with up to six arguments.
///
/// # Safety
/// The arguments must be what that system call expects: pointers valid for what the kernel reads and writes.
#[inline(always)]
pub unsafe fn syscall6(nr: i64, args: [usize; 6]) -> isize {
    let ret: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller vouches for the arguments; rcx and r11 are the only registers the kernel clobbers.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") nr as isize => ret,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller vouches for the arguments; the kernel preserves every register but x0.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") nr,
            inlateout("x0") args[0] as isize => ret,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack),
        );
    }
    ret
}

/// `syscall!(NR, a, b, …)`: a raw call, checked. An expression of type [`Result<usize>`]; must stand in `unsafe`.
#[macro_export]
macro_rules! syscall {
    ($nr:expr) => { $crate::raw::check($crate::raw::syscall6($nr as i64, [0; 6])) };
    ($nr:expr, $a:expr) => { $crate::raw::check($crate::raw::syscall6($nr as i64, [$a as usize, 0, 0, 0, 0, 0])) };
    ($nr:expr, $a:expr, $b:expr) => {
        $crate::raw::check($crate::raw::syscall6($nr as i64, [$a as usize, $b as usize, 0, 0, 0, 0]))
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr) => {
        $crate::raw::check($crate::raw::syscall6($nr as i64, [$a as usize, $b as usize, $c as usize, 0, 0, 0]))
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr) => {
        $crate::raw::check($crate::raw::syscall6(
            $nr as i64,
            [$a as usize, $b as usize, $c as usize, $d as usize, 0, 0],
        ))
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => {
        $crate::raw::check($crate::raw::syscall6(
            $nr as i64,
            [$a as usize, $b as usize, $c as usize, $d as usize, $e as usize, 0],
        ))
    };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::raw::check($crate::raw::syscall6(
            $nr as i64,
            [$a as usize, $b as usize, $c as usize, $d as usize, $e as usize, $f as usize],
        ))
    };
}
