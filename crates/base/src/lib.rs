//! What every role of the program shares: the log's set-up, the form of audit lines, the words to a service manager, the
//! sockets that it keeps, the form of a page of metrics, questions to SELinux's
//! policy, and the meaning of exit codes. No role's own business.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

pub mod audit;
mod error;
pub mod log;
pub mod notify;
pub mod own;
pub mod parent;
pub mod scrape;
pub mod selinux;
pub mod sockets;

pub use error::StartError;

/// What the program's exit codes mean (docs and `--help` say the same).
pub mod exit {
    /// It refused, or something it needs is not there.
    pub const REFUSED: i32 = 1;
    /// The command line was not understood.
    pub const USAGE: i32 = 2;
    /// A connection failed, as ssh says it.
    pub const UNREACHABLE: i32 = 255;
}
