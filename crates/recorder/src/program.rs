//! The program `fleetgate-recorder`: which workers it has.

use crate::event_loop;
use fleetgate_worker::sandbox::Worker;
use fleetgate_worker::start::Program;
use std::ffi::OsString;

const PROGRAM: Program = Program {
    name: c"fleetgate-recorder",
    workers: &[(Worker::Recorder, event_loop::run)],
    starter: None,
};

/// Runs the subcommand in `args` (without the program's name); returns the exit code. Before this the process must have
/// made no thread.
pub fn run(args: &[OsString]) -> i32 {
    PROGRAM.run(args)
}
