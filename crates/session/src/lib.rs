//! The session helper: what must run in a process of its own for a user's shell, command, sockets and files.
//!
//! Started from a sealed image with an order waiting on descriptor 3 (`--order`), it does one piece of work and
//! ends or becomes the user's program. It never listens, never looks up names itself (the resolver does), never
//! starts another process, and reads no configuration.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod checkhomedir;
pub mod exec;
pub mod networking;
pub mod order;
mod privileges;
mod selinux;
pub mod sftp;
mod truth;

use alloc::vec::Vec;
use core::ffi::CStr;

/// The helper's version; the image's build id is what tells two builds apart (`--version` prints both).
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs the subcommand that `args` (without the program's name) asks for; returns the exit code.
pub fn run(args: &[&CStr]) -> i32 {
    let words: Vec<&[u8]> = args.iter().map(|a| a.to_bytes()).collect();
    match words.as_slice() {
        [b"exec", b"--order"] => exec::run(),
        [b"networking", b"--order"] => networking::run(),
        [b"checkhomedir", b"--order"] => checkhomedir::run(),
        [b"sftp", b"--order"] => sftp::run_order(),
        [b"sftp", rest @ ..] => sftp::run_standalone(rest),
        [b"true", rest @ ..] => truth::run(rest),
        [b"--version"] => truth::version(),
        _ => truth::usage(),
    }
}
