//! Launching sessions and keeping their records: the fallback chain under attack, PAM sessions, the session reaper, wtmpdb.
#![forbid(unsafe_code)]

mod endpoint_security;
mod fallback_chain;
mod pam;
mod session_reaper;
mod session_reaper_wtmpdb;
mod thread;
mod wtmpdb;
