//! How a command ended on one node, and all of them in numbers.

use crate::ssh::capture::{Output, Room};
use std::fmt;
use std::time::Duration;

/// What is said where nobody here can know.
pub(super) const LOG: &str = "the node's audit log says";

/// One node, when it is done.
#[derive(Debug)]
pub struct NodeResult {
    /// Its name.
    pub node: String,
    /// How it ended.
    pub end: End,
    /// What the command said.
    pub output: Output,
    /// How long it took, the connection too.
    pub time: Duration,
}

/// How a command ended on a node. What others say is in the words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// With this code.
    Exited(i32),
    /// By a signal, without SIG.
    Killed(String),
    /// It was not begun there, for this reason.
    Refused(String),
    /// It was asked for, and what became of it is not known.
    Lost(String),
    /// Its time was over.
    TimedOut(Leftover),
    /// The run was cancelled.
    Cancelled(Leftover),
    /// The node was not asked, for this reason.
    NotBegun(String),
}

/// What is left of a command that was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leftover {
    /// Nothing: it had not begun.
    Nothing,
    /// It ended.
    Ended,
    /// It had ended before, and something that it started has its output.
    Background,
    /// Nobody here knows.
    Unknown,
}

/// A run in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All nodes.
    pub nodes: usize,
    /// With code 0.
    pub good: usize,
    /// With another code, by a signal, or nobody knows how.
    pub failed: usize,
    /// Not begun there: not reached, or refused.
    pub refused: usize,
    /// Their time was over.
    pub timed_out: usize,
    /// The run was cancelled meanwhile.
    pub cancelled: usize,
    /// They were not asked.
    pub not_begun: usize,
    /// On so many the command was begun, as far as is known.
    pub begun: usize,
}

impl NodeResult {
    /// One that was not begun.
    pub(super) fn without_output(node: String, end: End, room: &Room) -> NodeResult {
        NodeResult {
            node,
            end,
            output: Output::new(room),
            time: Duration::ZERO,
        }
    }
}

impl End {
    /// Whether it went well.
    #[must_use]
    pub fn is_good(&self) -> bool {
        *self == End::Exited(0)
    }

    /// Whether it counts as a failure: what was not asked for, or not any more, does not.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        !self.is_good() && !matches!(self, End::Cancelled(_) | End::NotBegun(_))
    }

    /// Whether the command was begun, as far as is known.
    fn was_begun(&self) -> bool {
        match self {
            End::Exited(_) | End::Killed(_) | End::Lost(_) => true,
            End::TimedOut(left) | End::Cancelled(left) => *left != Leftover::Nothing,
            End::Refused(_) | End::NotBegun(_) => false,
        }
    }

    /// In one word, for programs.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match self {
            End::Exited(_) => "exited",
            End::Killed(_) => "killed",
            End::Refused(_) => "refused",
            End::Lost(_) => "lost",
            End::TimedOut(_) => "timed out",
            End::Cancelled(_) => "cancelled",
            End::NotBegun(_) => "not begun",
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exited(code) => write!(f, "exit code {code}"),
            End::Killed(signal) => write!(f, "ended by SIG{signal}"),
            End::Refused(why) | End::Lost(why) => f.write_str(why),
            End::TimedOut(left) => write!(f, "timed out{left}"),
            End::Cancelled(left) => write!(f, "cancelled{left}"),
            End::NotBegun(why) => write!(f, "not begun: {why}"),
        }
    }
}

/// What stands behind `cancelled`.
impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Leftover::Nothing => f.write_str(" before it was begun"),
            Leftover::Ended => f.write_str(", and ended"),
            Leftover::Background => {
                f.write_str(": it had ended, and what it left in the background still has its output")
            }
            Leftover::Unknown => write!(f, "; whether it has ended, {LOG}"),
        }
    }
}

impl Tally {
    /// Counts one.
    pub(super) fn add(&mut self, end: &End) {
        self.begun += usize::from(end.was_begun());
        let count = match end {
            End::Exited(0) => &mut self.good,
            End::Exited(_) | End::Killed(_) | End::Lost(_) => &mut self.failed,
            End::Refused(_) => &mut self.refused,
            End::TimedOut(_) => &mut self.timed_out,
            End::Cancelled(_) => &mut self.cancelled,
            End::NotBegun(_) => &mut self.not_begun,
        };
        *count += 1;
    }

    /// How many are done.
    #[must_use]
    pub fn done(&self) -> usize {
        self.good + self.failures() + self.cancelled + self.not_begun
    }

    /// How many failed, in whatever way.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.failed + self.refused + self.timed_out
    }
}

/// `3 nodes: 2 good, 1 timed out`.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.nodes == 1 { "" } else { "s" };
        write!(f, "{} node{plural}", self.nodes)?;
        let counts = [
            (self.good, "good"),
            (self.failed, "failed"),
            (self.refused, "refused or not reached"),
            (self.timed_out, "timed out"),
            (self.cancelled, "cancelled"),
            (self.not_begun, "not begun"),
        ];
        let shown = counts.iter().filter(|(count, _)| *count > 0);
        for (at, (count, what)) in shown.enumerate() {
            write!(f, "{}{count} {what}", if at == 0 { ": " } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_counts_every_end_once() {
        let ends = [
            (End::Exited(0), true, false),
            (End::Exited(3), true, true),
            (End::Killed("KILL".into()), true, true),
            (End::Lost("x".into()), true, true),
            (End::Refused("x".into()), false, true),
            (End::TimedOut(Leftover::Nothing), false, true),
            (End::TimedOut(Leftover::Ended), true, true),
            (End::Cancelled(Leftover::Nothing), false, false),
            (End::Cancelled(Leftover::Unknown), true, false),
            (End::NotBegun("x".into()), false, false),
        ];
        let mut tally = Tally {
            nodes: ends.len(),
            ..Tally::default()
        };
        for (at, (end, was_begun, is_failure)) in ends.iter().enumerate() {
            let before = tally;
            tally.add(end);
            assert_eq!(tally.done(), at + 1, "{end}");
            assert_eq!(tally.begun - before.begun, usize::from(*was_begun), "{end}");
            assert_eq!(
                tally.failures() - before.failures(),
                usize::from(*is_failure),
                "{end}"
            );
            assert_eq!(end.is_failure(), *is_failure, "{end}");
        }
        assert_eq!(
            tally.to_string(),
            "10 nodes: 1 good, 3 failed, 1 refused or not reached, 2 timed out, 2 cancelled, 1 not begun"
        );
        let one = Tally {
            nodes: 1,
            good: 1,
            ..Tally::default()
        };
        assert_eq!(one.to_string(), "1 node: 1 good");
    }
}
