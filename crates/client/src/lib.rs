//! The user's side: login, ssh, inventory, administration.
#![forbid(unsafe_code)]

pub mod agent;
pub mod ask;
pub mod background;
pub mod config;
pub mod device;
pub mod error;
pub mod explain;
pub mod files;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod held;
pub mod join;
pub mod ledger;
pub mod login;
pub mod pem;
pub mod profile;
pub mod proxy_command;
pub mod reach;
pub mod say;
pub mod ssh;
pub mod time;
pub mod totp;
pub mod transport;
pub mod waiting;
