//! SSH-2 for client and server: bytes in, events and bytes out. It opens no socket, reads no clock and waits for
//! nothing; whoever drives it does (see `driver`). Signatures of the host and decisions about logins are
//! events, so that another process can answer them.
#![forbid(unsafe_code)]

pub mod auth;
pub mod channel;
pub mod cipher;
pub mod codec;
mod connection;
pub mod driver;
pub mod event;
pub mod facts;
#[cfg(test)]
mod hostile;
pub mod kex;
pub mod key;
mod lent;
mod message;
pub mod settings;
mod state;
#[cfg(test)]
mod tests;
mod transport;
#[cfg(any(test, feature = "fuzz"))]
mod trial;

pub use connection::Connection;
pub use transport::buffer::release_buffers;
