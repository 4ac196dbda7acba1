//! The format of a recording (docs/recording.md): what a session showed, when, and how a change of it is noticed. Bytes in,
//! bytes out: nothing here opens a file or asks a clock. Of keys it knows those that a recording is encrypted for ([`age`]);
//! who signs it, and with what, is not its matter.
//!
//! A recording is a chain of blocks. A block holds frames, compressed and perhaps encrypted, and the hash of everything before it. The block that
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

pub mod age;
pub mod block;
mod columns;
pub mod compress;
mod error;
pub mod frame;
pub mod limit;
pub mod live;
pub mod pipe;
pub mod reader;
pub mod recover;
pub mod signature;
pub mod tail;
#[cfg(test)]
mod tests;
mod unpack;
pub mod writer;

pub use error::{Error, Fault};
