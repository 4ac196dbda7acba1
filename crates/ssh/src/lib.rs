//! SSH-2 for client and server: bytes in, events and bytes out. It opens no socket, reads no clock and waits for
//! nothing; whoever drives it does (see `driver` for tokio). Signatures of the host and decisions about logins are
//! events, so that another process can answer them.
#![forbid(unsafe_code)]

#[allow(dead_code, unused_imports)] // until the connection joins it
pub mod auth;
#[allow(dead_code, unused_imports)]
pub mod channel;
pub mod cipher;
pub mod codec;
mod connection;
pub mod event;
pub mod facts;
pub mod kex;
pub mod key;
mod lent;
#[allow(dead_code)] // as long as channels and logins stand beside the transport
mod message;
pub mod settings;
#[allow(dead_code, unused_imports)]
mod transport;
#[cfg(test)]
mod trial;

pub use connection::Connection;
pub use transport::buffer::release_buffers;
