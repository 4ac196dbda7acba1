//! Runs commands in turn and prints a line for each: its name, a tab, its samples. For benchmarks whose commands need
//! mounts or cgroups of their own: this program is started there. The order is another in each turn, because the kernel
//! takes down what a command leaves (pages, mounts, cgroups) while the next one runs.
//!
//! `bench-turns whole|printed WARM-UP N`. A sample is how long a whole command takes, in milliseconds; or the command
//! prints samples itself: lines that are a number of microseconds, or Go's lines with `ns/op`.
//!
//! Its standard input has a line for each command, words with tabs between them. The command is at their end, with the
//! variables that it gets before it (`NAME=VALUE`); its program is an absolute path.
//!
//! - `beside WORD COMMAND`: runs beside the others until the end. It is up when its standard error says WORD.
//! - `check NAME WORD COMMAND`: runs once, before anything is measured, and has to say WORD.
//! - `turn NAME COMMAND`: is measured.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// A command that runs beside the others, and ends with this value.
struct Beside(Child);

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Turn {
    name: String,
    command: Command,
    samples: Vec<f64>,
}

fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, warm_up, n] = &args[..] else {
        return Err("bench-turns whole|printed WARM-UP N".into());
    };
    let sample = match kind.as_str() {
        "whole" => whole,
        "printed" => printed,
        _ => return Err(format!("{kind:?} is neither `whole` nor `printed`").into()),
    };
    let (warm_up, n): (usize, usize) = (warm_up.parse()?, n.parse()?);
    let (mut beside, mut checks, mut turns) = (Vec::new(), Vec::new(), Vec::new());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split('\t').collect();
        match &words[..] {
            ["beside", word, command @ ..] => beside.push(start(word, parse(command)?)?),
            ["check", name, word, command @ ..] => {
                checks.push(((*name).to_owned(), (*word).to_owned(), parse(command)?));
            }
            ["turn", name, command @ ..] => turns.push(Turn {
                name: (*name).to_owned(),
                command: parse(command)?,
                samples: Vec::new(),
            }),
            _ => return Err(format!("no line of a plan: {line:?}").into()),
        }
    }
    for (name, word, command) in &mut checks {
        let out = command.stdin(Stdio::null()).output()?;
        let said = [out.stdout, out.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        if !out.status.success() || !said.contains(word.as_str()) {
            return Err(format!("{name}: {}, and it did not say {word:?}: {said}", out.status).into());
        }
    }
    let mut order: Vec<usize> = (0..turns.len()).collect();
    let mut state = 0x2545_f491_4f6c_dd1d;
    for turn in 0..warm_up + n {
        shuffle(&mut order, &mut state);
        for &subject in &order {
            let subject = &mut turns[subject];
            let samples = sample(&mut subject.command).map_err(|e| format!("{}: {e}", subject.name))?;
            if turn >= warm_up {
                subject.samples.extend(samples);
            }
        }
    }
    for subject in turns {
        let samples: Vec<String> = subject.samples.iter().map(|s| format!("{s:.3}")).collect();
        println!("{}\t{}", subject.name, samples.join(" "));
    }
    Ok(())
}

/// Another order, the same ones in each run.
fn shuffle(order: &mut [usize], state: &mut u64) {
    for at in (1..order.len()).rev() {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let other = *state % (at as u64 + 1);
        order.swap(at, other as usize);
    }
}

/// Variables and a command.
fn parse(words: &[&str]) -> Result<Command> {
    let at = words.iter().position(|word| word.starts_with('/'));
    let (variables, command) = words.split_at(at.ok_or("a line without a program")?);
    let mut parsed = Command::new(command[0]);
    parsed.args(&command[1..]);
    for variable in variables {
        let (name, value) = variable.split_once('=').ok_or("a variable without a value")?;
        parsed.env(name, value);
    }
    Ok(parsed)
}

/// Starts a command and waits until its standard error says `word`.
fn start(word: &str, mut command: Command) -> Result<Beside> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut started = Beside(command.stderr(Stdio::piped()).spawn()?);
    let mut said = BufReader::new(started.0.stderr.take().ok_or("its standard error is a pipe")?);
    let mut line = String::new();
    while !line.contains(word) {
        line.clear();
        if said.read_line(&mut line)? == 0 {
            return Err(format!("a command ended before it said {word:?}").into());
        }
    }
    // It has a reader for as long as it runs.
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    Ok(started)
}

/// How long the whole command takes, in milliseconds.
fn whole(command: &mut Command) -> Result<Vec<f64>> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status()?;
    let took = start.elapsed().as_secs_f64() * 1e3;
    if !status.success() {
        return Err(format!("{status}").into());
    }
    Ok(vec![took])
}

/// What the command prints, in microseconds.
fn printed(command: &mut Command) -> Result<Vec<f64>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut text = String::new();
    let mut out = child.stdout.take().ok_or("its standard output is a pipe")?;
    out.read_to_string(&mut text)?;
    let status = child.wait()?;
    let samples: Vec<f64> = text.lines().filter_map(number).collect();
    if !status.success() || samples.is_empty() {
        return Err(format!("{status}, and it printed no samples: {text}").into());
    }
    Ok(samples)
}

/// `4196.7`, or `BenchmarkExecTrue-2   200   4196700 ns/op`.
fn number(line: &str) -> Option<f64> {
    match line.trim().strip_suffix("ns/op") {
        Some(rest) => rest
            .split_whitespace()
            .next_back()?
            .parse::<f64>()
            .ok()
            .map(|ns| ns / 1e3),
        None => line.trim().parse().ok(),
    }
}
