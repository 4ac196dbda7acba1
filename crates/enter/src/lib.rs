//! The session helper for containers: the session helper, and before its work the steps that enter a container.
//!
//! An image of its own, so that no plain session maps what only these sessions need. Whoever is root in the container is
//! taken for an enemy of the machine. So:
//! - the image is a memfd or an overlay: root can write to neither, whatever link to it he finds;
//! - the helper does all that takes power where no process of the container can see it: it stays outside the container's
//!   process namespace, and cannot be traced. What appears inside is a copy that has the user's ids and the container's
//!   capabilities from its first instruction, and only executes the program;
//! - no path of the container is followed before its namespaces are entered, and none of the machine afterwards;
//! - what is read inside (accounts, the terminal) has bounds, is of the right kind, and is never waited for.
//!
//! Read in this order: `run` (the steps), `host` (what takes the machine's root), `namespaces`, `user` (the container's
//! accounts), `privileges`, `program` (the copy, and what it executes).
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

mod host;
mod namespaces;
mod privileges;
mod program;
mod run;
pub mod user;

use core::ffi::CStr;

/// Runs the subcommand that `args` (without the program's name) asks for; returns the exit code.
pub fn run(args: &[&CStr]) -> i32 {
    match args {
        [enter, order] if *enter == fleetgate_wire::container::SUBCOMMAND && *order == c"--order" => {
            run::run()
        }
        _ => fleetgate_session::run(args),
    }
}
