//! `fleetgate demo`: the way of a session, step by step, with what each cost.

use crate::flags::Outcome;

/// Shows it.
pub fn run() -> Outcome {
    Err("launching is not in this build".into())
}
