//! `cargo xtask bench containers`: one static `true` in a container, by our command line, crun, runc and nsenter; and a
//! session there beside one on the machine, as a node launches them. Needs root. The containers are started for the run, and
//! end with it.

mod by_ssh;
mod container;
mod wave;

use super::{Bench, Goal, Promised, Subject, rival};
use crate::shell::{Result, build_benches, cargo, musl, output, run, target};
pub use container::bundle;
use container::{Container, Place};
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
        name: SESSION,
        goal: Goal::AtMost(2.5),
    },
    Promised {
        name: by_ssh::PROMISE,
        goal: Goal::AtMost(1.0),
    },
];

const SESSION: &str = "a session in a container until reaped, of one on the machine";

/// Whole commands of each subject, and sessions.
const COMMANDS: usize = 200;
const SESSIONS: usize = 1000;

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let (runc, crun) = (rival("runc", "runc")?, rival("crun", "crun")?);
    let truth = bench_true()?;
    let by_runc = Container::start(&runc, "fg-bench-runc", &truth, Place::Here)?;
    let by_crun = Container::start(&crun, "fg-bench-crun", &truth, Place::Unified)?;

    let (small, whole) = (bench.built.exec.clone(), bench.built.fleetgate.clone());
    let inside = |container: &Container| {
        let root = container.root();
        [root, container.name.clone(), "/bin/bench-true".to_owned()]
    };
    let ours = |name: &str, program: &Path, words: &[&str], container: &Container| {
        let [root, container, truth] = inside(container);
        let words = [words, &["--root", &root, &container, &truth]].concat();
        timed(name, program, &words)
    };
    let theirs = |name: &str, program: &Path, container: &Container| {
        let [root, container, truth] = inside(container);
        timed(name, program, &["--root", &root, "exec", &container, &truth])
    };
    let pid = by_runc.pid.to_string();
    let enter = ["-t", &pid, "-m", "-u", "-i", "-n", "-p", "/bin/bench-true"];
    let of_runc = vec![
        ours("fleetgate-exec", &small, &[], &by_runc),
        ours(
            "fleetgate container exec",
            &whole,
            &["container", "exec"],
            &by_runc,
        ),
        theirs("runc exec", &runc, &by_runc),
        timed(
            "nsenter, no user, limits or profile",
            Path::new("nsenter"),
            &enter,
        ),
        timed("fleetgate version, for scale", &whole, &["version"]),
    ];
    let of_crun = vec![
        ours("fleetgate-exec", &small, &[], &by_crun),
        theirs("crun exec", &crun, &by_crun),
    ];
    for (runtime, subjects) in [("runc", of_runc), ("crun", of_crun)] {
        let (case, rival) = (
            format!("a command in a container of {runtime}'s"),
            format!("{runtime} exec"),
        );
        bench.run(&case, "ms", 10, COMMANDS, subjects)?;
        let promise = format!("a command in a container from a command line, of {rival}");
        bench.promise_of(&promise, &case, "fleetgate-exec", &rival)?;
    }

    by_ssh::measure(bench, &runc, &truth)?;
    wave::measure(bench, &runc, &truth)?;
    sessions(bench, &truth, &by_runc, &by_crun)
}

/// Launches as a node's: in a container of runc's, which has a cgroup in each hierarchy of the machine, and in one of crun's,
/// which has none of its own.
fn sessions(bench: &mut Bench, truth: &Path, by_runc: &Container, by_crun: &Container) -> Result {
    build_benches(&["bench-enter"])?;
    for (runtime, container) in [("runc", by_runc), ("crun", by_crun)] {
        let text = output(
            Command::new(target().join("release/bench-enter"))
                .args([&bench.built.helper, &bench.built.enter])
                .args([&container.root(), &container.name])
                .arg(truth)
                .arg(bench.times(SESSIONS).to_string()),
        )?;
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let [case, subject, "us", samples] = fields[..] else {
                return Err(format!("bench-enter printed {line:?}"));
            };
            let samples: Option<Vec<f64>> = samples.split(' ').map(|s| s.parse().ok()).collect();
            let samples = samples.ok_or_else(|| format!("bench-enter printed {line:?}"))?;
            bench.record(&format!("{case}, {runtime}'s"), subject, "us", samples);
        }
    }
    let case = "launch, until reaped, runc's";
    bench.promise_of(
        SESSION,
        case,
        "a session in a container",
        "a session of the machine",
    )
}

/// The static `true`.
pub fn bench_true() -> Result<PathBuf> {
    let mut build = cargo();
    build.args(["build", "--profile", "helper", "--package", "fleetgate-benches"]);
    let words = ["--features", "program", "--bin", "bench-true", "--target"];
    run(build.args(words).arg(musl()))?;
    Ok(target().join(musl()).join("helper/bench-true"))
}

/// A whole command, from its start to its end.
fn timed<'a>(name: &str, program: &Path, words: &[&str]) -> Subject<'a> {
    let program = program.to_owned();
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    Subject::timed(name, move || quiet(Command::new(&program).args(&words)))
}

fn quiet(command: &mut Command) -> Result {
    let status = command.stdin(Stdio::null()).status().map_err(|e| e.to_string())?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {status}")),
    }
}
