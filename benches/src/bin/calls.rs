//! System calls in a loop, for whoever traces them: `bench-calls open N` opens and closes `/dev/null`, `bench-calls none N`
//! asks for its own number, which nobody selects; `bench-calls bound N` does so under a filter of its own that is one
//! instruction long and lets everything through: the least that any filter costs. With a third word, `told`, it begins when
//! it is sent a line. Prints how many nanoseconds one turn took.
#![forbid(unsafe_code)]

use fleetgate_sys::seccomp::{self, Instruction};
use fleetgate_sys::{credentials, exe, process};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (what, times, told) = match words.as_slice() {
        [what, times] => (what, times, false),
        [what, times, told] if told == "told" => (what, times, true),
        _ => {
            eprintln!("usage: bench-calls open|none|bound N [told]");
            return ExitCode::from(2);
        }
    };
    let Ok(times @ 1..) = times.parse::<u32>() else {
        eprintln!("bench-calls: {times:?}: how often?");
        return ExitCode::from(2);
    };
    let turn: fn() = match what.as_str() {
        "open" => || drop(exe::open_read(-100, c"/dev/null")),
        "none" | "bound" => || {
            std::hint::black_box(process::id());
        },
        _ => {
            eprintln!("bench-calls: {what:?}: open, none or bound");
            return ExitCode::from(2);
        }
    };
    if what == "bound" {
        let allow = Instruction {
            code: 0x06,
            yes: 0,
            no: 0,
            value: 0x7fff_0000,
        };
        let bound = credentials::set_no_new_privileges()
            .and_then(|()| seccomp::install(&[allow], seccomp::flag::NO_MITIGATION));
        if let Err(e) = bound {
            eprintln!("bench-calls: a filter of its own: {e}");
            return ExitCode::from(1);
        }
    }
    if told && std::io::stdin().read_line(&mut String::new()).is_err() {
        return ExitCode::from(1);
    }
    let begun = Instant::now();
    for _ in 0..times {
        turn();
    }
    println!("{}", begun.elapsed().as_nanos() as f64 / f64::from(times));
    ExitCode::SUCCESS
}
