//! `cargo xtask bench ssh`: `fleetgate node` beside the distribution's sshd and dropbear and a server of Go's x/crypto.
//!
//! All have the same host key, logins, shell and key exchange (curve25519: Debian's default costs the client 95 ms
//! more), PAM off, or on where a row says so, and the same cipher: chacha20-poly1305, the only AEAD that all of them have,
//! unless a row names another. The client is OpenSSH's where time and processor time are taken, and a Go program
//! where many connections are needed; no figure is a client's. As root.
//!
//! What they keep in memory is `ssh-memory` ([`memory`]): most of it is waiting until each of them rests.
//!
//! One node more records its sessions, input too (`[recording] sessions = "full"`), and sends the recordings to auth. Its figures are
//! given as ratios to those of the node that does not, and promise nothing. Each sample waits until auth has the recording, so
//! that it costs no other subject anything.
//!
//! Every node of ours has joined a cluster ([`cluster`]) and holds its tunnel to it, so a promise that holds here holds for
//! a joined node: its tunnel, its audit lines on their way and its own look at the cluster's state are in all figures. Auth
//! and proxy run beside it, are idle but for these lines, and are not measured. Clients come to the node's own port with
//! authorized keys, as they come to the others.

mod bulk;
pub(super) mod cluster;
mod exec;
pub(super) mod group;
mod images;
pub(super) mod load;
mod many;
pub mod memory;
pub mod record;
pub(super) mod recordings;
pub mod rsync;
pub(super) mod server;
mod steps;
pub(super) mod world;

use super::{Bench, Goal, Promised};
use crate::shell::Result;
use world::World;

/// The cipher of all cases but some of [`bulk`]'s.
const CIPHER: &str = "chacha20-poly1305@openssh.com";

/// What it promises.
pub const PROMISES: &[Promised] = &[
    Promised {
        name: exec::COLD_OF_SSHD,
        goal: Goal::AtMost(0.3),
    },
    Promised {
        name: exec::WARM_OF_SSHD,
        goal: Goal::AtMost(0.6),
    },
    Promised {
        name: exec::CPU_OF_SSHD,
        goal: Goal::AtMost(0.21),
    },
    Promised {
        name: bulk::GCM_OF_SSHD,
        goal: Goal::AtLeast(1.4),
    },
    Promised {
        name: bulk::CHACHA_OF_SSHD,
        goal: Goal::AtLeast(1.4),
    },
    Promised {
        name: bulk::CPU_OF_SSHD,
        goal: Goal::AtMost(0.45),
    },
    Promised {
        name: many::REFUSED,
        goal: Goal::AtMost(0.0),
    },
    Promised {
        name: many::P99_OF_SSHD,
        goal: Goal::AtMost(1.0),
    },
];

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let world = World::new(bench)?;
    exec::measure(bench, &world)?;
    steps::measure(bench, &world)?;
    bulk::measure(bench, &world)?;
    many::measure(bench, &world)
}
