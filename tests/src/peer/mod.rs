//! Real clients against a real server: what the program `interop` stands on.
//!
//! A [`World`] has a network and an `/etc` of its own, so every server listens on the same port and nothing on the
//! machine is touched. In it runs a [`Server`]: the node under test, or Debian's sshd, which is the positive control
//! of every row. A [`Row`] is a name and a shell script that succeeds or says what is wrong; [`drive`] runs a table
//! of them and names every one that failed, with what client and server said. No row waits without a bound.

mod bridge;
mod rows;
mod server;
mod world;

pub use rows::{Row, drive, drive_beside, drive_by, drive_directly, fetched, peers};
pub use server::{SSHD_BESIDE, Server, Subject, confined, subjects};
pub use world::{DIR, World};

/// The port of every server: the network is the world's own.
pub const PORT: u16 = 2222;
