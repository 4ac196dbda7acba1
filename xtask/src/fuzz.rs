//! `cargo xtask fuzz [TARGET] [--seconds N]`: every fuzz target, each for a bounded time.
//!
//! Needs a nightly toolchain, cargo-fuzz and a C++ compiler; the first two are fetched when missing. What a run
//! learns stays in fuzz/corpus, what it breaks in fuzz/artifacts.

use crate::shell::{Result, heading, output, read_text, root, run};
use std::process::Command;

/// How long one target runs when nobody says.
const SECONDS: u32 = 60;

/// `cargo xtask fuzz [TARGET] [--seconds N]`
pub fn main(args: &[String]) -> Result {
    let (target, seconds) = parse(args)?;
    let all = targets(&read_text(&root().join("fuzz/Cargo.toml"))?);
    let wanted: Vec<&String> = all
        .iter()
        .filter(|t| target.as_ref().is_none_or(|w| w == *t))
        .collect();
    if wanted.is_empty() {
        return Err(format!(
            "there is no fuzz target {target:?}; there are: {}",
            all.join(", ")
        ));
    }
    tools()?;
    for name in &wanted {
        heading(&format!("fuzz {name}, {seconds} s"));
        run(&mut nightly(&[
            "fuzz",
            "run",
            name,
            "--",
            &format!("-max_total_time={seconds}"),
            "-print_final_stats=1",
        ]))?;
    }
    println!("\n{} targets, {seconds} s each, nothing found", wanted.len());
    Ok(())
}

fn parse(args: &[String]) -> Result<(Option<String>, u32)> {
    let (mut target, mut seconds) = (None, SECONDS);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--seconds" {
            let value = args.next().and_then(|v| v.parse().ok()).filter(|v| *v > 0);
            seconds = value.ok_or("--seconds takes a number above zero")?;
        } else if arg.starts_with('-') || target.is_some() {
            return Err(format!(
                "fuzz: unexpected {arg:?}; it takes one target and --seconds N"
            ));
        } else {
            target = Some(arg.clone());
        }
    }
    Ok((target, seconds))
}

/// The names of the `[[bin]]` entries.
fn targets(manifest: &str) -> Vec<String> {
    let bins = manifest.split("[[bin]]").skip(1);
    let name = |bin: &str| {
        Some(
            bin.lines()
                .find_map(|l| l.strip_prefix("name = "))?
                .trim_matches('"')
                .to_owned(),
        )
    };
    bins.filter_map(name).collect()
}

/// Fetches what is missing.
fn tools() -> Result {
    if output(Command::new("rustup").args(["run", "nightly", "rustc", "--version"])).is_err() {
        run(Command::new("rustup").args(["toolchain", "install", "nightly", "--profile", "minimal"]))?;
    }
    if output(&mut nightly(&["fuzz", "--version"])).is_err() {
        run(&mut nightly(&["install", "--locked", "cargo-fuzz"]))?;
    }
    Ok(())
}

/// Cargo of the nightly toolchain; what our own cargo told us about itself must not reach it.
fn nightly(args: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command
        .current_dir(root())
        .args(["run", "nightly", "cargo"])
        .args(args);
    for variable in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "RUST_RECURSION_COUNT"] {
        command.env_remove(variable);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_manifests_bins() {
        let manifest =
            "[package]\nname = \"x\"\n[[bin]]\nname = \"a\"\npath = \"a.rs\"\n[[bin]]\nname = \"b\"\n";
        assert_eq!(targets(manifest), ["a", "b"]);
    }

    #[test]
    fn a_target_and_a_time() {
        let parsed = |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parsed(""), Ok((None, SECONDS)));
        assert_eq!(
            parsed("wire_order --seconds 5"),
            Ok((Some("wire_order".to_owned()), 5))
        );
        for wrong in ["--seconds", "--seconds 0", "a b", "--fast"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
