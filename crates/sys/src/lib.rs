//! Every system call of fleetgate, and every `unsafe` block.
//!
//! The calls are made raw (no libc wrapper), for three reasons: a child that shares its parent's memory must
//! not touch `errno` or any other libc state; `setuid` and its kin must change the calling thread only, which
//! glibc's wrappers do not; and the same code serves static musl programs and dynamic glibc ones.
//!
//! It never logs, never retries silently (except `EINTR` where said), never decides policy.
#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod audit;
pub mod clock;
pub mod credentials;
pub mod dir;
pub mod epoll;
mod errno;
pub mod exe;
pub mod exec;
mod fd;
pub mod file;
#[cfg(feature = "glibc")]
pub mod glibc;
#[cfg(any(feature = "std", test))]
pub mod heap;
pub mod landlock;
pub mod lock;
pub mod memfd;
pub mod memory;
pub mod mount;
pub mod namespaces;
pub mod net;
pub mod overlay;
pub mod pages;
pub mod poll;
pub mod process;
#[cfg(feature = "program")]
pub mod program;
pub mod ptrace;
pub mod raw;
pub mod seccomp;
pub mod self_test;
pub mod service;
#[cfg(any(feature = "std", test))]
pub mod short_lived;
pub mod signals;
pub mod slots;
pub mod socket;
pub mod spawn;
pub mod stream;
pub mod terminal;
pub mod traced;
pub mod tree;
pub mod tun;

pub use errno::{Errno, Result};
pub use fd::{Fd, close_range};
