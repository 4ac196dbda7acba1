//! SSH-2 for client and server: bytes in, events and bytes out. It opens no socket, reads no clock and waits for
//! nothing; whoever drives it does (see `driver`). Signatures of the host and decisions about logins are
//! events, so that another process can answer them.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

pub mod agent;
pub mod auth;
pub mod channel;
pub mod cipher;
pub mod codec;
mod connection;
pub mod driver;
pub mod event;
#[cfg(test)]
mod hostile;
pub mod info;
pub mod kex;
pub mod key;
mod link;
mod message;
mod method;
mod positioned;
mod random;
#[cfg(any(test, feature = "fuzz"))]
mod recording_outbox;
pub mod settings;
pub mod sshsig;
mod state;
#[cfg(test)]
mod tests;
mod transport;

pub use connection::Connection;
pub use transport::buffer::release_buffers;
