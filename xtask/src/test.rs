//! `cargo xtask test [FILTER]`: everything that has to hold before a change lands.
//!
//! In this order, cheapest first: formatting, the house rules, clippy, unit tests, then the end-to-end suites
//! twice: over the release build with its images, and over one plain `fleetgate` that executes itself. A test
//! that skips itself is counted and named at the end; with `CI=true` it fails instead.

use crate::shell::{Result, cargo, heading, read_text, root, run, target};
use crate::{build, dist, peers, tidy};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `--only` may name.
const PARTS: [&str; 4] = ["tidy", "unit", "images", "plain"];

/// Suites for which it makes no difference what carries a session, and that take long: the plain build is not asked.
const IMAGES_ALONE: [&str; 7] = [
    "identity",
    "interop_through",
    "lab_cold",
    "plain_sshd",
    "plain_sshd_refusals",
    "restarts",
    "tracing",
];

/// Suites that wait for clocks and for clients most of their time: they run beside the others, and what they print comes
/// behind.
const WAITING: [&str; 5] = [
    "identity",
    "interop_openssh",
    "interop_tools",
    "plain_sshd",
    "plain_sshd_refusals",
];

/// What the end-to-end suites run against.
struct Subject {
    name: &'static str,
    fleetgate: PathBuf,
    helper: PathBuf,
    resolver: PathBuf,
    /// Where the packages are; a plain build has none.
    dist: Option<PathBuf>,
}

/// `cargo xtask test [FILTER] [--only PART]`; the filter is an area of the end-to-end suites or part of a test's
/// name. Every part is run, whatever came of those before it.
pub fn main(args: &[String]) -> Result {
    let (only, filter) = parse(args)?;
    let skips = target().join("skips");
    let _ = std::fs::remove_file(&skips);
    let wanted = |part: &&str| only.as_deref().is_none_or(|o| o == *part);
    let mut beside = only.is_none().then(|| std::thread::spawn(release_beside));
    // Nothing that watches clocks runs while compilers do.
    let mut quiet = || drop(beside.take().map(std::thread::JoinHandle::join));
    let mut failures = Vec::new();
    for part in PARTS.iter().copied().filter(wanted) {
        let result = match part {
            // Nothing in them has a name to filter by.
            "tidy" if filter.is_some() => Ok(()),
            "tidy" => rules(),
            "unit" => units(&filter, &skips, &mut quiet),
            "images" => images().and_then(|subject| end_to_end(&subject, &filter, &skips)),
            _ => plain().and_then(|subject| end_to_end(&subject, &filter, &skips)),
        };
        failures.extend(result.err().map(|e| format!("{part}: {e}")));
    }
    report_skips(&skips);
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n"))
    }
}

fn rules() -> Result {
    let tidy = tidy::main(&[]);
    heading("clippy");
    let clippy = run(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        // What only benches build.
        "--features",
        "fleetgate-benches/fleet,fleetgate-benches/measure",
        "--",
        "--deny",
        "warnings",
    ]));
    tidy.and(clippy)
}

/// Builds the release while the checks are compiled: the programs in it that are one unit each leave a processor idle.
/// Whoever asks for it next is told what went wrong.
fn release_beside() {
    if let Ok(ours) = std::env::current_exe() {
        let _ = both(Command::new(ours).arg("build"));
    }
}

/// The unit tests; `quiet` waits for whatever is compiled beside them.
fn units(filter: &Option<String>, skips: &Path, quiet: &mut dyn FnMut()) -> Result {
    heading("unit tests");
    let tests = |all: &[&str]| {
        let mut command = cargo();
        command.arg("test").args(all);
        command
    };
    let everywhere = ["--workspace", "--exclude", "fleetgate-tests"];
    let compiled = run(tests(&everywhere).arg("--no-run"));
    quiet();
    let ours = compiled.and_then(|()| {
        run(tests(&everywhere)
            .arg("--no-fail-fast")
            .args(filter)
            .env("FLEETGATE_SKIPS", skips))
    });
    ours.and(run(tests(&["--package", "fleetgate-tests", "--lib"]).args(filter)))
}

fn images() -> Result<Subject> {
    heading("end to end, over the release build with images");
    let built = build::release()?;
    let dist = dist::reproducible(&built)?;
    Ok(Subject {
        name: "images",
        fleetgate: built.fleetgate,
        helper: built.helper,
        resolver: built.resolver,
        dist: Some(dist),
    })
}

fn plain() -> Result<Subject> {
    heading("end to end, over a plain build that executes itself");
    let fleetgate = build::plain()?;
    Ok(Subject {
        name: "plain",
        helper: fleetgate.clone(),
        resolver: fleetgate.clone(),
        fleetgate,
        dist: None,
    })
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
    if filter.as_ref().is_none_or(|f| f.starts_with("interop")) {
        peers::fetch()?;
    }
    let told = |e: String| format!("subject {}: {e}", subject.name);
    // An area (`sftp`, `seal_ladder`) is a file or several; anything else is part of a test's name.
    if let Some(area) = filter.as_ref().filter(|f| is_area(f)) {
        return run(&mut suites(subject, skips, &[format!("{area}*")])).map_err(told);
    }
    let mut names = names();
    names.retain(|name| subject.name == "images" || !IMAGES_ALONE.contains(&name.as_str()));
    names.sort();
    if names.is_empty() {
        return Err("there are no suites in tests/tests".to_owned());
    }
    // Once for all, since cargo lets nobody else build meanwhile.
    run(suites(subject, skips, &names).arg("--no-run"))?;
    let (waiting, others): (Vec<String>, _) = names
        .into_iter()
        .partition(|name| WAITING.contains(&name.as_str()));
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| match waiting.is_empty() {
            true => Ok(String::new()),
            false => both(suites(subject, skips, &waiting).args(filter)),
        });
        let ours = run(suites(subject, skips, &others).args(filter));
        let said = beside.join().map_err(|_| "the suites beside it".to_owned())?;
        let (Ok(text) | Err(text)) = &said;
        println!("{text}");
        ours.and(
            said.map(drop)
                .map_err(|_| format!("of {} one failed", waiting.join(", "))),
        )
    })
    .map_err(told)
}

/// `cargo test` of these suites, over this subject.
fn suites(subject: &Subject, skips: &Path, names: &[String]) -> Command {
    let mut command = cargo();
    command.args(["test", "--package", "fleetgate-tests", "--no-fail-fast"]);
    for name in names {
        command.args(["--test", name]);
    }
    command
        .env("FLEETGATE_SUBJECT", subject.name)
        .env("FLEETGATE_BIN", &subject.fleetgate)
        .env("FLEETGATE_HELPER", &subject.helper)
        .env("FLEETGATE_RESOLVER", &subject.resolver)
        .env("FLEETGATE_SKIPS", skips);
    if let Some(dist) = &subject.dist {
        command.env("FLEETGATE_DIST", dist);
    }
    command
}

/// All that it printed and said; as an error if it failed.
fn both(command: &mut Command) -> Result<String> {
    let out = command.output().map_err(|e| e.to_string())?;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&out.stderr),
        String::from_utf8_lossy(&out.stdout)
    );
    match out.status.success() {
        true => Ok(text),
        false => Err(text),
    }
}

/// Whether the name of an end-to-end suite begins so.
fn is_area(filter: &str) -> bool {
    names().iter().any(|name| name.starts_with(filter))
}

/// Of all end-to-end suites.
fn names() -> Vec<String> {
    let files = std::fs::read_dir(root().join("tests/tests"));
    let files = files.into_iter().flatten().flatten();
    files
        .filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
        .collect()
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
