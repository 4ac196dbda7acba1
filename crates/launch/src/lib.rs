//! From an order, its descriptors and an image to a running helper; and what happens when that ends.
//!
//! [`Launcher`] starts one helper and waits for its word, moving down the fallback chain when the image is at fault.
//! [`LaunchThreads`] does so away from the caller, because an exec can be held up. [`SessionReaper`] closes login
//! records when a session ends, and mends what a crash left behind. [`pam`] starts the helper inside a PAM session. [`workers`]
//! starts the node's other processes, which get no order.
//!
//! It never decides who may log in, never looks up names, never reads configuration.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

mod attempt;
pub mod cgroup;
mod error;
mod launcher;
pub mod local;
pub mod pam;
pub mod present;
mod reaper;
mod record_files;
mod reply;
mod running;
mod session_record;
pub mod streams;
mod thread;
pub mod within_pam;
pub mod workers;
mod wtmpdb;

pub use error::{EndError, LaunchError, SessionReaperError, Stage, failure_words};
pub use fleetgate_logins::Places;
pub use launcher::{Launch, Launcher};
pub use present::end_command_path;
pub use reaper::{End, RepairReport, STATE_DIRECTORY, SessionReaper};
pub use reply::Begun;
pub use running::{LaunchTimes, RunningHelper};
pub use session_record::SessionToClose;
pub use thread::{Completions, LaunchOutcome, LaunchThreads, Threads};
pub use wtmpdb::{WTMPDB_STATE, Wtmpdb};
