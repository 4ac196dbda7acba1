//! From the command line to a session's plan: whether it has a terminal, which variables it takes along, how X11 goes.

use super::options::{LogLevel, Options, Tty};
use super::x11::Display;
use super::{Plan, Work, terminal};
use crate::background::Starter;
use crate::stderr;
use fleetgate_policy::pattern::fits;
use fleetgate_ssh::settings::Keepalive;
use std::os::unix::ffi::OsStringExt;

/// What is to be done, from what was said.
pub(super) fn plan(options: &Options, user: String, leg: &'static str, starter: Option<Starter>) -> Plan {
    let here = terminal::is_there();
    let session = matches!(options.work, Work::Shell | Work::Exec(_) | Work::Subsystem(_));
    let terminal = session
        && match options.tty {
            Tty::No => false,
            Tty::Force => true,
            Tty::Yes => here,
            Tty::Auto => here && options.work == Work::Shell,
        };
    if options.tty == Tty::Yes && !here && options.level >= LogLevel::Info {
        stderr::line("standard input is no terminal, so none is asked for; -tt asks all the same");
    }
    Plan {
        user,
        place: options.host.clone(),
        leg,
        options: options.clone(),
        terminal,
        environment: environment(options),
        escape: options.escape.filter(|_| here),
        keepalive: (!options.alive_interval.is_zero()).then_some(Keepalive {
            after: options.alive_interval,
            unanswered: options.alive_count,
        }),
        display: options.x11.filter(|_| session).and_then(|how| {
            let display = Display::find(how);
            // As ssh: the session goes on without it.
            display
                .map_err(|e| stderr::line(format_args!("X11 is not forwarded: {e}")))
                .ok()
        }),
        starter,
    }
}

fn environment(options: &Options) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (name, value) in std::env::vars_os() {
        let name = name.into_vec();
        if options.send_env.iter().any(|p| fits(p.as_bytes(), &name)) {
            all.push((name, value.into_vec()));
        }
    }
    for (name, value) in &options.set_env {
        // What is said outright counts before what is here.
        all.retain(|(n, _)| n != name.as_bytes());
        all.push((name.clone().into_bytes(), value.clone().into_bytes()));
    }
    all
}
