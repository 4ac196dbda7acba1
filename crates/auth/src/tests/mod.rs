//! The service as a whole: by its unix socket and by TLS, with a clock that is turned by hand.

mod audit_events;
mod audit_file;
mod backup;
mod bounds;
mod clocks;
mod devices;
mod exports;
mod faults;
mod lockout;
mod log_shares;
mod machines;
mod memory;
mod path;
mod place;
mod plain;
mod proxies;
mod records;
mod refusals;
mod removed;
mod reports;
mod rotation;
mod rules;
mod state;
mod users;
mod visit;
mod who;
