//! `cargo xtask bench containers`: one static `true` in a container, by our command line, crun, runc and nsenter; and a
//! session there beside one on the machine, as a node launches them. Needs root. The containers are started for the run, and
//! end with it.

use super::{Bench, Goal, Promised, Subject, rival};
use crate::shell::{Result, cargo, musl, output, read_text, run, target};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What it promises.
pub const PROMISES: &[Promised] = &[
    Promised {
        name: "a command in a container from a command line, of crun exec",
        goal: Goal::AtMost(0.333),
    },
    Promised {
        name: "a command in a container from a command line, of runc exec",
        goal: Goal::AtMost(0.125),
    },
    Promised {
        name: "a session in a container until reaped, of one on the machine",
        goal: Goal::AtMost(2.5),
    },
];

/// Whole commands of each subject, and sessions.
const COMMANDS: usize = 200;
const SESSIONS: usize = 1000;

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let (runc, crun) = (rival("runc", "runc")?, rival("crun", "crun")?);
    let truth = bench_true()?;
    let by_runc = Container::start(&runc, "fg-bench-runc", &truth, Hierarchies::All)?;
    let by_crun = Container::start(&crun, "fg-bench-crun", &truth, Hierarchies::Unified)?;

    let case = "a command in a container";
    let fleetgate = bench.built.fleetgate.clone();
    let ours = |container: &Container| {
        let mut words = vec!["container".to_owned(), "exec".to_owned(), "--root".to_owned()];
        words.extend([
            container.root(),
            container.name.clone(),
            "/bin/bench-true".to_owned(),
        ]);
        words
    };
    let theirs = |container: &Container| {
        [
            "--root",
            &container.root(),
            "exec",
            &container.name,
            "/bin/bench-true",
        ]
        .map(str::to_owned)
    };
    let pid = by_runc.pid.to_string();
    let whole = |name: &str, program: PathBuf, words: Vec<String>| {
        Subject::timed(name, move || quiet(Command::new(&program).args(&words)))
    };
    let subjects = vec![
        whole("fleetgate container exec", fleetgate.clone(), ours(&by_runc)),
        whole("runc exec", runc, theirs(&by_runc).into()),
        whole("crun exec", crun, theirs(&by_crun).into()),
        whole(
            "nsenter, no user, limits or profile",
            "nsenter".into(),
            ["-t", &pid, "-m", "-u", "-i", "-n", "-p", "/bin/bench-true"]
                .map(str::to_owned)
                .into(),
        ),
        whole(
            "fleetgate version, for scale",
            fleetgate,
            vec!["version".to_owned()],
        ),
    ];
    bench.run(case, "ms", 10, COMMANDS, subjects)?;
    for rival in ["crun exec", "runc exec"] {
        bench.promise_of(
            &format!("a command in a container from a command line, of {rival}"),
            case,
            "fleetgate container exec",
            rival,
        )?;
    }

    let mut build = cargo();
    build.args(["build", "--release", "--package", "fleetgate-benches"]);
    run(build.args(["--features", "measure", "--bin", "bench-enter"]))?;
    let text = output(
        Command::new(target().join("release/bench-enter"))
            .args([&bench.built.helper, &bench.built.enter])
            .args([&by_runc.root(), &by_runc.name])
            .arg(&truth)
            .arg(bench.times(SESSIONS).to_string()),
    )?;
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [case, subject, "us", samples] = fields[..] else {
            return Err(format!("bench-enter printed {line:?}"));
        };
        let samples: Option<Vec<f64>> = samples.split(' ').map(|s| s.parse().ok()).collect();
        let samples = samples.ok_or_else(|| format!("bench-enter printed {line:?}"))?;
        bench.record(case, subject, "us", samples);
    }
    bench.promise_of(
        "a session in a container until reaped, of one on the machine",
        "launch, until reaped",
        "a session in a container",
        "a session of the machine",
    )
}

/// The static `true`.
fn bench_true() -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--profile", "helper", "--package", "fleetgate-benches"]);
    let words = ["--features", "program", "--bin", "bench-true", "--target"];
    run(build.args(words).arg(musl()))?;
    Ok(target().join(musl()).join("helper/bench-true"))
}

/// Which cgroups the runtime sees: crun wants those of version 2 alone, where this machine may have both.
#[derive(Clone, Copy, PartialEq)]
enum Hierarchies {
    All,
    Unified,
}

/// A running container, which ends with this value.
struct Container {
    runtime: PathBuf,
    directory: PathBuf,
    name: String,
    pid: i32,
}

impl Container {
    fn start(runtime: &Path, name: &str, truth: &Path, hierarchies: Hierarchies) -> Result<Container> {
        let directory = target().join("bench/containers").join(name);
        let failed = |e: std::io::Error| format!("{}: {e}", directory.display());
        let _ = std::fs::remove_dir_all(&directory);
        let bin = directory.join("rootfs/bin");
        for name in ["bin", "proc", "dev", "sys"] {
            std::fs::create_dir_all(directory.join("rootfs").join(name)).map_err(failed)?;
        }
        std::fs::copy(rival("busybox", "busybox-static")?, bin.join("busybox")).map_err(failed)?;
        symlink("busybox", bin.join("sleep")).map_err(failed)?;
        std::fs::copy(truth, bin.join("bench-true")).map_err(failed)?;
        run(Command::new("runc").arg("spec").current_dir(&directory))?;
        let file = directory.join("config.json");
        let mut config: serde_json::Value =
            serde_json::from_str(&read_text(&file)?).map_err(|e| e.to_string())?;
        config["process"]["terminal"] = false.into();
        config["process"]["args"] = vec!["sleep", "3600"].into();
        std::fs::write(&file, config.to_string()).map_err(failed)?;
        let mut container = Container {
            runtime: runtime.to_owned(),
            directory: directory.clone(),
            name: name.to_owned(),
            pid: 0,
        };
        let alone = "mount --make-rprivate / && mount -t cgroup2 none /sys/fs/cgroup && exec \"$@\"";
        let mut command = match hierarchies {
            Hierarchies::All => Command::new(runtime),
            Hierarchies::Unified => {
                let mut command = Command::new("unshare");
                command
                    .args(["--mount", "sh", "-c", alone, "unified"])
                    .arg(runtime);
                command.arg("--cgroup-manager=disabled");
                command
            }
        };
        let pid = directory.join("pid");
        command.args(["--root", &container.root(), "run", "--detach", "--bundle"]);
        command.arg(&directory).arg("--pid-file").arg(&pid).arg(name);
        run(command.stdin(Stdio::null()).stdout(Stdio::null()))?;
        container.pid = read_text(&pid)?
            .trim()
            .parse()
            .map_err(|_| "no number of a process")?;
        Ok(container)
    }

    fn root(&self) -> String {
        self.directory.join("state").display().to_string()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let mut delete = Command::new(&self.runtime);
        delete.args(["--root", &self.root(), "delete", "--force", &self.name]);
        let _ = delete.stderr(Stdio::null()).status();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn quiet(command: &mut Command) -> Result {
    let status = command.stdin(Stdio::null()).status().map_err(|e| e.to_string())?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {status}")),
    }
}
