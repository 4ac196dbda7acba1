//! The proxy: one address for SSH, gRPC and the web.
#![forbid(unsafe_code)]

pub mod ssh;
