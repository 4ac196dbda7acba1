//! What is said to a fallback chain of a program that died, and what it answers; and why there is no image.

use crate::Strategy;
use crate::refusal::Refusal;
use fleetgate_sys::Errno;
use std::fmt;
use std::time::Duration;

/// How a program that was started from an image came to an end it should not have come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The exec itself was refused.
    Exec(Errno),
    /// A signal killed it, this long after its start.
    Killed {
        /// The signal.
        signal: i32,
        /// How long it had lived.
        lived: Duration,
    },
    /// It left by itself, this long after its start, without a word.
    Exited {
        /// Its exit code.
        code: i32,
        /// How long it had lived.
        lived: Duration,
    },
}

/// What became of an accusation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The probe runs from it, or nothing could be proven: look for the fault elsewhere. Nothing moved.
    ImageIsFine,
    /// The chain stands on another strategy than the image came from: launch again.
    Moved {
        /// The image's strategy.
        from: Strategy,
        /// The strategy now.
        to: Strategy,
    },
    /// The image does not work, and nothing below does either. The strategy stays what it was.
    NoStrategyLeft,
}

/// Why there is no image.
#[derive(Debug)]
pub enum Error {
    /// No strategy works; each with its reasons.
    NoStrategy {
        /// What was to be sealed.
        source: String,
        /// Every reason.
        refusals: Vec<Refusal>,
    },
    /// This image could not be made now, though its strategy works: the machine is short of something.
    Make(Refusal),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoStrategy { source, refusals } => {
                write!(f, "nothing can be executed from any image of {source}")?;
                refusals.iter().try_for_each(|r| write!(f, "; {r}"))
            }
            Error::Make(refusal) => write!(f, "an executable image could not be made: {refusal}"),
        }
    }
}

impl std::error::Error for Error {}
