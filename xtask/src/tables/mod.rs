//! `cargo xtask tables`: the tracer's names of system calls, errors, signals and constants, made of the kernel's headers as
//! they are installed, and of a short list of what is newer than those. They are committed, so that no build needs a header
//! of another architecture. With `--check` nothing is written; a table that differs is an error.

mod constants;
mod headers;
mod newer;

use crate::shell::{Result, read_text, root, write};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const COMMITTED: &str = "crates/calls/src/tables";
/// How wide a line of a table may be.
const WIDTH: usize = 110;
/// Numbers beyond this are no system calls: a table is as long as its highest number.
const MOST: u32 = 1024;

/// Writes them anew, or compares.
pub fn main(args: &[String]) -> Result {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => return Err("usage: cargo xtask tables [--check]".to_owned()),
    };
    let made = made()?
        .into_iter()
        .map(|(name, text)| (format!("{COMMITTED}/{name}"), text));
    for (name, text) in made.chain([constants::made()?]) {
        let path = root().join(&name);
        if !check {
            write(&path, text.as_bytes())?;
        } else if read_text(&path)? != text {
            return Err(format!(
                "{name} is not what the headers make: run `cargo xtask tables`"
            ));
        }
    }
    Ok(())
}

/// Every file and its text.
fn made() -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for (name, calls) in headers::calls()? {
        let calls = newer::with_newer(name, calls)?;
        files.push((format!("{name}.rs"), table_of_calls(name, &calls)?));
    }
    files.push((
        "errno_names.rs".to_owned(),
        table_of_errors(&newer::with_restarts(headers::errors()?)),
    ));
    files.push((
        "signal_names.rs".to_owned(),
        table_of_signals(&headers::signals()?)?,
    ));
    Ok(files)
}

/// Names by number; no name stands twice.
fn table_of_calls(abi: &str, calls: &BTreeMap<u32, String>) -> Result<String> {
    let mut names = BTreeSet::new();
    if let Some(twice) = calls.values().find(|name| !names.insert(*name)) {
        return Err(format!("{abi}: {twice} has two numbers"));
    }
    let last = calls.keys().next_back().copied().unwrap_or_default();
    if calls.is_empty() || last > MOST {
        return Err(format!("{abi}: {} calls, the last is {last}", calls.len()));
    }
    let names = (0..=last).map(|n| format!("{:?}", calls.get(&n).map_or("", String::as_str)));
    let mut text = head(&format!("System calls of {abi}"));
    text += "\n/// Names by number, empty where there is none.\n";
    text += &list(names);
    Ok(text)
}

fn table_of_errors(errors: &BTreeMap<u32, (String, String)>) -> String {
    let mut text = head("Errors of the kernel");
    text += "\n/// Number, name, and what it says, by number.\n#[rustfmt::skip]\n";
    text += "pub(super) static ERRORS: &[(u16, &str, &str)] = &[\n";
    for (number, (name, says)) in errors {
        let _ = writeln!(text, "    ({number}, {name:?}, {says:?}),");
    }
    text + "];\n"
}

fn table_of_signals(signals: &BTreeMap<u32, String>) -> Result<String> {
    let last = signals.keys().next_back().copied().unwrap_or_default();
    if signals.keys().copied().ne(1..=last) || last > MOST {
        return Err(format!("signals have gaps: {:?}", signals.keys()));
    }
    let mut text = head("Signals");
    text += "\n/// Names by number, from 1.\n";
    text += &list(signals.values().map(|name| format!("{name:?}")));
    Ok(text)
}

fn head(what: &str) -> String {
    format!("//! {what}, made by `cargo xtask tables` of the kernel's headers. Never written by hand.\n")
}

/// A table, as many values in a line as it holds.
fn list(values: impl Iterator<Item = String>) -> String {
    let mut text = String::from("#[rustfmt::skip]\npub(super) static NAMES: &[&str] = &[\n");
    let mut line = String::new();
    for value in values {
        if !line.is_empty() && 4 + line.len() + value.len() + 1 > WIDTH {
            let _ = writeln!(text, "    {}", line.trim_end());
            line.clear();
        }
        line = line + &value + ", ";
    }
    let _ = writeln!(text, "    {}", line.trim_end());
    text + "];\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(of: &[(u32, &str)]) -> BTreeMap<u32, String> {
        of.iter().map(|(n, name)| (*n, name.to_string())).collect()
    }

    #[test]
    fn a_table_has_gaps() {
        let text = table_of_calls("x", &calls(&[(0, "write"), (2, "open")])).expect("a table");
        assert!(text.contains("    \"write\", \"\", \"open\",\n"), "{text}");
    }

    #[test]
    fn a_table_that_cannot_be_is_an_error() {
        for wrong in [&[][..], &[(1, "a"), (2, "a")], &[(MOST + 1, "a")]] {
            assert!(table_of_calls("x", &calls(wrong)).is_err(), "{wrong:?}");
        }
        assert!(table_of_signals(&calls(&[(1, "SIGHUP"), (3, "SIGQUIT")])).is_err());
    }
}
