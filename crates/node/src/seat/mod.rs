//! A seat is what the monitor starts and does not believe: the lobby, the fronts, the tunnel. Here is what they have in
//! common: how they are started, their sandbox, their socket to the monitor. A seat ends at once when the monitor does,
//! and when the monitor says something that is no frame.

mod control;
mod log;
mod settings;
mod truth;

pub(crate) use control::Control;
pub use log::Format;
pub(crate) use log::Log;
pub(crate) use settings::ssh_settings;

use crate::rest::Rest;
use crate::sandbox::{self, CONTROL, Identity, Seat};
#[cfg(feature = "tunnel")]
use crate::tunnel::Prepared;
use crate::{front, lobby, vigil, watcher};
use fleetgate_sys::Fd;
use fleetgate_sys::epoll::Epoll;
use std::ffi::{CStr, OsString};
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

/// A program of seats.
#[derive(Clone, Copy)]
struct Image {
    name: &'static CStr,
    seats: &'static [Seat],
    /// Whether the starter goes on as this.
    starter: bool,
}

const FRONT: Image = Image {
    name: c"fleetgate-front",
    seats: &[Seat::Lobby, Seat::Front, Seat::Watcher, Seat::Guardian],
    starter: true,
};

#[cfg(feature = "tunnel")]
const TUNNEL: Image = Image {
    name: c"fleetgate-tunnel",
    seats: &[Seat::Tunnel],
    starter: false,
};

/// Runs the subcommand in `args` (without the program's name); returns the exit code. Before this the process must have
/// made no thread.
pub fn run(args: &[OsString]) -> i32 {
    FRONT.run(args)
}

/// The same as the program `fleetgate-tunnel`.
#[cfg(feature = "tunnel")]
pub fn run_tunnel(args: &[OsString]) -> i32 {
    TUNNEL.run(args)
}

impl Image {
    fn run(self, args: &[OsString]) -> i32 {
        let words: Vec<&str> = args.iter().filter_map(|a| a.to_str()).collect();
        if words.len() != args.len() {
            return self.usage("an argument that is not UTF-8");
        }
        match words.as_slice() {
            ["true", rest @ ..] => truth::run(self, rest),
            ["--version"] => {
                println!("{} {}", self.shown(), env!("CARGO_PKG_VERSION"));
                0
            }
            ["starter", rest @ ..] if self.starter => {
                vigil::in_image(rest).unwrap_or_else(|| self.usage("starter: not in these words"))
            }
            [word, rest @ ..] if let Some(of) = self.seats.iter().find(|s| s.name() == *word) => {
                match parse(rest) {
                    Ok(asked) => seat(*of, &asked),
                    Err(why) => self.usage(&why),
                }
            }
            _ => self.usage(&format!(
                "{} is started by fleetgate node, not by hand",
                self.shown()
            )),
        }
    }

    fn shown(self) -> std::borrow::Cow<'static, str> {
        self.name.to_string_lossy()
    }

    fn usage(self, why: &str) -> i32 {
        let name = self.shown();
        let seats = self.seats.iter().map(|s| s.name()).collect::<Vec<_>>().join("|");
        eprintln!(
            "{name}: {why}\nusage: {name} {seats} [--uid UID --gid GID] [--log text|json] [--timings on|off]   \
             (descriptor {CONTROL} is its socket to the monitor)\n       {name} true | --version"
        );
        2
    }
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

fn seat(seat: Seat, asked: &Asked) -> i32 {
    let log = Log {
        format: asked.format,
        name: seat.name(),
        timings: asked.timings,
    };
    let ended = match seat {
        Seat::Lobby | Seat::Front => looped(seat, asked.identity, log),
        Seat::Watcher => watching(asked.identity, log),
        Seat::Guardian => guarding(asked.identity, log),
        Seat::Starter => Ended::Because("the starter is begun by its own words".to_owned()),
        #[cfg(feature = "tunnel")]
        Seat::Tunnel => tunnel(asked.identity, log),
    };
    match ended {
        Ended::Quietly => 0,
        Ended::Because(why) => {
            log.error(&why);
            1
        }
    }
}

/// A seat with a loop of ours. What it opens is opened before the sandbox: the filter has no call for it.
fn looped(seat: Seat, identity: Option<Identity>, log: Log) -> Ended {
    if let Err(failed) = sandbox::close_others() {
        return Ended::Because(failed.to_string());
    }
    // A lobby lives long and may not read; of the fronts most are gone before they ever rest.
    let rest = match seat {
        Seat::Front => Rest::later(),
        _ => Rest::new(),
    };
    let epoll = match Epoll::new() {
        Ok(epoll) => epoll,
        Err(e) => return Ended::Because(format!("making an epoll: {e}")),
    };
    if let Err(ended) = confine(seat, identity, &[], log) {
        return ended;
    }
    let control = Control::new(Fd::from_raw(CONTROL));
    match seat {
        Seat::Lobby => lobby::serve(control, epoll, log, rest),
        _ => front::serve(control, epoll, log, rest),
    }
}

/// The watcher of sessions.
fn watching(identity: Option<Identity>, log: Log) -> Ended {
    if let Err(failed) = sandbox::close_others() {
        return Ended::Because(failed.to_string());
    }
    let prepared = match watcher::Prepared::new() {
        Ok(prepared) => prepared,
        Err(ended) => return ended,
    };
    match confine(Seat::Watcher, identity, &[], log) {
        Ok(()) => prepared.serve(Control::new(Fd::from_raw(CONTROL)), log),
        Err(ended) => ended,
    }
}

/// Its guardian, which is any tracer's.
fn guarding(identity: Option<Identity>, log: Log) -> Ended {
    if let Err(failed) = sandbox::close_others() {
        return Ended::Because(failed.to_string());
    }
    match confine(Seat::Guardian, identity, &[], log) {
        Ok(()) => match fleetgate_trace::guardian::main(&[]) {
            0 => Ended::Quietly,
            code => Ended::Because(format!("it ended with code {code}")),
        },
        Err(ended) => ended,
    }
}

/// The tunnel hears its first word before the sandbox stands: it is the monitor's, and says what ports are connected to.
#[cfg(feature = "tunnel")]
fn tunnel(identity: Option<Identity>, log: Log) -> Ended {
    if let Err(failed) = sandbox::close_others() {
        return Ended::Because(failed.to_string());
    }
    let control = Fd::from_raw(CONTROL);
    let prepared = match Prepared::new(&control) {
        Ok(prepared) => prepared,
        Err(ended) => return ended,
    };
    match confine(Seat::Tunnel, identity, &prepared.ports(), log) {
        Ok(()) => prepared.serve(control),
        Err(ended) => ended,
    }
}

/// The sandbox; what this kernel has not is told.
fn confine(seat: Seat, identity: Option<Identity>, ports: &[u16], log: Log) -> Result<(), Ended> {
    let missing =
        sandbox::enter(seat, identity, ports).map_err(|failed| Ended::Because(failed.to_string()))?;
    for part in missing {
        log.warn(&format_args!("runs {part}"));
    }
    Ok(())
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
