//! The directory: `DAY/SESSION.rec`, and beside it `SESSION.from` with what is in no recording and the catalogue is made anew
//! from: the name of the machine that made it and of the node that it is of, a line each. Where another machine's recording of a
//! session with the same id is there already, both lie in `others/MACHINE/DAY` instead. Files are opened as if somebody else had
//! made them.

use crate::entry::{Entry, name, session_of};
use crate::error::Error;
use fleetgate_sys::file::flags::{O_CREAT, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_RDWR, O_TRUNC};
use fleetgate_sys::file::{CWD, openat, read_up_to, sync_data, write_all_at};
use fleetgate_sys::{Errno, Fd, tree};
use std::ffi::CString;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Nobody but auth's user reads what sessions showed.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Others may not write to the directory.
const OPEN: u32 = 0o022;
/// The most that is read of what says whose a recording is.
const MAX_FROM: usize = 1024;

const RECORDING: &str = "rec";
const FROM: &str = "from";
/// Below it are recordings of sessions whose id another machine's recording had first.
pub const OTHERS: &str = "others";

/// Makes the directory where there is none, and refuses one that others may write to.
pub fn prepare(directory: &Path) -> Result<(), Error> {
    let io = |e: std::io::Error| Error::Io(directory.to_owned(), e.to_string());
    let made = DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(directory);
    made.map_err(io)?;
    let facts = fs::metadata(directory).map_err(io)?;
    if facts.mode() & OPEN != 0 {
        return Err(Error::Unfit(
            directory.to_owned(),
            format!("others may write to it: chmod go-w {}", directory.display()),
        ));
    }
    Ok(())
}

/// The directory that a recording's file lies in.
pub fn day(directory: &Path, entry: &Entry) -> PathBuf {
    match entry.aside {
        true => directory.join(OTHERS).join(&entry.source).join(&entry.day),
        false => directory.join(&entry.day),
    }
}

/// A recording's file.
pub fn path(directory: &Path, entry: &Entry) -> PathBuf {
    day(directory, entry)
        .join(name(&entry.session))
        .with_extension(RECORDING)
}

/// A path for a system call.
pub fn c_path(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::Io(path.to_owned(), "a zero byte in a path".to_owned()))
}

fn failed(path: &Path) -> impl Fn(Errno) -> Error {
    move |e| Error::Io(path.to_owned(), e.to_string())
}

/// Makes a recording's file, empty, and writes down whose it is.
pub fn make(directory: &Path, entry: &Entry) -> Result<Fd, Error> {
    let path = path(directory, entry);
    let from = path.with_extension(FROM);
    let flags = O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW;
    let open = |path: &Path| openat(CWD, &c_path(path)?, flags, FILE_MODE).map_err(failed(path));
    let file = match open(&from) {
        Err(_) if !day(directory, entry).exists() => {
            make_lasting(directory, &day(directory, entry))?;
            open(&from)
        }
        other => other,
    }?;
    let lines = format!("{}\n{}\n", entry.source, entry.node);
    write_all_at(&file, lines.as_bytes(), 0)
        .and_then(|()| sync_data(&file))
        .map_err(failed(&from))?;
    open(&path)
}

/// Makes a directory below this one, and those between.
fn make_lasting(directory: &Path, wanted: &Path) -> Result<(), Error> {
    let missing: Vec<&Path> = wanted
        .ancestors()
        .take_while(|at| *at != directory && !at.exists())
        .collect();
    for made in missing.into_iter().rev() {
        let done = DirBuilder::new().mode(DIRECTORY_MODE).create(made);
        done.map_err(|e| Error::Io(made.to_owned(), e.to_string()))?;
        sync(made.parent().unwrap_or(directory))?;
    }
    Ok(())
}

/// Opens a recording's file, to be written on.
pub fn open(directory: &Path, entry: &Entry) -> Result<Fd, Error> {
    let path = path(directory, entry);
    openat(CWD, &c_path(&path)?, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0).map_err(failed(&path))
}

/// Opens it, to be read.
pub fn open_to_read(path: &Path) -> Result<Fd, Error> {
    openat(CWD, &c_path(path)?, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0).map_err(failed(path))
}

/// Makes the names in a directory lasting.
pub fn sync(directory: &Path) -> Result<(), Error> {
    let fd = openat(CWD, &c_path(directory)?, O_RDONLY | O_DIRECTORY, 0).map_err(failed(directory))?;
    tree::sync(&fd).map_err(failed(directory))
}

/// Removes a recording's files, and its day where that has no other.
pub fn remove(directory: &Path, entry: &Entry) -> Result<(), Error> {
    let path = path(directory, entry);
    for path in [path.with_extension(FROM), path] {
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::Io(path, e.to_string())),
            _ => {}
        }
    }
    let above = match entry.aside {
        true => 3,
        false => 1,
    };
    for empty in day(directory, entry).ancestors().take(above) {
        let _ = fs::remove_dir(empty);
    }
    Ok(())
}

/// The maker and the node of a recording that lies there; empty where nothing says so.
pub fn maker(path: &Path) -> (String, String) {
    let read = || {
        let file = open_to_read(&path.with_extension(FROM)).ok()?;
        String::from_utf8(read_up_to(&file, MAX_FROM).ok()?).ok()
    };
    let text = read().unwrap_or_default();
    let mut lines = text.lines().map(str::to_owned);
    (lines.next().unwrap_or_default(), lines.next().unwrap_or_default())
}

/// The maker of a file that was found: as its directory says, where it has one of its own.
pub fn source(directory: &Path, found: &Found) -> String {
    let own = found.path.strip_prefix(directory.join(OTHERS)).ok();
    let named = own.and_then(|path| path.iter().next()?.to_str());
    named.map_or_else(|| maker(&found.path).0, str::to_owned)
}

/// A recording's file that lies there.
pub struct Found {
    /// The day.
    pub day: String,
    /// The session.
    pub session: [u8; 16],
    /// Where.
    pub path: PathBuf,
    /// It lies in its maker's own directory.
    pub aside: bool,
}

/// All recordings' files.
pub fn all(directory: &Path) -> Result<Vec<Found>, Error> {
    let mut all = Vec::new();
    of_days(directory, false, &mut all)?;
    let others = directory.join(OTHERS);
    if others.exists() {
        for (_, path) in children(&others)? {
            of_days(&path, true, &mut all)?;
        }
    }
    Ok(all)
}

fn of_days(directory: &Path, aside: bool, all: &mut Vec<Found>) -> Result<(), Error> {
    for (day, path) in children(directory)? {
        if !is_day(&day) {
            continue;
        }
        for (name, path) in children(&path)? {
            let session = name
                .strip_suffix(RECORDING)
                .and_then(|name| session_of(name.strip_suffix('.')?));
            all.extend(session.map(|session| Found {
                day: day.clone(),
                session,
                path,
                aside,
            }));
        }
    }
    Ok(())
}

fn children(directory: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == ErrorKind::NotADirectory => return Ok(Vec::new()),
        other => other.map_err(|e| Error::Io(directory.to_owned(), e.to_string()))?,
    };
    let named = |entry: fs::DirEntry| Some((entry.file_name().into_string().ok()?, entry.path()));
    Ok(entries.flatten().filter_map(named).collect())
}

/// Whether a directory's name is a day.
pub fn is_day(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.len() == 10
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}
