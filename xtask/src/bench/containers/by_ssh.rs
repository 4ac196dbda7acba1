//! One command in a container by `fleetgate ssh node+container`, warm, through the proxy of a cluster on this machine; beside
//! `runc exec`, which somebody types on the node itself.

use super::container::Container;
use super::{COMMANDS, quiet, timed};
use crate::bench::ssh::world::World;
use crate::bench::{Bench, Subject};
use crate::shell::{Result, run};
use std::path::Path;
use std::process::Command;

/// What it promises.
pub const PROMISE: &str = "warm fleetgate ssh into a container, of runc exec on the node";

const CASE: &str = "a command in a container, by SSH";

/// Measures.
pub fn measure(bench: &mut Bench, runc: &Path, container: &Container) -> Result {
    let world = World::new(bench)?;
    let cluster = world.cluster()?;
    let node = cluster.node(&world)?;
    // The node has a /run of its own, without containers: this one is shown to it where runc keeps them.
    let process = node
        .group
        .running("up")?
        .first()
        .copied()
        .ok_or("the node does not run")?;
    let mut link = Command::new("nsenter");
    link.args(["--mount", "--target", &process.to_string(), "ln", "-s"]);
    run(link.arg(container.root()).arg("/run/runc"))?;
    let to = format!("root@{}+{}", node.name, container.name);
    let ours = Subject::timed("fleetgate ssh", || {
        quiet(cluster.ssh().args([&to, "/bin/bench-true"]))
    });
    let words = [
        "--root",
        &container.root(),
        "exec",
        &container.name,
        "/bin/bench-true",
    ];
    let theirs = timed("runc exec", runc, &words);
    bench.run(CASE, "ms", 10, COMMANDS, vec![ours, theirs])?;
    bench.promise_of(PROMISE, CASE, "fleetgate ssh", "runc exec")
}
