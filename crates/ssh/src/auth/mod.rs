//! Logins (RFC 4252, RFC 4256, OpenSSH's hostbound): requests and answers as they stand on the wire, and the order in
//! which either side may send them. It decides nothing and verifies nothing: that is its owner's.
//!
//! A server reads nothing more between a request and its answer, so a client may send what it wants to do after its
//! login right behind its request for it.

mod client;
mod prompts;
mod request;
mod server;
#[cfg(test)]
mod tests;

pub(crate) use client::Client;
pub use prompts::InfoResponse;
pub use request::{Method, PublicKey, Request, UnsignedRequest};
pub(crate) use server::Server;

/// The service that logs in.
const USERAUTH: &str = "ssh-userauth";
/// The service that is logged in to.
const CONNECTION: &str = "ssh-connection";
