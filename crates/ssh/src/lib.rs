//! SSH-2 for client and server: bytes in, events and bytes out. It opens no socket, reads no clock and waits for
//! nothing; whoever drives it does (see `driver` for tokio). Signatures of the host and decisions about logins are
//! events, so that another process can answer them.
#![forbid(unsafe_code)]

pub mod codec;
pub mod event;
