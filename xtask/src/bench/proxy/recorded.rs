//! Sessions on real nodes by the proxy, recorded and not: what each costs the proxy in memory while its recording is on the way
//! to auth. And a session that is recorded and shows much, for what else is measured meanwhile.

use crate::bench::Bench;
use crate::bench::ssh::cluster::{Cluster, Node};
use crate::bench::ssh::world::World;
use crate::shell::Result;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// The subject whose sessions are recorded.
pub const NAME: &str = "fleetgate, recorded";
const OURS: &str = "fleetgate";
/// So long after something was shown its recording is with auth: a running one is signed and sent once a second.
pub const CALM: Duration = Duration::from_millis(1500);

/// Sessions of a round; each has shown something and is left idle.
const SESSIONS: usize = 50;
const ROUNDS: usize = 3;
/// How long nothing is begun before memory is taken.
const QUIET: Duration = Duration::from_secs(3);
const CASE: &str = "proxy memory, each session on a real node";
/// What a session shows: a line, and then much whenever it is told so.
const SHOWS: &str = "echo ready; while read word; do seq 100000; done";

/// What the proxy of a fresh cluster keeps for sessions on a node that records and on one that does not, in turn.
pub fn sessions(bench: &mut Bench, world: &World, cluster: &Cluster) -> Result {
    let nodes = [
        (OURS, cluster.node(world)?),
        (NAME, cluster.recorded_node(world)?),
    ];
    // What the first session of each sets up for all stays out of it.
    let _first: Vec<Showing> = nodes
        .iter()
        .map(|(_, node)| Showing::begin(cluster, node))
        .collect::<Result<_>>()?;
    let mut each = [const { Vec::new() }; 2];
    // All stay open: what a closed one leaves free the next one would take.
    let mut open = Vec::new();
    for _ in 0..bench.rounds(ROUNDS) {
        for ((_, node), each) in nodes.iter().zip(&mut each) {
            sleep(QUIET);
            let before = cluster.proxy_memory()?;
            for _ in 0..SESSIONS {
                open.push(Showing::begin(cluster, node)?);
            }
            sleep(QUIET);
            let with = cluster.proxy_memory()?;
            each.push((with.pss - before.pss) / SESSIONS as f64);
        }
    }
    for ((name, _), each) in nodes.iter().zip(each) {
        bench.record(CASE, name, "KB PSS", each);
    }
    bench.compare(CASE, NAME, OURS)
}

/// A session at a terminal, by the proxy.
pub struct Showing {
    child: Child,
    input: ChildStdin,
}

impl Showing {
    /// Begins one; it has shown a line.
    pub fn begin(cluster: &Cluster, node: &Node) -> Result<Showing> {
        let failed = |e: std::io::Error| format!("fleetgate ssh: {e}");
        let mut child = cluster
            .ssh()
            // With -v its SSH connection is its own; others share one, and the proxy knows of that alone.
            .args(["-v", "-tt", &node.login(), SHOWS])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let (Some(input), Some(mut output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("fleetgate ssh has no pipes".to_owned());
        };
        let mut ready = [0; 5];
        let said = output.read_exact(&mut ready);
        let showing = Showing { child, input };
        said.map_err(|e| format!("a session on {} shows nothing: {e}", node.name))?;
        std::thread::spawn(move || throw_away(output));
        Ok(showing)
    }

    /// Has it show much.
    pub fn shows(&mut self) -> Result {
        self.input
            .write_all(b"\r")
            .map_err(|e| format!("a session that shows something has ended: {e}"))
    }
}

impl Drop for Showing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends when the session does.
fn throw_away(mut output: ChildStdout) {
    let _ = std::io::copy(&mut output, &mut std::io::sink());
}
