//! The price of separation: what the steps between the processes of `fleetgate node` take, in microseconds and as a share
//! of a cold and of a warm exec. The node, on a log level that nothing else is measured at, writes an event `timing`
//! with `step` and `micros` for each; they are added up by step for each exec. The shares are of the execs that
//! [`super::exec`] measured without it.

use super::CIPHER;
use super::exec::{COLD, WARM};
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
        },
    )?;
    one_case(bench, &server, COLD, &|| {
        Ok(server.client(world, &login(0), CIPHER))
    })?;
    let master = Master::connect(world, &server, &login(0), CIPHER)?;
    one_case(bench, &server, WARM, &|| Ok(master.client(world)))
}

fn one_case(bench: &mut Bench, server: &Server, of: &str, client: &dyn Fn() -> Result<Command>) -> Result {
    let n = bench.times(EXECS);
    let mut steps: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for turn in 0..WARM_UP + n {
        server.group.cpu_at_rest()?;
        let seen = read_text(&server.log)?.len();
        server.run(client()?, &["true"])?;
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

/// Microseconds by step, of the events `timing` among lines of a log.
fn timings(log: &str) -> BTreeMap<String, f64> {
    let mut steps = BTreeMap::new();
    for line in log.lines() {
        // Other lines, and what a library printed, are not ours to read.
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        if let ("timing", Some(step), Some(micros)) = (
            event["message"].as_str().unwrap_or_default(),
            event["step"].as_str(),
            event["micros"].as_f64(),
        ) {
            *steps.entry(step.to_owned()).or_default() += micros;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timings_are_added_up_by_step_and_other_lines_passed_over() {
        let log = "not json\n{\"message\":\"started\",\"step\":\"sign\",\"micros\":1}\n\
            {\"level\":\"DEBUG\",\"message\":\"timing\",\"step\":\"sign\",\"micros\":120}\n\
            {\"level\":\"DEBUG\",\"message\":\"timing\",\"step\":\"sign\",\"micros\":80}\n\
            {\"level\":\"DEBUG\",\"message\":\"timing\",\"step\":\"launch\",\"micros\":400}\n\
            {\"message\":\"timing\",\"step\":\"launch\"}\n";
        let expected = BTreeMap::from([("sign".to_owned(), 200.0), ("launch".to_owned(), 400.0)]);
        assert_eq!(timings(log), expected);
        assert!(timings("").is_empty());
    }
}
