//! The node: a root monitor that decides and launches. The starter that executes it and the sandboxed processes that it starts
//! are crates of their own, `starter`, `worker`, `tunnel` and `recorder`. ARCHITECTURE.md draws them.
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

pub use fleetgate_node_config as config;
pub use fleetgate_node_config::identity;
