//! From an order, its descriptors and an image to a running helper; and what happens when that ends.
//!
//! [`Launcher`] starts one helper and waits for its word, moving down the ladder when the image is at fault.
//! [`LaunchThread`] does so away from the caller, because an exec can be held up. [`Keeper`] closes login
//! records when a session ends, and mends what a crash left behind. [`pam`] starts the helper inside a PAM session.
//!
//! It never decides who may log in, never looks up names, never reads configuration.
#![forbid(unsafe_code)]

mod attempt;
mod cgroup;
mod error;
mod keeper;
mod kept;
mod launcher;
mod notes;
pub mod pam;
pub mod present;
mod reply;
mod thread;
mod wtmpdb;

pub use error::{KeeperError, LaunchError, Stage};
pub use fleetgate_logins::Places;
pub use keeper::{End, Keeper, Mended, STATE_DIRECTORY};
pub use kept::Session;
pub use launcher::{Launch, Launcher, Running, Spent};
pub use present::end_order;
pub use reply::Begun;
pub use thread::{Completions, LaunchThread, Threads};
pub use wtmpdb::{WTMPDB_STATE, Wtmpdb};
