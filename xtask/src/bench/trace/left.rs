//! What a program pays that was bound by an injection and left again: its filter stays until it ends.

use super::Tools;
use crate::bench::{Bench, Subject};
use crate::shell::{Result, run};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the program may take to begin, and the tracer to bind it.
const WITHIN: Duration = Duration::from_secs(10);
const SAMPLES: usize = 15;

/// What was never asked for costs what a filter costs; what was, the guardian answers from then on.
pub fn measure(bench: &mut Bench, tools: &Tools) -> Result {
    for (case, what, times, calls, unit) in [
        (
            "not selected, by one that was left",
            "none",
            "5000000",
            "connect",
            "ns",
        ),
        ("selected, by one that was left", "open", "20000", "openat", "us"),
    ] {
        let scale = if unit == "us" { 1e3 } else { 1.0 };
        let subjects = vec![
            Subject::sampled("untraced", || Ok(turn(tools, what, times, None)? / scale)),
            Subject::sampled("fleetgate -p, --inject", || {
                Ok(turn(tools, what, times, Some(calls))? / scale)
            }),
        ];
        bench.run(case, unit, 1, SAMPLES, subjects)?;
    }
    Ok(())
}

/// Starts the loop, has it bound and left if `calls` are named, and lets it begin. Nanoseconds for one turn.
fn turn(tools: &Tools, what: &str, times: &str, calls: Option<&str>) -> Result<f64> {
    let mut program = Command::new("taskset")
        .args(["-c", "1"])
        .arg(tools.programs.join("bench-calls"))
        .args([what, times, "told"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("taskset: {e}"))?;
    let bound = match calls {
        Some(calls) => bind(tools, &program, calls),
        None => Ok(()),
    };
    // Told or not, it is to end.
    let begun = program.stdin.take().map(|mut input| input.write_all(b"\n"));
    let mut text = String::new();
    if let Some(mut output) = program.stdout.take() {
        let _ = output.read_to_string(&mut text);
    }
    let _ = program.wait();
    bound?;
    if !matches!(begun, Some(Ok(()))) {
        return Err("bench-calls does not wait to be told".to_owned());
    }
    text.trim()
        .parse()
        .map_err(|_| format!("bench-calls printed {text:?}"))
}

fn bind(tools: &Tools, program: &Child, calls: &str) -> Result {
    let id = program.id();
    let is = |file: &str, word: &str| {
        std::fs::read_to_string(format!("/proc/{id}/{file}")).is_ok_and(|text| text.contains(word))
    };
    wait_until("bench-calls does not begin", || is("comm", "bench-calls"))?;
    let mut tracer = Command::new(&tools.ours)
        .args(["trace", "--inject", "-e", calls, "-o"])
        .arg(&tools.out)
        .args(["-p", &id.to_string()])
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("the tracer: {e}"))?;
    let bound = wait_until("the tracer binds nobody", || is("status", "Seccomp:\t2"));
    let told = run(Command::new("kill").args(["-INT", &tracer.id().to_string()]));
    let _ = tracer.wait();
    bound.and(told)
}

fn wait_until(not: &str, is_so: impl Fn() -> bool) -> Result {
    let until = Instant::now() + WITHIN;
    while !is_so() {
        if Instant::now() > until {
            return Err(not.to_owned());
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}
