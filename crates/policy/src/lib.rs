//! Grants with their proofs, permits and command lists: who may do what, as pure functions. It reads no file, asks no
//! name service, opens no socket and knows no protocol; whoever uses it brings addresses, times and account facts.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

pub mod access;
pub mod account_name;
pub mod address;
pub mod bech32;
pub mod cluster;
pub mod commands;
mod error;
pub mod grant;
pub mod pam_turns;
pub mod pattern;
pub mod permits;
pub mod recording;
mod rule;
pub mod strangers;
pub mod text;
#[cfg(feature = "documents")]
pub mod toml_mistake;
pub mod watching;

pub use account_name::{
    AccountName, INTO, VIEWER, account_and_container, check_written_login, login_matches, may_be_id,
};
pub use error::Invalid;
pub use grant::{Grant, GrantId, GrantRequest, How, Proofs};
pub use permits::{Kind, Permits, What};
pub use recording::{OnwardSsh, Recipient, Recording, RecordingFailure};
pub use rule::{Denied, Rule};
pub use watching::{Audit, Stance, Watching};
