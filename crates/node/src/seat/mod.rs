//! A seat is what the monitor starts and does not believe: the lobby and the fronts. Here is what both have in common:
//! how they are started, their sandbox, their socket to the monitor and their loop. A seat ends at once when the
//! monitor does, and when the monitor says something that is no frame.

mod control;
mod log;
mod settings;
mod truth;

pub(crate) use control::Control;
pub use log::Format;
pub(crate) use log::Log;
pub(crate) use settings::ssh_settings;

use crate::rest::Rest;
use crate::sandbox::{self, CONTROL, Identity, Missing, Seat};
use crate::{front, lobby};
use fleetgate_sys::Fd;
use fleetgate_sys::epoll::Epoll;
use std::ffi::OsString;
use std::fmt;

/// Why a seat ends.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The monitor closed its end, or the work was done.
    Quietly,
    /// Something that should not be; told to the operator.
    Because(String),
}

impl Ended {
    /// The words for an error at a step.
    pub(crate) fn at<E: fmt::Display>(step: &'static str) -> impl Fn(E) -> Ended {
        move |e| Ended::Because(format!("{step}: {e}"))
    }
}

/// How a seat was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    identity: Option<Identity>,
    format: Format,
    timings: bool,
}

/// Runs the subcommand in `args` (without the program's name); returns the exit code. Before this the process must have
/// made no thread.
pub fn run(args: &[OsString]) -> i32 {
    let words: Vec<&str> = args.iter().filter_map(|a| a.to_str()).collect();
    if words.len() != args.len() {
        return usage("an argument that is not UTF-8");
    }
    match words.as_slice() {
        ["lobby", rest @ ..] => seat(Seat::Lobby, rest),
        ["front", rest @ ..] => seat(Seat::Front, rest),
        ["true", rest @ ..] => truth::run(rest),
        ["--version"] => {
            println!("fleetgate-front {}", env!("CARGO_PKG_VERSION"));
            0
        }
        _ => usage("fleetgate-front is started by fleetgate node, not by hand"),
    }
}

fn usage(why: &str) -> i32 {
    eprintln!(
        "fleetgate-front: {why}\nusage: fleetgate-front lobby|front [--uid UID --gid GID] [--log text|json] \
         [--timings on|off]   \
         (descriptor {CONTROL} is its socket to the monitor)\n       fleetgate-front true | --version"
    );
    2
}

fn parse(args: &[&str]) -> Result<Asked, String> {
    let (mut uid, mut gid, mut format, mut timings) = (None, None, Format::Text, false);
    for pair in args.chunks(2) {
        let [name, value] = pair else {
            return Err(format!("{} needs a value", pair[0]));
        };
        let number = || {
            value
                .parse::<u32>()
                .map_err(|_| format!("{name} {value}: not a number"))
        };
        match *name {
            "--uid" => uid = Some(number()?),
            "--gid" => gid = Some(number()?),
            "--log" => {
                format = match *value {
                    "text" => Format::Text,
                    "json" => Format::Json,
                    _ => return Err("--log is text or json".to_owned()),
                }
            }
            "--timings" => {
                timings = match *value {
                    "on" => true,
                    "off" => false,
                    _ => return Err("--timings is on or off".to_owned()),
                }
            }
            _ => return Err(format!("unknown option {name}")),
        }
    }
    let identity = match (uid, gid) {
        (Some(uid), Some(gid)) => Some(Identity { uid, gid }),
        (None, None) => None,
        _ => return Err("--uid and --gid go together".to_owned()),
    };
    Ok(Asked {
        identity,
        format,
        timings,
    })
}

fn seat(seat: Seat, args: &[&str]) -> i32 {
    let asked = match parse(args) {
        Ok(asked) => asked,
        Err(why) => return usage(&why),
    };
    let name = match seat {
        Seat::Lobby => "lobby",
        Seat::Front => "front",
    };
    let log = Log {
        format: asked.format,
        name,
        timings: asked.timings,
    };
    let rest = Rest::new();
    let (epoll, missing) = match confine(seat, asked.identity) {
        Ok(done) => done,
        Err(why) => {
            log.error(&why);
            return 1;
        }
    };
    for part in missing {
        log.warn(&format_args!("runs {part}"));
    }
    let control = Control::new(Fd::from_raw(CONTROL));
    let ended = match seat {
        Seat::Lobby => lobby::serve(control, epoll, log, rest),
        Seat::Front => front::serve(control, epoll, log, rest),
    };
    match ended {
        Ended::Quietly => 0,
        Ended::Because(why) => {
            log.error(&why);
            1
        }
    }
}

/// The sandbox, and the one descriptor that is made before it: the filter has no call for it.
fn confine(seat: Seat, identity: Option<Identity>) -> Result<(Epoll, Vec<Missing>), String> {
    sandbox::close_others().map_err(|failed| failed.to_string())?;
    let epoll = Epoll::new().map_err(|e| format!("making an epoll: {e}"))?;
    let missing = sandbox::enter(seat, identity).map_err(|failed| failed.to_string())?;
    Ok((epoll, missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_a_seat() {
        let words = |text: &'static str| parse(&text.split_whitespace().collect::<Vec<_>>());
        let identity = Some(Identity { uid: 7, gid: 8 });
        assert_eq!(
            words("--uid 7 --gid 8 --log json --timings on"),
            Ok(Asked {
                identity,
                format: Format::Json,
                timings: true,
            })
        );
        assert_eq!(
            words(""),
            Ok(Asked {
                identity: None,
                format: Format::Text,
                timings: false,
            })
        );
        for bad in [
            "--uid 7",
            "--uid",
            "--uid x --gid 1",
            "--log xml",
            "--timings 1",
            "--frob 1",
            "x",
        ] {
            assert!(words(bad).is_err(), "{bad}");
        }
    }
}
