//! Why a container cannot be entered: the container, the reason, what helps.

use crate::profile::ProfileError;
use fleetgate_sys::Errno;
use std::fmt;
use std::path::PathBuf;

/// How many are named to who asked for one that is not there.
pub const NAMED: usize = 8;
/// The fewest characters of an id that stand for it.
pub const SHORTEST: usize = 4;

/// Why there is no entering.
#[derive(Debug)]
pub enum Error {
    /// No container of this name or id.
    None {
        /// What was asked for.
        name: String,
        /// What is there, by name; of many one more than [`NAMED`].
        there: Vec<String>,
    },
    /// No container of this name or id, and one of nearly this name.
    Mistyped {
        /// What was asked for.
        name: String,
        /// What was probably meant.
        meant: String,
    },
    /// No container of this name or id, and an id that begins so, but too little of it.
    ShortId {
        /// What was asked for.
        name: String,
    },
    /// Several that fit.
    Several {
        /// What was asked for.
        name: String,
        /// Their ids, each with its runtime.
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
    /// Something that only an administrator of the machine can change.
    ForAdministrators(&'static str),
    /// The kernel refuses.
    System(&'static str, Errno),
}

/// What says to who comes by SSH which containers there are. Whether by a cluster is not known here.
const LISTS: &str =
    "`fleetgate ls --containers NODE`, or without a cluster `ssh -s ACCOUNT@HOST fleetgate-containers`,";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::None { name, there } if there.is_empty() => write!(
                f,
                "no container {name:?} runs here: {LISTS} shows those that you may enter"
            ),
            Error::None { name, there } => {
                let more = if there.len() > NAMED { " and more" } else { "" };
                let there = there[..there.len().min(NAMED)].join(", ");
                write!(f, "no container {name:?} runs here; there are {there}{more}")
            }
            Error::Mistyped { name, meant } => {
                write!(f, "no container {name:?} runs here; did you mean {meant}?")
            }
            Error::ShortId { name } => write!(
                f,
                "no container {name:?} runs here, and of an id the first {SHORTEST} characters are needed, or more"
            ),
            Error::Several { name, fit } if fit.is_empty() => {
                write!(
                    f,
                    "{name:?} may be any of several containers: say more of its id; {LISTS} shows those that you may enter"
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
            Unusable::ForAdministrators(why) => write!(f, "{why}: ask an administrator of the machine"),
            Unusable::System(doing, errno) => write!(f, "{doing}: {errno}"),
        }
    }
}

impl Error {
    /// For a user who comes by SSH: without the names of other containers and the machine's paths, which are not everybody's to
    /// know, and without what only root of the machine can do.
    pub fn without_others(self) -> Error {
        match self {
            Error::Unusable { name, why } => Error::Unusable {
                name,
                why: match why {
                    Unusable::NotRoots(_) => Unusable::ForAdministrators(
                        "others than root may change its configuration, which says what who enters may do",
                    ),
                    Unusable::NoConfiguration => {
                        Unusable::ForAdministrators("its configuration is not where its runtime says")
                    }
                    why => why,
                },
            },
            Error::None { name, .. } | Error::Mistyped { name, .. } | Error::ShortId { name } => {
                Error::None {
                    name,
                    there: Vec::new(),
                }
            }
            Error::Several { name, .. } => Error::Several {
                name,
                fit: Vec::new(),
            },
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_by_ssh_reads_neither_paths_nor_names_of_others() {
        let unusable = |why| Error::Unusable {
            name: "web".to_owned(),
            why,
        };
        let path = PathBuf::from("/var/lib/containers/storage/overlay-containers/web/userdata/config.json");
        let table = [
            (
                unusable(Unusable::NotRoots(path)),
                "container web: others than root may change its configuration, which says what who enters may do: ask an \
                 administrator of the machine",
            ),
            (
                unusable(Unusable::NoConfiguration),
                "container web: its configuration is not where its runtime says: ask an administrator of the machine",
            ),
            (
                unusable(Unusable::Ended),
                "container web: it has ended; start it, then try again",
            ),
        ];
        for (error, words) in table {
            assert_eq!(error.without_others().to_string(), words);
        }
        let none = Error::None {
            name: "web".to_owned(),
            there: vec!["secret".to_owned()],
        };
        assert!(!none.without_others().to_string().contains("secret"));
    }
}
