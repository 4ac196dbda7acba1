//! The user's side: login, ssh, inventory, administration.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

pub mod agent;
pub mod background;
pub mod config;
pub mod connect;
pub mod device;
pub mod error;
pub mod files;
pub mod fleet;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod join;
pub mod login;
pub mod master;
pub mod master_client;
pub mod pem;
pub mod profile;
pub mod prompt;
pub mod recordings;
pub mod ssh;
pub mod standard_output;
pub mod stderr;
pub mod time;
pub mod timings;
pub mod totp;
pub mod transport;
pub mod waiting;
pub mod waterfall;
