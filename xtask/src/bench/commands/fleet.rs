//! `fleetgate run` of `true` on a thousand nodes, beside clush and plain `ssh`, all through the proxy. The nodes are simulated by
//! `bench-fleet`: each with a TLS connection, a host key and a certificate of its own, and the whole of SSH, in one process;
//! the command itself ends at once and is no program. What is measured is what the user's side, the proxy and SSH cost. And what the
//! master costs that keeps connections to as many.

use super::super::ssh::cluster::{Cluster, cpu_of, memory_of};
use super::super::ssh::load::Load;
use crate::bench::{Bench, Subject, rival};
use crate::shell::{Result, output};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// The promise.
pub const RUN: &str = "fleetgate run of true on 1,000 nodes, of 3 s";
/// How many there are.
const NODES: usize = 1_000;
/// How often, by us and by clush.
const RUNS: usize = 10;
const CLUSH_RUNS: usize = 2;
const CASE: &str = "true on 1,000 nodes";
const OURS: &str = "fleetgate run";
const CLUSH: &str = "clush, ssh by proxy-command";
/// How many ssh processes clush has at a time.
const FAN_OUT: &str = "64";
/// To how many nodes the master keeps a connection.
const KEPT: [usize; 3] = [10, 100, 1_000];
/// For so long it is watched: longer than any of its connections is silent.
const WATCHED: Duration = Duration::from_secs(60);

/// Measures.
pub fn measure(bench: &mut Bench, cluster: &Cluster) -> Result {
    let mut nodes = Load::fleet(bench, cluster, &["ssh"])?;
    nodes.ask(&format!("join {NODES}"))?;
    nodes.ask(&format!("dial {NODES}"))?;
    let config = cluster.at.join("clush.config");
    let text = cluster.command(&["config", "ssh", "--host", "sim*"]).output();
    let text = text.map_err(|e| format!("fleetgate config ssh: {e}"))?.stdout;
    // The way of connections that ssh shares is longer here than a socket's path may be, and each node is asked once.
    let text = String::from_utf8(text).map_err(|e| e.to_string())?;
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("Control"));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    std::fs::write(&config, text).map_err(|e| format!("{}: {e}", config.display()))?;
    let clush = rival("clush", "clustershell")?;
    bench.run(
        CASE,
        "s",
        1,
        RUNS,
        vec![Subject::sampled(OURS, || seconds(ours(cluster)))],
    )?;
    bench.run(
        CASE,
        "s",
        0,
        CLUSH_RUNS,
        vec![Subject::sampled(CLUSH, || seconds(of_clush(&clush, &config)))],
    )?;
    bench.promise(RUN, bench.median(CASE, OURS)? / 3.0)?;
    keep(bench, cluster)
}

/// What the master needs that keeps a connection to each of so many nodes, and nobody uses them.
fn keep(bench: &mut Bench, cluster: &Cluster) -> Result {
    cluster.end_master();
    let mut kept = 0;
    for nodes in KEPT {
        for n in kept..nodes {
            seconds(cluster.command(&["ssh", &format!("root@sim{n:05}"), "true"]))?;
        }
        kept = nodes;
        let status = output(&mut cluster.command(&["master", "status", "--json"]))?;
        let status: Value =
            serde_json::from_str(&status).map_err(|e| format!("fleetgate master status: {e}"))?;
        let master = &status["masters"][0];
        // A status names as many as its frame holds, and counts the others.
        let named = master["connections"].as_array().map_or(0, Vec::len);
        let others = master["more"]
            .as_u64()
            .and_then(|more| usize::try_from(more).ok());
        let connections = named + others.unwrap_or(0);
        // One goes to the proxy.
        if connections != nodes + 1 {
            return Err(format!(
                "the master keeps {connections} connections for {nodes} nodes"
            ));
        }
        let id = master["pid"].as_u64().and_then(|id| u32::try_from(id).ok());
        let id = id.ok_or("fleetgate master status: no process")?;
        let subject = format!("{nodes} nodes");
        let memory = memory_of(id)?.pss / 1024.0;
        bench.record("memory of the master (PSS)", &subject, "MB", vec![memory]);
        let (before, time) = (cpu_of(id)?, if bench.quick { WATCHED / 6 } else { WATCHED });
        sleep(time);
        let each_second = (cpu_of(id)? - before) * 1e3 / time.as_secs_f64();
        bench.record(
            "processor time of the idle master",
            &subject,
            "ms/s",
            vec![each_second],
        );
    }
    Ok(())
}

fn ours(cluster: &Cluster) -> Command {
    cluster.command(&[
        "run", "--on", "sim*", "--batch", "200", "-l", "root", "--", "true",
    ])
}

fn of_clush(clush: &Path, config: &Path) -> Command {
    let mut command = Command::new(clush);
    command.args([
        "-w",
        &format!("sim[00000-{:05}]", NODES - 1),
        "-f",
        FAN_OUT,
        "-l",
        "root",
        "-b",
        "-S",
    ]);
    command.arg("-o").arg(format!("-F {}", config.display()));
    command.arg("true");
    command
}

/// How long it takes, in seconds; it has to do well on every node.
fn seconds(mut command: Command) -> Result<f64> {
    let begun = std::time::Instant::now();
    let out = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{command:?}: {e}"))?;
    match out.status.success() {
        true => Ok(begun.elapsed().as_secs_f64()),
        false => Err(format!(
            "{command:?}: {}: {}",
            out.status,
            String::from_utf8_lossy(&out.stderr).trim()
        )),
    }
}
