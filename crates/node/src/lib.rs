//! The node: a root monitor that decides and launches, and the starter that executes it. The sandboxed processes that the
//! monitor starts are crates of their own, `worker` and `tunnel`. ARCHITECTURE.md draws them.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]
#![forbid(unsafe_code)]

pub mod monitor;
pub mod starter;

pub use fleetgate_node_config as config;
pub use fleetgate_node_config::identity;
