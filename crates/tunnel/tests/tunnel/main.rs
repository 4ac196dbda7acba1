//! The tunnel as a real process, between a monitor that the test plays and proxies that it plays too: real TLS and HTTP/2
//! on loopback.
#![forbid(unsafe_code)]

mod confined;
mod control;
mod recordings;
mod sessions;
mod world;
