//! What a running node weighs: memory that is its own, descriptors, processes. It measures and judges nothing but
//! whether a weight is back to what it was.

use crate::service::{Service, descendants};
use crate::world::wait_until;
use std::fmt;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// The monitor, the lobby, all fronts together.
    pub parts: [Part; 3],
    /// All processes below the starter.
    pub processes: usize,
}

/// What one of them has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Memory that is no file's, in KB.
    pub anonymous: u64,
    /// Descriptors.
    pub descriptors: usize,
}

impl Weight {
    /// Of this service, now.
    pub fn of(service: &Service) -> Weight {
        let sum = |pids: Vec<i32>| {
            pids.into_iter().map(part).fold(Part::default(), |a, b| Part {
                anonymous: a.anonymous + b.anonymous,
                descriptors: a.descriptors + b.descriptors,
            })
        };
        Weight {
            parts: [
                part(service.monitor()),
                sum(service.seats("lobby")),
                sum(service.seats("front")),
            ],
            processes: descendants(service.pid()).len(),
        }
    }

    /// Fails if any part has grown by more than so many KB since `before`.
    pub fn is_bounded(&self, what: &str, before: &Weight, kb: [u64; 3]) {
        for (at, bound) in kb.into_iter().enumerate() {
            let (now, then) = (self.parts[at].anonymous, before.parts[at].anonymous);
            assert!(
                now <= then + bound,
                "{what}: part {at} grew from {then} to {now} KB, and may grow by {bound}"
            );
        }
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, part) in ["monitor", "lobby", "fronts"].into_iter().zip(self.parts) {
            write!(
                f,
                "{name} {} KB, {} descriptors; ",
                part.anonymous, part.descriptors
            )?;
        }
        write!(f, "{} processes", self.processes)
    }
}

/// Descriptors that a part may have more than before: a spare cgroup's, a process that is just being reaped.
const SPARE: usize = 2;

/// Waits until descriptors and processes are what they were, and memory too but for what allocators keep: so many KB.
pub fn settles(what: &str, service: &Service, before: &Weight, kb: u64) {
    let mut last = None;
    let settled = |now: &Weight| {
        let mut parts = now.parts.iter().zip(&before.parts);
        now.processes <= before.processes
            && parts.all(|(n, b)| n.descriptors <= b.descriptors + SPARE && n.anonymous <= b.anonymous + kb)
    };
    println!("{what}: before: {before}");
    let report = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wait_until(what, || {
            let now = Weight::of(service);
            last = Some(now);
            settled(&now)
        });
    }));
    println!("{what}: after:  {}", last.expect("measured"));
    if let Err(panic) = report {
        let monitor = format!("/proc/{}/fd", service.monitor());
        let links = std::fs::read_dir(monitor).into_iter().flatten().flatten();
        let links: Vec<_> = links.flat_map(|fd| std::fs::read_link(fd.path())).collect();
        println!("the monitor's descriptors: {links:?}");
        std::panic::resume_unwind(panic);
    }
}

/// Of one process; one that has just ended has nothing.
fn part(pid: i32) -> Part {
    let memory = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let anonymous = memory.lines().find_map(|line| {
        line.strip_prefix("Anonymous:")?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    });
    Part {
        anonymous: anonymous.unwrap_or_default(),
        descriptors: std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |all| all.flatten().count()),
    }
}
