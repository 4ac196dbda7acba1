//! Labels of containers that Kubernetes started. Their runtimes (containerd, CRI-O) keep the labels of pods and containers where
//! nobody else can read them, so they are asked by the Container Runtime Interface, on a socket of root's.
//!
//! Nothing else of fleetgate asks a daemon about containers: a session must not wait for one. So this is asked only where somebody
//! wants to know labels, within bounds of time and size, and a daemon that does not answer means that the labels are not known.
//! What it said about a container is remembered.
#![forbid(unsafe_code)]

mod bounded;
mod client;
mod error;
mod labels;
mod pods;
#[cfg(test)]
mod tests;

pub use error::{Error, Reason};
pub use pods::{PodLabels, Sockets};
