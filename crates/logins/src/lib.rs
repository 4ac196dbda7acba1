//! Login records: who is logged in (utmp), who was (wtmp), who failed (btmp), who was last (lastlog), and what the
//! kernel's audit is told.
//!
//! The helper writes them at login, the session reaper closes them. The files are glibc's, written byte by byte with
//! glibc's locks, because neither the static helper nor a root process that must not load NSS has glibc. It
//! never looks up names, never creates a file (one that is missing is not kept on this machine), never decides
//! whether a record is wanted.
//!
//! Bounds: a lock is waited for one second ([`LOCK_WAIT_MS`]): any user may hold a read lock on utmp, and no
//! login may wait for him. glibc gives up after ten.
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

pub mod audit;
mod files;
mod lastlog;
mod layout;

pub use files::LOCK_WAIT_MS;
pub use lastlog::{LastLogin, last_login, record_last_login};
pub use layout::{Kind, Line, RECORD};

use alloc::ffi::CString;
use alloc::vec::Vec;
use fleetgate_sys::Result;
use fleetgate_sys::clock::Time;

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Who is logged in.
    pub utmp: CString,
    /// Who was.
    pub wtmp: CString,
    /// Who failed.
    pub btmp: CString,
    /// Who was last.
    pub lastlog: CString,
}

impl Places {
    /// Linux's own paths.
    pub fn system() -> Places {
        Places::under(c"")
    }

    /// The same paths below `root`, without its trailing slash: another root, or a test's directory.
    pub fn under(root: &core::ffi::CStr) -> Places {
        let path = |tail: &[u8]| {
            let mut bytes: Vec<u8> = root.to_bytes().to_vec();
            bytes.extend_from_slice(tail);
            CString::new(bytes).expect("a CStr and a literal have no zero byte inside")
        };
        Places {
            utmp: path(b"/var/run/utmp"),
            wtmp: path(b"/var/log/wtmp"),
            btmp: path(b"/var/log/btmp"),
            lastlog: path(b"/var/log/lastlog"),
        }
    }
}

/// One login, or one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The account's name, or what the peer called himself.
    pub user: CString,
    /// The account's id.
    pub uid: u32,
    /// The terminal: `/dev/pts/3` or `pts/3`; `ssh:notty` where there is none.
    pub line: CString,
    /// The peer's name, or its address as text.
    pub host: CString,
    /// The peer's address, v4 mapped; zeros where there is none.
    pub address: [u8; 16],
    /// The session's process.
    pub pid: i32,
    /// When.
    pub at: Time,
}

/// Notes in utmp and wtmp that `entry.user` is logged in. The same entry written again (its `at`, line and user
/// are its name) replaces what was written before: there is still one record.
pub fn login(places: &Places, entry: &Entry) -> Result<()> {
    let record = layout::record(entry, Kind::User);
    let utmp = files::put(&places.utmp, &record);
    let wtmp = files::append(&places.wtmp, &record);
    utmp.and(wtmp)
}

/// Notes in utmp and wtmp that the session on `entry.line` ended at `at`. Only the session that `entry` names is
/// closed: a terminal that another session has taken over meanwhile stays open. Twice is as once.
pub fn logout(places: &Places, entry: &Entry, at: Time) -> Result<()> {
    let opened = layout::record(entry, Kind::User);
    let closed = layout::record(
        &Entry {
            user: CString::default(),
            host: CString::default(),
            address: [0; 16],
            at,
            ..entry.clone()
        },
        Kind::Dead,
    );
    let utmp = files::close(&places.utmp, &opened, &closed);
    let wtmp = files::append(&places.wtmp, &closed);
    utmp.map(drop).and(wtmp)
}

/// Notes in btmp that somebody failed to log in as `entry.user`. As sshd, it refuses a btmp that others may read
/// or that root does not own: people type passwords where the name belongs.
pub fn failed(places: &Places, entry: &Entry) -> Result<()> {
    let record = layout::record(entry, Kind::Login);
    files::append_private(&places.btmp, &record)
}

/// All records of a file of this layout, oldest first; a torn one at the end is left out.
pub fn read(path: &core::ffi::CStr) -> Result<Vec<Line>> {
    files::read(path)
}

#[cfg(test)]
mod tests;
