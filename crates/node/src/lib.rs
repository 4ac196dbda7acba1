//! The node: a root monitor that decides and launches, an unprivileged lobby before logins, an unprivileged front for
//! each login. ARCHITECTURE.md draws them.
#![forbid(unsafe_code)]

pub mod config;
pub mod doctor;
pub mod monitor;
pub mod starter;
