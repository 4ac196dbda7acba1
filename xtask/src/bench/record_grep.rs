//! `cargo xtask bench record-grep`: `fleetgate sessions grep` over 1,000 hours of recordings, which `bench-recordings` makes from a
//! seed. The whole command is measured, its start included; recordings and indexes lie in memory, so no disk is.
//!
//! The first search makes the indexes. After it come a word that is nowhere (all recordings are passed over by their indexes), one
//! that is in one session in the middle, and one that every tenth session has. Throughput is in bytes of original text.

use super::{Bench, Goal, Promised, Subject};
use crate::shell::{Result, build_benches_with};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const RATE: &str = "grep over recordings by their indexes, at least, of 1 GB of text in a second";
const FIRST: &str = "first match in 1,000 hours of recordings, of 200 ms";
const SHARE: &str = "indexes of recordings, of a twentieth of their text";

/// What it promises.
pub const PROMISES: &[Promised] = &[
    Promised {
        name: RATE,
        goal: Goal::AtLeast(1.0),
    },
    Promised {
        name: FIRST,
        goal: Goal::AtMost(1.0),
    },
    Promised {
        name: SHARE,
        goal: Goal::AtMost(1.0),
    },
];

const HOURS: u64 = 1000;
const SEED: &str = "7";
const SEARCHES: usize = 10;
const OURS: &str = "fleetgate";
/// In no session, in one, in every tenth.
const NOWHERE: &str = "nowhere-to-be-found";
const ONCE: &str = "zyzzyva";
const TENTH: &str = "qwxjk:";

/// Where the recordings are; they go with it.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    build_benches_with("recordings", &["bench-recordings"])?;
    let place = Place(Path::new("/dev/shm").join(format!("fleetgate-bench-grep-{}", std::process::id())));
    // A tenth with --quick: the promise is about all of it.
    let hours = bench
        .size
        .unwrap_or(if bench.is_quick() { HOURS / 10 } else { HOURS });
    let maker = bench.programs.join("bench-recordings");
    let made = numbers(
        Command::new(&maker)
            .arg("make")
            .arg(&place.0)
            .args([&hours.to_string(), SEED]),
    )?;
    let [stored, shown] = made[..] else {
        return Err(format!("bench-recordings said {made:?}"));
    };
    bench.record(
        "an hour of a session",
        "its recording",
        "KB",
        vec![stored / hours as f64 / 1e3],
    );
    bench.record(
        "an hour of a session",
        "what the terminal got",
        "KB",
        vec![shown / hours as f64 / 1e3],
    );

    let fleetgate = bench.built.fleetgate.clone();
    let grep = |words: &[&str]| {
        let mut grep = Command::new(&fleetgate);
        grep.args(["sessions", "grep", "--directory"])
            .arg(&place.0)
            .args(words)
            .stdin(Stdio::null());
        grep
    };
    let first = seconds(grep(&[NOWHERE]))?;
    let counted = numbers(Command::new(&maker).arg("count").arg(&place.0))?;
    let [text, indexes, recordings] = counted[..] else {
        return Err(format!("bench-recordings said {counted:?}"));
    };
    if recordings < hours as f64 {
        return Err(format!("{recordings} of {hours} recordings have an index"));
    }
    bench.record(
        "an hour of a session",
        "its text",
        "KB",
        vec![text / recordings / 1e3],
    );
    bench.record(
        "an hour of a session",
        "its index",
        "KB",
        vec![indexes / recordings / 1e3],
    );
    bench.promise(SHARE, indexes / text * 20.0)?;
    bench.record(
        "grep that makes the indexes",
        OURS,
        "MB/s",
        vec![text / first / 1e6],
    );

    for (case, word, more) in [
        ("grep, a word that is nowhere", NOWHERE, None),
        ("grep, a word of every tenth session", TENTH, None),
        ("grep, the same without the indexes", TENTH, Some("--no-index")),
    ] {
        let words: Vec<&str> = [word].into_iter().chain(more).collect();
        let rate = Subject::sampled(OURS, || Ok(text / seconds(grep(&words))? / 1e6));
        let times = if more.is_some() { bench.rounds(1) } else { SEARCHES };
        match more {
            Some(_) => bench.run(case, "MB/s", 0, times, vec![rate])?,
            None => bench.run(case, "MB/s", 1, times, vec![rate])?,
        }
    }
    bench.promise(RATE, bench.median("grep, a word that is nowhere", OURS)? / 1e3)?;
    let case = "the first match of a word that is in one session in the middle";
    let first = Subject::sampled(OURS, || first_match(grep(&[ONCE])));
    bench.run(case, "ms", 1, SEARCHES, vec![first])?;
    bench.promise(FIRST, bench.median(case, OURS)? / 200.0)
}

/// The numbers that a program prints.
fn numbers(command: &mut Command) -> Result<Vec<f64>> {
    let out = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("{command:?}: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    match out.status.success() {
        true => Ok(text.split_whitespace().filter_map(|n| n.parse().ok()).collect()),
        false => Err(format!("{command:?}: {}", out.status)),
    }
}

/// How long a search takes. One that finds nothing ends with 1.
fn seconds(mut grep: Command) -> Result<f64> {
    let start = Instant::now();
    let status = grep
        .stdout(Stdio::null())
        .status()
        .map_err(|e| format!("fleetgate: {e}"))?;
    match status.code() {
        Some(0 | 1) => Ok(start.elapsed().as_secs_f64()),
        _ => Err(format!("fleetgate sessions grep: {status}")),
    }
}

/// Milliseconds until the first line of a search.
fn first_match(mut grep: Command) -> Result<f64> {
    let start = Instant::now();
    let mut child = grep
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("fleetgate: {e}"))?;
    let mut out = BufReader::new(child.stdout.take().ok_or("no stdout")?);
    let mut line = String::new();
    let read = out.read_line(&mut line).map_err(|e| format!("fleetgate: {e}"))?;
    let taken = start.elapsed().as_secs_f64() * 1e3;
    std::io::copy(&mut out.by_ref(), &mut std::io::sink()).map_err(|e| format!("fleetgate: {e}"))?;
    let status = child.wait().map_err(|e| format!("fleetgate: {e}"))?;
    match read > 0 && status.success() {
        true => Ok(taken),
        false => Err(format!("fleetgate sessions grep found nothing: {status}")),
    }
}
