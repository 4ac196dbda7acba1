//! Why something was not done, in words that a person can act on, and what the program exits with.

use crate::profile;
use fleetgate_base::exit;
use fleetgate_policy::text;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why something was not done. No secret is in it.
#[derive(Debug)]
pub enum ClientError {
    /// A file.
    File(PathBuf, io::Error),
    /// A file that does not hold what it should, and what to do about it.
    Broken(PathBuf, String),
    /// There is no login in this home.
    NoLogin(PathBuf),
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

    /// The same about a file that each login writes: it says so.
    #[must_use]
    pub fn of_login(self) -> ClientError {
        let (path, why) = match self {
            ClientError::File(path, e) => (path, e.to_string()),
            ClientError::Broken(path, why) => (path, why),
            other => return other,
        };
        // Without it a login does not know whom to believe.
        let remedy = match path.ends_with(profile::STATE) {
            true => {
                "`fleetgate login --ca sha256:HASH` writes it anew; an administrator reads the hash in `fleetgate ca status`"
            }
            false => "`fleetgate login` writes it anew",
        };
        ClientError::Broken(path, format!("{why}; {remedy}"))
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
            ClientError::NoLogin(home) => write!(
                f,
                "there is no login in {}; log in with `fleetgate login{}`",
                home.display(),
                // After a logout the next login knows the proxy.
                match profile::last_of(home) {
                    Some(_) => "",
                    None => " --proxy HOST:PORT",
                }
            ),
            ClientError::Expired { user, proxy, ago } => write!(
                f,
                "the login of {user} ended {} ago; log in again with `fleetgate login --proxy {proxy}`",
                crate::time::span(*ago)
            ),
            ClientError::Usage(what) | ClientError::Refused(what) | ClientError::Stale(what) => {
                f.write_str(what)
            }
            ClientError::Unreachable(whom, why) => f.write_str(&text::at(whom, why)),
            ClientError::Interrupted => f.write_str("interrupted"),
            ClientError::NoTerminal(what, instead) => {
                write!(f, "there is no terminal to ask for {what} on; {instead}")
            }
        }
    }
}

impl std::error::Error for ClientError {}

impl From<tonic::Status> for ClientError {
    fn from(status: tonic::Status) -> ClientError {
        crate::reach::refused(status)
    }
}
