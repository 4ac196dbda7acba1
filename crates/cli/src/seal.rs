//! `fleetgate seal`: the doctor's table, running a program sealed, verifying a running one.

use crate::flags::Outcome;
use std::ffi::OsString;

/// Shows each strategy with what was found.
pub fn doctor(json: bool) -> Outcome {
    Err(format!("sealing is not in this build (json: {json})").into())
}

/// Runs `command` from a sealed image of itself; `strategy` is one of the table's words.
pub fn run(strategy: Option<&str>, command: &[OsString]) -> Outcome {
    Err(format!("sealing is not in this build ({strategy:?}, {command:?})").into())
}

/// Says of each process whether and how it is sealed.
pub fn verify(pids: &[i32], json: bool) -> Outcome {
    Err(format!("sealing is not in this build ({pids:?}, {json})").into())
}
