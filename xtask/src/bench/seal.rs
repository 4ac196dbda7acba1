//! `cargo xtask bench seal`: a 10 MB program sealed and run, as a whole command and inside a process; fresh seals from
//! many threads; what the embedded image costs, in time and in size. The program is benches/ten, in Go, as runc is.

pub mod runc;
mod source;

use super::{Bench, Goal, Promised, Subject, rival};
use crate::shell::{Result, build_benches, output, root, run, target};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What it promises.
pub const PROMISES: &[Promised] = &[
    Promised {
        name: "sealed run of a 10 MB program by overlay, of unprotected",
        goal: Goal::AtMost(1.02),
    },
    Promised {
        name: "one-off cost of the embedded image, of 0.5 ms",
        goal: Goal::AtMost(1.0),
    },
];

/// Whole commands per strategy, and samples inside the process.
const COMMANDS: usize = 400;
const SAMPLES: usize = 500;

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let program = ten()?;
    let case = "seal run, whole command";
    let fleetgate = bench.built.fleetgate.clone();
    let command = |strategy: &'static str| {
        let (fleetgate, program) = (fleetgate.clone(), program.clone());
        Subject::timed(strategy, move || {
            let words = ["seal", "run", "--strategy", strategy, "--"];
            quiet(Command::new(&fleetgate).args(words).arg(&program))
        })
    };
    let direct = {
        let program = program.clone();
        Subject::timed("without fleetgate", move || quiet(&mut Command::new(&program)))
    };
    let subjects = vec![command("none"), command("overlay"), command("memfd"), direct];
    bench.run(case, "ms", 10, COMMANDS, subjects)?;
    bench.promise_of(
        "sealed run of a 10 MB program by overlay, of unprotected",
        case,
        "overlay",
        "none",
    )?;

    build_benches(&["bench-seal"])?;
    let images = target().join("images");
    let text = output(
        Command::new(target().join("release/bench-seal"))
            .args([&program, &images])
            .arg(bench.times(SAMPLES).to_string()),
    )?;
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [case, subject, "us", samples] = fields[..] else {
            return Err(format!("bench-seal printed {line:?}"));
        };
        let samples: Option<Vec<f64>> = samples.split(' ').map(|s| s.parse().ok()).collect();
        let samples = samples.ok_or_else(|| format!("bench-seal printed {line:?}"))?;
        bench.record(case, subject, "us", samples);
    }
    let once = bench.median("embedded image, sealed once", "memfd")? / 500.0;
    bench.promise("one-off cost of the embedded image, of 0.5 ms", once)?;

    let case = "what embedding adds to fleetgate";
    for image in ["fleetgate-session", "fleetgate-resolver"] {
        bench.record(case, image, "KB", vec![kilobytes(&images.join(image))?]);
    }
    bench.record(case, "fleetgate, with both", "KB", vec![kilobytes(&fleetgate)?]);
    Ok(())
}

/// The program to seal.
fn ten() -> Result<PathBuf> {
    let go = rival("go", "golang-go")?;
    let out = target().join("bench/ten");
    run(Command::new(go)
        .args(["build", "-o"])
        .arg(&out)
        .arg(".")
        .current_dir(root().join("benches/ten"))
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=mod")
        .env("GOPROXY", "off"))?;
    println!("the program: benches/ten, {:.1} MB", kilobytes(&out)? / 1024.0);
    Ok(out)
}

fn quiet(command: &mut Command) -> Result {
    let status = command.status().map_err(|e| e.to_string())?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{command:?}: {status}"))
    }
}

fn kilobytes(path: &Path) -> Result<f64> {
    let found = std::fs::metadata(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(found.len() as f64 / 1024.0)
}
