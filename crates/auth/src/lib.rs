//! The auth service: certificate authorities, users, roles, tokens, locks, the inventory, and the audit log. It alone
//! has the authorities' keys; it carries nobody's session and dials nobody but the sinks that audit events go to.
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
mod authorities;
mod backup;
mod buffers;
mod cache;
mod caller;
mod challenges;
pub mod clock;
mod clock_changes;
mod clock_watch;
mod collect;
mod connections;
mod cookies;
mod devices;
mod documents;
mod error;
mod expiry;
mod export;
mod grpc;
mod init;
mod intake;
mod inventory;
mod issue;
mod keeping;
mod ledger;
mod limits;
mod login;
mod members;
mod metrics;
mod nodes;
mod one_time;
mod password;
mod plain;
mod proof;
mod reach;
mod recordings;
mod refusal_events;
mod refusals;
mod rotation;
mod rules;
pub mod sandbox;
mod secret;
mod server;
mod service;
mod shares;
mod state;
mod tls_identity;
mod tokens;
mod totp;
mod tries;
mod users;
mod validity;

pub use backup::{Copied, Restored, copy, restore};
pub use documents::Kind;
pub use error::{Refused, RefusedKind};
pub use fleetgate_store::Address;
pub use init::{ACCESS, ADMIN, AUDIT_FILE, init, join_anew, join_here};
pub use password::{Unfit as UnfitPassword, check as check_password};
pub use server::{Config, SOCKET, Server};

#[cfg(test)]
mod tests;
