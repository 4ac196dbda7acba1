//! The proxy: one address for SSH, gRPC and the web. It knows who may reach which node, and carries bytes that it cannot
//! read. It holds no authority's key: whoever takes it over can withhold, and cannot make a certificate.
#![forbid(unsafe_code)]

pub mod audit;
mod auth;
mod carried;
pub mod config;
pub mod dial;
mod gate;
pub mod hello;
pub mod identity;
mod jump;
mod mux;
mod passing;
mod places;
mod queue;
mod reachable;
mod sandbox;
mod server;
pub mod ssh;
mod state;
pub mod steps;
mod strangers;
mod tunnels;
mod web;

pub use config::Config;
pub use server::{CONNECTIONS_BESIDE, Server, ServerError};
