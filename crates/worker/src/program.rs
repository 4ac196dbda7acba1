//! The program `fleetgate-front`: which workers it has.

use crate::sandbox::Worker;
use crate::start::Program;
use crate::{front, guardian, idle_starter, lobby, watcher};
use std::ffi::OsString;

const PROGRAM: Program = Program {
    name: c"fleetgate-front",
    workers: &[
        (Worker::Lobby, lobby::run),
        (Worker::Front, front::run),
        (Worker::Watcher, watcher::run),
        (Worker::Guardian, guardian::run),
    ],
    starter: Some(idle_starter::run),
};

/// Runs the subcommand in `args` (without the program's name); returns the exit code. Before this the process must have
/// made no thread.
pub fn run(args: &[OsString]) -> i32 {
    PROGRAM.run(args)
}
