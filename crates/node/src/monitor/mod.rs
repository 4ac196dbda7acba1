//! The monitor: root, one thread, one epoll that owns all state. It accepts, keeps the host keys, verifies every login
//! itself, launches, and closes what ended. Nothing in it blocks, and it believes nothing that lobby or fronts say.
//!
//! Parts, each with its own state: [`wakes`] and [`timers`] say who is woken, [`workers`] are the processes it executed,
//! [`names`] and [`launches`] are answers on their way. [`tools`] is what every part may use; an [`OpenLogin`] is what
//! requests are checked against. [`audit`] and [`metrics`] are told by every part.
//!
//! A part that waits for something gives its own [`Key`]; the loop calls it back with the key's id: `woken` (a
//! descriptor or a timer), `launched` (a launch's outcome), `named` (a name's answer), `connection_ended`, or a method named
//! after what came. A request of a front reaches its part with the connection's [`OpenLogin`] and, for a session, the account.
//!
//! `config`, `audit` and `metrics` are the crates `node-config` and `audit` under other names.
//!
//! The path of one session: `accept`, or `tunnel::handler` → [`lobby`] → `connections::exchanges` → `lobby::logins` with `login` → [`fronts`] →
//! [`requests`] → [`sessions`] → [`launches`]. Each of these modules holds a subsystem whole: its state, and for those with a process what
//! it does with that one's frames (`impl Monitor`: the table at `event_loop::Monitor` has the methods of each file that others call).

mod accept;
mod cluster;
mod connections;
mod container_list;
mod containers;
mod denials;
mod draining;
mod error;
mod event_loop;
mod forwards;
mod fronts;
pub mod label_commands;
pub mod launches;
mod live;
mod lobby;
mod login;
pub mod names;
pub mod network;
pub mod open_login;
mod recorder;
mod requests;
pub mod sessions;
mod settings;
pub mod spans;
mod start;
mod starter;
pub mod strangers;
pub mod timers;
pub mod tools;
pub mod tunnel;
mod views;
pub mod wakes;
pub mod watcher;
pub mod workers;
pub mod x11;

pub use crate::config::node_lock::running as running_monitor;
pub use error::MonitorError;
pub use event_loop::Monitor;
pub use fleetgate_audit as audit;
pub use fleetgate_audit::metrics;
pub use open_login::OpenLogin;
pub use start::{Options, Parts, Sources, audit_log, check, host_keys, open, run};
pub use tools::Tools;
pub use wakes::{Key, Owner};
