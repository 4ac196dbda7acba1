//! Why a container cannot be entered: the container, the reason, what helps.

use crate::profile::ProfileError;
use fleetgate_sys::Errno;
use std::fmt;
use std::path::PathBuf;

/// Why there is no entering.
#[derive(Debug)]
pub enum Error {
    /// No container of this name or id.
    None {
        /// What was asked for.
        name: String,
        /// What is there, some of it.
        there: Vec<String>,
    },
    /// Several that fit.
    Several {
        /// What was asked for.
        name: String,
        /// Their ids.
        fit: Vec<String>,
    },
    /// It is there and cannot be entered.
    Unusable {
        /// The container.
        name: String,
        /// Why.
        why: Unusable,
    },
}

/// What is wrong with a container.
#[derive(Debug)]
pub enum Unusable {
    /// Its first process is gone.
    Ended,
    /// Its processes stand still.
    Paused,
    /// The process is in no namespace but this machine's own.
    NoContainer(i32),
    /// Others than root may change its configuration.
    NotRoots(PathBuf),
    /// Its runtime keeps a configuration, and it is not there.
    NoConfiguration,
    /// This cgroup of its, a line of /proc/PID/cgroup, is not to be reached from here, and what it limits would not hold.
    NoCgroup(String),
    /// A file that describes it cannot be used.
    File(PathBuf, String),
    /// Its seccomp profile cannot be kept.
    Profile(ProfileError),
    /// The kernel refuses.
    System(&'static str, Errno),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::None { name, there } if there.is_empty() => write!(
                f,
                "no container {name:?} runs here: `fleetgate ls --containers NODE` shows those that you may enter"
            ),
            Error::None { name, there } => {
                let there = there.join(", ");
                write!(f, "no container {name:?} runs here; there are {there}")
            }
            Error::Several { name, fit } if fit.is_empty() => {
                write!(
                    f,
                    "{name:?} may be any of several containers: say more of its id; `fleetgate ls --containers NODE` shows those \
                     that you may enter"
                )
            }
            Error::Several { name, fit } => {
                write!(f, "{name:?} may be any of {}: say more of its id", fit.join(", "))
            }
            Error::Unusable { name, why } => write!(f, "container {name}: {why}"),
        }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Ended => f.write_str("it has ended; start it, then try again"),
            Unusable::Paused => {
                f.write_str(
                    "it is paused: whoever entered would stand still too; resume it (docker unpause, podman unpause, runc resume), \
                     then try again",
                )
            }
            Unusable::NoContainer(pid) => write!(
                f,
                "process {pid} is in no container: all of its namespaces are this machine's own"
            ),
            Unusable::NotRoots(path) => write!(
                f,
                "others than root may change {}, or a directory on the way to it: whoever can would say what who enters may \
                 do; as root of the machine, --pid enters it as its root, with no profile",
                path.display()
            ),
            Unusable::NoConfiguration => f.write_str(
                "its config.json is not where its runtime says: without it nobody knows what who enters may do; as root of \
                 the machine, --pid enters it as its root, with no profile",
            ),
            Unusable::NoCgroup(line) => write!(
                f,
                "its cgroup {line:?} cannot be reached from here, and what enters would not be limited by it: enter from where \
                 the machine's own cgroups are mounted"
            ),
            Unusable::File(path, why) => write!(f, "{}: {why}", path.display()),
            Unusable::Profile(why) => write!(f, "its seccomp profile: {why}"),
            Unusable::System(doing, errno) => write!(f, "{doing}: {errno}"),
        }
    }
}

impl Error {
    /// The same without the names of other containers, which are not everybody's to know.
    pub fn without_others(self) -> Error {
        match self {
            Error::None { name, .. } => Error::None {
                name,
                there: Vec::new(),
            },
            Error::Several { name, .. } => Error::Several {
                name,
                fit: Vec::new(),
            },
            other => other,
        }
    }
}

impl std::error::Error for Error {}
