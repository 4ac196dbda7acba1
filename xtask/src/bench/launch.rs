//! `cargo xtask bench launch`: a launch until it is reaped, beside the direct way and the ways before; memory of a
//! waiting helper; launches per second. The measuring is done by `bench-launch`, a process of its own.

use super::{Bench, Goal, Promised};
use crate::shell::{Result, build_benches, cargo, musl, output, run, target};
use std::process::Command;

/// What it promises.
pub const PROMISES: &[Promised] = &[
    Promised {
        name: "launch of the sealed helper, of a direct clone3 and exec",
        goal: Goal::AtMost(1.3),
    },
    Promised {
        name: "memory of a waiting helper, of 60 KB",
        goal: Goal::AtMost(1.0),
    },
];

/// Samples per subject, and seconds of launching without a pause.
const SAMPLES: usize = 2000;
const SECONDS: usize = 60;

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let mut build = cargo();
    build.args(["build", "--profile", "helper", "--package", "fleetgate-benches"]);
    run(build.args([
        "--features",
        "program",
        "--bin",
        "bench-true",
        "--target",
        &musl(),
    ]))?;
    let truth = target().join(musl()).join("helper/bench-true");
    build_benches(&["bench-launch"])?;
    let text = output(
        Command::new(target().join("release/bench-launch"))
            .args([&bench.built.helper, &truth, &bench.built.fleetgate])
            .args([bench.times(SAMPLES).to_string(), bench.times(SECONDS).to_string()]),
    )?;
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [case, subject, unit, samples] = fields[..] else {
            return Err(format!("bench-launch printed {line:?}"));
        };
        let samples: Option<Vec<f64>> = samples.split(' ').map(|s| s.parse().ok()).collect();
        let samples = samples.ok_or_else(|| format!("bench-launch printed {line:?}"))?;
        let unit = match unit {
            "us" => "us",
            "KB" => "KB",
            "launches/s" => "launches/s",
            other => return Err(format!("bench-launch printed the unit {other:?}")),
        };
        bench.record(case, subject, unit, samples);
    }
    let case = "launch, until reaped";
    bench.promise_of(
        "launch of the sealed helper, of a direct clone3 and exec",
        case,
        "sealed helper",
        "direct clone3+exec",
    )?;
    let memory = bench.median("a waiting helper", "PSS")? / 60.0;
    bench.promise("memory of a waiting helper, of 60 KB", memory)
}
