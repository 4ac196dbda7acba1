//! The lobby and a front as real processes, between a monitor that the test plays and SSH clients.
#![forbid(unsafe_code)]

mod bounds;
mod connections;
mod forwards;
mod sessions;
mod views;
mod world;
