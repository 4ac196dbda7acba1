//! Login records in wtmpdb's database: a writer that runs once per login and once per logout, and ends.
//!
//! It is a process of its own because SQLite and the machine's libwtmpdb may wait, allocate and crash, none of
//! which may happen to the server. The session reaper of sessions (`launch`, in the node's monitor) starts
//!
//! ```text
//! fleetgate wtmpdb login  STATE USEC USER TTY HOST SERVICE
//! fleetgate wtmpdb logout STATE USEC
//! ```
//!
//! - STATE: an absolute path of a file of this session's own, in a directory that only the server may write
//!   (`/run/fleetgate/wtmpdb/SESSION`, not where the session reaper has its notes). `login` writes the row's number there,
//!   `logout` reads and removes it: so the number survives a crash of either side, without the server knowing it.
//! - USEC: microseconds since 1970, the time of the order.
//! - TTY: `pts/3` or `/dev/pts/3`; HOST: the peer, empty for none; SERVICE: `fleetgate`.
//!
//! `logout` is started after `login` has ended: before that there is no number to close. Both may be repeated: a login whose state file is there, or whose row is there, is not written again; a logout
//! without a state file does nothing. Exit code 0: done, or this machine has no wtmpdb (neither its library nor
//! `/var/lib/wtmpdb`); 1: it failed, one sentence on standard error; 2: it was called wrongly.
//!
//! Where libwtmpdb is installed it does the work, because it knows whether a daemon or a file keeps the records;
//! else, where `/var/lib/wtmpdb` exists, the table is written here in wtmpdb's own schema. Boot and shutdown records
//! are not ours, and nothing is ever read for anybody.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

mod schema;
mod state;

use fleetgate_sys::glibc::wtmpdb::{Libwtmpdb, Login};
use state::{Row, State};
use std::ffi::{CString, OsString};
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Where wtmpdb's records are.
const DATABASE: &str = "/var/lib/wtmpdb/wtmp.db";
/// The longest user, terminal, host or service.
const MAX_WORD: usize = 1024;

/// Why nothing was recorded.
#[derive(Debug)]
pub enum Error {
    /// The arguments are not of the form above.
    Usage(String),
    /// libwtmpdb's sentence.
    Library(&'static str, CString),
    /// The database could not be written.
    Database(PathBuf, rusqlite::Error),
    /// Another program held the database for too long.
    Busy(PathBuf),
    /// The state file could not be written or read.
    State(PathBuf, std::io::Error),
    /// The state file holds something else.
    BadState(PathBuf),
    /// The row of this login is not there any more: rotated away, or removed.
    NoRow(PathBuf, i64),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(what) => write!(
                f,
                "{what}; use: wtmpdb login STATE USEC USER TTY HOST SERVICE, or wtmpdb logout STATE USEC"
            ),
            Error::Library(doing, why) => write!(f, "libwtmpdb could not {doing}: {}", why.to_string_lossy()),
            Error::Database(path, e) => write!(f, "{} could not be written: {e}", path.display()),
            Error::Busy(path) => write!(
                f,
                "{} was locked by another program for {} seconds; the record was not written",
                path.display(),
                schema::BUSY.as_secs()
            ),
            Error::State(path, e) => write!(f, "the state file {}: {e}", path.display()),
            Error::BadState(path) => write!(
                f,
                "the state file {} was not written by wtmpdb login; remove it",
                path.display()
            ),
            Error::NoRow(path, id) => write!(
                f,
                "{} has no row {id} of this login any more (was it rotated?); its end was not recorded",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// The exit code.
    pub fn code(&self) -> i32 {
        match self {
            Error::Usage(_) => 2,
            _ => 1,
        }
    }
}

/// Somebody came in.
pub(crate) struct Came {
    at: u64,
    user: CString,
    tty: CString,
    host: CString,
    service: CString,
}

/// Does what the words after `wtmpdb` ask for.
pub fn run(words: &[OsString]) -> Result<(), Error> {
    match words {
        [verb, state, at, user, tty, host, service] if verb == "login" => {
            let came = Came {
                at: microseconds(at)?,
                user: word("user", user)?,
                tty: terminal(word("terminal", tty)?),
                host: word("host", host)?,
                service: word("service", service)?,
            };
            login(&file(state)?, &came)
        }
        [verb, state, at] if verb == "logout" => logout(&file(state)?, microseconds(at)?),
        _ => Err(Error::Usage("the arguments are not understood".to_owned())),
    }
}

fn login(state: &State, came: &Came) -> Result<(), Error> {
    let before = state.read()?;
    if let Ok(library) = Libwtmpdb::open() {
        if before.is_some() {
            return Ok(());
        }
        let login = Login {
            user: &came.user,
            at: came.at,
            tty: &came.tty,
            host: &came.host,
            service: &came.service,
        };
        let id = library
            .login(&login)
            .map_err(|why| Error::Library("record the login", why))?;
        return state.write(&Row { id, at: came.at });
    }
    match database() {
        Some(path) => schema::login(path, came, before, state),
        None => Ok(()),
    }
}

fn logout(state: &State, at: u64) -> Result<(), Error> {
    let Some(row) = state.read()? else {
        return Ok(());
    };
    let done = match (Libwtmpdb::open(), database()) {
        (Ok(library), _) => library
            .logout(row.id, at)
            .map_err(|why| Error::Library("record the logout", why)),
        (Err(_), Some(path)) => schema::logout(path, &row, at),
        (Err(_), None) => Ok(()),
    };
    // A database that was busy may be tried again; a row that is gone will not come back.
    match done {
        Ok(()) | Err(Error::NoRow(..)) => state.remove().and(done),
        other => other,
    }
}

/// The database, where somebody wants one.
fn database() -> Option<&'static Path> {
    let path = Path::new(DATABASE);
    path.parent().is_some_and(Path::is_dir).then_some(path)
}

fn file(word: &OsString) -> Result<State, Error> {
    let path = PathBuf::from(word);
    if !path.is_absolute() {
        return Err(Error::Usage("the state file's path is not absolute".to_owned()));
    }
    Ok(State::at(path))
}

fn microseconds(word: &OsString) -> Result<u64, Error> {
    let number = word.to_str().and_then(|w| w.parse::<u64>().ok());
    // SQLite's numbers are signed.
    number
        .filter(|n| *n <= i64::MAX as u64)
        .ok_or_else(|| Error::Usage(format!("{} is no time in microseconds", word.to_string_lossy())))
}

fn word(what: &str, word: &OsString) -> Result<CString, Error> {
    if word.len() > MAX_WORD {
        return Err(Error::Usage(format!(
            "the {what} is longer than {MAX_WORD} bytes"
        )));
    }
    // Arguments of a process hold no zero byte; a caller within the process gets the same answer as for garbage.
    CString::new(word.clone().into_vec()).map_err(|_| Error::Usage(format!("the {what} has a zero byte")))
}

fn terminal(tty: CString) -> CString {
    match tty.as_bytes().strip_prefix(b"/dev/") {
        Some(short) => CString::new(short).unwrap_or_default(),
        None => tty,
    }
}
