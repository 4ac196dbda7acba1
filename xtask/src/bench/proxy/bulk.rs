//! Bytes, both ways, to one real node: through the proxy and directly to the node's own port, by the same client and
//! cipher; and what the middle takes for them, beside the sshd in the middle of OpenSSH's `ssh -J`, whose two ends and
//! middle all have aes128-gcm. Each transfer is an SSH connection of its own, for all; the one to the proxy is kept, as users have
//! it. And the round trips of a cold one. One node more records its sessions; its figures are ratios to those of the other.

use crate::bench::ssh::cluster::{Cluster, Node};
use crate::bench::ssh::group::Group;
use crate::bench::ssh::server::{SSHD, Server};
use crate::bench::ssh::world::{LARGE, World, login};
use crate::bench::{Bench, Subject};
use crate::shell::Result;
use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Names of promises.
pub const OF_DIRECT: &str = "bulk through the proxy, at least, of direct";
pub const CPU_OF_JUMP: &str = "proxy CPU per byte, of ssh -J's middle sshd";

/// Transfers per subject and case.
const TRANSFERS: usize = 6;
const THROUGH: &str = "through the proxy";
const RECORDED: &str = "through the proxy, recorded";
const DIRECT: &str = "direct";
const JUMP: &str = "ssh -J";

/// Measures.
pub fn measure(bench: &mut Bench, world: &World, cluster: &Cluster) -> Result {
    let (node, recorded) = (cluster.node(world)?, cluster.recorded_node(world)?);
    round_trips(bench, cluster, &node)?;
    let (middle, end) = (Server::start(world, SSHD)?, Server::start(world, SSHD)?);
    let jump = jump_config(world, &middle, &end)?;
    let large = world.at.join("large");
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for way in ["down", "up"] {
        let used = [const { RefCell::new(Vec::new()) }; 3];
        let transfer = |make: &dyn Fn() -> Command, counted: Option<(&Group, &RefCell<Vec<f64>>)>| {
            let before = counted.map(|(group, _)| group.cpu_at_rest()).transpose()?;
            let speed = transfer(make(), way, &large)?;
            recorded.delivered()?;
            if let (Some((group, used)), Some(before)) = (counted, before) {
                used.borrow_mut()
                    .push((group.cpu_at_rest()? - before) as f64 / LARGE as f64);
            }
            Ok(speed)
        };
        let words = match way {
            "down" => format!("cat {}", large.display()),
            _ => "wc -c".to_owned(),
        };
        let by_proxy = |node: &Node| {
            let mut command = cluster.ssh();
            command.args([&node.login(), &words]);
            command
        };
        let through = || by_proxy(&node);
        let through_recorded = || by_proxy(&recorded);
        let direct = || direct(cluster, &node, &words);
        let jumping = || {
            let mut command = Command::new(&world.ssh);
            command.arg("-F").arg(&jump).args(["-J", "middle", "end", &words]);
            command
        };
        let case = format!("bulk {way}");
        bench.run(
            &case,
            "MiB/s",
            1,
            TRANSFERS,
            vec![
                Subject::sampled(THROUGH, || transfer(&through, Some((&cluster.group, &used[0])))),
                Subject::sampled(DIRECT, || transfer(&direct, None)),
                Subject::sampled(JUMP, || transfer(&jumping, Some((&middle.group, &used[1])))),
                // What the cluster does for its recording counts with it, and falls on no other subject.
                Subject::sampled(RECORDED, || {
                    transfer(&through_recorded, Some((&cluster.group, &used[2])))
                }),
            ],
        )?;
        wall.push(bench.median(&case, THROUGH)? / bench.median(&case, DIRECT)?);
        bench.compare(&case, RECORDED, THROUGH)?;
        let case = format!("bulk {way}, CPU in the middle");
        for (subject, used) in [THROUGH, JUMP, RECORDED].into_iter().zip(used) {
            // The first was to warm up.
            bench.record(&case, subject, "us/MiB", used.into_inner().split_off(1));
        }
        bench.compare(&case, RECORDED, THROUGH)?;
        cpu.push(bench.median(&case, THROUGH)? / bench.median(&case, JUMP)?);
    }
    // The worse direction counts.
    bench.promise(OF_DIRECT, wall.into_iter().fold(f64::MAX, f64::min))?;
    bench.promise(CPU_OF_JUMP, cpu.into_iter().fold(0.0, f64::max))
}

/// By the node's own port, with the same login and the same master.
fn direct(cluster: &Cluster, node: &Node, words: &str) -> Command {
    let mut command = cluster.ssh();
    command.args(["--address", &format!("127.0.0.1:{}", node.port)]);
    command.args([&node.login(), words]);
    command
}

/// OpenSSH's, pinned as far as it matters.
fn jump_config(world: &World, middle: &Server, end: &Server) -> Result<std::path::PathBuf> {
    let host = |name: &str, server: &Server| format!("Host {name}\n    Port {}\n", server.port);
    let text = format!(
        "{}{}Host *\n    HostName 127.0.0.1\n    User {}\n    IdentityFile {}\n    IdentitiesOnly yes\n    IdentityAgent none\n    \
         UserKnownHostsFile {}\n    GlobalKnownHostsFile /dev/null\n    HostKeyAlias bench\n    BatchMode yes\n    \
         Ciphers aes128-gcm@openssh.com\n    KexAlgorithms curve25519-sha256\n    LogLevel ERROR\n",
        host("middle", middle),
        host("end", end),
        login(0),
        world.at.join("user").display(),
        world.at.join("known_hosts").display(),
    );
    let path = world.at.join("jump_config");
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

/// MiB a second, of the whole command; every byte has to arrive.
fn transfer(mut command: Command, way: &str, large: &Path) -> Result<f64> {
    let said = format!("{command:?}");
    let failed = |e: std::io::Error| format!("{said}: {e}");
    let bytes = (LARGE as u64) << 20;
    if way == "up" {
        let file = File::open(large).map_err(|e| format!("{}: {e}", large.display()))?;
        command.stdin(file);
    }
    let start = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut out = child.stdout.take().ok_or("no stdout")?;
    let moved = match way {
        "down" => std::io::copy(&mut out, &mut std::io::sink()).map_err(failed)?,
        _ => {
            let said = std::io::read_to_string(&mut out).map_err(failed)?;
            said.trim().parse().unwrap_or(0)
        }
    };
    let done = child.wait_with_output().map_err(failed)?;
    let taken = start.elapsed().as_secs_f64();
    if !done.status.success() || moved != bytes {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(format!(
            "{moved} of {bytes} bytes {way}: {}: {}",
            done.status,
            said.trim()
        ));
    }
    Ok(LARGE as f64 / taken)
}

/// What `--explain` counts for a connection from nothing.
fn round_trips(bench: &mut Bench, cluster: &Cluster, node: &Node) -> Result {
    let out = cluster
        .ssh()
        .args(["-o", "ControlPersist=no", "--explain=json", &node.login(), "true"])
        .output()
        .map_err(|e| format!("fleetgate ssh: {e}"))?;
    let told = String::from_utf8_lossy(&out.stderr);
    let told = told
        .lines()
        .chain(std::str::from_utf8(&out.stdout).unwrap_or_default().lines());
    let mut told = told.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let told = told.rfind(|value| value["round_trips"].is_object());
    let told = told.ok_or("fleetgate ssh --explain=json told no round trips")?;
    for leg in ["client-proxy", "proxy-node"] {
        let count = told["round_trips"][leg].as_f64().unwrap_or_default();
        bench.record("cold fleetgate ssh, round trips", leg, "", vec![count]);
    }
    Ok(())
}
