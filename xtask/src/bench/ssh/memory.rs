//! `cargo xtask bench ssh-memory`: what connections keep in memory: the proportional set sizes of all processes of a server, the users' shells left
//! out, with 0, 1, 5, 20 and 100 connections of one login and of as many logins, with open shells, and after all were
//! closed again. The connections are a Go client's, idle, and the same for every server. What is in the kernel
//! (sockets, terminals) is not in it.

use super::load::Load;
use super::server::{Kind, OURS, SSHD, Server};
use super::world::{LOGINS, World, login};
use crate::bench::{Bench, Goal, Promised};
use crate::shell::Result;
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Names of promises.
pub const IDLE: &str = "idle node, of 6 MB";
pub const FIRST: &str = "memory of a login's first connection, of 350 KB";
pub const FURTHER: &str = "memory of each further connection of a login, of 64 KB";
pub const SHELL: &str = "memory of an open shell without the shell's own, of 200 KB";

/// What it promises.
pub const PROMISES: &[Promised] = &[
    Promised {
        name: IDLE,
        goal: Goal::AtMost(1.0),
    },
    Promised {
        name: FIRST,
        goal: Goal::AtMost(1.0),
    },
    Promised {
        name: FURTHER,
        goal: Goal::AtMost(1.0),
    },
    Promised {
        name: SHELL,
        goal: Goal::AtMost(1.0),
    },
];

const ROUNDS: usize = 3;
const COUNTS: [usize; 4] = [1, 5, 20, 100];
/// Connections on which shells are opened.
const SHELLS: usize = 20;
/// How long processes of closed connections may stay until what there is then is measured.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// How long nothing has happened when memory is looked at for the first time. A node that joined a cluster delivers its log
/// after a login, and rests two seconds after that.
const QUIET: Duration = Duration::from_secs(4);
/// It is looked at so often, so far apart, and the middle counts: now and then something happens to a server at rest.
const LOOKS: usize = 5;
const APART: Duration = Duration::from_secs(1);

/// Rows by case, in the order in which they were first met.
#[derive(Default)]
struct Rows {
    order: Vec<String>,
    samples: BTreeMap<(String, &'static str), Vec<f64>>,
}

impl Rows {
    fn add(&mut self, case: &str, kind: Kind, kilobytes: f64) {
        if !self.order.iter().any(|c| c == case) {
            self.order.push(case.to_owned());
        }
        self.samples
            .entry((case.to_owned(), kind.name()))
            .or_default()
            .push(kilobytes);
    }
}

const FIRST_CASE: &str = "memory, first connection of a login";
const FURTHER_CASE: &str = "memory, each further connection";
const SHELL_CASE: &str = "memory, an open shell";
const STARTED: &str = "memory, just started";
const RESTING: &str = "memory, idle after a login";

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let world = &World::new(bench)?;
    let kinds = [OURS, SSHD, Kind::Dropbear, Kind::Go];
    let mut rows = Rows::default();
    for _ in 0..bench.rounds(ROUNDS) {
        for kind in kinds {
            let server = Server::start(world, kind)?;
            let load = world.load(server.port)?;
            Watched {
                world,
                server,
                load,
                processes: 0,
            }
            .round(&mut rows)
            .map_err(|e| format!("memory of {}: {e}", kind.name()))?;
        }
    }
    for case in &rows.order {
        for kind in kinds {
            if let Some(samples) = rows.samples.remove(&(case.clone(), kind.name())) {
                bench.record(case, kind.name(), "KB PSS", samples);
            }
        }
    }
    let ours = OURS.name();
    let idle = bench.median(STARTED, ours)?.max(bench.median(RESTING, ours)?);
    bench.promise(IDLE, idle / (6.0 * 1024.0))?;
    bench.promise(FIRST, bench.median(FIRST_CASE, ours)? / 350.0)?;
    bench.promise(FURTHER, bench.median(FURTHER_CASE, ours)? / 64.0)?;
    bench.promise(SHELL, bench.median(SHELL_CASE, ours)? / 200.0)
}

/// A fresh server, its clients, and how many processes it has when nobody is connected.
struct Watched<'a> {
    world: &'a World,
    server: Server,
    load: Load,
    processes: usize,
}

impl Watched<'_> {
    fn round(mut self, rows: &mut Rows) -> Result {
        let kind = self.server.kind;
        rows.add(STARTED, kind, self.memory()?);
        self.processes = self.server.group.processes()?.len();
        // What a server sets up once, at its first login, belongs to the idle one.
        self.load.ask(&format!("open 1 {}", login(LOGINS - 1)))?;
        self.close()?;
        let resting = self.memory()?;
        rows.add(RESTING, kind, resting);

        let one = [login(0)];
        let all: Vec<String> = (0..LOGINS).map(login).collect();
        let of_one = self.climb(rows, "of one login", &one)?;
        let of_many = self.climb(rows, "of as many logins", &all)?;
        let (single, last) = (of_one[0], COUNTS.len() - 1);
        // The first one alone, or the average of a hundred logins: the larger.
        let average = (of_many[last] - resting) / COUNTS[last] as f64;
        rows.add(FIRST_CASE, kind, average.max(single - resting));
        // By the slope to 20 and to 100: the larger.
        let slope = |n: usize| (of_one[n] - single) / (COUNTS[n] - 1) as f64;
        rows.add(FURTHER_CASE, kind, slope(last).max(slope(last - 1)));

        self.load.ask(&format!("open {SHELLS} {}", login(0)))?;
        let without = self.memory()?;
        self.load.ask("shells")?;
        let with = self.memory()?;
        self.server.counts_all()?;
        rows.add(&format!("memory, {SHELLS} with open shells"), kind, with);
        rows.add(SHELL_CASE, kind, (with - without) / SHELLS as f64);
        self.close()?;
        rows.add("memory, shells closed again", kind, self.memory()?);
        Ok(())
    }

    /// Connections of `logins`, in turn, more and more, then closed; what there was at each of [`COUNTS`].
    fn climb(&mut self, rows: &mut Rows, whose: &str, logins: &[String]) -> Result<Vec<f64>> {
        let kind = self.server.kind;
        let mut found = Vec::new();
        let mut open = 0;
        for count in COUNTS {
            let next: Vec<&str> = (open..count)
                .map(|n| logins[n % logins.len()].as_str())
                .take(logins.len())
                .collect();
            self.load
                .ask(&format!("open {} {}", count - open, next.join(" ")))?;
            open = count;
            let kilobytes = self.memory()?;
            rows.add(&format!("memory, {count} {whose}"), kind, kilobytes);
            found.push(kilobytes);
        }
        self.server.counts_all()?;
        self.close()?;
        rows.add(&format!("memory, closed again, {whose}"), kind, self.memory()?);
        Ok(found)
    }

    /// Closes all and waits until the processes that were for them are gone, or have had their time.
    fn close(&mut self) -> Result {
        self.load.ask("close")?;
        let until = Instant::now() + GONE_WITHIN;
        while self.server.group.processes()?.len() > self.processes && Instant::now() < until {
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Kilobytes, at rest and after a while of it: some servers give memory back by time.
    fn memory(&self) -> Result<f64> {
        self.server.group.cpu_at_rest()?;
        sleep(QUIET);
        let shell = self.world.shell()?;
        let mut looks = Vec::new();
        for _ in 0..LOOKS {
            looks.push(self.server.group.memory(&shell)?);
            sleep(APART);
        }
        looks.sort_by(f64::total_cmp);
        Ok(looks[LOOKS / 2])
    }
}
