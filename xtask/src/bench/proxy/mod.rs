//! `cargo xtask bench proxy`: what a proxy keeps for nodes that wait and for sessions that are open, and what it costs to
//! carry bytes, beside a direct connection and beside the sshd in the middle of `ssh -J`.
//!
//! The cluster is a real `fleetgate up`; 10,000 nodes are simulated by `bench-fleet`, each with a certificate and a TLS
//! connection of its own; bytes go to a real node. The namespaces and groups are bench ssh's. As root.

mod bulk;
mod fleet;
pub mod intake;
mod recorded;

use super::{Bench, Goal, Promised};
use crate::bench::ssh::cluster::Cluster;
use crate::bench::ssh::world::World;
use crate::shell::Result;

/// What it promises.
pub const PROMISES: &[Promised] = &[
    Promised {
        name: fleet::TUNNEL,
        goal: Goal::AtMost(1.0),
    },
    Promised {
        name: fleet::SESSION,
        goal: Goal::AtMost(1.0),
    },
    Promised {
        name: fleet::LIST,
        goal: Goal::AtMost(1.0),
    },
    Promised {
        name: bulk::OF_DIRECT,
        goal: Goal::AtLeast(0.8),
    },
    Promised {
        name: bulk::CPU_OF_JUMP,
        goal: Goal::AtMost(1.0),
    },
];

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let world = World::new(bench)?;
    let cluster = Cluster::start(&world, "bytes")?;
    bulk::measure(bench, &world, &cluster)?;
    drop(cluster);
    let cluster = Cluster::start(&world, "fleet")?;
    fleet::measure(bench, &world, &cluster)?;
    drop(cluster);
    let cluster = Cluster::start(&world, "sessions")?;
    recorded::sessions(bench, &world, &cluster)
}
