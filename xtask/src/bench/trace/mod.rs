//! `cargo xtask bench trace`: what it costs to be traced, by ours and by Debian's strace with and without --seccomp-bpf.
//! Single calls in a loop on one processor, which tracer and traced share. A whole project is built and configured by
//! `trace-build` ([`build`]) and, in a session that is watched, by `trace-session` ([`session`]).

pub mod build;
mod left;
mod project;
pub mod session;

use super::{Bench, Goal, Promised, Subject, rival};
use crate::shell::{Result, build_benches, output, read_text, target};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

const WITH_RESULT: &str = "traced call with its result, of strace --seccomp-bpf";
const ENTRY_ONLY: &str = "traced call, entry only, of strace --seccomp-bpf";
const NOT_SELECTED: &str = "a call that is not selected, of 15 ns";

/// What it promises.
pub const PROMISES: &[Promised] = &[
    at_most(WITH_RESULT, 0.75),
    at_most(ENTRY_ONLY, 0.5),
    at_most(NOT_SELECTED, 1.0),
];

const fn at_most(name: &'static str, goal: f64) -> Promised {
    Promised {
        name,
        goal: Goal::AtMost(goal),
    }
}

/// Turns of a loop, and samples.
const TURNS: &str = "20000";
const FREE_TURNS: &str = "5000000";
const SAMPLES: usize = 30;

/// A way to be traced: its name, and the words before the command. `OUT` is the file that the lines go to.
type Way = (&'static str, &'static [&'static str]);

const UNTRACED: Way = ("untraced", &[]);

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let tools = Tools::new(bench)?;
    calls(bench, &tools)?;
    free_calls(bench, &tools)?;
    left::measure(bench, &tools)
}

/// A selected call in a loop: what each way adds to it.
fn calls(bench: &mut Bench, tools: &Tools) -> Result {
    const CASE: &str = "openat and close";
    const OURS: &str = "fleetgate";
    const ENTRY: &str = "fleetgate, entry only";
    const STRACE: &str = "strace --seccomp-bpf";
    let selected: &[&str] = &["-f", "-o", "OUT", "-e", "openat,close"];
    let with = |before: &[&'static str]| [before, selected].concat();
    let mut ways: Vec<(&str, Vec<&str>)> = vec![
        (UNTRACED.0, Vec::new()),
        ("strace", with(&["STRACE"])),
        (STRACE, with(&["STRACE", "--seccomp-bpf"])),
        (OURS, with(&["FLEETGATE", "trace"])),
        (ENTRY, with(&["FLEETGATE", "trace", "--no-results"])),
        (
            "fleetgate --no-ptrace",
            with(&["FLEETGATE", "trace", "--no-ptrace"]),
        ),
    ];
    if tools.perf.is_some() {
        ways.push((
            "perf trace",
            vec!["PERF", "trace", "-o", "OUT", "-e", "openat,close", "--"],
        ));
    }
    let subjects = ways
        .iter()
        .map(|(name, words)| Subject::sampled(name, || Ok(tools.turn(words, "open", TURNS)? / 1e3)))
        .collect();
    bench.run(CASE, "us", 2, SAMPLES, subjects)?;
    let base = bench.median(CASE, UNTRACED.0)?;
    let added = |bench: &Bench, name: &str| Ok::<f64, String>((bench.median(CASE, name)? - base) / 2.0);
    for (name, _) in &ways[1..] {
        let added = added(bench, name)?;
        bench.record("added to a selected call", name, "us", vec![added]);
    }
    let theirs = added(bench, STRACE)?;
    let (whole, entry) = (added(bench, OURS)? / theirs, added(bench, ENTRY)? / theirs);
    bench.promise(WITH_RESULT, whole)?;
    bench.promise(ENTRY_ONLY, entry)
}

/// A call that nobody selects: it is made as if nobody traced.
fn free_calls(bench: &mut Bench, tools: &Tools) -> Result {
    const CASE: &str = "a call that is not selected";
    const OURS: &str = "fleetgate";
    const LEAST: &str = "a filter of one instruction";
    let ways: [(&str, &[&str]); 5] = [
        UNTRACED,
        (LEAST, &[]),
        (
            "strace --seccomp-bpf",
            &["STRACE", "--seccomp-bpf", "-f", "-o", "OUT", "-e", "connect"],
        ),
        (OURS, &["FLEETGATE", "trace", "-f", "-o", "OUT", "-e", "connect"]),
        (
            "fleetgate --no-ptrace",
            &[
                "FLEETGATE",
                "trace",
                "--no-ptrace",
                "-f",
                "-o",
                "OUT",
                "-e",
                "connect",
            ],
        ),
    ];
    let subjects = ways
        .iter()
        .map(|(name, words)| {
            let what = if *name == LEAST { "bound" } else { "none" };
            Subject::sampled(name, move || tools.turn(words, what, FREE_TURNS))
        })
        .collect();
    bench.run(CASE, "ns", 1, SAMPLES, subjects)?;
    let added = bench.median(CASE, OURS)? - bench.median(CASE, UNTRACED.0)?;
    bench.promise(NOT_SELECTED, added / 15.0)
}

/// What a command took, with everything that it started, in seconds.
struct Cost {
    wall: f64,
    cpu: f64,
}

/// The tracers, and where their lines go.
struct Tools {
    ours: PathBuf,
    strace: PathBuf,
    perf: Option<PathBuf>,
    programs: PathBuf,
    out: PathBuf,
}

impl Tools {
    fn new(bench: &Bench) -> Result<Tools> {
        build_benches(&["bench-calls", "bench-usage"])?;
        Ok(Tools {
            ours: bench.built.fleetgate.clone(),
            strace: rival("strace", "strace")?,
            perf: rival("perf", "linux-perf").ok(),
            programs: target().join("release"),
            out: target().join("bench/trace.out"),
        })
    }

    /// The words of a way, with the programs in place of their names.
    fn words(&self, words: &[&str]) -> Vec<PathBuf> {
        let word = |word: &&str| match *word {
            "STRACE" => self.strace.clone(),
            "FLEETGATE" => self.ours.clone(),
            "PERF" => self.perf.clone().unwrap_or_default(),
            "OUT" => self.out.clone(),
            other => PathBuf::from(other),
        };
        words.iter().map(word).collect()
    }

    /// Nanoseconds for one turn of a loop, all of it on one processor.
    fn turn(&self, way: &[&str], what: &str, times: &str) -> Result<f64> {
        let text = output(
            Command::new("taskset")
                .args(["-c", "1"])
                .args(self.words(way))
                .arg(self.programs.join("bench-calls"))
                .args([what, times])
                .stderr(Stdio::null()),
        )?;
        text.trim()
            .parse()
            .map_err(|_| format!("bench-calls printed {text:?}"))
    }

    /// A command's cost, traced so.
    fn cost(&self, way: &Way, command: &mut dyn FnMut(Vec<PathBuf>) -> Command) -> Result<Cost> {
        let used = target().join("bench/trace.usage");
        let mut words = vec![self.programs.join("bench-usage"), used.clone()];
        words.extend(self.words(way.1));
        let begun = Instant::now();
        let said = command(words)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| e.to_string())?;
        let wall = begun.elapsed().as_secs_f64();
        if !said.status.success() {
            let words = String::from_utf8_lossy(&said.stderr);
            return Err(format!("{}: {words}", said.status));
        }
        let micros = read_text(&used)?;
        let micros: f64 = micros
            .parse()
            .map_err(|_| format!("bench-usage left {micros:?}"))?;
        Ok(Cost {
            wall,
            cpu: micros / 1e6,
        })
    }
}
