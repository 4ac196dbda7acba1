//! Tests that need a process of their own: a program that starts itself as tracer and as guardian, and runs its tests one
//! after the other.

use fleetgate_calls::abi::{Abi, Call};
use fleetgate_calls::filter::{Answers, compile};
use fleetgate_calls::guardian;
use fleetgate_calls::select::{Selection, When};
use fleetgate_sys::seccomp::Instruction;
use std::ffi::OsString;

/// The program's main function: the role that it was started in, or the tests whose names have the first word.
pub fn main(tracer: fn(&[OsString]) -> !, tests: &[(&str, fn())]) {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let rest: Vec<OsString> = args.collect();
    if name == guardian::NAME.to_str().expect("text") {
        std::process::exit(guardian::main(&rest));
    }
    if rest.first().is_some_and(|role| role == "tracer") {
        tracer(&rest[1..]);
    }
    let wanted = rest.iter().find(|a| !a.to_string_lossy().starts_with('-'));
    for (name, test) in tests {
        if wanted.is_none_or(|w| name.contains(&*w.to_string_lossy())) {
            test();
            println!("test {name} ... ok");
        }
    }
}

/// These calls wait, and no others.
pub fn filter(calls: &[i64]) -> Vec<Instruction> {
    let mut selection = Selection::none();
    for call in calls {
        let number = u32::try_from(*call).expect("a number");
        let abi = Abi::NATIVE;
        selection.add(Call { abi, number }, When::Always);
    }
    let program = compile(&selection, &Answers::notify()).expect("short");
    program.instructions().to_vec()
}
