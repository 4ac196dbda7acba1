//! `cargo xtask soak`: sessions through a cluster of its own for ten minutes, and how the memory of each service grows with
//! them: a line is fitted to what each process has, against the sessions that there were. With `--faults` services are
//! stopped and killed meanwhile. What was taken is in `target/bench/soak.json`. It runs as root, in namespaces of its own, and
//! is no part of `cargo xtask test`.

use crate::build;
use crate::shell::{Result, heading, target};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long it runs unless told otherwise, in minutes.
const MINUTES: u64 = 10;
/// Users that begin one session after the other.
const WORKERS: usize = 4;
/// How often memory is taken.
const EVERY: Duration = Duration::from_secs(5);
/// What is left out at the beginning of each process: caches and tables become as large as they are to be.
const WARM_UP: f64 = 0.25;
/// The fewest samples that a line is fitted to.
const FEWEST: usize = 12;
/// The fewest sessions of one process by which its growth is judged: caches still fill behind the first.
const FEWEST_SESSIONS: f64 = 20_000.0;
/// What a process may grow by, in KB for a thousand sessions.
const MOST: f64 = 1.0;
/// The most sessions of a hundred that may fail in a run with faults: those that need a service that is stopped or dead.
const MOST_FAILED: u64 = 20;
/// How long a cluster may take until it serves.
const UP_WITHIN: Duration = Duration::from_secs(120);
/// How long after a fault the next one comes.
const FAULT_EVERY: Duration = Duration::from_secs(20);
/// How long a service is stopped.
const STOPPED: Duration = Duration::from_secs(3);
/// The processes that are looked at, by their command: a node is its monitor.
const SERVICES: [&str; 3] = ["auth", "proxy", "monitor"];

/// The cluster and its users; the same machine is auth, proxy and node. A line for each session is printed.
const SCRIPT: &str = r#"
mount --make-rprivate /
cp -a /etc "$DIR/etc"
rm -rf "$DIR/etc/fleetgate"
mount --bind "$DIR/etc" /etc
for place in /run /var/log /tmp /root; do mount -t tmpfs none $place; done
ip link set lo up
cd "$DIR"
export HOME=/root
unset FLEETGATE_HOME SSH_AUTH_SOCK
"$F" init --state state --name soak --node-name soak --listen 127.0.0.1:3080 --public 127.0.0.1:3080 > init.log 2>&1
"$F" --log-level warn up --state state > up.log 2>&1 &
until "$F" token ls --state state > /dev/null 2>&1; do sleep 0.2; done
printf '[role.everything]\nnodes = ["*"]\nlogins = ["root"]\n' > role.toml
"$F" role apply --state state -f role.toml > /dev/null
umask 077
"$F" user add --state state ada --role everything > invite
echo correct horse battery staple > password
until "$F" login --proxy 127.0.0.1:3080 --invite-file invite --password-file password --authenticator totp --no-agent > login.log 2>&1
do sleep 1; done
until "$F" ssh root@soak true 2> ssh.log; do sleep 0.2; done
echo ready
work() { while :; do if timeout 60 "$F" ssh root@soak true 2> "failed.$1"; then echo ok; else cat "failed.$1" >> failures; echo failed; fi; done; }
for n in $(seq "$WORKERS"); do work "$n" & done
wait
"#;

/// The cluster, which ends with it.
struct Cluster {
    child: Child,
    at: PathBuf,
    ended: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
}

/// What one process had: sessions until then, and KB.
type Series = Vec<(f64, f64)>;

/// `cargo xtask soak [--minutes N] [--faults] [--program FILE]`
pub fn main(args: &[String]) -> Result {
    let mut minutes = MINUTES;
    let mut faults = false;
    let mut program = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--faults" => faults = true,
            "--minutes" => {
                let number = args.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
                minutes = number.ok_or("--minutes takes a number")?;
            }
            "--program" => program = Some(PathBuf::from(args.next().ok_or("--program takes a file")?)),
            other => {
                return Err(format!(
                    "{other}: soak takes --minutes N, --faults and --program FILE"
                ));
            }
        }
    }
    let program = match program {
        Some(program) => std::path::absolute(&program).map_err(|e| format!("{}: {e}", program.display()))?,
        None => {
            build::main(&[])?;
            target().join("release/fleetgate")
        }
    };
    heading("soak");
    let cluster = Cluster::start(&program)?;
    let series = cluster.run(Duration::from_secs(60 * minutes), faults)?;
    let (ended, failed) = (cluster.ended.load(Relaxed), cluster.failed.load(Relaxed));
    println!("{ended} sessions in {minutes} min, {failed} of them failed");
    print!(
        "{}",
        std::fs::read_to_string(cluster.at.join("failures")).unwrap_or_default()
    );
    let mut wrong = wrong_sessions(faults, ended, failed);
    let seen: Vec<&str> = series.keys().map(|(name, _)| name.as_str()).collect();
    wrong.extend(missing(&seen));
    let mut fitted = 0;
    for ((name, pid), samples) in &series {
        let warm = &samples[(samples.len() as f64 * WARM_UP) as usize..];
        if warm.len() < FEWEST {
            continue;
        }
        let (first, last) = (warm[0].1, warm[warm.len() - 1].1);
        let slope = slope(warm) * 1000.0;
        println!("{name:<6} {pid:>8}  {first:>7.0} KB to {last:>7.0} KB  {slope:>7.2} KB for 1,000 sessions");
        let sessions = warm[warm.len() - 1].0 - warm[0].0;
        if sessions < FEWEST_SESSIONS {
            println!("       {sessions:.0} sessions are too few to judge it: give it more --minutes");
            continue;
        }
        fitted += 1;
        if slope > MOST {
            wrong.push(format!(
                "{name} grew by {slope:.2} KB for 1,000 sessions, and may by {MOST}"
            ));
        }
    }
    save(&series)?;
    // With faults no process lives for long.
    if fitted == 0 && !faults {
        wrong.push("no process was there for long enough: give it more --minutes".to_owned());
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("; ")),
    }
}

/// Writes what each process had, by sessions until then, to `target/bench/soak.json`.
fn save(series: &BTreeMap<(String, u32), Series>) -> Result {
    let all: Vec<_> = series
        .iter()
        .map(|((name, pid), samples)| json!({ "service": name, "pid": pid, "sessions_kb": samples }))
        .collect();
    let path = target().join("bench/soak.json");
    let parent = path.parent().unwrap_or(&path);
    std::fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
    let text = serde_json::to_string(&all).map_err(|e| e.to_string())?;
    std::fs::write(&path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))
}

/// What is wrong with how the sessions ended.
fn wrong_sessions(faults: bool, ended: u64, failed: u64) -> Vec<String> {
    match (faults, failed) {
        _ if ended == 0 => vec!["no session ended".to_owned()],
        (false, 1..) => vec![format!("{failed} sessions failed, and nothing was in their way")],
        (true, _) if failed * 100 > ended * MOST_FAILED => vec![format!(
            "{failed} of {ended} sessions failed, and {MOST_FAILED} % may where services are stopped and killed"
        )],
        _ => Vec::new(),
    }
}

/// Services whose memory was never taken.
fn missing(seen: &[&str]) -> Vec<String> {
    let unseen = SERVICES.iter().filter(|service| !seen.contains(service));
    unseen
        .map(|service| format!("{service} was never seen"))
        .collect()
}

impl Cluster {
    fn start(program: &Path) -> Result<Cluster> {
        let at = PathBuf::from(format!("/var/tmp/fleetgate-soak-{}", std::process::id()));
        std::fs::create_dir_all(&at).map_err(|e| format!("{}: {e}", at.display()))?;
        // A copy: the cluster sees nothing of the machine's /tmp and /root.
        let own = at.join("fleetgate");
        std::fs::copy(program, &own).map_err(|e| format!("{}: {e}", program.display()))?;
        let log = std::fs::File::create(at.join("log")).map_err(|e| format!("{}: {e}", at.display()))?;
        let mut child = Command::new("unshare")
            .args([
                "--mount",
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .args(["bash", "-euc", SCRIPT])
            .env("DIR", &at)
            .env("F", &own)
            .env("WORKERS", WORKERS.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|e| format!("unshare: {e}"))?;
        let said = child.stdout.take().ok_or("no output")?;
        let (ready, is_ready) = std::sync::mpsc::channel();
        let counts = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
        let [ended, failed] = counts.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(std::io::Result::ok) {
                match line.as_str() {
                    "ready" => drop(ready.send(())),
                    "failed" => _ = (failed.fetch_add(1, Relaxed), ended.fetch_add(1, Relaxed)),
                    _ => _ = ended.fetch_add(1, Relaxed),
                }
            }
        });
        let [ended, failed] = counts;
        let cluster = Cluster {
            child,
            at,
            ended,
            failed,
        };
        match is_ready.recv_timeout(UP_WITHIN) {
            Ok(()) => Ok(cluster),
            Err(_) => {
                let read = |name: &str| std::fs::read_to_string(cluster.at.join(name)).unwrap_or_default();
                let logs = ["log", "up.log", "login.log", "ssh.log"].map(read);
                Err(format!("the cluster does not serve: {}", logs.concat()))
            }
        }
    }

    fn run(&self, time: Duration, faults: bool) -> Result<BTreeMap<(String, u32), Series>> {
        let begun = Instant::now();
        let mut series: BTreeMap<(String, u32), Series> = BTreeMap::new();
        let (mut next_fault, mut fault) = (FAULT_EVERY, 0);
        while begun.elapsed() < time {
            std::thread::sleep(EVERY);
            let sessions = self.ended.load(Relaxed) as f64;
            let running = services(self.child.id());
            for (name, pid) in &running {
                if let Some(kb) = anonymous(*pid) {
                    series
                        .entry((name.clone(), *pid))
                        .or_default()
                        .push((sessions, kb));
                }
            }
            if faults && begun.elapsed() > next_fault {
                let service = SERVICES[fault % SERVICES.len()];
                let stop = (fault / SERVICES.len()).is_multiple_of(2);
                for (_, pid) in running.iter().filter(|(name, _)| name == service) {
                    break_service(*pid, stop)?;
                }
                println!(
                    "{service} was {}",
                    if stop { "stopped for a while" } else { "killed" }
                );
                (next_fault, fault) = (begun.elapsed() + FAULT_EVERY, fault + 1);
            }
        }
        Ok(series)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.at);
    }
}

/// Stops a process for a while, or kills it.
fn break_service(pid: u32, stop: bool) -> Result {
    let signal = |name: &str| {
        let mut kill = Command::new("kill");
        let done = kill.args([name, &pid.to_string()]).status();
        done.map(drop).map_err(|e| format!("kill: {e}"))
    };
    if !stop {
        return signal("-KILL");
    }
    signal("-STOP")?;
    std::thread::sleep(STOPPED);
    signal("-CONT")
}

/// The services below a process: name and pid.
fn services(root: u32) -> Vec<(String, u32)> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok()) {
        if let Some(parent) = status(pid, "PPid:").and_then(|p| p.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut left) = (Vec::new(), vec![root]);
    while let Some(pid) = left.pop() {
        left.extend(children.remove(&pid).unwrap_or_default());
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|b| *b == 0).map(String::from_utf8_lossy);
        let program = words.next().unwrap_or_default();
        // Global flags stand before the command.
        let service = words.take(4).find(|word| SERVICES.contains(&&**word));
        if let Some(service) = service
            && program.rsplit('/').next() == Some("fleetgate")
        {
            found.push((service.into_owned(), pid));
        }
    }
    found
}

/// Memory that is no file's, in KB.
fn anonymous(pid: u32) -> Option<f64> {
    status(pid, "RssAnon:")?.trim_end_matches(" kB").parse().ok()
}

fn status(pid: u32, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim().to_owned())
}

/// The slope of the line that fits best (least squares).
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let sum = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
    let (x, y) = (sum(|p| p.0), sum(|p| p.1));
    let (xy, xx) = (sum(|p| p.0 * p.1), sum(|p| p.0 * p.0));
    let spread = count * xx - x * x;
    match spread > 0.0 {
        true => (count * xy - x * y) / spread,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_whose_sessions_fail_or_whose_services_are_not_there_is_refused() {
        for (faults, ended, failed, is_wrong) in [
            (false, 1000, 0, false),
            (false, 1000, 1, true),
            (true, 1000, 0, false),
            (true, 1000, 200, false),
            (true, 1000, 201, true),
            (true, 1000, 1000, true),
            (false, 0, 0, true),
            (true, 0, 0, true),
        ] {
            let wrong = wrong_sessions(faults, ended, failed);
            assert_eq!(
                !wrong.is_empty(),
                is_wrong,
                "{faults} {ended} {failed}: {wrong:?}"
            );
        }
        assert!(missing(&SERVICES).is_empty());
        assert_eq!(missing(&["auth", "monitor"]), ["proxy was never seen"]);
    }

    #[test]
    fn a_line_is_fitted() {
        let line = |slope: f64, noise: f64| -> Series {
            let points = (0..100).map(f64::from);
            points
                .map(|x| (x, 7.0 + slope * x + noise * (x * 7.3).sin()))
                .collect()
        };
        assert_eq!(slope(&line(0.0, 0.0)), 0.0);
        assert!((slope(&line(0.25, 0.0)) - 0.25).abs() < 1e-9);
        assert!((slope(&line(0.25, 1.0)) - 0.25).abs() < 0.02);
        assert_eq!(slope(&[(5.0, 1.0), (5.0, 9.0)]), 0.0, "no sessions between them");
    }
}
