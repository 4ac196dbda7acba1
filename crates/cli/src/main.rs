//! `fleetgate`: one program for every role. Here only: under which name was it started, what is asked of it,
//! and how an error is said.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

mod account;
mod admin;
mod backup;
mod check;
mod cluster;
mod commands;
mod completions;
mod container;
mod demo;
mod device;
mod doctor;
mod flags;
mod help;
mod images;
mod init;
mod join;
mod login;
mod man;
mod master;
mod node;
mod output;
mod proxy_command;
mod recordings;
mod relay;
mod remote;
mod run;
mod seal;
mod services;
mod trace;
mod up;

use commands::COMMANDS;
use flags::{Arguments, Invocation, Outcome, UsageError};
use fleetgate_base::{exit, log};
use fleetgate_client::background;
use fleetgate_client::error::ClientError;
use fleetgate_client::master::main as keep_connections;
use fleetgate_client::master_client::NAME as MASTER;
use fleetgate_policy::text;
use output::print;
use std::ffi::{CStr, CString, OsString};
use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

fn main() {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let rest: Vec<OsString> = args.collect();
    std::process::exit(match name.as_bytes().rsplit(|b| *b == b'/').next() {
        // Where no static images are embedded, this program is launched under their names.
        Some(b"fleetgate-session") => helper(fleetgate_session::run, rest),
        Some(b"fleetgate-enter") => helper(fleetgate_enter::run, rest),
        Some(b"fleetgate-front") => fleetgate_worker::run(&rest),
        Some(b"fleetgate-tunnel") => fleetgate_tunnel::run(&rest),
        Some(b"fleetgate-recorder") => fleetgate_recorder::run(&rest),
        Some(b"fleetgate-guardian") => fleetgate_calls::guardian::main(&rest),
        Some(name) if name == MASTER.as_bytes() => keep_connections(&rest),
        Some(name) if name == background::NAME.as_bytes() => fleetgate_client::ssh::in_background(&rest),
        // The small program of that name does the same; a link to this one will do.
        Some(b"check_fleetgate") => fleetgate_checks::plugin::command(&rest),
        Some(b"fleetgate-resolver") => fleetgate_resolver::run(&rest),
        _ => fleetgate(rest),
    });
}

fn fleetgate(args: Vec<OsString>) -> i32 {
    let version = matches!(args.as_slice(), [only] if only == "--version" || only == "-V");
    let args = if version { vec!["version".into()] } else { args };
    match flags::parse(COMMANDS, &args) {
        Ok(Invocation::Run(given)) => run(&given),
        Ok(Invocation::Help(command)) => print(&help::command(COMMANDS, command)).unwrap_or(1),
        Ok(Invocation::Overview { group, help: true }) => {
            print(&help::overview(COMMANDS, &group)).unwrap_or(1)
        }
        Ok(Invocation::Overview { group, help: false }) => {
            eprint!("{}", help::overview(COMMANDS, &group));
            exit::USAGE
        }
        // The words could not be read, so the format of the log is looked for among them.
        Err(usage) if asks_for_json(&args) => {
            log::start(Some("json"), None);
            tracing::error!("{usage}");
            usage.code()
        }
        Err(usage) => usage.print(),
    }
}

/// Whether `--log-format json` is among the words.
fn asks_for_json(args: &[OsString]) -> bool {
    let apart = args
        .windows(2)
        .any(|two| two[0] == "--log-format" && two[1] == "json");
    apart || args.iter().any(|word| word == "--log-format=json")
}

fn run(given: &Arguments) -> i32 {
    // A server's log is read afterwards; a command's is read at once, beside its output.
    let serves = matches!(
        given.command.words,
        ["node" | node::MONITOR | "up" | "auth" | "proxy"]
    );
    let level = given.value("log-level").or(serves.then_some("info"));
    log::start(given.value("log-format"), level);
    done(given, (given.command.run)(given))
}

/// Says why a command failed; the exit code.
fn done(given: &Arguments, outcome: Outcome) -> i32 {
    match outcome {
        Ok(code) => code,
        Err(error) if error.is::<UsageError>() && given.value("log-format") != Some("json") => error
            .downcast_ref::<UsageError>()
            .map_or(exit::USAGE, UsageError::print),
        Err(error) => {
            match given.value("log-format") {
                Some("json") => tracing::error!("{error}"),
                // Nobody may read it any more.
                _ => {
                    _ = writeln!(
                        std::io::stderr(),
                        "fleetgate: {}",
                        text::printable_lines(&error.to_string())
                    )
                }
            }
            let code = error.downcast_ref::<ClientError>().map(ClientError::code);
            let usage = || error.downcast_ref::<UsageError>().map(UsageError::code);
            let unable = || error.is::<recordings::Unable>().then_some(exit::USAGE);
            code.or_else(usage).or_else(unable).unwrap_or(exit::REFUSED)
        }
    }
}

fn helper(run: fn(&[&CStr]) -> i32, args: Vec<OsString>) -> i32 {
    let args: Vec<CString> = args
        .into_iter()
        .filter_map(|a| CString::new(a.into_vec()).ok())
        .collect();
    run(&args.iter().map(CString::as_c_str).collect::<Vec<_>>())
}
