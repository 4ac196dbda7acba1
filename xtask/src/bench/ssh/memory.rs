//! `cargo xtask bench ssh-memory`: what connections keep in memory: the proportional set sizes of all processes of a server, the users' shells left
//! out, with 0, 1, 5, 20 and 100 connections of one login and of as many logins, with open shells, and after all were
//! closed again. The connections are a Go client's, idle, and the same for every server.
//!
//! Our sealed images are counted besides, each once and with all its pages ([`super::images`]): where they are in memory, and,
//! while nobody is connected, also where they are installed. What is in the kernel (sockets, terminals) is in no figure, and of other programs
//! and of libraries only the pages that are mapped.

use super::group::Memory;
use super::images::Rung;
use super::load::Load;
use super::server::{Kind, OURS, RECORDED, SSHD, Server};
use super::world::{LOGINS, World, login};
use crate::bench::{Bench, Goal, Promised};
use crate::shell::Result;
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Names of promises.
pub const IDLE: &str = "idle node with its images in memory, of 6 MB";
pub const IDLE_INSTALLED: &str = "idle node with its images installed, of 6 MB";
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
        name: IDLE_INSTALLED,
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
const IMAGES: &str = "memory, idle after a login, of it images";

/// Ours, with installed images, and ours without a cluster: measured only while nobody is connected.
const INSTALLED: Kind = OURS.with(false, true);
const ALONE: Kind = OURS.with(true, false);
const ALONE_INSTALLED: Kind = OURS.with(true, true);
/// Likewise, with PAM: its modules are loaded before anybody needs them.
const WITH_PAM: Kind = Kind::Ours {
    pam: true,
    timed: false,
    watched: false,
    alone: false,
    installed: false,
    recorded: None,
};

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let world = &World::new(bench)?;
    let all = [OURS, SSHD, Kind::Dropbear, Kind::Go];
    // Ten minutes less for a quick one.
    let kinds = if bench.is_quick() { &all[..2] } else { &all[..] };
    let idle_only = [INSTALLED, ALONE, ALONE_INSTALLED, WITH_PAM];
    let mut rows = Rows::default();
    for _ in 0..bench.rounds(ROUNDS) {
        for kind in kinds.iter().copied().chain(idle_only).chain([RECORDED]) {
            let server = Server::start(world, kind)?;
            let load = world.load(server.port)?;
            let watched = Watched {
                world,
                server,
                load,
                processes: 0,
            };
            let measured = match kind {
                RECORDED => watched.recorded(&mut rows),
                _ => watched.round(&mut rows, !idle_only.contains(&kind)),
            };
            measured.map_err(|e| format!("memory of {}: {e}", kind.name()))?;
        }
    }
    for case in &rows.order {
        for kind in kinds.iter().copied().chain(idle_only).chain([RECORDED]) {
            if let Some(samples) = rows.samples.remove(&(case.clone(), kind.name())) {
                bench.record(case, kind.name(), "KB PSS", samples);
            }
        }
    }
    let ours = OURS.name();
    for case in [FIRST_CASE, FURTHER_CASE, SHELL_CASE] {
        bench.compare(case, RECORDED.name(), ours)?;
    }
    for (promise, kind) in [(IDLE, OURS), (IDLE_INSTALLED, INSTALLED)] {
        let (started, resting) = (
            bench.median(STARTED, kind.name())?,
            bench.median(RESTING, kind.name())?,
        );
        bench.promise(promise, started.max(resting) / (6.0 * 1024.0))?;
    }
    bench.promise(FIRST, bench.median(FIRST_CASE, ours)? / 350.0)?;
    bench.promise(FURTHER, bench.median(FURTHER_CASE, ours)? / 64.0)?;
    bench.promise(SHELL, bench.median(SHELL_CASE, ours)? / 200.0)
}

/// Connections, and the kilobytes with them.
type Point = (usize, f64);

const OF_ONE: &str = "of one login";
const OF_MANY: &str = "of as many logins";

/// A fresh server, its clients, and how many processes it has when nobody is connected.
struct Watched<'a> {
    world: &'a World,
    server: Server,
    load: Load,
    processes: usize,
}

impl Watched<'_> {
    fn round(mut self, rows: &mut Rows, with_connections: bool) -> Result {
        let kind = self.server.kind;
        rows.add(STARTED, kind, self.memory()?);
        self.processes = self.server.group.processes()?.len();
        // What a server sets up once, at its first login, belongs to the idle one.
        self.load.ask(&format!("open 1 {}", login(LOGINS - 1)))?;
        self.close()?;
        let idle = self.look()?;
        if let Kind::Ours { alone, installed, .. } = kind {
            let rung = if installed { Rung::Installed } else { Rung::Memory };
            let names = ["front", "resolver", "session", "tunnel"];
            idle.images.are(&names[..if alone { 3 } else { 4 }], rung)?;
            rows.add(IMAGES, kind, idle.images.kilobytes());
        }
        let resting = idle.kilobytes();
        rows.add(RESTING, kind, resting);
        if !with_connections {
            return Ok(());
        }

        let of_one = self.climb(rows, OF_ONE, &COUNTS)?;
        self.closes(rows, OF_ONE)?;
        let of_many = self.climb(rows, OF_MANY, &COUNTS)?;
        self.closes(rows, OF_MANY)?;
        self.connections(rows, resting, &of_one, &of_many);
        self.shells(rows)?;
        self.close()?;
        rows.add("memory, shells closed again", kind, self.memory()?);
        Ok(())
    }

    /// What is measured of a node that records: connections and shells, by fewer looks.
    fn recorded(mut self, rows: &mut Rows) -> Result {
        // The recorder ends when nothing was recorded for a minute; a session that stays keeps it. The last of the logins has
        // its front by that, which makes the average of a hundred logins less by a hundredth.
        let mut stays = self.world.load(self.server.port)?;
        stays.ask(&format!("open 1 {}", login(LOGINS - 1)))?;
        stays.ask("shells")?;
        let idle = self.look()?;
        idle.images.are(
            &["front", "recorder", "resolver", "session", "tunnel"],
            Rung::Memory,
        )?;
        self.processes = self.server.group.processes()?.len();
        let of_one = self.climb(rows, OF_ONE, &[COUNTS[0], COUNTS[2], COUNTS[3]])?;
        self.close()?;
        let of_many = self.climb(rows, OF_MANY, &COUNTS[3..])?;
        self.close()?;
        self.connections(rows, idle.kilobytes(), &of_one, &of_many);
        self.shells(rows)
    }

    /// What a connection costs, by what there was at some numbers of them.
    fn connections(&self, rows: &mut Rows, resting: f64, of_one: &[Point], of_many: &[Point]) {
        let (kind, single) = (self.server.kind, of_one[0].1);
        // The first one alone, or the average of a hundred logins: the larger.
        let average = of_many
            .last()
            .map_or(0.0, |(count, all)| (all - resting) / *count as f64);
        rows.add(FIRST_CASE, kind, average.max(single - resting));
        // By the slope to 20 and to 100: the larger.
        let slopes = of_one.iter().rev().take(2);
        let slopes = slopes.map(|(count, all)| (all - single) / (count - 1) as f64);
        rows.add(FURTHER_CASE, kind, slopes.fold(f64::MIN, f64::max));
    }

    /// What an open shell costs. They stay open.
    fn shells(&mut self, rows: &mut Rows) -> Result {
        let kind = self.server.kind;
        self.load.ask(&format!("open {SHELLS} {}", login(0)))?;
        let without = self.memory()?;
        self.load.ask("shells")?;
        let with = self.memory()?;
        self.server.counts_all()?;
        rows.add(&format!("memory, {SHELLS} with open shells"), kind, with);
        rows.add(SHELL_CASE, kind, (with - without) / SHELLS as f64);
        Ok(())
    }

    /// Connections of one login or of all in turn, more and more; what there was at each of `counts`.
    fn climb(&mut self, rows: &mut Rows, whose: &str, counts: &[usize]) -> Result<Vec<Point>> {
        let kind = self.server.kind;
        let logins: Vec<String> = (0..LOGINS).map(login).collect();
        let logins = if whose == OF_ONE {
            &logins[..1]
        } else {
            &logins[..]
        };
        let mut found = Vec::new();
        let mut open = 0;
        for &count in counts {
            let next: Vec<&str> = (open..count)
                .map(|n| logins[n % logins.len()].as_str())
                .take(logins.len())
                .collect();
            self.load
                .ask(&format!("open {} {}", count - open, next.join(" ")))?;
            open = count;
            let kilobytes = self.memory()?;
            rows.add(&format!("memory, {count} {whose}"), kind, kilobytes);
            found.push((count, kilobytes));
        }
        self.server.counts_all()?;
        Ok(found)
    }

    /// Closes all, and looks at what is left.
    fn closes(&mut self, rows: &mut Rows, whose: &str) -> Result {
        self.close()?;
        rows.add(
            &format!("memory, closed again, {whose}"),
            self.server.kind,
            self.memory()?,
        );
        Ok(())
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
        self.look().map(|memory| memory.kilobytes())
    }

    /// The middle one of some looks.
    fn look(&self) -> Result<Memory> {
        self.server.group.cpu_at_rest()?;
        sleep(QUIET);
        let shell = self.world.shell()?;
        let mut looks = Vec::new();
        for _ in 0..LOOKS {
            looks.push(self.server.group.memory(&shell)?);
            sleep(APART);
        }
        looks.sort_by(|a, b| a.kilobytes().total_cmp(&b.kilobytes()));
        Ok(looks.swap_remove(LOOKS / 2))
    }
}
