//! The node: a root monitor that decides and launches, an unprivileged lobby before logins, an unprivileged front for
//! each login, an unprivileged tunnel to the cluster's proxies. ARCHITECTURE.md draws them.
#![forbid(unsafe_code)]

// The static images hold the seats alone: they are built without the feature `monitor`.
#[cfg(any(feature = "monitor", feature = "tunnel"))]
pub mod budget;
#[cfg(feature = "monitor")]
pub mod config;
#[cfg(feature = "monitor")]
pub mod doctor;
mod front;
#[cfg(feature = "monitor")]
pub mod identity;
mod lobby;
#[cfg(feature = "monitor")]
pub mod monitor;
mod rest;
pub mod sandbox;
pub mod seat;
#[cfg(feature = "monitor")]
mod selinux;
#[cfg(feature = "monitor")]
pub mod starter;
#[cfg(feature = "tunnel")]
mod tunnel;
mod vigil;
mod watcher;
