//! Test programs: cargo builds them, and they run from here, several side by side; and what each took.

use crate::shell::{Result, cargo, output, target};
use serde_json::Value;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many of them run at a time: they wait for clocks, clients and each other's keys most of their time.
const AT_A_TIME: usize = 2;
/// One that takes longer hangs: it is ended, and what it has said names the tests that hang. All of them together have to be
/// done in CI's 90 minutes, or nobody is told anything.
const AT_MOST: Duration = Duration::from_mins(25);
/// What took less is one line together.
const SMALL: Duration = Duration::from_secs(2);

/// A program of tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// `PACKAGE` for the tests in a crate, `PACKAGE/NAME` for those in a file or folder of its `tests`.
    pub name: String,
    file: PathBuf,
    /// Its package, where cargo would run it.
    directory: PathBuf,
}

impl Program {
    /// Runs it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command
            .current_dir(&self.directory)
            .env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }

    /// How many of its tests these arguments leave.
    pub fn count(&self, args: &[String]) -> Result<usize> {
        let list = output(self.command().args(args).args(["--list", "--format", "terse"]))?;
        Ok(list.lines().filter(|line| line.ends_with(": test")).count())
    }
}

/// Builds what `cargo test` with these arguments would run.
pub fn build(args: &[&str]) -> Result<Vec<Program>> {
    let mut command = cargo();
    command
        .args(["test", "--no-run", "--message-format", "json-render-diagnostics"])
        .args(args)
        .stderr(Stdio::inherit());
    let built = command.output().map_err(|e| format!("cargo: {e}"))?;
    if !built.status.success() {
        return Err("the tests do not build".to_owned());
    }
    Ok(parse(&String::from_utf8_lossy(&built.stdout)))
}

/// The programs in cargo's messages.
fn parse(messages: &str) -> Vec<Program> {
    let program = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let file = PathBuf::from(message["executable"].as_str()?);
        if message["profile"]["test"] != true {
            return None;
        }
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
        let package = directory.file_name()?.to_str()?;
        let target = &message["target"];
        let name = match target["kind"][0].as_str()? {
            "test" => format!("{package}/{}", target["name"].as_str()?),
            "bin" => format!("{package}, {}", target["name"].as_str()?),
            _ => package.to_owned(),
        };
        let directory = directory.to_owned();
        Some(Program {
            name,
            file,
            directory,
        })
    };
    messages.lines().filter_map(program).collect()
}

/// Something to run, by its name.
pub type Run = (String, Command);

/// Runs all, several at a time and in this order; how many tests passed, as far as is known. One alone prints as it goes, and
/// counts as one; of several each prints when it has ended. The error names those that failed.
pub fn side_by_side(runs: Vec<Run>, spent: &Spent) -> Result<usize> {
    let alone = runs.len() == 1;
    let waiting = Mutex::new(VecDeque::from(runs));
    let (failed, passed, printing) = (Mutex::new(Vec::new()), AtomicUsize::new(0), Mutex::new(()));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                // In a `while let`, the lock would be held for as long as the program runs.
                let next = || locked(&waiting).pop_front();
                while let Some((name, mut command)) = next() {
                    let result = spent.time(&name, || match alone {
                        true => outcome(&mut command, AT_MOST).map(|()| 1),
                        false => recorded(&name, &mut command, &printing),
                    });
                    match result {
                        Ok(count) => drop(passed.fetch_add(count, Ordering::Relaxed)),
                        Err(why) => {
                            println!("{name}: {why}");
                            locked(&failed).push(name);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failed.is_empty() {
        true => Ok(passed.into_inner()),
        false => Err(format!("failed: {}", failed.join(", "))),
    }
}

fn outcome(command: &mut Command, at_most: Duration) -> Result {
    let mut running = command.spawn().map_err(|e| e.to_string())?;
    let begun = Instant::now();
    let status = loop {
        match running.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break status,
            None if begun.elapsed() < at_most => std::thread::sleep(Duration::from_millis(20)),
            None => {
                let _ = running.kill().and_then(|()| running.wait());
                return Err(format!("ended, as it ran for more than {} s", at_most.as_secs()));
            }
        }
    };
    status.success().then_some(()).ok_or_else(|| status.to_string())
}

/// Runs it with its output in a file in `target/test-output`, and prints that; how many tests passed.
fn recorded(name: &str, command: &mut Command, printing: &Mutex<()>) -> Result<usize> {
    let directory = target().join("test-output");
    let path = directory.join(format!("{}.txt", name.replace(['/', ' ', ':', ','], "-")));
    let said = |e: std::io::Error| format!("{}: {e}", path.display());
    std::fs::create_dir_all(&directory).map_err(said)?;
    let file = File::create(&path).map_err(said)?;
    command.stdout(file.try_clone().map_err(said)?).stderr(file);
    let result = outcome(command, AT_MOST);
    let text = std::fs::read(&path).map_err(said)?;
    let _whole = locked(printing);
    println!("\n-- {name}");
    std::io::stdout().write_all(&text).map_err(said)?;
    let passed = |line: &&str| line.starts_with("test ") && line.ends_with(" ok");
    result.map(|()| String::from_utf8_lossy(&text).lines().filter(passed).count())
}

/// What each part took.
pub struct Spent {
    begun: Instant,
    parts: Mutex<Vec<(String, Duration)>>,
}

impl Spent {
    /// Nothing yet.
    pub fn new() -> Spent {
        Spent {
            begun: Instant::now(),
            parts: Mutex::default(),
        }
    }

    /// Does it, and takes its time.
    pub fn time<T>(&self, name: &str, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = work();
        locked(&self.parts).push((name.to_owned(), begun.elapsed()));
        done
    }

    /// The parts, longest first, and the time that has passed.
    pub fn report(&self) -> String {
        let mut parts = locked(&self.parts).clone();
        parts.sort_by_key(|part| std::cmp::Reverse(part.1));
        let small = parts.partition_point(|(_, took)| *took >= SMALL);
        let rest: Duration = parts[small..].iter().map(|(_, took)| took).sum();
        let mut text = String::new();
        for (name, took) in &parts[..small] {
            text += &format!("{:>7.1} s  {name}\n", took.as_secs_f64());
        }
        if small < parts.len() {
            let count = parts.len() - small;
            text += &format!("{:>7.1} s  {count} more together\n", rest.as_secs_f64());
        }
        let total = self.begun.elapsed().as_secs();
        text + &format!(
            "{:>4}:{:02}    in all; parts ran side by side\n",
            total / 60,
            total % 60
        )
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_from_cargos_messages() {
        let line = |kind: &str, test: bool, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"/w/tests/Cargo.toml\",\"target\":{{\"kind\":\
                 [\"{kind}\"],\"name\":\"node\"}},\"profile\":{{\"test\":{test}}},\"executable\":{executable}}}\n"
            )
        };
        let named = |messages: &str| {
            let all = parse(messages).into_iter();
            all.map(|p| p.name).collect::<Vec<_>>()
        };
        assert_eq!(named(&line("test", true, "\"/t/node-1\"")), ["tests/node"]);
        assert_eq!(named(&line("lib", true, "\"/t/node-1\"")), ["tests"]);
        assert_eq!(named(&line("bin", true, "\"/t/node-1\"")), ["tests, node"]);
        for nothing in [
            line("bin", false, "\"/t/node\""),
            line("lib", false, "null"),
            "{\"reason\":\"build-finished\"}\n".to_owned(),
            "no message\n".to_owned(),
        ] {
            assert!(parse(&nothing).is_empty(), "{nothing}");
        }
    }

    #[test]
    fn several_run_and_each_that_fails_is_named() {
        let run = |name: &str, script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            (name.to_owned(), command)
        };
        let spent = Spent::new();
        let runs = vec![run("one", "exit 0"), run("two", "exit 3"), run("three", "exit 0")];
        assert_eq!(side_by_side(runs, &spent), Err("failed: two".to_owned()));
        assert_eq!(side_by_side(vec![run("one", "exit 0")], &spent), Ok(1));
        let said = "echo 'test a::b ... ok'; echo 'test c ... ignored'";
        assert_eq!(
            side_by_side(vec![run("one", said), run("two", said)], &spent),
            Ok(2)
        );
        assert!(spent.report().contains("6 more together"), "{}", spent.report());
    }

    #[test]
    fn what_hangs_is_ended_and_said_to_be() {
        let mut hangs = Command::new("sleep");
        let said = outcome(hangs.arg("600"), Duration::from_secs(1));
        assert_eq!(said, Err("ended, as it ran for more than 1 s".to_owned()));
    }

    #[test]
    fn what_took_longest_is_told_first() {
        let spent = Spent::new();
        for (name, seconds) in [("short", 3), ("long", 30), ("tiny", 1), ("tinier", 0)] {
            locked(&spent.parts).push((name.to_owned(), Duration::from_secs(seconds)));
        }
        let report = spent.report();
        let lines: Vec<&str> = report.lines().map(str::trim).collect();
        assert_eq!(
            lines[..3],
            ["30.0 s  long", "3.0 s  short", "1.0 s  2 more together"]
        );
    }
}
