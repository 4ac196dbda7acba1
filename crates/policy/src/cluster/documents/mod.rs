//! The cluster's documents as text: role files in TOML, roles, locks and the state in JSON. It decides nothing, and
//! what it read is within its bounds.

mod command;
pub(crate) mod forms;
pub mod listing;
mod recordings;
mod role;
mod state;

pub use command::{CommandArgument, CommandEntry};

use super::{Fresh, Lock, MAX_STATE, Role, State};
use crate::Invalid;
use role::RoleDocument;

/// Reads a role file: `[role.NAME]` tables. `file` is for the errors.
pub fn parse_roles(file: &str, text: &str) -> Result<Vec<Role>, Invalid> {
    role::file(file, text).map_err(Invalid)
}

/// Roles as a role file; what is as it would be anyway is left out.
pub fn write_roles<'a>(roles: impl IntoIterator<Item = &'a Role>) -> String {
    role::write(roles)
}

impl Role {
    /// As JSON.
    pub fn to_json(&self) -> String {
        json(&RoleDocument::from(self))
    }

    /// From JSON.
    pub fn parse_json(text: &[u8]) -> Result<Role, Invalid> {
        let document: RoleDocument = read("role", text)?;
        document.named(None).map_err(Invalid)
    }
}

impl Lock {
    /// As JSON.
    pub fn to_json(&self) -> String {
        json(&state::LockDocument::from(self))
    }

    /// From JSON.
    pub fn parse_json(text: &[u8]) -> Result<Lock, Invalid> {
        let document: state::LockDocument = read("lock", text)?;
        document.read().map_err(|why| Invalid(format!("the lock: {why}")))
    }
}

impl State {
    /// The document that is signed.
    pub fn to_json(&self) -> Vec<u8> {
        json(&state::StateDocument::from(self)).into_bytes()
    }

    /// Reads one whose signature was checked.
    pub fn parse_json(text: &[u8]) -> Result<State, Invalid> {
        let document: state::StateDocument = read("state", text)?;
        document
            .read()
            .map_err(|why| Invalid(format!("the state: {why}")))
    }
}

impl Fresh {
    /// The document that is signed.
    pub fn to_json(&self) -> Vec<u8> {
        json(&state::FreshDocument::from(self)).into_bytes()
    }

    /// Reads one whose signature was checked.
    pub fn parse_json(text: &[u8]) -> Result<Fresh, Invalid> {
        let document: state::FreshDocument = read("sign of freshness", text)?;
        Ok(document.into())
    }
}

fn json(document: &impl serde::Serialize) -> String {
    serde_json::to_string(document).expect("documents are of maps with text keys, lists, numbers and text")
}

fn read<'a, T: serde::Deserialize<'a>>(what: &str, text: &'a [u8]) -> Result<T, Invalid> {
    if text.len() > MAX_STATE {
        return Err(Invalid(format!("the {what} is longer than {MAX_STATE} bytes")));
    }
    serde_json::from_slice(text).map_err(|why| Invalid(format!("the {what}: {why}")))
}

#[cfg(test)]
mod tests;
