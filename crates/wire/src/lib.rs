//! Frames between the processes of one machine: launching side, session helper, resolver.
//!
//! Pure: bytes in, types out. No I/O, no clock, no standard library. A frame is one SOCK_SEQPACKET message:
//! `fg`, version, kind, then fields; whatever is truncated, oversized, unknown or left over is an [`Error`],
//! never a guess. Both ends are always the same build (the image is embedded), so the version is checked, not
//! negotiated.
#![no_std]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]
#![forbid(unsafe_code)]

extern crate alloc;

mod codec;
pub mod common;
pub mod container;
pub mod exec;
pub mod guard;
pub mod home;
pub mod master;
pub mod names;
pub mod net;
pub mod node;
pub mod order;
pub mod pam;
pub mod reply;
pub mod resolver;
pub mod sftp;

pub use codec::{Decode, Encode, Error, Reader, Writer, decode, encode, encode_in};
pub use order::{Order, Role};
pub use reply::{Failure, Reason, Reply};

/// The frame format's version; raised with every change.
pub const VERSION: u8 = 1;
/// The longest frame that travels in a message. A longer order travels in a sealed memfd.
pub const MAX_INLINE: usize = 64 << 10;
/// The longest order, memfd included. Exec itself takes no more than 6 MB of arguments and environment.
pub const MAX_ORDER: usize = 8 << 20;
/// The most elements of any list: groups, variables, arguments, addresses.
pub const MAX_ITEMS: usize = 65_536;
/// The longest single string: a path, a variable, an argument. The kernel's own bound is 128 KB.
pub const MAX_STRING: usize = 128 << 10;
