//! `fleetgate trace`, beside strace and by itself.
#![forbid(unsafe_code)]

mod as_strace;
mod command;
