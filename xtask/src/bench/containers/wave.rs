//! Many commands in many containers at once, as probes make them: how long the slowest take.

use super::container::{Container, Place};
use super::quiet;
use crate::bench::Bench;
use crate::shell::Result;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const CONTAINERS: usize = 100;
/// Commands in each, by ours and by runc in turn.
const EACH: usize = 10;
/// Under way at a time.
const AT_A_TIME: usize = 8;

/// Measures.
pub fn measure(bench: &mut Bench, runc: &Path, truth: &Path) -> Result {
    let count = bench.times(CONTAINERS);
    let containers: Vec<Container> = (0..count)
        .map(|n| Container::start(runc, &format!("fg-bench-wave-{n}"), truth, Place::Here))
        .collect::<Result<_>>()?;
    let program = bench.built.exec.as_path();
    let taken = std::thread::scope(|scope| {
        let workers: Vec<_> = containers
            .chunks(count.div_ceil(AT_A_TIME))
            .map(|some| scope.spawn(move || commands(program, runc, some)))
            .collect();
        let ended = workers
            .into_iter()
            .map(|worker| worker.join().map_err(|_| "a thread ended".to_owned())?);
        ended.collect::<Result<Vec<_>>>()
    })?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (own, other) in taken {
        ours.extend(own);
        theirs.extend(other);
    }
    let case = format!(
        "{} commands in {count} containers, {AT_A_TIME} at a time",
        ours.len()
    );
    for (name, mut samples) in [("fleetgate-exec", ours), ("runc exec", theirs)] {
        samples.sort_by(f64::total_cmp);
        let slow = samples[(samples.len() * 99).div_ceil(100) - 1];
        bench.record(&case, name, "ms", samples);
        bench.record(&format!("{case}, the 99th of 100"), name, "ms", vec![slow]);
    }
    Ok(())
}

/// How long each took, of ours and of runc's.
fn commands(program: &Path, runc: &Path, containers: &[Container]) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..EACH {
        for container in containers {
            let (root, name) = (container.root(), container.name.as_str());
            let mut own = Command::new(program);
            own.args(["--root", &root, name, "/bin/bench-true"]);
            let mut other = Command::new(runc);
            other.args(["--root", &root, "exec", name, "/bin/bench-true"]);
            for (command, taken) in [(own, &mut ours), (other, &mut theirs)] {
                let (mut command, began) = (command, Instant::now());
                quiet(&mut command)?;
                taken.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    Ok((ours, theirs))
}
