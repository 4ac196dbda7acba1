//! `check_fleetgate`, a plugin for Nagios, Icinga and their kin in the place of check_nrpe: a named command on a node, by the
//! connection that the user's master keeps.
//!
//! Read in this order: [`options`] (the command line), [`line`] and [`secret`] (what the node is sent), [`warm`] (the session, by the master),
//! [`verdict`] (what the monitoring is told). Where no master can do it, the program becomes `fleetgate check run`, which makes
//! a connection and starts a master for the next one. Nothing here opens a connection, reads a key or a configuration.
//!
//! A warm check makes 12 calls from `main` to its end: clock_gettime, socket, connect, getsockopt (who listens), pipe2, sendmsg
//! (the order with three descriptors), close, ppoll and recvmsg twice (it began; it ended), ppoll (has it complained?),
//! exit_group.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod line;
pub mod options;
pub mod secret;
pub mod verdict;
pub mod warm;

use alloc::boxed::Box;
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::CStr;
use fleetgate_sys::exec;
use fleetgate_sys::spawn::Strings;
use options::{Invocation, Options};
use verdict::Verdict;
use warm::Outcome;

/// The program's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Where the full client is looked for, beside the directory of this program.
const CLIENTS: [&CStr; 2] = [c"/usr/bin/fleetgate", c"/usr/local/bin/fleetgate"];

/// What `check_fleetgate` does with its words; the exit code.
pub fn program(args: &[&CStr]) -> i32 {
    let words: Vec<&[u8]> = args.iter().map(|word| word.to_bytes()).collect();
    match begin(&words) {
        Begun::Over(code) => code,
        Begun::Cold(options) => {
            let why = full_client(args, &options);
            Verdict::unknown(alloc::format!(
                "the program fleetgate, which makes the connection, cannot be executed ({why}): is the package whole?"
            ))
            .print()
        }
    }
}

/// How far the warm path brought it.
pub enum Begun {
    /// All is said; the exit code.
    Over(i32),
    /// Nothing was begun: these options are the full client's.
    Cold(Box<Options>),
}

/// Reads the words, and runs the check by the master where one is there.
pub fn begin(words: &[&[u8]]) -> Begun {
    let mut options = match options::parse(words) {
        Ok(Invocation::Run(options)) => options,
        Ok(Invocation::Say(text)) => return Begun::Over(verdict::say(&text)),
        Err(why) => return Begun::Over(Verdict::unknown(why).print()),
    };
    // One time for all ways on which it is tried.
    options.asked.get_or_insert(warm::now());
    let outcome = match options.is_alone {
        true => Outcome::Cold,
        false => warm::run(&options),
    };
    match outcome {
        Outcome::Over(verdict) => Begun::Over(verdict.of(&options).print()),
        Outcome::Late(has_begun) => Begun::Over(late(&options, has_begun).of(&options).print()),
        Outcome::Cold => Begun::Cold(Box::new(options)),
        Outcome::Refused => {
            options.is_alone = true;
            Begun::Cold(Box::new(options))
        }
    }
}

/// What is said when no answer came in time.
pub fn late(options: &Options, has_begun: bool) -> Verdict {
    let state = options.at_timeout;
    let end = if has_begun { "; it was ended" } else { "" };
    let why = alloc::format!("no answer within {} s{end}", options.timeout);
    Verdict::of_state(state, why)
}

/// Becomes `fleetgate check run`; comes back only with a reason.
fn full_client(args: &[&CStr], options: &Options) -> fleetgate_sys::Errno {
    let beside = fleetgate_sys::file::read_link(c"/proc/self/exe")
        .ok()
        .and_then(|mut path| {
            path.truncate(path.iter().rposition(|b| *b == b'/')? + 1);
            path.extend_from_slice(b"fleetgate");
            CString::new(path).ok()
        });
    let words = [c"fleetgate", c"check", c"run"];
    let asked = options
        .asked
        .and_then(|at| CString::new(alloc::format!("{}={at}", options::ASKED)).ok());
    let alone = options.is_alone.then_some(options::ALONE);
    // In front: behind a last `-a` it would be an argument.
    let args = asked
        .as_deref()
        .into_iter()
        .chain(alone)
        .chain(args.iter().copied());
    let argv = Strings::new(words.into_iter().chain(args));
    let environment: Vec<&CStr> = exec::environment().collect();
    let environment = Strings::new(environment.iter().copied());
    let mut why = fleetgate_sys::Errno::ENOENT;
    for place in beside.as_deref().into_iter().chain(CLIENTS) {
        match exec::execute(place, &argv, &environment) {
            fleetgate_sys::Errno::ENOENT => {}
            other => why = other,
        }
    }
    why
}
