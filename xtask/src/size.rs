//! `cargo xtask size [FILE]`: what the program is made of, from the symbols of the release build: its largest sections,
//! and the text by crate. Generic code counts for the crate that its name begins with.

use crate::shell::{Result, bytes, heading, output, target};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// Smaller parts are summed.
const SHOWN: u64 = 100_000;

/// `cargo xtask size [FILE]`
pub fn main(args: &[String]) -> Result {
    let program = match args {
        [] => target().join("release/fleetgate"),
        [file] => PathBuf::from(file),
        _ => return Err("size takes one file at most".to_owned()),
    };
    let tool = |name: &str, options: &[&str]| {
        let listed = output(Command::new(name).args(options).arg(&program));
        listed.map_err(|e| format!("{name} (package binutils): {e}"))
    };
    let length = std::fs::metadata(&program)
        .map_err(|e| format!("{}: {e}", program.display()))?
        .len();
    heading(&format!("{}: {}", program.display(), bytes(length)));
    let sections = tool("size", &["-A"])?;
    print(sections.lines().filter_map(section).collect());
    let symbols = tool("nm", &["-S", "--defined-only", "-C"])?;
    let mut text: BTreeMap<String, u64> = BTreeMap::new();
    for (part, size) in symbols.lines().filter_map(symbol) {
        *text.entry(part).or_default() += size;
    }
    if text.is_empty() {
        return Err("the program has no symbols: a release build of this checkout has".to_owned());
    }
    heading("text by crate");
    print(text.into_iter().collect());
    Ok(())
}

/// The parts, largest first.
fn print(mut parts: Vec<(String, u64)>) {
    parts.sort_by_key(|(name, size)| (std::cmp::Reverse(*size), name.clone()));
    let small: u64 = parts.iter().map(|p| p.1).filter(|size| *size < SHOWN).sum();
    let all: u64 = parts.iter().map(|p| p.1).sum();
    parts.retain(|p| p.1 >= SHOWN);
    for (name, size) in parts
        .iter()
        .map(|p| (p.0.as_str(), p.1))
        .chain([("smaller parts", small), ("all", all)])
    {
        println!("{name:<24} {:>10}", bytes(size));
    }
}

/// A line of `size -A`: name, size, address. Sections without an address are not loaded.
fn section(line: &str) -> Option<(String, u64)> {
    let mut fields = line.split_whitespace();
    let (name, size, address) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?);
    (name.starts_with('.') && address != "0").then(|| (name.to_owned(), size))
}

/// A function of `nm -S -C`: address, size, kind, name.
fn symbol(line: &str) -> Option<(String, u64)> {
    let mut fields = line.splitn(4, ' ').skip(1);
    let (size, kind, name) = (fields.next()?, fields.next()?, fields.next()?);
    let size = u64::from_str_radix(size, 16).ok()?;
    matches!(kind, "t" | "T" | "w" | "W").then(|| (part_of(name), size))
}

/// The crate that a function's name begins with; glue that drops a type belongs to the type's.
fn part_of(name: &str) -> String {
    let mut rest = name;
    loop {
        let before = rest;
        for prefix in [
            "core::ptr::drop_in_place<",
            "core::ptr::drop_glue<",
            "<",
            "&",
            "[",
            "(",
            "*",
            "dyn ",
            "mut ",
            "const ",
        ] {
            rest = rest.strip_prefix(prefix).unwrap_or(rest);
        }
        if before == rest {
            break;
        }
    }
    let end = rest
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    match after.strip_prefix("::") {
        Some(_) => word.to_owned(),
        None if word.starts_with("sqlite3") => "SQLite".to_owned(),
        None => "C, assembler, and rest".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_counts_for_its_crate() {
        for (name, part) in [
            ("tokio::runtime::task::raw::poll", "tokio"),
            (
                "<fleetgate_auth::service::Service as tonic::Service>::call",
                "fleetgate_auth",
            ),
            ("core::ptr::drop_in_place<h2::proto::Streams>", "h2"),
            ("<&T as core::fmt::Debug>::fmt", "C, assembler, and rest"),
            ("sqlite3VdbeExec", "SQLite"),
        ] {
            assert_eq!(part_of(name), part, "{name}");
        }
        assert_eq!(
            symbol("0000000000001000 0000000000000010 t h2::x"),
            Some(("h2".to_owned(), 16))
        );
        assert_eq!(symbol("0000000000001000 0000000000000010 r h2::X"), None);
        assert_eq!(section(".text   17  4096"), Some((".text".to_owned(), 17)));
        assert_eq!(section(".comment   17  0"), None);
    }
}
