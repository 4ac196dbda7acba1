//! lastlog: one record per user id, a sparse file. A file that is missing is not kept here.

use crate::layout::{put_time, stripped, text, time};
use crate::{Entry, Places};
use alloc::vec::Vec;
use fleetgate_sys::file::flags;
use fleetgate_sys::{Errno, Result, file};

const TIME: usize = if cfg!(target_arch = "x86_64") { 4 } else { 8 };
const LINE_LEN: usize = 32;
const HOST_LEN: usize = 256;
const RECORD: usize = TIME + LINE_LEN + HOST_LEN;

/// Where and when somebody was last here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastLogin {
    /// Seconds since 1970.
    pub sec: i64,
    /// The terminal, without `/dev/`.
    pub line: Vec<u8>,
    /// The peer.
    pub host: Vec<u8>,
}

/// The last login of `uid`; none: never, or not kept.
pub fn last_login(places: &Places, uid: u32) -> Result<Option<LastLogin>> {
    let fd = match file::openat(file::CWD, &places.lastlog, flags::O_RDONLY, 0) {
        Err(Errno::ENOENT) => return Ok(None),
        other => other?,
    };
    let mut record = [0u8; RECORD];
    if file::read_at(fd.raw(), &mut record, uid as u64 * RECORD as u64)? < RECORD {
        return Ok(None);
    }
    let sec = time(&record);
    Ok((sec != 0).then(|| LastLogin {
        sec,
        line: text(&record[TIME..TIME + LINE_LEN]).to_vec(),
        host: text(&record[TIME + LINE_LEN..]).to_vec(),
    }))
}

/// Notes `entry` as the last login of its user.
pub fn record_last_login(places: &Places, entry: &Entry) -> Result<()> {
    let flags = flags::O_RDWR | flags::O_NOFOLLOW;
    let fd = match file::openat(file::CWD, &places.lastlog, flags, 0) {
        Err(Errno::ENOENT) => return Ok(()),
        other => other?,
    };
    let mut record = [0u8; RECORD];
    put_time(&mut record, entry.at.sec);
    let line = stripped(entry.line.to_bytes());
    let len = line.len().min(LINE_LEN);
    record[TIME..TIME + len].copy_from_slice(&line[..len]);
    let host = entry.host.to_bytes();
    // The readers of this file want a zero at the end of the host.
    let len = host.len().min(HOST_LEN - 1);
    record[TIME + LINE_LEN..TIME + LINE_LEN + len].copy_from_slice(&host[..len]);
    file::write_all_at(&fd, &record, entry.uid as u64 * RECORD as u64)
}
