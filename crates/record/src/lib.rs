//! The format of a recording (docs/recording.md): what a session showed, when, and how a change of it is noticed. Bytes in,
//! bytes out: nothing here opens a file, asks a clock, or knows a key.
//!
//! A recording is a chain of blocks. A block holds frames, compressed, and the hash of everything before it. The block that
//! is not full yet is in a file beside it, the tail, so that a crash costs a second at most and blocks stay large.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]
#![forbid(unsafe_code)]

pub mod block;
pub mod compress;
mod error;
pub mod frame;
pub mod pipe;
pub mod reader;
pub mod recover;
pub mod signature;
pub mod tail;
#[cfg(test)]
mod tests;
pub mod writer;

pub use error::{Error, Fault};
