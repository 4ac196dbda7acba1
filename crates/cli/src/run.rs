//! `run`: one command on many nodes, and how its outcome is shown: groups of nodes that said the same, or a JSON object for each.

use crate::flags::{Arguments, Outcome};
use crate::output;
use fleetgate_client::fleet::{
    self, BATCH, Cut, End, FailLimit, Group, Groups, MAX_BATCH, MAX_OUTPUT, NodeResult, Output, Report,
    RunEnd, RunOptions, Tally, fold,
};
use fleetgate_client::profile::Home;
use fleetgate_client::stderr;
use fleetgate_policy::text;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// What a shell gives a command that a signal ended.
const BY_SIGNAL: i32 = 128;

/// `run`
pub fn command(given: &Arguments) -> Outcome {
    let home = Home::find(given.value("home"))?;
    let batch = given.number("batch").map_or(BATCH, |n| n as usize);
    if !(1..=MAX_BATCH).contains(&batch) {
        return Err(given
            .wrong(format!("--batch wants 1 to {MAX_BATCH} nodes, not {batch}"))
            .into());
    }
    let fail = match given.value("fail").map(FailLimit::parse) {
        Some(limit) => limit.map_err(|wants| given.wrong(format!("--fail wants {wants}")))?,
        None => FailLimit::None,
    };
    // Elsewhere no selector is all nodes; here a variable that is not set may stand behind it.
    if given.values("on").any(str::is_empty) {
        return Err(given
            .wrong("--on wants a selector that is not empty; every node: --on '*'")
            .into());
    }
    let words: Vec<&[u8]> = given.operands.iter().map(|word| OsStr::as_bytes(word)).collect();
    let options = RunOptions {
        selectors: given.values("on").map(str::to_owned).collect(),
        login: given.value("login").map(str::to_owned),
        command: words.join(&b' '),
        batch,
        fail,
        timeout: given.seconds("timeout").map(|s| Duration::from_secs(s.into())),
    };
    let mut progress = Progress::new();
    let RunEnd {
        tally,
        signal,
        is_unread,
    } = match given.has("json") {
        true => fleet::run(
            &home,
            options,
            &mut Lines {
                progress: &mut progress,
            },
        )?,
        false => {
            let mut groups = Grouped {
                progress: &mut progress,
                groups: Groups::default(),
            };
            fleet::run(&home, options, &mut groups)?
        }
    };
    progress.clear();
    if is_unread {
        progress.note("standard output takes nothing more: not all that the nodes said was written");
    }
    Ok(match signal {
        Some(signal) => BY_SIGNAL + signal,
        None => i32::from(is_unread || tally.good < tally.nodes),
    })
}

/// The line on a terminal that says how far the run is.
struct Progress {
    is_terminal: bool,
    shown: String,
}

impl Progress {
    fn new() -> Progress {
        Progress {
            is_terminal: std::io::stderr().is_terminal(),
            shown: String::new(),
        }
    }

    fn show(&mut self, tally: &Tally, running: usize) {
        let failures = match tally.failures() {
            0 => String::new(),
            n => format!(", {n} failed"),
        };
        let line = format!(
            "{} of {} nodes done{failures}, {running} running",
            tally.done(),
            tally.nodes
        );
        if self.is_terminal && line != self.shown {
            stderr::write(format_args!("\r\x1b[K{line}"));
            self.shown = line;
        }
    }

    fn clear(&mut self) {
        if !self.shown.is_empty() {
            stderr::write("\r\x1b[K");
            self.shown.clear();
        }
    }

    fn note(&mut self, words: &str) {
        self.clear();
        stderr::line(words);
    }
}

/// Groups, when all is done.
struct Grouped<'a> {
    progress: &'a mut Progress,
    groups: Groups,
}

impl Report for Grouped<'_> {
    fn ended(&mut self, result: NodeResult) -> Option<String> {
        self.groups.add(result);
        None
    }

    fn progress(&mut self, tally: &Tally, running: usize) {
        self.progress.show(tally, running);
    }

    fn note(&mut self, words: &str) {
        self.progress.note(words);
    }

    fn over(&mut self, tally: &Tally) -> Option<String> {
        self.progress.clear();
        stderr::write(format_args!("{tally}\n"));
        let groups = std::mem::take(&mut self.groups).sorted();
        Some(groups.iter().map(block).collect())
    }
}

/// A line about the nodes, and what they said.
fn block(group: &Group) -> String {
    let names: Vec<&str> = group.nodes.iter().map(String::as_str).collect();
    let count = match names.len() {
        1 => String::new(),
        n => format!(" ({n} nodes)"),
    };
    let Output {
        stdout, stderr, cut, ..
    } = &group.output;
    let is_silent = stdout.is_empty() && stderr.is_empty() && matches!(group.end, End::Exited(_));
    let none = if is_silent { ", no output" } else { "" };
    let end = text::printable(&group.end.to_string());
    let mut out = format!("--- {}{count}: {end}{none}\n", text::printable(&fold(&names)));
    out += &lines(stdout);
    if !stderr.is_empty() {
        out += "--- standard error:\n";
        out += &lines(stderr);
    }
    match cut {
        None => {}
        Some(Cut::Own) => out += &format!("--- cut: of a node at most {} KB are kept\n", MAX_OUTPUT >> 10),
        Some(Cut::All) => out += "--- cut: all outputs together are longer than what is kept of a run\n",
    }
    out
}

/// Text of a node's, indented, so that none of it is taken for a line of ours.
fn lines(bytes: &[u8]) -> String {
    let text = text::printable_lines(&String::from_utf8_lossy(bytes).replace("\r\n", "\n"));
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// A JSON object for each node as it ends, and one for all at the end.
struct Lines<'a> {
    progress: &'a mut Progress,
}

impl Report for Lines<'_> {
    fn ended(&mut self, result: NodeResult) -> Option<String> {
        Some(output::json_line(&document(&result)))
    }

    fn progress(&mut self, tally: &Tally, running: usize) {
        self.progress.show(tally, running);
    }

    fn note(&mut self, words: &str) {
        self.progress.note(words);
    }

    fn over(&mut self, tally: &Tally) -> Option<String> {
        Some(output::json_line(&json!({
            "summary": {
                "nodes": tally.nodes,
                "good": tally.good,
                "failed": tally.failed,
                "refused": tally.refused,
                "timed_out": tally.timed_out,
                "cancelled": tally.cancelled,
                "not_begun": tally.not_begun,
            }
        })))
    }
}

fn document(result: &NodeResult) -> Value {
    let NodeResult {
        node,
        end,
        output,
        time,
    } = result;
    let (code, signal, reason) = match end {
        End::Exited(code) => (Some(*code), None, None),
        End::Killed(signal) => (None, Some(signal.as_str()), None),
        other => (None, None, Some(other.to_string())),
    };
    json!({
        "node": node,
        "state": end.state(),
        "code": code,
        "signal": signal,
        "reason": reason,
        "stdout": String::from_utf8_lossy(&output.stdout),
        "stderr": String::from_utf8_lossy(&output.stderr),
        "cut": output.cut.is_some(),
        "seconds": (time.as_secs_f64() * 1e3).round() / 1e3,
    })
}
