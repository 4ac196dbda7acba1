//! Audit events out of the house: what auth has taken in goes to the sinks that its configuration names, by syslog, as OTLP
//! logs, or to a webhook. At least once and in order: the audit log itself is the spool, and a sink goes on behind the last
//! event that its receiver has acknowledged. It keeps no event, opens no database, and reads files only while settings are
//! read. A sink that hangs or refuses holds up nobody else.
//!
//! `settings` reads a sink's section; `run` is a sink's life; `syslog`, `otlp` and `webhook` are the three ways out.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

mod event;
mod files;
mod otlp;
mod progress;
mod run;
mod settings;
mod syslog;
mod webhook;

pub use event::Event;
pub use otlp::rejected;
pub use progress::Progress;
pub use run::{BATCH, BATCH_BYTES, Spool, WINDOW, run};
pub use settings::{Form, MAX_SINKS, Sink, read};

#[cfg(test)]
mod tests;
