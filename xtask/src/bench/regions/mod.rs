//! `cargo xtask bench regions`: `ssh target true` between three continents, by way of a proxy: ours, OpenSSH's ProxyJump,
//! and what Teleport published of its versions 12 and 13 ([`rows`]).
//!
//! The lab's links delay packets by half a round-trip time each way. Its legs are measured before each row. Each command is recorded on
//! every leg; the recordings of the last one stay in target/bench/regions, for tcpdump, and round trips are counted in all
//! of them. OpenSSH's key exchange is pinned to curve25519, as Debian's default costs 95 ms more; nobody has PAM. As root.

mod ours;
mod rows;
mod world;

use super::{Bench, Goal, Promised, Subject};
use crate::shell::{Result, heading};
use ours::Ours;
use rows::{FAR_PROXY, FAR_TARGET, ROWS, Row};
use std::cell::RefCell;
use std::time::Duration;
use world::{LEGS, World};

/// Samples of each subject in each row.
const SAMPLES: usize = 5;
const WARM_UP: usize = 1;

/// Subjects.
const JUMP: &str = "ssh -J";
const DIRECT: &str = "ssh, direct";
const COLD: &str = "fleetgate ssh, cold";
const WARM: &str = "fleetgate ssh, warm";
const KEPT: &str = "ssh by its ssh_config, kept";
const V12: &str = "v12 as published";
const V13: &str = "v13 as published";

/// Promises about round trips, which say how many there may be.
const COLD_TO_PROXY: &str = "round trips of a cold fleetgate ssh, user to proxy, of 5";
const COLD_TO_NODE: &str = "round trips of a cold fleetgate ssh, proxy to node, of 3";
const WARM_TO_PROXY: &str = "round trips of fleetgate ssh by a kept proxy connection, user to proxy, of 3";
const WARM_TO_NODE: &str = "round trips of fleetgate ssh by a kept proxy connection, proxy to node, of 3";
const KEPT_TO_PROXY: &str = "round trips over a kept connection, user to proxy, of 3";
const KEPT_TO_NODE: &str = "round trips over a kept connection, proxy to node, of 3";

const HALF: Goal = Goal::AtMost(0.5);
const ALL: Goal = Goal::AtMost(1.0);

/// The round trips of each sample, on each leg.
type Turns = RefCell<Vec<[u32; LEGS.len()]>>;

/// What it promises.
pub const PROMISES: &[Promised] = &[
    promised(ROWS[0].of_v13, HALF),
    promised(ROWS[0].of_jump, HALF),
    promised(ROWS[1].of_v13, HALF),
    promised(ROWS[1].of_jump, HALF),
    promised(ROWS[2].of_v13, HALF),
    promised(ROWS[2].of_jump, HALF),
    promised(ROWS[3].of_v13, HALF),
    promised(ROWS[3].of_jump, HALF),
    promised(ROWS[4].of_v13, HALF),
    promised(ROWS[4].of_jump, HALF),
    promised(ROWS[5].of_v13, HALF),
    promised(ROWS[5].of_jump, HALF),
    promised(COLD_TO_PROXY, ALL),
    promised(COLD_TO_NODE, ALL),
    promised(WARM_TO_PROXY, ALL),
    promised(WARM_TO_NODE, ALL),
    promised(KEPT_TO_PROXY, ALL),
    promised(KEPT_TO_NODE, ALL),
];

const fn promised(name: &'static str, goal: Goal) -> Promised {
    Promised { name, goal }
}

/// Measures. With `--without-ours` the lab and the rivals alone, and no promise is settled.
pub fn measure(bench: &mut Bench) -> Result {
    let world = World::new(bench)?;
    println!("without delay, to see what the lab itself costs:");
    world.set(LEGS.map(|(from, to)| (from, to, Duration::ZERO)))?;
    let ours = if bench.without_ours() {
        None
    } else {
        Some(Ours::start(&world)?)
    };
    for row in &ROWS {
        heading(&row.name());
        one(bench, &world, ours.as_ref(), row)?;
    }
    let account = world.lab.account()?;
    println!(
        "\nthe lab's relay: {} packets, {} wake-ups, {} us late on average, {} us at most, none dropped",
        account.packets,
        account.wake_ups,
        account.late.as_micros(),
        account.latest.as_micros()
    );
    table(bench)?;
    if ours.is_some() { settle(bench) } else { Ok(()) }
}

/// One row.
fn one(bench: &mut Bench, world: &World, ours: Option<&Ours>, row: &Row) -> Result {
    world.set(row.legs())?;
    let name = row.name();
    bench.record(&name, V12, "ms", vec![row.v12 * 1e3]);
    bench.record(&name, V13, "ms", vec![row.v13 * 1e3]);

    let turns: [Turns; 5] = Default::default();
    let jump = || timed(|| world.openssh(true));
    let direct = || timed(|| world.openssh(false));
    let mut names = vec![JUMP, DIRECT];
    let mut subjects = vec![
        recorded(world, &name, JUMP, &turns[0], jump),
        recorded(world, &name, DIRECT, &turns[1], direct),
    ];
    if let Some(ours) = ours {
        names.extend([COLD, WARM, KEPT]);
        subjects.push(recorded(world, &name, COLD, &turns[2], || ours.cold(world)));
        subjects.push(recorded(world, &name, WARM, &turns[3], || ours.warm(world)));
        subjects.push(recorded(world, &name, KEPT, &turns[4], || ours.kept(world)));
    }
    bench.run(&name, "ms", WARM_UP, SAMPLES, subjects)?;
    let n = bench.times(SAMPLES);
    for (subject, turns) in names.into_iter().zip(&turns) {
        for (leg, (asks, answers)) in LEGS.into_iter().enumerate() {
            let turns = turns.borrow();
            // What was taken while warming up stands first.
            let measured: Vec<f64> = turns[turns.len() - n..]
                .iter()
                .map(|t| f64::from(t[leg]))
                .collect();
            if measured.iter().any(|n| *n > 0.0) {
                bench.record(
                    &round_trips(&name, asks, answers),
                    subject,
                    "round trips",
                    measured,
                );
            }
        }
    }
    Ok(())
}

/// The subject `subject` of the row `row`: `work`, which gives milliseconds, recorded on each leg.
fn recorded<'a>(
    world: &'a World,
    row: &'a str,
    subject: &'static str,
    turns: &'a Turns,
    work: impl Fn() -> Result<f64> + 'a,
) -> Subject<'a> {
    Subject::sampled(subject, move || {
        let recordings = world.record()?;
        let taken = work()?;
        let mut counted = [0; LEGS.len()];
        for ((recording, (asks, answers)), count) in recordings.into_iter().zip(LEGS).zip(&mut counted) {
            let capture = recording.end()?;
            let file = format!("{row} {subject} {asks} {answers}.pcap").replace(", ", " ");
            capture.write(&world.at.join(file.replace(['/', ' '], "_")))?;
            *count = capture.round_trips();
        }
        turns.borrow_mut().push(counted);
        Ok(taken)
    })
}

/// Milliseconds that `work` takes.
fn timed(work: impl FnOnce() -> Result) -> Result<f64> {
    let start = std::time::Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// The case of a row's round trips on a leg.
fn round_trips(row: &str, asks: &str, answers: &str) -> String {
    format!("{row}, {asks} to {answers}")
}

/// Prints the published table with what was measured.
fn table(bench: &Bench) -> Result {
    heading("seconds, and round trips user to proxy + proxy to target (direct: user to target)");
    let subjects = [V12, V13, JUMP, DIRECT, COLD, WARM, KEPT];
    let titles = [
        "v12 published",
        "v13 published",
        "ssh -J",
        "ssh direct",
        "cold",
        "warm",
        "kept",
    ];
    println!(
        "{:<15}{:<15}{:<11}{}",
        "user",
        "target",
        "proxy",
        titles.map(|t| format!("{t:>15}")).concat()
    );
    for row in &ROWS {
        let name = row.name();
        let turns = |subject, (asks, answers)| bench.median(&round_trips(&name, asks, answers), subject).ok();
        let cells = subjects.map(|subject| {
            let Ok(median) = bench.median(&name, subject) else {
                return "-".to_owned();
            };
            let counted = LEGS.map(|leg| turns(subject, leg));
            let counted = counted
                .into_iter()
                .flatten()
                .map(|n| n.to_string())
                .collect::<Vec<_>>();
            let counted = if counted.is_empty() {
                String::new()
            } else {
                format!(" ({})", counted.join("+"))
            };
            format!("{:.3}{counted}", median / 1e3)
        });
        let [user, target, proxy] = row.regions;
        println!(
            "{user:<15}{target:<15}{proxy:<11}{}",
            cells.map(|c| format!("{c:>15}")).concat()
        );
    }
    println!(
        "\na leg's count is exact where it is the longer one by far; beside a longer one, what is acknowledged before it is \
         answered counts as a round trip more. Promises are about {} and {}",
        ROWS[FAR_PROXY].name(),
        ROWS[FAR_TARGET].name()
    );
    Ok(())
}

/// Settles all promises.
fn settle(bench: &mut Bench) -> Result {
    for row in &ROWS {
        bench.promise_of(row.of_v13, &row.name(), COLD, V13)?;
        bench.promise_of(row.of_jump, &row.name(), COLD, JUMP)?;
    }
    for (promise, subject, row, leg, allowed) in [
        (COLD_TO_PROXY, COLD, FAR_PROXY, LEGS[0], 5.0),
        (COLD_TO_NODE, COLD, FAR_TARGET, LEGS[1], 3.0),
        (WARM_TO_PROXY, WARM, FAR_PROXY, LEGS[0], 3.0),
        (WARM_TO_NODE, WARM, FAR_TARGET, LEGS[1], 3.0),
        (KEPT_TO_PROXY, KEPT, FAR_PROXY, LEGS[0], 3.0),
        (KEPT_TO_NODE, KEPT, FAR_TARGET, LEGS[1], 3.0),
    ] {
        let counted = bench.median(&round_trips(&ROWS[row].name(), leg.0, leg.1), subject)?;
        bench.promise(promise, counted / allowed)?;
    }
    Ok(())
}
