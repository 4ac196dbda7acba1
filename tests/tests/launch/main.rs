//! Launching sessions and keeping their records: the ladder under attack, PAM sessions, the keeper, wtmpdb.
#![forbid(unsafe_code)]

mod endpoint_security;
mod keeper;
mod keeper_wtmpdb;
mod ladder;
mod pam;
mod thread;
mod wtmpdb;
