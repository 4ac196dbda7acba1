//! `cargo xtask bench trace-session`: the build of `trace-build` as a session's command, on a node that tells what its
//! sessions do with files and on one that does not. What is asked is a few hundredths, and the machine's moods are larger:
//! each turn builds three times, watched, unwatched, and unwatched once more on a second node, and what counts is the
//! ratio within a turn. The third says what a ratio of nothing looks like here.

use super::at_most;
use super::project::{MAKE, Project};
use crate::bench::ssh::server::{Kind, OURS, Server};
use crate::bench::ssh::world::{World, login};
use crate::bench::{Bench, Promised};
use crate::shell::{Result, run};
use std::process::Command;
use std::time::Instant;

const WALL: &str = "build in a session with audit of files, wall, of one without";
const CPU: &str = "build in a session with audit of files, CPU, of one without";
const CIPHER: &str = "aes128-gcm@openssh.com";

/// What it promises.
pub const PROMISES: &[Promised] = &[at_most(WALL, 1.02), at_most(CPU, 1.02)];

/// Turns; `--quick` takes three.
const TURNS: usize = 11;
const WATCHED: Kind = Kind::Ours {
    pam: false,
    timed: false,
    watched: true,
    alone: false,
    installed: false,
    recorded: None,
};
const SUBJECTS: [(&str, Kind); 3] = [
    ("unwatched", OURS),
    ("unwatched again", OURS),
    ("audit of files", WATCHED),
];

/// Measures.
pub fn measure(bench: &mut Bench) -> Result {
    let project = Project::fetched()?;
    let world = World::new(bench)?;
    let home = world.at.join("home").join(login(0));
    project.copy_to(&home.join("project"))?;
    run(Command::new("chown")
        .args(["-R", &format!("--reference={}", home.display())])
        .arg(home.join("project")))?;
    let servers: Vec<Server> = SUBJECTS
        .iter()
        .map(|(_, kind)| Server::start(&world, *kind))
        .collect::<Result<_>>()?;
    let mut samples = [(); SUBJECTS.len()].map(|()| (Vec::new(), Vec::new()));
    for turn in 0..=bench.times(TURNS) {
        for (server, (wall, cpu)) in servers.iter().zip(&mut samples) {
            let (seconds, used) = build(&world, server)?;
            // The first fills the page cache.
            if turn > 0 {
                wall.push(seconds);
                cpu.push(used);
            }
        }
    }
    for (unit, of, promise) in [("wall", 0, WALL), ("CPU", 1, CPU)] {
        let [plain, again, watched] =
            [0, 1, 2].map(|at: usize| if of == 0 { &samples[at].0 } else { &samples[at].1 }.clone());
        let ratios = |of: &[f64]| of.iter().zip(&plain).map(|(a, b)| a / b).collect::<Vec<_>>();
        let case = format!("in one turn, {unit}, of unwatched");
        bench.record(&case, "nothing changed", "", ratios(&again));
        bench.record(&case, SUBJECTS[2].0, "", ratios(&watched));
        println!("{case}: nothing changed is within {}", within(&ratios(&again)));
        let case = format!("build in a session, {unit}");
        for ((name, _), of) in SUBJECTS.iter().zip([plain, again, watched]) {
            bench.record(&case, name, "s", of);
        }
        bench.promise(
            promise,
            bench.median(&format!("in one turn, {unit}, of unwatched"), SUBJECTS[2].0)?,
        )?;
    }
    Ok(())
}

/// Cleans, unmeasured, and builds; seconds, and seconds of the processor time of all that the node is and started.
fn build(world: &World, server: &Server) -> Result<(f64, f64)> {
    let make = |words: &[&str]| {
        let line = format!("cd project/configured && {} 2> /dev/null", words.join(" "));
        server.run(server.client(world, &login(0), CIPHER), &[&line])
    };
    make(&["make", "-s", "clean"])?;
    let before = server.group.cpu_at_rest()?;
    let start = Instant::now();
    make(MAKE)?;
    let wall = start.elapsed().as_secs_f64();
    let cpu = server.group.cpu_at_rest()? - before;
    Ok((wall, cpu as f64 / 1e6))
}

/// The least and the most of them.
fn within(ratios: &[f64]) -> String {
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    format!("{least:.3} to {most:.3}")
}
