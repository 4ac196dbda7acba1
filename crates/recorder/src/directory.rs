//! The directory of a machine's recordings, as the monitor has it: `DAY/SESSION.rec`, and `SESSION.tail` beside one that is
//! not finished. Making files, mending what a crash left, and removing what is old. The recorder itself uses nothing of this.
//!
//! A recording that is being made is locked (flock) by whoever makes it, so that a second monitor leaves it alone.

pub mod begun;
mod check;
pub mod delivered;
mod ends;
mod keeping;
mod usage;

pub use check::check;
pub use ends::ends;
pub use keeping::{Bounds, KEPT_DAYS, Kept, MAX_RECORDINGS, Waiting, keep_within};
pub use usage::{Usage, usage};

use fleetgate_record::block::{FILE_HEAD, file_head};
use fleetgate_record::recover::{self, Remains};
use fleetgate_record::signature::{self, Statement};
use fleetgate_record::writer::{Position, Writer};
use fleetgate_sys::file::flags::{O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW, O_RDONLY, O_RDWR, O_WRONLY};
use fleetgate_sys::{Errno, Fd, clock, file, lock, process};
use fleetgate_wire::common::SessionId;
use std::ffi::CString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The ending of a recording's name.
pub const RECORDING: &str = "rec";
/// The ending of a tail's.
pub const TAIL: &str = "tail";
/// The ending of a search index's, which whoever searches makes.
pub const INDEX: &str = "index";
/// The longest tail: the most frames of a block, in entries of a frame each.
const MAX_TAIL: u64 = 4 << 20;
/// The most that a lost recorder can have written without having said so: it waits no longer for the disk.
const MAX_UNTOLD: u64 = 64 << 20;
/// What a signature says behind its time that was made over what a crash left: nobody watched what is new in it.
pub const RECOVERED: &str = " recovered";
/// Nobody but root reads what sessions showed.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// What a recording is written to.
#[derive(Debug)]
pub struct Made {
    /// Its blocks; every write appends.
    pub blocks: Fd,
    /// Its tail.
    pub tail: Fd,
    /// The path of the blocks.
    pub path: PathBuf,
}

/// Signs a statement about a chain.
pub type Sign<'a> = &'a dyn Fn(&Statement) -> Option<Vec<u8>>;

/// A session's name in files.
pub fn name(session: &SessionId) -> String {
    format!("{:032x}", u128::from_be_bytes(*session))
}

/// A session by its name in files.
pub fn session(name: &str) -> Option<SessionId> {
    let is_name = name.len() == 32 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    is_name.then(|| u128::from_str_radix(name, 16).ok().map(u128::to_be_bytes))?
}

/// Makes the files of a session that begins now.
pub fn make(root: &Path, session: &SessionId) -> Result<Made, String> {
    let now = clock::rfc3339(clock::wall(), 0);
    let day = root.join(&now[..10]);
    let path = day.join(name(session)).with_extension(RECORDING);
    let named = |path: &Path, e: Errno| format!("{}: {e}", path.display());
    let tail_path = path.with_extension(TAIL);
    let open = |path: &Path, more| {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
        let flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | more;
        file::openat(file::CWD, &name, flags, FILE_MODE)
    };
    // The lock comes before the tail: whoever looks for what was left finds a tail only where the lock says whose it is. Mostly
    // the day's directory is there.
    let blocks = match open(&path, O_APPEND) {
        Err(Errno::ENOENT) => {
            DirBuilder::new()
                .recursive(true)
                .mode(DIRECTORY_MODE)
                .create(&day)
                .map_err(|e| format!("{}: {e}", day.display()))?;
            open(&path, O_APPEND)
        }
        other => other,
    };
    let blocks = blocks.map_err(|e| named(&path, e))?;
    let made = (|| {
        lock::try_hold(&blocks)?;
        file::write_all(blocks.raw(), &file_head(session))?;
        open(&tail_path, 0)
    })();
    match made {
        Ok(tail) => Ok(Made { blocks, tail, path }),
        Err(e) => {
            discard(&path);
            Err(named(&path, e))
        }
    }
}

/// The files for the recorder: it can append to the one and write to the other. It can read neither, and so map neither into
/// its memory, where it could change what is signed.
pub fn for_writing(path: &Path) -> Result<[Fd; 2], String> {
    let open = |ending: &str, more| {
        let path = path.with_extension(ending);
        let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        file::openat(file::CWD, &name, O_WRONLY | O_NOFOLLOW | more, 0)
            .map_err(|e| format!("{}: {e}", path.display()))
    };
    Ok([open(RECORDING, O_APPEND)?, open(TAIL, 0)?])
}

/// Removes the files of a session that did not begin.
pub fn discard(path: &Path) {
    for ending in [RECORDING, TAIL] {
        let _ = fs::remove_file(path.with_extension(ending));
    }
}

/// A recording is whole: its tail goes.
pub fn finish(path: &Path) {
    let _ = fs::remove_file(path.with_extension(TAIL));
}

/// Goes on with a recording whose recorder was lost. What lies behind the last whole block is cut off, and the tail becomes a
/// block. Where the file ends then; nothing if the end is in it already.
pub fn mend(made: &Made, known: &Position) -> io::Result<Option<Position>> {
    let mut readable = File::from(OwnedFd::from(made.blocks.duplicate(3)?));
    let length = readable.metadata()?.len();
    // The monitor waits for this: a recorder that told of little and wrote much is not followed.
    if length < known.length || length - known.length > MAX_UNTOLD {
        return Err(io::Error::other("its file is not as long as the recorder said"));
    }
    readable.seek(SeekFrom::Start(known.length))?;
    let remains = recover::look_from(&mut readable, *known)?;
    if remains.ended {
        return Ok(None);
    }
    let mut writer = cut_and_resume(&made.blocks, &remains, &read_tail(&made.tail)?)?;
    if let Some(block) = writer.close(None) {
        file::write_all(made.blocks.raw(), &block)?;
    }
    Ok(Some(*writer.position()))
}

fn read_tail(tail: &Fd) -> io::Result<Vec<u8>> {
    let mut frames = Vec::new();
    let mut file = File::from(OwnedFd::from(tail.duplicate(3)?));
    file.seek(SeekFrom::Start(0))?;
    file.take(MAX_TAIL).read_to_end(&mut frames)?;
    Ok(frames)
}

fn cut_and_resume(blocks: &Fd, remains: &Remains, tail: &[u8]) -> io::Result<Writer> {
    file::truncate(blocks, remains.position.length)?;
    Ok(remains.resume(tail))
}

/// What was found of one that nobody finished.
#[derive(Debug)]
pub struct Finished {
    /// The session.
    pub session: SessionId,
    /// How it is now.
    pub position: Position,
}

/// Finishes the recordings that a monitor left which was killed: what is in their tails becomes a block, they get an end, and a
/// signature that says so. Those that another monitor still makes are left alone, and so are those that are none of ours: they
/// are told with what cannot be finished, and stay as they are.
pub fn finish_all(
    root: &Path,
    is_ours: &dyn Fn(&SessionId) -> bool,
    sign: Sign<'_>,
    tell: &mut dyn FnMut(Result<Finished, String>),
) {
    for day in children(root) {
        for path in children(&day) {
            if path.extension().is_none_or(|ending| ending != TAIL) {
                continue;
            }
            let path = path.with_extension(RECORDING);
            let named = path.file_stem().and_then(|name| session(name.to_str()?));
            match finish_left(&path, named.filter(is_ours), sign) {
                Ok(Some(finished)) => tell(Ok(finished)),
                Ok(None) => {}
                Err(e) => tell(Err(format!("{}: {e}", path.display()))),
            }
        }
    }
}

/// Nothing: somebody else makes it. `ours`: the session of which it is, where this machine began that.
fn finish_left(path: &Path, ours: Option<SessionId>, sign: Sign<'_>) -> io::Result<Option<Finished>> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let blocks = match file::openat(file::CWD, &name, O_RDWR | O_APPEND | O_NOFOLLOW, 0) {
        Ok(blocks) => blocks,
        Err(Errno::ENOENT) => {
            finish(path);
            return Ok(None);
        }
        Err(e) => return Err(e.into()),
    };
    match lock::try_hold(&blocks) {
        Ok(()) => {}
        Err(Errno::EAGAIN) => return Ok(None),
        Err(e) => return Err(e.into()),
    }
    let mut readable = File::from(OwnedFd::from(blocks.duplicate(3)?));
    let facts = readable.metadata()?;
    if ours.is_none() || facts.uid() != process::effective_uid() || facts.nlink() != 1 {
        return Err(io::Error::other(
            "it was not begun here, and is not signed: remove it, or keep it elsewhere",
        ));
    }
    let Some(remains) = recover::look(&mut readable)? else {
        // Killed before its beginning was written: there is nothing in it.
        if facts.len() < FILE_HEAD as u64 {
            discard(path);
            return Ok(None);
        }
        return Err(io::Error::other("it is no recording"));
    };
    if ours != Some(remains.session) {
        return Err(io::Error::other("it is another session's"));
    }
    let tail = CString::new(path.with_extension(TAIL).as_os_str().as_bytes())?;
    let frames = match file::openat(file::CWD, &tail, O_RDWR | O_NOFOLLOW, 0) {
        Ok(tail) => read_tail(&tail)?,
        Err(Errno::ENOENT) => Vec::new(),
        Err(e) => return Err(e.into()),
    };
    let mut writer = cut_and_resume(&blocks, &remains, &frames)?;
    if !remains.ended {
        let ended = clock::rfc3339(clock::wall(), 0);
        let json = format!(r#"{{"recovered":true,"found":"{ended}"}}"#);
        let at = writer.position().last;
        file::write_all(blocks.raw(), &writer.end(None, at, json.as_bytes()))?;
    }
    if !remains.ended || remains.signed < remains.position.blocks {
        let mut statement = statement(&remains.session, writer.position());
        statement.signed.push_str(RECOVERED);
        if let Some(signature) = sign(&statement) {
            let block = writer.sign(&signature::encode(&statement, &signature));
            file::write_all(blocks.raw(), &block)?;
        }
    }
    file::sync_data(&blocks)?;
    finish(path);
    Ok(Some(Finished {
        session: remains.session,
        position: *writer.position(),
    }))
}

/// What is to be signed about a chain.
pub fn statement(session: &SessionId, at: &Position) -> Statement {
    Statement {
        session: *session,
        blocks: at.blocks,
        chain: at.chain,
        signed: clock::rfc3339(clock::wall(), 0),
    }
}

/// A recording that is to be sent to the cluster, and its length; nothing: somebody still makes it. The disk has it when this
/// comes back, so nobody else has more of it than a power failure leaves here.
pub fn for_sending(path: &Path) -> io::Result<Option<(Fd, u64)>> {
    if usage::is_made(path) {
        return Ok(None);
    }
    for_sending_made(path).map(Some)
}

/// The same while it is made here.
pub fn for_sending_made(path: &Path) -> io::Result<(Fd, u64)> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let file = file::openat(file::CWD, &name, O_RDONLY | O_NOFOLLOW, 0)?;
    file::sync_data(&file)?;
    let length = File::from(OwnedFd::from(file.duplicate(3)?)).metadata()?.len();
    Ok((file, length))
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests;
