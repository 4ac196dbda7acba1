//! Ten thousand checks a minute for a minute, each begun at its own moment whatever the others do, as a monitoring system spreads
//! them: how long after its moment each has ended, and what all of them cost the master and the servers.

use super::{CHECK, CHECK_DIRECT, NRPE, Rivals, done};
use crate::bench::Bench;
use crate::shell::Result;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

const LATE: &str = "ten thousand checks a minute: ended after its moment";
const COST: &str = "ten thousand checks a minute: processor time of master and servers for each";
/// Between two beginnings.
const EVERY: Duration = Duration::from_millis(6);
/// The subjects take turns of so many checks.
const SLICE: u32 = 1000;
const SLICES: usize = 10;
/// Checks under way at a time, at most: those that wait here are late.
const AT_A_TIME: usize = 64;

/// Measures.
pub(super) fn measure(bench: &mut Bench, rivals: &Rivals) -> Result {
    let subjects = [CHECK_DIRECT, CHECK, NRPE];
    let mut times = [const { Vec::new() }; 3];
    let mut costs = [const { Vec::new() }; 3];
    for _ in 0..bench.rounds(SLICES) {
        for (n, name) in subjects.iter().enumerate() {
            let before = rivals.used()?;
            times[n].extend(rivals.slice(name)?);
            costs[n].push((rivals.used()? - before) as f64 / 1e3 / f64::from(SLICE));
        }
    }
    for ((name, times), costs) in subjects.into_iter().zip(times).zip(costs) {
        bench.record(LATE, name, "ms", times);
        bench.record(COST, name, "ms", costs);
    }
    Ok(())
}

impl Rivals<'_> {
    /// Milliseconds from the moment of each check to its end.
    fn slice(&self, name: &str) -> Result<Vec<f64>> {
        let (next, times) = (AtomicU32::new(0), Mutex::new(Vec::new()));
        let start = Instant::now();
        self.side_by_side(name, AT_A_TIME, |command| {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= SLICE {
                    return Ok(());
                }
                let moment = start + EVERY * number;
                sleep(moment.saturating_duration_since(Instant::now()));
                done(command)?;
                let took = moment.elapsed().as_secs_f64() * 1e3;
                times.lock().map_err(|_| "a worker panicked")?.push(took);
            }
        })?;
        times.into_inner().map_err(|_| "a worker panicked".to_owned())
    }
}
