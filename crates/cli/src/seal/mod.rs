//! `fleetgate seal`: the doctor's table, running a program sealed, verifying a running one. What is decided is
//! decided in the crate `seal`; here it is only said.

mod doctor;
mod log;

pub use doctor::doctor;

use crate::flags::Outcome;
use crate::output::print;
use fleetgate_policy::text;
use fleetgate_seal::once::{self, Choice, How};
use fleetgate_seal::{Strategy, verify as look};
use fleetgate_sys::credentials;
use log::Log;
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;

/// Runs `command` from a sealed image of itself; `strategy` is one of the table's words. `verbose` says from what.
pub fn run(strategy: Option<&str>, verbose: bool, command: &[OsString]) -> Outcome {
    let how = match strategy {
        None => How::Best,
        Some("none") => How::Unsealed,
        Some(word) => How::Only(word.parse::<Strategy>()?),
    };
    let mut log = Log::of(std::env::var_os(log::VARIABLE), credentials::raised_by_exec());
    let verbose = verbose || log.is_standard_error();
    let why_not = once::run(how, command, &mut |choice| {
        let lines = explained(how, &choice);
        if verbose {
            // It may be closed, and the program does not depend on it.
            let _ = std::io::stderr()
                .write_all(format!("fleetgate: {}\n", lines.join("\nfleetgate: ")).as_bytes());
        }
        // What is taken comes first: a line that is too long loses its end.
        log.append(lines.iter().rev());
    });
    eprintln!("fleetgate: {why_not}");
    log.append([&why_not.to_string()].into_iter());
    Ok(why_not.code())
}

/// Why each better strategy is not taken, and last which one is.
fn explained(how: How, choice: &Choice<'_>) -> Vec<String> {
    let mut out: Vec<String> = choice
        .refusals
        .iter()
        .map(|refusal| format!("{} is not used: {}", refusal.strategy, refusal.why()))
        .collect();
    let program = choice.program.display();
    out.push(match (choice.strategy, choice.place) {
        (None, _) => format!("{program} runs from its file, not sealed, as was asked for"),
        (Some(strategy), place) => {
            let place = place.map_or_else(String::new, |p| format!(", made in {}", p.display()));
            let asked = match how {
                How::Only(_) => "; no other was tried, as was asked for",
                _ => "",
            };
            format!("{program} runs from a sealed image: {strategy}{place}{asked}")
        }
    });
    out.iter().map(|line| text::printable(line)).collect()
}

/// Says of each process whether and how it is sealed.
pub fn verify(pids: &[i32], as_json: bool) -> Outcome {
    let mut code = 0;
    let (mut lines, mut objects) = (String::new(), Vec::new());
    for &pid in pids {
        match look::verify(pid) {
            Ok(found) => {
                let word = found.sealed.map_or("not sealed", Strategy::name);
                lines += &format!("{pid}: {word}: {}\n", found.why);
                objects.push(json!({
                    "pid": pid,
                    "sealed": found.sealed.is_some(),
                    "strategy": found.sealed.map(Strategy::name),
                    "why": found.why,
                }));
                if found.sealed.is_none() {
                    code = 1;
                }
            }
            Err(error) => {
                code = 1;
                lines += &format!("{pid}: unknown: {error}\n");
                objects.push(json!({
                    "pid": pid, "sealed": null, "strategy": null, "why": error.to_string(),
                }));
            }
        }
    }
    print(&if as_json {
        format!("{:#}\n", json!({ "processes": objects }))
    } else {
        lines
    })?;
    Ok(code)
}
