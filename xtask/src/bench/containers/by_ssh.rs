//! One command in a container by `fleetgate ssh node+container`, warm, through the proxy of a cluster on this machine; beside
//! `runc exec`, which somebody types on the node itself.

use super::container::{Container, Place};
use super::{COMMANDS, quiet};
use crate::bench::ssh::world::World;
use crate::bench::{Bench, Subject};
use crate::shell::Result;
use std::path::Path;

/// What it promises.
pub const PROMISE: &str = "warm fleetgate ssh into a container, of runc exec on the node";

const CASE: &str = "a command in a container, by SSH";

/// Measures. The node has mounts and cgroups of its own, in which runc keeps the container and is called: by nsenter, which is
/// half a millisecond of what it takes. Where this process is not at the root of the hierarchies of version 1, runc makes the
/// container's cgroups outside of the node's, which then refuses to enter: begin it from a shell that is there.
pub fn measure(bench: &mut Bench, runc: &Path, truth: &Path) -> Result {
    let world = World::new(bench)?;
    let cluster = world.cluster()?;
    let node = cluster.node(&world)?;
    let process = node
        .group
        .running("up")?
        .first()
        .copied()
        .ok_or("the node does not run")?;
    let container = Container::start(runc, "fg-bench-ssh", truth, Place::Beside(process))?;
    let to = format!("root@{}+{}", node.name, container.name);
    let ours = Subject::timed("fleetgate ssh", || {
        quiet(cluster.ssh().args([&to, "/bin/bench-true"]))
    });
    let theirs = Subject::timed("runc exec", || {
        let mut exec = container.runtime();
        quiet(exec.args([
            "--root",
            &container.root(),
            "exec",
            &container.name,
            "/bin/bench-true",
        ]))
    });
    bench.run(CASE, "ms", 10, COMMANDS, vec![ours, theirs])?;
    bench.promise_of(PROMISE, CASE, "fleetgate ssh", "runc exec")
}
