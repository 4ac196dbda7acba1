//! The user's side: login, ssh, inventory, administration.
#![forbid(unsafe_code)]

pub mod agent;
pub mod ask;
pub mod config;
pub mod error;
pub mod files;
pub mod profile;
pub mod time;
pub mod totp;
