//! What the operator is shown: every rung with its state and its reasons, and what moved when.

use crate::{Refusal, Strategy};
use std::path::PathBuf;
use std::time::SystemTime;

/// The state of one ladder.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the images are started as.
    pub name: String,
    /// What they are made of.
    pub source: String,
    /// The rung that images come from.
    pub current: Strategy,
    /// Every strategy, in the ladder's order.
    pub rungs: Vec<RungReport>,
    /// The latest moves, oldest first.
    pub moves: Vec<Move>,
}

/// One rung.
#[derive(Clone, Debug)]
pub struct RungReport {
    /// Its strategy.
    pub strategy: Strategy,
    /// Whether it works: `None` when nobody had a reason to try.
    pub available: Option<bool>,
    /// Why not, or what it is when it is: a sentence.
    pub why: String,
    /// Where its images are made, if that is a path.
    pub place: Option<PathBuf>,
    /// Each reason against it.
    pub refusals: Vec<Refusal>,
}

/// A change of rung.
#[derive(Clone, Debug)]
pub struct Move {
    /// From here.
    pub from: Strategy,
    /// To there.
    pub to: Strategy,
    /// When.
    pub when: SystemTime,
    /// What for.
    pub why: String,
}
