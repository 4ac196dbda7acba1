//! The node's workers: sandboxed processes that the monitor starts and does not trust. The lobby has connections before
//! their login, a front has those of one login, the watcher tells of watched sessions' system calls, a guardian answers
//! them when the watcher is gone. The starter goes on as this program when it only waits.
//!
//! `program` is the table of them; `start` is their common start, for the tunnel's program too.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]
#![forbid(unsafe_code)]

pub mod budget;
mod front;
mod guardian;
pub mod idle_starter;
mod lobby;
mod program;
pub mod rest;
pub mod sandbox;
pub mod start;
mod watcher;

pub use program::run;
