//! The proxy: one address for SSH, gRPC and the web. It knows who may reach which node, and carries bytes that it cannot
//! read. It holds no authority's key: whoever takes it over can withhold, and cannot make a certificate.
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
mod audit_delivery;
mod auth;
mod auth_relay;
pub mod client_hello;
pub mod config;
mod denial;
pub mod dial;
mod dial_rates;
mod error;
mod files;
pub mod identity;
mod log_turns;
mod metrics;
mod mux;
mod node_stream;
mod open_dials;
mod prefixed;
mod probes;
mod queue;
mod quota;
mod reachable;
pub mod recorder;
mod recording_delivery;
mod recordings;
mod refusals;
mod sandbox;
mod server;
mod shared;
pub mod ssh;
mod ssh_service;
mod state;
pub mod steps;
mod strangers;
mod streams;
mod tunnel_control;
mod tunnels;
mod web;

pub use config::Config;
pub use error::ServerError;
pub use server::Server;
pub use shared::CONNECTIONS_BESIDE;
