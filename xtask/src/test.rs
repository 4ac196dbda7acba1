//! `cargo xtask test [FILTER]`: everything that has to hold before a change lands.
//!
//! In this order, cheapest first: formatting, the house rules, clippy, unit tests, then the end-to-end suites
//! twice: over the release build with its images, and over one plain `fleetgate` that executes itself. A test
//! that skips itself is counted and named at the end; with `CI=true` it fails instead.

use crate::shell::{Result, cargo, heading, read_text, run, target};
use crate::{build, tidy};
use std::path::{Path, PathBuf};

/// What `--only` may name.
const PARTS: [&str; 4] = ["tidy", "unit", "images", "plain"];

/// What the end-to-end suites run against.
struct Subject {
    name: &'static str,
    fleetgate: PathBuf,
    helper: PathBuf,
    resolver: PathBuf,
}

/// `cargo xtask test [FILTER] [--only PART]`
pub fn main(args: &[String]) -> Result {
    let (only, filter) = parse(args)?;
    let wanted = |part: &str| only.as_deref().is_none_or(|o| o == part);
    if wanted("tidy") && filter.is_none() {
        tidy::main(&[])?;
        heading("clippy");
        run(cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "--deny",
            "warnings",
        ]))?;
    }
    let skips = target().join("skips");
    let _ = std::fs::remove_file(&skips);
    if wanted("unit") {
        heading("unit tests");
        let mut command = cargo();
        command
            .args(["test", "--workspace", "--exclude", "fleetgate-tests"])
            .args(&filter);
        run(command.env("FLEETGATE_SKIPS", &skips))?;
        run(cargo()
            .args(["test", "--package", "fleetgate-tests", "--lib"])
            .args(&filter))?;
    }
    if wanted("images") {
        heading("end to end, over the release build with images");
        let built = build::release()?;
        let subject = Subject {
            name: "images",
            fleetgate: built.fleetgate,
            helper: built.helper,
            resolver: built.resolver,
        };
        end_to_end(&subject, &filter, &skips)?;
    }
    if wanted("plain") {
        heading("end to end, over a plain build that executes itself");
        let fleetgate = build::plain()?;
        let (helper, resolver) = (fleetgate.clone(), fleetgate.clone());
        end_to_end(
            &Subject {
                name: "plain",
                fleetgate,
                helper,
                resolver,
            },
            &filter,
            &skips,
        )?;
    }
    report_skips(&skips);
    Ok(())
}

/// The part and the filter.
fn parse(args: &[String]) -> Result<(Option<String>, Option<String>)> {
    let (mut only, mut filter) = (None, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--only" {
            let part = args.next().filter(|p| PARTS.contains(&p.as_str()));
            only = Some(
                part.ok_or_else(|| format!("--only takes one of {}", PARTS.join(", ")))?
                    .clone(),
            );
        } else if arg.starts_with('-') || filter.is_some() {
            return Err(format!(
                "test: unexpected {arg:?}; it takes one filter and --only PART"
            ));
        } else {
            filter = Some(arg.clone());
        }
    }
    Ok((only, filter))
}

fn end_to_end(subject: &Subject, filter: &Option<String>, skips: &Path) -> Result {
    let mut command = cargo();
    command
        .args([
            "test",
            "--package",
            "fleetgate-tests",
            "--no-fail-fast",
            "--test",
            "*",
        ])
        .args(filter)
        .env("FLEETGATE_SUBJECT", subject.name)
        .env("FLEETGATE_BIN", &subject.fleetgate)
        .env("FLEETGATE_HELPER", &subject.helper)
        .env("FLEETGATE_RESOLVER", &subject.resolver)
        .env("FLEETGATE_SKIPS", skips);
    run(&mut command).map_err(|e| format!("subject {}: {e}", subject.name))
}

/// Names what was left out.
fn report_skips(skips: &Path) {
    let text = read_text(skips).unwrap_or_default();
    heading(&format!("{} tests skipped themselves", text.lines().count()));
    for line in text.lines() {
        println!("  {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_part_and_a_filter() {
        let parsed = |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let some = |s: &str| Some(s.to_owned());
        assert_eq!(parsed(""), Ok((None, None)));
        assert_eq!(parsed("sftp"), Ok((None, some("sftp"))));
        assert_eq!(parsed("--only plain sftp"), Ok((some("plain"), some("sftp"))));
        for wrong in ["--only", "--only slow", "--fast", "a b"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
