//! The files of records: found, locked, searched, written. A file that is missing is not kept here: no error.

use crate::layout::{self, Bytes, Line, RECORD};
use alloc::vec::Vec;
use core::ffi::CStr;
use fleetgate_sys::file::flags;
use fleetgate_sys::{Errno, Fd, Result, clock, exe, file, lock};

/// How long a lock is waited for, in milliseconds.
pub const LOCK_WAIT_MS: u32 = 1000;
/// How far back a repeated record is looked for: a repeated launch follows its first try at once.
const REPEAT_WINDOW: u64 = 256;
/// Records read at once.
const CHUNK: usize = 64;

/// A file held for writing; the lock goes with the descriptor.
struct RecordLock(Fd);

fn hold(path: &CStr) -> Result<Option<RecordLock>> {
    let fd = match file::openat(
        file::CWD,
        path,
        flags::O_RDWR | flags::O_NOFOLLOW | flags::O_NOCTTY,
        0,
    ) {
        Err(Errno::ENOENT) => return Ok(None),
        other => other?,
    };
    let start = clock::monotonic().as_nanos();
    loop {
        match lock::try_write(&fd) {
            Err(Errno::EAGAIN) => {}
            other => return other.map(|()| Some(RecordLock(fd))),
        }
        if clock::monotonic().as_nanos() - start > LOCK_WAIT_MS as i64 * 1_000_000 {
            return Err(Errno::EAGAIN);
        }
        clock::pause(2_000_000);
    }
}

impl RecordLock {
    /// The file's whole records; a torn one at its end is not counted and will be written over.
    fn records(&self) -> Result<u64> {
        Ok(exe::identity(&self.0)?.size / RECORD as u64)
    }

    /// The first record from `from` on that `wanted` accepts.
    fn find(&self, from: u64, wanted: impl Fn(&Bytes) -> bool) -> Result<Option<u64>> {
        let mut found = None;
        each(&self.0, from, |index, record| {
            if wanted(record) {
                found = Some(index);
            }
            found.is_none()
        })?;
        Ok(found)
    }

    /// Writes record `index`, whole or not at all: a full disk leaves no torn record behind.
    fn write(&self, index: u64, record: &Bytes) -> Result<()> {
        let at = index * RECORD as u64;
        file::write_all_at(&self.0, record, at).inspect_err(|_| {
            if exe::identity(&self.0).is_ok_and(|s| s.size > at && s.size < at + RECORD as u64) {
                let _ = file::truncate(&self.0, at);
            }
        })
    }
}

fn each(fd: &Fd, from: u64, mut take: impl FnMut(u64, &Bytes) -> bool) -> Result<()> {
    let mut buffer = alloc::vec![0u8; CHUNK * RECORD];
    let mut index = from;
    loop {
        let mut len = 0;
        while len < buffer.len() {
            match file::read_at(fd.raw(), &mut buffer[len..], index * RECORD as u64 + len as u64)? {
                0 => break,
                n => len += n,
            }
        }
        for record in buffer[..len].chunks_exact(RECORD) {
            if !take(index, record.try_into().expect("a chunk of that size")) {
                return Ok(());
            }
            index += 1;
        }
        if len < buffer.len() {
            return Ok(());
        }
    }
}

/// pututline: over the terminal's record, else at the end.
pub(crate) fn put(path: &CStr, record: &Bytes) -> Result<()> {
    let Some(held) = hold(path)? else { return Ok(()) };
    let index = match held.find(0, |r| layout::same_terminal(r, record))? {
        Some(index) => index,
        None => held.records()?,
    };
    held.write(index, record)
}

/// Replaces `opened` by `closed`, if it is still there; false when it is not.
pub(crate) fn close(path: &CStr, opened: &Bytes, closed: &Bytes) -> Result<bool> {
    let Some(held) = hold(path)? else { return Ok(false) };
    match held.find(0, |r| layout::same_event(r, opened))? {
        Some(index) => held.write(index, closed).map(|()| true),
        None => Ok(false),
    }
}

/// updwtmp: at the end, or over the same event where that is among the last ones.
pub(crate) fn append(path: &CStr, record: &Bytes) -> Result<()> {
    let Some(held) = hold(path)? else { return Ok(()) };
    let end = held.records()?;
    let from = end.saturating_sub(REPEAT_WINDOW);
    let index = held.find(from, |r| layout::same_event(r, record))?;
    held.write(index.unwrap_or(end), record)
}

/// At the end of a file that must be root's (or the caller's, where he is not root) and nobody else's to read.
pub(crate) fn append_private(path: &CStr, record: &Bytes) -> Result<()> {
    let Some(held) = hold(path)? else { return Ok(()) };
    let status = exe::identity(&held.0)?;
    let owner = fleetgate_sys::process::effective_uid();
    if status.mode & 0o017 != 0 || status.uid != owner {
        return Err(Errno::EACCES);
    }
    held.write(held.records()?, record)
}

pub(crate) fn read(path: &CStr) -> Result<Vec<Line>> {
    let fd = file::openat(file::CWD, path, flags::O_RDONLY, 0)?;
    let mut lines = Vec::new();
    each(&fd, 0, |_, record| {
        lines.push(layout::line(record));
        true
    })?;
    Ok(lines)
}
