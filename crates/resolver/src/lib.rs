//! The resolver: what only a glibc process can do. Users, groups and hosts through NSS, PAM sessions, SELinux
//! contexts; deadlines on all of it.
//!
//! Processes, each a fork of the one before it, all of one thread:
//!
//! ```text
//! broker            poll loop, cache, deadlines; never calls NSS, PAM or a loader itself, so nothing stalls it
//!  ├─ worker …      one name question at a time; killed and replaced when it is over its deadline
//!  └─ warm server   libpam, the service's modules and NSS loaded; renewed when their files change
//!      └─ PAM process …   one per PAM session, stays to its end, also when everything above is gone
//!          └─ session helper …   executed from the sealed image
//! ```
//!
//! It never decides who may log in, never logs an answer to a prompt, and listens nowhere: its sockets are given to it.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

mod broker;
mod child;
mod names;
mod pam;
mod stamp;
mod truth;

use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

#[doc(hidden)]
pub use names::check as check_question;
#[doc(hidden)]
pub use pam::stack::parse as parse_service;

/// A PAM session in this very process, with nothing loaded: what the benchmark measures the warm server against.
#[doc(hidden)]
pub fn pam_session(start: &fleetgate_wire::pam::Start, peer: fleetgate_sys::Fd) {
    pam::session::run(None, start, peer);
}

/// How `serve` was asked to behave.
pub(crate) struct Settings {
    /// PAM services to have warm from the start; none: the warm server starts with the first PAM session.
    services: Vec<CString>,
    /// No SELinux is an error, not a login without a context.
    selinux_required: bool,
}

/// Runs the subcommand in `args` (without the program's name); returns the exit code.
pub fn run(args: &[OsString]) -> i32 {
    let words: Vec<&[u8]> = args.iter().map(|a| a.as_bytes()).collect();
    match words.as_slice() {
        [b"serve", ..] => match settings(&args[1..]) {
            Ok(settings) => broker::serve(settings),
            Err(why) => usage(&why),
        },
        [b"true", ..] => truth::run(&args[1..]),
        [b"--version"] => truth::version(),
        _ => usage("fleetgate-resolver is started by fleetgate, not by hand"),
    }
}

fn usage(why: &str) -> i32 {
    eprintln!(
        "fleetgate-resolver: {why}\nusage: fleetgate-resolver serve [--service NAME]... [--selinux auto|required]\n       \
         fleetgate-resolver true | --version"
    );
    2
}

fn settings(args: &[OsString]) -> Result<Settings, String> {
    let mut settings = Settings {
        services: Vec::new(),
        selinux_required: false,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let value = args
            .next()
            .ok_or_else(|| format!("{} needs a value", arg.to_string_lossy()))?;
        match arg.as_bytes() {
            b"--service" => {
                let name = CString::new(value.clone().into_vec()).map_err(|_| "a zero byte".to_owned())?;
                if !pam::stack::is_service(name.to_bytes()) {
                    return Err(format!(
                        "--service {}: not a file name of /etc/pam.d",
                        value.to_string_lossy()
                    ));
                }
                settings.services.push(name);
            }
            b"--selinux" => {
                settings.selinux_required = match value.as_bytes() {
                    b"auto" => false,
                    b"required" => true,
                    _ => return Err("--selinux is auto or required".to_owned()),
                }
            }
            _ => return Err(format!("unknown option {}", arg.to_string_lossy())),
        }
    }
    Ok(settings)
}

/// A line for the operator; the server reads our standard error into its log.
pub(crate) fn log(text: std::fmt::Arguments<'_>) {
    use std::io::Write;
    // Nobody may be reading any more: that is no reason to end.
    let _ = std::io::stderr().write_all(format!("fleetgate-resolver: {text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Settings, String> {
        settings(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn serve_takes_services_and_selinux() {
        let s = parsed(&["--service", "sshd", "--service", "x", "--selinux", "required"]).expect("good");
        assert_eq!(s.services.len(), 2);
        assert!(s.selinux_required);
        assert!(parsed(&[]).expect("good").services.is_empty());
        assert!(parsed(&["--service"]).is_err());
        assert!(parsed(&["--service", "../shadow"]).is_err());
        assert!(parsed(&["--selinux", "perhaps"]).is_err());
        assert!(parsed(&["--frob", "x"]).is_err());
    }
}
