//! The price of separation: what the steps between the processes of `fleetgate node` take, in microseconds and as a share
//! of a cold and of a warm exec. The node, on a log level that nothing else is measured at, writes a line for each, also what
//! the lobby and the front wait for the monitor; they are added up by step for each exec. The shares are of the execs that
//! [`super::exec`] measured without it.

use super::CIPHER;
use super::exec::{FIRST, WARM};
use super::server::{Kind, Master, OURS, Server};
use super::world::{World, login};
use crate::bench::Bench;
use crate::shell::{Result, read_text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

const EXECS: usize = 40;
const WARM_UP: usize = 3;

/// Measures.
pub fn measure(bench: &mut Bench, world: &World) -> Result {
    let server = Server::start(
        world,
        Kind::Ours {
            pam: false,
            timed: true,
            watched: false,
            alone: false,
            installed: false,
            recorded: None,
        },
    )?;
    // Each the first of its login: a front has to start.
    let cold = |turn| Ok(server.client(world, &login(turn), CIPHER));
    one_case(bench, &server, FIRST, &cold)?;
    let master = Master::connect(world, &server, &login(0), CIPHER)?;
    one_case(bench, &server, WARM, &|_| Ok(master.client(world)))
}

fn one_case(
    bench: &mut Bench,
    server: &Server,
    of: &str,
    client: &dyn Fn(usize) -> Result<Command>,
) -> Result {
    let n = bench.times(EXECS);
    let mut steps: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for turn in 0..WARM_UP + n {
        server.group.cpu_at_rest()?;
        let seen = read_text(&server.log)?.len();
        server.run(client(turn)?, &["true"])?;
        server.group.cpu_at_rest()?;
        let text = read_text(&server.log)?;
        for (step, micros) in timings(&text[seen..]) {
            if turn >= WARM_UP {
                steps.entry(step).or_default().push(micros);
            }
        }
    }
    if steps.is_empty() {
        return Err(format!("the node told no timing of {of}: {}", server.said()));
    }
    let whole = bench.median(of, OURS.name())? * 1e3;
    for (step, micros) in steps {
        let shares = micros.iter().map(|m| m / whole * 100.0).collect();
        bench.record(&format!("step of {of}"), &step, "us", micros);
        bench.record(&format!("share of {of}"), &step, "%", shares);
    }
    Ok(())
}

/// Microseconds by step, of the lines that tell one: events `timing` of the monitor's, and what lobby and fronts say,
/// which stands in the message of an event.
fn timings(log: &str) -> BTreeMap<String, f64> {
    let mut steps = BTreeMap::new();
    let events = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    for event in events {
        let message = event["message"].as_str().unwrap_or_default();
        let said = match (event["step"].as_str(), event["micros"].as_f64()) {
            (Some(step), Some(micros)) if message == "timing" => Some((step, micros)),
            _ => timing(message),
        };
        if let Some((step, micros)) = said {
            *steps.entry(step.to_owned()).or_default() += micros;
        }
    }
    steps
}

/// `timing of STEP: MICROS us`, somewhere in a message.
fn timing(message: &str) -> Option<(&str, f64)> {
    let (step, rest) = message.split_once("timing of ")?.1.split_once(": ")?;
    let (micros, _) = rest.split_once(" us")?;
    Some((step, micros.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timings_are_added_up_by_step_and_other_lines_passed_over() {
        let log = "timing of nothing: 1 us\n{\"message\":\"started\"}\n\
            {\"message\":\"2026-01-01T00:00:00Z DEBUG lobby: timing of a signature: 120 us\",\"from\":\"lobby\"}\n\
            {\"message\":\"{\\\"message\\\":\\\"timing of a signature: 80 us\\\"}\",\"from\":\"lobby\"}\n\
            {\"message\":\"timing\",\"step\":\"launch\",\"micros\":400}\n{\"message\":\"timing of a launch: ? us\"}\n";
        let expected = BTreeMap::from([("a signature".to_owned(), 200.0), ("launch".to_owned(), 400.0)]);
        assert_eq!(timings(log), expected);
        assert!(timings("").is_empty());
    }
}
