//! The proxy: one address for SSH, gRPC and the web. It knows who may reach which node, and carries bytes that it cannot
//! read. It holds no authority's key: whoever takes it over can withhold, and cannot make a certificate.
#![forbid(unsafe_code)]

mod audit;
mod audit_delivery;
mod auth;
mod carried;
pub mod config;
mod denial;
pub mod dial;
mod dial_rates;
mod error;
mod files;
mod gate;
pub mod hello;
pub mod identity;
mod jump;
mod mux;
mod open_dials;
mod passing;
mod places;
mod prefixed;
mod probes;
mod queue;
mod reachable;
mod sandbox;
mod server;
pub mod ssh;
mod state;
pub mod steps;
mod strangers;
mod streams;
mod tunnel_control;
mod tunnels;
mod web;

pub use config::Config;
pub use error::ServerError;
pub use gate::CONNECTIONS_BESIDE;
pub use server::Server;
