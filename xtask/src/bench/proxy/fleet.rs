//! A fleet: the proxy's memory with no, 100, 1,000 and 10,000 tunnels of nodes, each a TLS connection with a post-quantum
//! handshake; then for open sessions of one user; what heartbeats cost; how long the list of all nodes takes. What the
//! kernel has for sockets is not in it. Simulated nodes record nothing: recorded sessions are of real ones ([`recorded`]).

use super::recorded::{self, Showing};
use crate::bench::ssh::cluster::{Cluster, Memory};
use crate::bench::ssh::load::Load;
use crate::bench::ssh::world::World;
use crate::bench::{Bench, Subject};
use crate::shell::Result;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Names of promises.
pub const TUNNEL: &str = "proxy memory of an idle node tunnel, of 40 KB";
pub const SESSION: &str = "proxy memory of an open session, of 100 KB";
pub const LIST: &str = "fleetgate ls of 10,000 nodes, of 100 ms";

/// How many tunnels there are when memory is taken.
const COUNTS: [usize; 3] = [100, 1_000, 10_000];
/// Sessions of one user; each goes to a node of its own and has carried bytes before it is left idle.
const SESSIONS: usize = 500;
/// How long nothing is begun before memory is taken.
const QUIET: Duration = Duration::from_secs(3);
/// How often all nodes are listed.
const LISTS: usize = 20;

const OURS: &str = "fleetgate";
const LIST_CASE: &str = "fleetgate ls, 10,000 nodes";

/// Measures.
pub fn measure(bench: &mut Bench, world: &World, cluster: &Cluster) -> Result {
    let mut nodes = Load::fleet(bench, cluster, &[])?;

    let none = memory(bench, cluster, "no tunnel")?;
    let mut tunnel = f64::NAN;
    for count in COUNTS {
        let joined = nodes.ask(&format!("join {count}"))?;
        bench.record(&format!("joins until there are {count} nodes"), OURS, "s", joined);
        let dialled = nodes.ask(&format!("dial {count}"))?;
        bench.record(&format!("handshakes until {count} tunnels"), OURS, "s", dialled);
        let with = memory(bench, cluster, &format!("{count} tunnels"))?;
        tunnel = per(bench, &format!("each of {count} tunnels"), &none, &with, count);
    }
    // The larger of both figures, with all of them.
    bench.promise(TUNNEL, tunnel / 40.0)?;
    heartbeats(bench, cluster)?;
    lists(bench, world, cluster)?;
    bench.promise(LIST, bench.median(LIST_CASE, OURS)? / 100.0)?;

    // What the first session sets up for all stays out of it.
    nodes.ask("sessions 1")?;
    let before = memory(bench, cluster, "one session")?;
    nodes.ask(&format!("sessions {SESSIONS}"))?;
    let with = memory(bench, cluster, &format!("{SESSIONS} sessions more"))?;
    let session = per(bench, "each of them", &before, &with, SESSIONS);
    bench.promise(SESSION, session / 100.0)?;
    nodes.ask("hang-up")?;
    memory(bench, cluster, "sessions closed again")?;
    Ok(())
}

/// The proxy's, at rest.
fn memory(bench: &mut Bench, cluster: &Cluster, when: &str) -> Result<Memory> {
    sleep(QUIET);
    let memory = cluster.proxy_memory()?;
    let case = format!("proxy memory, {when}");
    bench.record(&case, OURS, "KB PSS", vec![memory.pss]);
    bench.record(&case, "fleetgate, anonymous", "KB", vec![memory.anonymous]);
    Ok(memory)
}

/// Of one of `count`: the larger of both figures.
fn per(bench: &mut Bench, what: &str, without: &Memory, with: &Memory, count: usize) -> f64 {
    let each = |with: f64, without: f64| (with - without) / count as f64;
    let (pss, anonymous) = (
        each(with.pss, without.pss),
        each(with.anonymous, without.anonymous),
    );
    let case = format!("proxy memory, {what}");
    bench.record(&case, OURS, "KB PSS", vec![pss]);
    bench.record(&case, "fleetgate, anonymous", "KB", vec![anonymous]);
    pss.max(anonymous)
}

/// Nothing happens but what ten thousand idle nodes need.
fn heartbeats(bench: &mut Bench, cluster: &Cluster) -> Result {
    let time = Duration::from_secs(if bench.quick { 15 } else { 60 });
    let now = || Ok::<_, String>([cluster.cpu("proxy")?, cluster.cpu("auth")?]);
    let before = now()?;
    sleep(time);
    let after = now()?;
    for (n, service) in ["proxy", "auth"].into_iter().enumerate() {
        let a_minute = (after[n] - before[n]) * 60.0 / time.as_secs_f64();
        bench.record("CPU a minute, 10,000 idle nodes", service, "s", vec![a_minute]);
    }
    Ok(())
}

/// The list of all nodes; also while a session is recorded on a real node, and shows as much as it can. That node is not there
/// for anything else.
fn lists(bench: &mut Bench, world: &World, cluster: &Cluster) -> Result {
    let node = cluster.recorded_node(world)?;
    let mut showing = Showing::begin(cluster, &node)?;
    let recorded = || {
        showing.shows()?;
        let begun = Instant::now();
        list(cluster)?;
        let taken = begun.elapsed().as_secs_f64() * 1e3;
        // What it has shown is with auth before the next list.
        sleep(recorded::CALM);
        Ok(taken)
    };
    let subjects = vec![
        Subject::timed(OURS, || list(cluster)),
        Subject::sampled(recorded::NAME, recorded),
    ];
    bench.run(LIST_CASE, "ms", 2, LISTS, subjects)?;
    bench.compare(LIST_CASE, recorded::NAME, OURS)
}

fn list(cluster: &Cluster) -> Result {
    let out = cluster
        .command(&["ls"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("fleetgate ls: {e}"))?;
    let nodes = out
        .stdout
        .split(|b| *b == b'\n')
        .filter(|line| line.starts_with(b"sim"))
        .count();
    match out.status.success() && nodes == COUNTS[2] {
        true => Ok(()),
        false => Err(format!("fleetgate ls told of {nodes} nodes: {}", out.status)),
    }
}
