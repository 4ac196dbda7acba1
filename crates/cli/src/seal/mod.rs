//! `fleetgate seal`: the doctor's table, running a program sealed, verifying a running one. What is decided is
//! decided in the crate `seal`; here it is only said.

mod doctor;

pub use doctor::doctor;

use crate::flags::Outcome;
use crate::output::print;
use fleetgate_policy::text;
use fleetgate_seal::once::{self, Choice, How};
use fleetgate_seal::{Strategy, verify as look};
use serde_json::json;
use std::ffi::OsString;

/// Runs `command` from a sealed image of itself; `strategy` is one of the table's words. `verbose` says from what.
pub fn run(strategy: Option<&str>, verbose: bool, command: &[OsString]) -> Outcome {
    let how = match strategy {
        None => How::Best,
        Some("none") => How::Unsealed,
        Some(word) => How::Only(word.parse::<Strategy>()?),
    };
    let why_not = once::run(how, command, &mut |choice| {
        if verbose {
            eprint!("{}", explained(how, &choice));
        }
    });
    eprintln!("fleetgate: {why_not}");
    Ok(why_not.code())
}

/// Which strategy is taken, and why each better one is not: one line each.
fn explained(how: How, choice: &Choice<'_>) -> String {
    let mut out = String::new();
    for refusal in choice.refusals {
        out += &format!("fleetgate: {} is not used: {}\n", refusal.strategy, refusal.why());
    }
    let program = choice.program.display();
    out += &match (choice.strategy, choice.place) {
        (None, _) => format!("fleetgate: {program} runs from its file, not sealed, as was asked for\n"),
        (Some(strategy), place) => {
            let place = place.map_or_else(String::new, |p| format!(", made in {}", p.display()));
            let asked = match how {
                How::Only(_) => "; no other was tried, as was asked for",
                _ => "",
            };
            format!("fleetgate: {program} runs from a sealed image: {strategy}{place}{asked}\n")
        }
    };
    text::printable_lines(&out)
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
