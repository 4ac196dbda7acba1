//! `cargo xtask bench trace-build`: a project of Debian's, configured and built, untraced, under strace with and without
//! --seccomp-bpf, and under ours. Its first rows are those with which strace --seccomp-bpf was shown to the world: `time
//! strace -f -econnect make`, the same with --seccomp-bpf, and `make` alone.

use super::project::Project;
use super::{Cost, Tools, UNTRACED, Way, at_most};
use crate::bench::{Bench, Promised};
use crate::shell::{Result, heading};

/// What it promises.
pub const PROMISES: &[Promised] = &[
    at_most("traced build, -e connect, wall, of untraced", 1.02),
    at_most("traced build, -e connect, CPU, of untraced", 1.02),
    at_most("traced build, -e execve,connect,openat, wall, of untraced", 1.02),
    at_most("traced build, -e execve,connect,openat, CPU, of untraced", 1.02),
    at_most("traced configure, results, wall, of untraced", 1.25),
    at_most("traced configure, results, CPU, of untraced", 1.25),
    at_most("traced configure by notify, wall, of untraced", 1.1),
    at_most("traced configure by notify, CPU, of untraced", 1.1),
];

/// They are as long as they are; `--quick` takes three.
const SAMPLES: usize = 7;

/// Configures or builds once, in one of the ways.
type Work = fn(&Project, &Tools, &Way) -> Result<Cost>;

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let tools = Tools::new(bench)?;
    let project = Project::fetched()?;
    case(bench, &tools, &project, "build", Project::build, BUILD)?;
    heading("what strace --seccomp-bpf was shown by: the same build, once more in its words");
    for (name, words) in SHOWN {
        let seconds = |unit: &str| bench.median(&format!("build, {unit}"), name);
        println!(
            "time {words:<48} real {:>7.2} s   user+sys {:>7.2} s",
            seconds("wall")?,
            seconds("CPU")?
        );
    }
    settle(bench, "build", BUILD_PROMISES)?;
    case(
        bench,
        &tools,
        &project,
        "configure",
        Project::configure,
        CONFIGURE,
    )?;
    settle(bench, "configure", CONFIGURE_PROMISES)
}

/// All ways in turn, several times.
fn case(bench: &mut Bench, tools: &Tools, project: &Project, name: &str, work: Work, ways: &[Way]) -> Result {
    let samples = bench.times(SAMPLES);
    let mut costs: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); ways.len()];
    for turn in 0..=samples {
        for (way, (wall, cpu)) in ways.iter().zip(&mut costs) {
            let cost = work(project, tools, way).map_err(|e| format!("{name}, {}: {e}", way.0))?;
            // The first fills the page cache.
            if turn > 0 {
                wall.push(cost.wall);
                cpu.push(cost.cpu);
            }
        }
    }
    for ((way, _), (wall, cpu)) in ways.iter().zip(costs) {
        bench.record(&format!("{name}, wall"), way, "s", wall);
        bench.record(&format!("{name}, CPU"), way, "s", cpu);
    }
    Ok(())
}

fn settle(bench: &mut Bench, case: &str, promises: &[(&str, &str, &str)]) -> Result {
    for (promise, unit, subject) in promises {
        bench.promise_of(promise, &format!("{case}, {unit}"), subject, UNTRACED.0)?;
    }
    Ok(())
}

/// Ways, and the words of a shell for them.
const SHOWN: &[(&str, &str)] = &[
    ("strace -e connect", "strace -f -econnect make"),
    (
        "strace --seccomp-bpf -e connect",
        "strace -f -econnect --seccomp-bpf make",
    ),
    (UNTRACED.0, "make"),
    ("fleetgate -e connect", "fleetgate trace -f -econnect make"),
];

const BUILD: &[Way] = &[
    UNTRACED,
    (
        "strace -e connect",
        &["STRACE", "-f", "-o", "OUT", "-e", "connect"],
    ),
    (
        "strace --seccomp-bpf -e connect",
        &["STRACE", "--seccomp-bpf", "-f", "-o", "OUT", "-e", "connect"],
    ),
    (
        "fleetgate -e connect",
        &["FLEETGATE", "trace", "-f", "-o", "OUT", "-e", "connect"],
    ),
    (
        "strace --seccomp-bpf, three calls",
        &[
            "STRACE",
            "--seccomp-bpf",
            "-f",
            "-o",
            "OUT",
            "-e",
            "execve,connect,openat",
        ],
    ),
    (
        "fleetgate, three calls",
        &[
            "FLEETGATE",
            "trace",
            "-f",
            "-o",
            "OUT",
            "-e",
            "execve,connect,openat",
        ],
    ),
];
const BUILD_PROMISES: &[(&str, &str, &str)] = &[
    (
        "traced build, -e connect, wall, of untraced",
        "wall",
        "fleetgate -e connect",
    ),
    (
        "traced build, -e connect, CPU, of untraced",
        "CPU",
        "fleetgate -e connect",
    ),
    (
        "traced build, -e execve,connect,openat, wall, of untraced",
        "wall",
        "fleetgate, three calls",
    ),
    (
        "traced build, -e execve,connect,openat, CPU, of untraced",
        "CPU",
        "fleetgate, three calls",
    ),
];
const CONFIGURE: &[Way] = &[
    UNTRACED,
    (
        "strace",
        &["STRACE", "-f", "-o", "OUT", "-e", "execve,connect,openat"],
    ),
    (
        "strace --seccomp-bpf",
        &[
            "STRACE",
            "--seccomp-bpf",
            "-f",
            "-o",
            "OUT",
            "-e",
            "execve,connect,openat",
        ],
    ),
    (
        "fleetgate",
        &[
            "FLEETGATE",
            "trace",
            "-f",
            "-o",
            "OUT",
            "-e",
            "execve,connect,openat",
        ],
    ),
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
            "execve,connect,openat",
        ],
    ),
];
const CONFIGURE_PROMISES: &[(&str, &str, &str)] = &[
    (
        "traced configure, results, wall, of untraced",
        "wall",
        "fleetgate",
    ),
    ("traced configure, results, CPU, of untraced", "CPU", "fleetgate"),
    (
        "traced configure by notify, wall, of untraced",
        "wall",
        "fleetgate --no-ptrace",
    ),
    (
        "traced configure by notify, CPU, of untraced",
        "CPU",
        "fleetgate --no-ptrace",
    ),
];
