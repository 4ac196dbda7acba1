//! `fleetgate run` of `true` on a thousand nodes, beside clush and plain `ssh`, all through the proxy. The nodes are simulated by
//! `bench-fleet`: each with a TLS connection, a host key and a certificate of its own, and the whole of SSH, in one process;
//! the command itself ends at once and is no program. What is measured is what the user's side, the proxy and SSH cost.

use super::super::ssh::cluster::Cluster;
use super::super::ssh::load::Load;
use crate::bench::{Bench, Subject, rival};
use crate::shell::Result;
use std::path::Path;
use std::process::{Command, Stdio};

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
    bench.promise(RUN, bench.median(CASE, OURS)? / 3.0)
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
