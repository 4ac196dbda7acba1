//! The session helper by itself: what it executes for an order, what it records, what it serves of the network.
#![forbid(unsafe_code)]

mod as_sshd;
mod calls;
mod check_home;
mod local_sockets;
mod networking;
mod networking_limits;
mod orders;
mod programs;
mod records;
