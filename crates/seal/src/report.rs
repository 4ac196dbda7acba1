//! What the operator is shown: every strategy with its state and its reasons, and what moved when.

use crate::{Refusal, Strategy};
use std::path::PathBuf;
use std::time::SystemTime;

/// The state of one fallback chain.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the images are started as.
    pub name: String,
    /// What they are made of.
    pub source: String,
    /// The strategy that images come from.
    pub current: Strategy,
    /// Every strategy, in the chain's order.
    pub strategies: Vec<StrategyReport>,
    /// The latest moves, oldest first.
    pub moves: Vec<Move>,
}

/// One strategy.
#[derive(Clone, Debug)]
pub struct StrategyReport {
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

/// A change of strategy.
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
