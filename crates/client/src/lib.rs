//! The user's side: login, ssh, inventory, administration.
#![forbid(unsafe_code)]

pub mod agent;
