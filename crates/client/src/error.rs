//! Why something was not done, in words that a person can act on, and what the program exits with.

use crate::time;
use fleetgate_base::exit;
use fleetgate_net::h2;
use fleetgate_policy::text;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use tonic::Code;

/// Why something was not done. No secret is in it.
#[derive(Debug)]
pub enum ClientError {
    /// A file.
    File(PathBuf, io::Error),
    /// A file that does not hold what it should, and what to do about it.
    Broken(PathBuf, String),
    /// There is no login in this home.
    NoLogin {
        /// The directory.
        home: PathBuf,
        /// There was one, so the next login knows the proxy.
        was_there: bool,
    },
    /// The login's time is over.
    Expired {
        /// Who it was.
        user: String,
        /// Where to log in again.
        proxy: String,
        /// For how many seconds it has been over.
        ago: u64,
    },
    /// What was given cannot be meant.
    Usage(String),
    /// Nobody is there, or it is somebody else: where, and why.
    Unreachable(String, String),
    /// The other side refused, in its words.
    Refused(String),
    /// A selector means no node that the login may reach.
    NothingMatches(String),
    /// A second factor that is fresh is wanted.
    Stale(String),
    /// The person at the terminal gave up.
    Interrupted,
    /// There is no terminal to ask on: what would have been asked, and how to give it otherwise.
    NoTerminal(&'static str, &'static str),
}

impl ClientError {
    /// The exit code: 2 for usage, 255 for a connection that failed (as ssh has it), 1 for everything that was refused.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            // What would have been asked for can be given by a flag.
            ClientError::Usage(_) | ClientError::NoTerminal(..) => exit::USAGE,
            ClientError::Unreachable(..) => exit::UNREACHABLE,
            _ => exit::REFUSED,
        }
    }

    /// For `map_err`: about this file.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> ClientError {
        let path = path.to_owned();
        move |e| ClientError::File(path, e)
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::File(path, e) => write!(f, "{}: {e}", path.display()),
            ClientError::Broken(path, why) => write!(f, "{}: {why}", path.display()),
            ClientError::NoLogin { home, was_there } => {
                let proxy = if *was_there { "" } else { " --proxy HOST:PORT" };
                let home = home.display();
                write!(
                    f,
                    "there is no login in {home}; log in with `fleetgate login{proxy}`"
                )
            }
            ClientError::Expired { user, proxy, ago } => write!(
                f,
                "the login of {user} ended {} ago; log in again with `fleetgate login --proxy {proxy}`",
                time::span(*ago)
            ),
            ClientError::Usage(what) | ClientError::Refused(what) | ClientError::Stale(what) => {
                f.write_str(what)
            }
            ClientError::NothingMatches(selector) => write!(
                f,
                "no node that you may reach matches {:?}: `fleetgate ls` lists them",
                text::printable(selector)
            ),
            ClientError::Unreachable(whom, why) => f.write_str(&text::at(whom, why)),
            ClientError::Interrupted => f.write_str("interrupted"),
            ClientError::NoTerminal(what, instead) => {
                let what = what.to_lowercase();
                write!(f, "there is no terminal to ask for the {what}; {instead}")
            }
        }
    }
}

impl std::error::Error for ClientError {}

/// An answer that is an error.
impl From<tonic::Status> for ClientError {
    fn from(status: tonic::Status) -> ClientError {
        let words = h2::words(&status);
        match status.code() {
            Code::DeadlineExceeded if words.contains(": ") => {
                let (whom, why) = words.split_once(": ").unwrap_or_default();
                ClientError::Unreachable(whom.to_owned(), why.to_owned())
            }
            Code::Unavailable | Code::DeadlineExceeded => {
                ClientError::Unreachable("no answer".to_owned(), words)
            }
            Code::InvalidArgument => ClientError::Usage(words),
            Code::Unimplemented => ClientError::Refused(
                "the other side does not know this: it is older than this program; update it".to_owned(),
            ),
            _ => ClientError::Refused(words),
        }
    }
}
