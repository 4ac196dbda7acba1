//! `cargo xtask bench icinga`: Debian's Icinga 2 with 1,000 services, each checked once a minute for ten minutes, by `check_fleetgate`
//! through the proxy; and another Icinga beside it, at the same time, which asks NRPE without TLS for the same. Both run
//! `/bin/echo OK`. Told are how late a check is begun, how long it takes, and the processor time of everything: Icinga, the
//! plugins and the master on the one side; servers on the other.

use super::Nrpe;
use crate::bench::ssh::cluster::{Cluster, Node};
use crate::bench::ssh::group::Group;
use crate::bench::ssh::world::{World, login};
use crate::bench::{Bench, Goal, Promised, rival};
use crate::shell::{Result, read_text};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const CPU_OF_NRPE: &str = "processor time of a check in Icinga, of check_nrpe without TLS";

/// What it promises.
pub const PROMISES: &[Promised] = &[Promised {
    name: CPU_OF_NRPE,
    goal: Goal::AtMost(1.0),
}];

/// How many services each Icinga has.
const SERVICES: usize = 1_000;
/// How long they run.
const SPAN: Duration = Duration::from_secs(600);
const QUICK_SPAN: Duration = Duration::from_secs(60);
/// How long Icinga may take to end.
const END_WITHIN: Duration = Duration::from_secs(20);
const OURS: &str = "check_fleetgate";
const NRPE: &str = "check_nrpe -n";
/// What Icinga has to do with the results beside writing them down: nothing.
const CONFIG: &str = r#"
object CheckerComponent "checker" { }
object PerfdataWriter "perfdata" {
  service_perfdata_path = "PLACE/results"
  service_temp_path = "PLACE/rest"
  host_perfdata_path = "PLACE/hosts"
  host_temp_path = "PLACE/hosts-rest"
  service_format_template = "$service.state$ $service.latency$ $service.execution_time$ $service.output$"
  host_format_template = ""
}
object CheckCommand "measured" { command = COMMAND }
object CheckCommand "nothing" { command = [ "/bin/true" ] }
object Host "node" {
  check_command = "nothing"
  enable_active_checks = false
}
for (number in range(SERVICES)) {
  object Service "check" + number {
    host_name = "node"
    check_command = "measured"
    check_interval = 60s
    max_check_attempts = 1
  }
}
"#;

/// What both are asked.
struct Servers<'a> {
    cluster: &'a Cluster,
    node: Node,
    nrpe: Nrpe,
}

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let world = World::new(bench)?;
    let cluster = world.cluster()?;
    let servers = Servers {
        cluster,
        node: cluster.node(&world)?,
        nrpe: Nrpe::start(&world, false)?,
    };
    let icinga = rival("icinga2", "icinga2-bin")?;
    let node = servers.node.login();
    let node = node.split('@').next_back().unwrap_or_default();
    let monitoring = cluster.monitoring()?.display().to_string();
    let check = bench.built.check.display().to_string();
    let ours = [
        &check,
        "--home",
        &monitoring,
        "-l",
        &login(0),
        "-H",
        node,
        "-c",
        "echo",
    ]
    .map(str::to_owned);
    let nrpe = rival("../lib/nagios/plugins/check_nrpe", "nagios-nrpe-plugin")?;
    let nrpe = nrpe.display().to_string();
    let port = servers.nrpe.port.to_string();
    let theirs = [&nrpe, "-n", "-H", "127.0.0.1", "-p", &port, "-c", "echo"].map(str::to_owned);

    let before = servers.cpu()?;
    let span = if bench.quick { QUICK_SPAN } else { SPAN };
    let begun = Instant::now();
    let running = [
        Icinga::start(&world, &icinga, "ours", &ours)?,
        Icinga::start(&world, &icinga, "nrpe", &theirs)?,
    ];
    sleep(span.saturating_sub(begun.elapsed()));
    let mut each = Vec::new();
    for (n, (icinga, name)) in running.into_iter().zip([OURS, NRPE]).enumerate() {
        let used = icinga.group.cpu()?;
        let results = icinga.results()?;
        let count = results.len() as f64;
        bench.record("checks in Icinga", name, "checks", vec![count]);
        let times = |at: fn(&CheckResult) -> f64| results.iter().map(at).collect();
        bench.record("begun late by", name, "ms", times(|r| r.latency));
        bench.record("takes", name, "ms", times(|r| r.time));
        let servers = servers.cpu()?[n] - before[n];
        let all = (used as f64 + servers) / 1e3 / count;
        bench.record(
            "processor time of a check, servers",
            name,
            "ms",
            vec![servers / 1e3 / count],
        );
        bench.record("processor time of a check", name, "ms", vec![all]);
        each.push(all);
    }
    bench.promise(CPU_OF_NRPE, each[0] / each[1])
}

impl Servers<'_> {
    /// Microseconds that ours and NRPE's have used.
    fn cpu(&self) -> Result<[f64; 2]> {
        let ours = self.cluster.group.cpu()? + self.node.group.cpu()?;
        Ok([ours as f64, self.nrpe.group.cpu()? as f64])
    }
}

/// One check, in milliseconds.
struct CheckResult {
    latency: f64,
    time: f64,
}

/// Icinga, and what it starts. It ends when this is dropped.
struct Icinga {
    at: PathBuf,
    child: Child,
    group: Group,
}

impl Icinga {
    fn start(world: &World, program: &Path, name: &str, command: &[String]) -> Result<Icinga> {
        let at = world.at.join(format!("icinga-{name}"));
        let failed = |e: std::io::Error| format!("{}: {e}", at.display());
        std::fs::create_dir_all(&at).map_err(failed)?;
        let words: Vec<String> = command.iter().map(|word| format!("\"{word}\"")).collect();
        let config = CONFIG
            .replace("PLACE", &at.display().to_string())
            .replace("COMMAND", &format!("[ {} ]", words.join(", ")))
            .replace("SERVICES", &SERVICES.to_string());
        let path = at.join("icinga.conf");
        std::fs::write(&path, config).map_err(failed)?;
        let group = Group::new(&format!("icinga-{name}"))?;
        let mut starts = world.enter(&group);
        starts.arg(program).args(["daemon", "-c"]).arg(&path);
        starts.args(["-DRunAsUser=root", "-DRunAsGroup=root"]);
        for place in ["DataDir", "CacheDir", "LogDir", "InitRunDir", "SpoolDir"] {
            std::fs::create_dir_all(at.join(place)).map_err(failed)?;
            starts.arg(format!("-D{place}={}", at.join(place).display()));
        }
        for file in ["PidPath", "StatePath", "ObjectsPath", "VarsPath", "ModAttrPath"] {
            starts.arg(format!("-D{file}={}", at.join(file).display()));
        }
        let log = std::fs::File::create(at.join("log")).map_err(failed)?;
        let child = starts
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .spawn()
            .map_err(|e| format!("icinga2: {e}"))?;
        Ok(Icinga { at, child, group })
    }

    /// Ends it; every check has to be OK.
    fn results(mut self) -> Result<Vec<CheckResult>> {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let until = Instant::now() + END_WITHIN;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            sleep(Duration::from_millis(50));
        }
        let mut results = Vec::new();
        let entries = std::fs::read_dir(&self.at).map_err(|e| format!("{}: {e}", self.at.display()))?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if !name.starts_with("results") && name != "rest" {
                continue;
            }
            for line in read_text(&entry.path())?.lines() {
                let fields: Vec<&str> = line.split(' ').collect();
                let [state, latency, time, ..] = fields[..] else {
                    return Err(format!("Icinga wrote {line:?}"));
                };
                let ms = |word: &str| {
                    word.parse::<f64>()
                        .map(|s| s * 1e3)
                        .map_err(|e| format!("{line:?}: {e}"))
                };
                if state != "OK" {
                    return Err(format!("a check is not OK: {line}"));
                }
                results.push(CheckResult {
                    latency: ms(latency)?,
                    time: ms(time)?,
                });
            }
        }
        match results.len() >= SERVICES {
            true => Ok(results),
            false => {
                let log = read_text(&self.at.join("log")).unwrap_or_default();
                let from = log.len().saturating_sub(2000);
                let end = log.get(from..).unwrap_or_default();
                Err(format!(
                    "Icinga ran {} checks of {SERVICES} services:\n{end}",
                    results.len()
                ))
            }
        }
    }
}

impl Drop for Icinga {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
