//! The monitor: root, one thread, one epoll that owns all state. It accepts, keeps the host keys, verifies every login
//! itself, launches, and closes what ended. Nothing in it blocks, and it believes nothing that lobby or fronts say.
//!
//! Parts, each with its own state: [`wakes`] and [`timers`] say who is woken, [`seats`] are the processes it executed,
//! [`names`] and [`launches`] are answers on their way. [`tools`] is what every part may use; a [`granted`] connection
//! is what orders are checked against. [`audit`] and [`metrics`] are told by every part.
//!
//! A part that waits for something gives its own [`Key`]; the loop calls it back with the key's id: `woken` (a
//! descriptor or a timer), `launched` (a launch's outcome), `named` (a name's answer), `connection_ended`. An order of a
//! front reaches its part with the [`Granted`] connection and, for a session, the account as it is at that moment.

mod arrivals;
pub mod audit;
pub mod cgroup;
pub mod cluster;
mod connections;
mod exchange;
mod fronts;
pub mod granted;
mod host_keys;
pub mod label_commands;
pub mod launches;
mod login;
pub mod metrics;
pub mod names;
pub mod network;
mod node;
mod offer;
pub mod pam_turns;
mod running;
pub mod seats;
pub mod sessions;
mod settings;
mod start;
mod starter;
pub mod steps;
pub mod strangers;
pub mod timers;
pub mod tools;
mod trust;
pub mod tunnel;
pub mod wakes;
pub mod watching;
pub mod x11;

pub use cluster::Signed;
pub use granted::Granted;
pub use node::Node;
pub use start::{MonitorError, Options, Parts, Sources, audit_log, check, host_keys, open, run};
pub(crate) use start::{settle, uses_pam};
pub use tools::Tools;
pub use wakes::{Key, Owner};
