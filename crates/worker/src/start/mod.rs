//! The common start of every worker: its arguments, its sandbox, its socket to the monitor, its log, and the self test
//! of its program. Which workers a program has is a table of the program's; nothing here knows any of them.
//!
//! A worker ends at once when the monitor does, and when the monitor sends something that is no frame.

mod control;
mod log;
mod self_test;
mod settings;

pub use control::{Control, c_text};
pub use log::{Format, Log};
pub(crate) use settings::ssh_settings;

use crate::sandbox::{self, CONTROL, Identity, Worker};
use std::ffi::{CStr, OsString};
use std::fmt;

/// Why a worker ends.
#[derive(Debug)]
pub enum WorkerEnd {
    /// The monitor closed its end, or the work was done.
    Quietly,
    /// A failure, which the operator reads in the log.
    Because(String),
}

impl WorkerEnd {
    /// The text of an error at a step.
    pub fn at<E: fmt::Display>(step: &'static str) -> impl Fn(E) -> WorkerEnd {
        move |e| WorkerEnd::Because(format!("{step}: {e}"))
    }
}

/// A program of workers.
#[derive(Clone, Copy)]
pub struct Program {
    /// The name under which it is executed.
    pub name: &'static CStr,
    /// Its workers: each is a subcommand.
    pub workers: &'static [(Worker, Serve)],
    /// The starter's own subcommand, where the program has it.
    pub starter: Option<Starter>,
}

/// Runs the starter that only waits: the exit code, or nothing where the arguments are not its own.
pub type Starter = fn(&[&str]) -> Option<i32>;

/// Runs a worker to its end. What it opens, it opens before it calls [`Start::confine`]: the sandbox has no call for it.
pub type Serve = fn(&Start) -> WorkerEnd;

/// What a worker starts with.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    worker: Worker,
    identity: Option<Identity>,
    /// Its log.
    pub log: Log,
}

impl Start {
    /// Enters the sandbox; the worker may connect to `ports`, if it connects at all. The log says what this kernel has not.
    pub fn confine(&self, ports: &[u16]) -> Result<(), WorkerEnd> {
        let missing = sandbox::enter(self.worker, self.identity, ports)
            .map_err(|failed| WorkerEnd::Because(failed.to_string()))?;
        for part in missing {
            self.log.warn(&format_args!("runs {part}"));
        }
        Ok(())
    }
}

/// A worker's command line.
#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    identity: Option<Identity>,
    timings: bool,
}

impl Program {
    /// Runs the subcommand in `args` (without the program's name); returns the exit code. Before this the process must
    /// have made no thread.
    pub fn run(self, args: &[OsString]) -> i32 {
        let words: Vec<&str> = args.iter().filter_map(|a| a.to_str()).collect();
        if words.len() != args.len() {
            return self.usage("an argument that is not UTF-8");
        }
        match (words.as_slice(), self.starter) {
            (["true", rest @ ..], _) => self_test::run(self, rest),
            (["--version"], _) => {
                println!("{} {}", self.display_name(), env!("CARGO_PKG_VERSION"));
                0
            }
            (["starter", rest @ ..], Some(starter)) => {
                starter(rest).unwrap_or_else(|| self.usage("starter: not in these words"))
            }
            ([word, rest @ ..], _) => match self.workers.iter().find(|(w, _)| w.name() == *word) {
                Some((worker, serve)) => match parse(rest) {
                    Ok(arguments) => start(*worker, *serve, &arguments),
                    Err(why) => self.usage(&why),
                },
                None => self.not_by_hand(),
            },
            ([], _) => self.not_by_hand(),
        }
    }

    fn not_by_hand(self) -> i32 {
        self.usage(&format!(
            "{} is started by fleetgate node, not by hand",
            self.display_name()
        ))
    }

    fn display_name(self) -> std::borrow::Cow<'static, str> {
        self.name.to_string_lossy()
    }

    fn usage(self, why: &str) -> i32 {
        let name = self.display_name();
        let workers: Vec<_> = self.workers.iter().map(|(worker, _)| worker.name()).collect();
        eprintln!(
            "{name}: {why}\nusage: {name} {} [--uid UID --gid GID] [--timings on|off]   \
             (descriptor {CONTROL} is its socket to the monitor)\n       {name} true | --version",
            workers.join("|")
        );
        2
    }
}

fn parse(args: &[&str]) -> Result<Arguments, String> {
    let (mut uid, mut gid, mut timings) = (None, None, false);
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
    Ok(Arguments { identity, timings })
}

/// Closes what the worker was started with beside its control socket, and runs it to its end; the exit code.
fn start(worker: Worker, serve: Serve, arguments: &Arguments) -> i32 {
    let start = Start {
        worker,
        identity: arguments.identity,
        log: Log {
            format: Format::Monitor,
            name: worker.name(),
            timings: arguments.timings,
        },
    };
    let ended = match sandbox::close_others() {
        Ok(()) => serve(&start),
        Err(failed) => WorkerEnd::Because(failed.to_string()),
    };
    match ended {
        WorkerEnd::Quietly => 0,
        WorkerEnd::Because(why) => {
            start.log.error(&why);
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_a_worker() {
        let words = |text: &'static str| parse(&text.split_whitespace().collect::<Vec<_>>());
        let identity = Some(Identity { uid: 7, gid: 8 });
        assert_eq!(
            words("--uid 7 --gid 8 --timings on"),
            Ok(Arguments {
                identity,
                timings: true,
            })
        );
        assert_eq!(
            words(""),
            Ok(Arguments {
                identity: None,
                timings: false,
            })
        );
        for bad in [
            "--uid 7",
            "--uid",
            "--uid x --gid 1",
            "--log text",
            "--timings 1",
            "--frob 1",
            "x",
        ] {
            assert!(words(bad).is_err(), "{bad}");
        }
    }
}
