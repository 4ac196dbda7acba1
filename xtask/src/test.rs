//! `cargo xtask test [FILTER]`: everything that has to hold before a change lands.
//!
//! In this order, cheapest first: formatting, the house rules, clippy, unit tests, then the end-to-end programs
//! twice: over the release build with its images, and over one plain `fleetgate` that executes itself. A test
//! that skips itself is counted and named at the end; with `CI=true` it fails instead. The last lines say what each
//! part took.

use crate::programs::{Program, Run, Spent, side_by_side};
use crate::shell::{Result, cargo, heading, read_text, root, run, target};
use crate::{build, dist, peers, programs, tidy};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `--only` may name.
const PARTS: [&str; 4] = ["tidy", "unit", "images", "plain"];

/// Modules for which it makes no difference what carries a session, and that take long: the plain build is asked them only
/// where they are named.
const IMAGES_ALONE: [(&str, &str); 13] = [
    ("cluster", "icinga"),
    ("cluster", "identity"),
    ("cluster", "plain_sshd"),
    ("cluster", "plain_sshd_refusals"),
    ("cluster", "restarts"),
    ("cluster", "serve"),
    ("cluster", "spans"),
    ("containers", "attack"),
    ("containers", "small_program"),
    ("containers", "wave"),
    ("interop", "through"),
    ("lab", "round_trips"),
    ("lab", "sending_ahead"),
];

/// The end-to-end programs that take longest, which begin first.
const LONG: [&str; 3] = ["interop", "cluster", "node"];

/// The unit tests that take longest, which begin first.
const LONG_UNITS: [&str; 2] = ["proxy/proxy", "auth/growth"];

/// So many tests of a program run at a time, whatever the number of processors: they wait most of their time.
const TESTS_AT_A_TIME: &str = "4";

/// What the end-to-end programs run against.
struct Subject {
    name: &'static str,
    fleetgate: PathBuf,
    helper: PathBuf,
    resolver: PathBuf,
    /// Where the packages are; a plain build has none.
    dist: Option<PathBuf>,
}

/// Which tests are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Filter {
    All,
    /// One end-to-end program, and of its tests those whose name contains the word.
    Area(String, Option<String>),
    /// Those whose name contains the word.
    Name(String),
}

/// `cargo xtask test [FILTER] [--only PART]`; the filter is an area of the end-to-end tests (`node`), a module of one
/// (`node::rules`), or part of a test's name. Every part is run, whatever came of those before it.
pub fn main(args: &[String]) -> Result {
    let (only, filter) = parse(args)?;
    let filter = wanted(filter, &areas());
    let skips = target().join("skips");
    let _ = std::fs::remove_file(&skips);
    let chosen = |part: &&str| {
        let named = only.as_deref().is_none_or(|o| o == *part);
        // No house rule has a name to filter by, and no unit test is of an area.
        let asked = match filter {
            Filter::All => true,
            Filter::Area(..) => matches!(*part, "images" | "plain"),
            Filter::Name(_) => *part != "tidy",
        };
        named && asked
    };
    let mut beside = only.is_none().then(|| std::thread::spawn(release_beside));
    // Nothing that watches clocks runs while compilers do.
    let mut quiet = || drop(beside.take().map(std::thread::JoinHandle::join));
    let (spent, mut failures, mut asked) = (Spent::new(), Vec::new(), 0);
    for part in PARTS.iter().copied().filter(chosen) {
        let result = match part {
            "tidy" => rules(&spent).map(|()| 1),
            "unit" => units(&filter, &skips, &spent, &mut quiet),
            "images" => spent
                .time("images: build", images)
                .and_then(|subject| end_to_end(&subject, &filter, &skips, &spent)),
            _ => spent
                .time("plain: build", plain)
                .and_then(|subject| end_to_end(&subject, &filter, &skips, &spent)),
        };
        match result {
            Ok(count) => asked += count,
            Err(e) => failures.push(format!("{part}: {e}")),
        }
    }
    if asked == 0 && failures.is_empty() {
        failures.push("no test has such a name".to_owned());
    }
    report_skips(&skips);
    heading("what it took");
    print!("{}", spent.report());
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n"))
    }
}

fn rules(spent: &Spent) -> Result {
    let tidy = spent.time("tidy", || tidy::main(&[]));
    heading("clippy");
    let clippy = spent.time("clippy", || {
        run(cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            // What only benches build.
            "--features",
            "fleetgate-benches/fleet,fleetgate-benches/measure,fleetgate-benches/recordings",
            "--",
            "--deny",
            "warnings",
        ]))
    });
    // They are a workspace of their own, which no other check compiles.
    heading("fuzz targets");
    let fuzz = spent.time("fuzz targets: check", || {
        run(cargo()
            .args(["check", "--manifest-path", "fuzz/Cargo.toml", "--target-dir"])
            .arg(target()))
    });
    tidy.and(clippy).and(fuzz)
}

/// Builds the release while the checks are compiled: the programs in it that are one unit each leave a processor idle.
/// Whoever asks for it next is told what went wrong.
fn release_beside() {
    if let Ok(ours) = std::env::current_exe() {
        let _ = Command::new(ours).arg("build").output();
    }
}

/// The unit tests, and how many passed; `quiet` waits for whatever is compiled beside them.
fn units(filter: &Filter, skips: &Path, spent: &Spent, quiet: &mut dyn FnMut()) -> Result<usize> {
    heading("unit tests");
    let built = spent.time("unit: build", || {
        let mut all = programs::build(&["--workspace", "--exclude", "fleetgate-tests"])?;
        all.extend(programs::build(&["--package", "fleetgate-tests", "--lib"])?);
        Ok::<_, String>(all)
    });
    // The archive's tests have an object store among them.
    spent.time("clients from outside", peers::fetch)?;
    quiet();
    let mut runs = Vec::new();
    for program in first(built?, &LONG_UNITS, |program| &program.name) {
        let mut command = program.command();
        command.env("FLEETGATE_SKIPS", skips);
        command.env("RUST_TEST_THREADS", TESTS_AT_A_TIME);
        // Some have a `main` of their own, which lists nothing: all of them run, and leave out what the word is not part of.
        if let Filter::Name(word) = filter {
            command.arg(word);
        }
        runs.push((program.name, command));
    }
    if *filter == Filter::All {
        let mut documents = cargo();
        documents.args(["test", "--workspace", "--doc"]);
        runs.push(("documents".to_owned(), documents));
    }
    let runs: Vec<Run> = runs
        .into_iter()
        .map(|(name, run)| (format!("unit: {name}"), run))
        .collect();
    side_by_side(runs, spent)
}

/// The same things, those whose names are in `long` before the others.
fn first<T>(mut things: Vec<T>, long: &[&str], name: impl Fn(&T) -> &str) -> Vec<T> {
    things.sort_by_key(|thing| long.iter().position(|l| *l == name(thing)).unwrap_or(long.len()));
    things
}

/// The run of this program with these arguments and the filter's word, where that leaves it a test.
fn asked(
    program: &Program,
    filter: &Filter,
    mut args: Vec<String>,
    prepare: impl FnOnce(&mut Command),
) -> Result<Option<Run>> {
    if let Filter::Area(_, Some(word)) | Filter::Name(word) = filter {
        args.push(word.clone());
        if program.count(&args)? == 0 {
            return Ok(None);
        }
    }
    let mut command = program.command();
    prepare(command.args(args));
    Ok(Some((program.name.clone(), command)))
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

/// What the filter means.
fn wanted(filter: Option<String>, areas: &[String]) -> Filter {
    let Some(word) = filter else {
        return Filter::All;
    };
    let (first, rest) = match word.split_once("::") {
        Some((first, rest)) => (first.to_owned(), Some(rest.to_owned())),
        None => (word.clone(), None),
    };
    match areas.contains(&first) {
        true => Filter::Area(first, rest),
        false => Filter::Name(word),
    }
}

/// Runs the end-to-end programs; how many tests passed.
fn end_to_end(subject: &Subject, filter: &Filter, skips: &Path, spent: &Spent) -> Result<usize> {
    let told = |e: String| format!("subject {}: {e}", subject.name);
    if !matches!(filter, Filter::Area(area, _) if !["interop", "lab"].contains(&area.as_str())) {
        spent.time("clients from outside", peers::fetch)?;
    }
    let names = match filter {
        Filter::Area(area, _) => vec![area.clone()],
        _ => first(areas(), &LONG, String::as_str),
    };
    if names.is_empty() {
        return Err("there are no programs in tests/tests".to_owned());
    }
    let mut build = vec!["--package", "fleetgate-tests"];
    build.extend(names.iter().flat_map(|name| ["--test", name]));
    let built = spent.time("end to end: build", || programs::build(&build))?;
    let mut runs = Vec::new();
    for name in &names {
        let own = format!("tests/{name}");
        let program = built.iter().find(|p| p.name == own);
        let program = program.ok_or_else(|| format!("{own} was not built"))?;
        let mut args = Vec::new();
        if subject.name == "plain" && matches!(filter, Filter::All | Filter::Area(_, None)) {
            let left_out = IMAGES_ALONE.iter().filter(|(area, _)| area == name);
            args.extend(left_out.flat_map(|(_, module)| ["--skip".to_owned(), format!("{module}::")]));
        }
        runs.extend(asked(program, filter, args, |command| {
            over(subject, skips, command)
        })?);
    }
    let named = |(name, run): Run| (name.replace("tests/", &format!("{}: ", subject.name)), run);
    let runs: Vec<Run> = runs.into_iter().map(named).collect();
    side_by_side(runs, spent).map_err(told)
}

/// Tells a program what it runs against.
fn over(subject: &Subject, skips: &Path, command: &mut Command) {
    command
        .env("FLEETGATE_SUBJECT", subject.name)
        .env("FLEETGATE_BIN", &subject.fleetgate)
        .env("FLEETGATE_HELPER", &subject.helper)
        .env("FLEETGATE_RESOLVER", &subject.resolver)
        .env("FLEETGATE_SKIPS", skips);
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        command.env("RUST_TEST_THREADS", TESTS_AT_A_TIME);
    }
    if let Some(dist) = &subject.dist {
        command.env("FLEETGATE_DIST", dist);
    }
}

/// The end-to-end programs: the folders of tests/tests.
fn areas() -> Vec<String> {
    let folders = std::fs::read_dir(root().join("tests/tests"));
    let folders = folders.into_iter().flatten().flatten();
    let mut names: Vec<String> = folders
        .filter(|folder| folder.path().join("main.rs").exists())
        .filter_map(|folder| Some(folder.file_name().to_str()?.to_owned()))
        .collect();
    names.sort();
    names
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
    use super::*;

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

    #[test]
    fn a_filter_is_an_area_or_a_module_of_one_or_part_of_a_name() {
        let areas = ["node", "sftp"].map(str::to_owned);
        let wanted = |word: &str| wanted(Some(word.to_owned()), &areas);
        let area = |area: &str, rest: Option<&str>| Filter::Area(area.to_owned(), rest.map(str::to_owned));
        assert_eq!(super::wanted(None, &areas), Filter::All);
        assert_eq!(wanted("node"), area("node", None));
        assert_eq!(wanted("node::rules::"), area("node", Some("rules::")));
        for name in ["nodes", "rules::x", "a_frame_is_bounded"] {
            assert_eq!(wanted(name), Filter::Name(name.to_owned()));
        }
    }

    #[test]
    fn what_is_left_out_or_begins_first_is_there() {
        let areas = areas();
        let modules =
            |area: &str, module: &str| root().join(format!("tests/tests/{area}/{module}.rs")).exists();
        assert!(
            LONG.iter().all(|area| areas.contains(&(*area).to_owned())),
            "{areas:?}"
        );
        for (area, module) in IMAGES_ALONE {
            assert!(modules(area, module), "{area}::{module}");
        }
    }
}
