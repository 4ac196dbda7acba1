//! The directory of recordings: `YYYY-MM-DD/SESSION.rec`, with `SESSION.tail` beside one that still runs and
//! `SESSION.index` beside one that was searched. Recordings may lie elsewhere too ([`Elsewhere`]). Files are opened as if somebody else had made them: no link is followed,
//! nothing but a regular file is read, and no more of it than its bound.

use crate::index;
use crate::source::{MAX_TAIL, Source};
use fleetgate_record::age::Keys;
use fleetgate_record::reader::ReadError;
use fleetgate_sys::file::flags::{O_NOCTTY, O_NOFOLLOW, O_NONBLOCK};
use fleetgate_sys::{Fd, lock};
use std::fmt;
use std::fs::{DirEntry, File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a node keeps its recordings.
pub const DIRECTORY: &str = "/var/lib/fleetgate/recordings";
/// The digits of a session's id.
const DIGITS: usize = 32;
/// The day of recordings that lie in the directory itself: a day's directory was given, or files were copied out of it.
const NO_DAY: &str = ".";
/// How many recordings of the same beginning are named.
const NAMED: usize = 3;

/// A file that is read.
pub type FileSource = Source<BufReader<File>>;

/// Why there is no recording. Each says which one, why, and what to do.
#[derive(Debug)]
pub enum StoreError {
    /// No directory.
    NoDirectory(PathBuf),
    /// It is a file.
    NotADirectory(PathBuf),
    /// A file or directory cannot be read.
    Io(PathBuf, io::Error),
    /// The file is something else.
    NotARecording(PathBuf),
    /// The directory has none.
    Empty(PathBuf),
    /// No recording has this id.
    NotThere(String, PathBuf),
    /// Several begin so.
    Several(String, Vec<String>),
    /// It lies elsewhere, and its bytes cannot be had: which, and why.
    Elsewhere(String, String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::NoDirectory(path) => write!(
                f,
                "{}: there is no such directory: nothing was recorded here, or --directory names another one",
                path.display()
            ),
            StoreError::NotADirectory(path) => match path.parent() {
                Some(directory) if !directory.as_os_str().is_empty() => write!(
                    f,
                    "{}: this is a file: give the directory that it lies in ({}), and which recording by its id",
                    path.display(),
                    directory.display()
                ),
                _ => write!(
                    f,
                    "{}: this is a file: give the directory that it lies in, and which recording by its id",
                    path.display()
                ),
            },
            StoreError::Io(path, e) if e.kind() == ErrorKind::PermissionDenied => {
                write!(f, "{}: {e}: recordings are root's, try with sudo", path.display())
            }
            StoreError::Io(path, e) => write!(f, "{}: {e}", path.display()),
            StoreError::NotARecording(path) => {
                write!(f, "{}: this is no recording of fleetgate", path.display())
            }
            StoreError::Empty(path) => write!(f, "{}: there is no recording in it", path.display()),
            StoreError::NotThere(id, path) => write!(
                f,
                "no recording in {} has the id {id}: `fleetgate sessions ls --recorded` lists them",
                path.display()
            ),
            StoreError::Several(id, names) => write!(
                f,
                "{id} begins the ids of several recordings ({}): give more of it",
                names.join(", ")
            ),
            StoreError::Elsewhere(id, why) => write!(f, "{id}: {why}"),
        }
    }
}

impl std::error::Error for StoreError {}

/// What has the bytes of recordings that lie in no directory of this machine. Several threads ask at once.
pub trait Elsewhere: fmt::Debug + Send + Sync {
    /// The recording's bytes, in a file of their own that is read from its beginning; or why they cannot be had.
    fn fetch(&self, entry: &Entry) -> Result<File, String>;
    /// Where its index is kept; none: nowhere.
    fn index(&self, entry: &Entry) -> Option<PathBuf>;
    /// How many bytes it has.
    fn length(&self) -> u64;
}

/// A recording's file.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The session's id.
    pub id: String,
    /// The day, `YYYY-MM-DD`; `.` where it lies in the directory itself.
    pub day: String,
    /// The file.
    pub path: PathBuf,
    /// A tail is beside it: it still runs, or a crash ended it and nobody mended it yet.
    pub runs: bool,
    /// The machine that the cluster has it from; empty: it lies here.
    pub maker: String,
    /// It lies elsewhere: `path` is a name for messages then.
    pub elsewhere: Option<Arc<dyn Elsewhere>>,
}

/// All recordings, by day and id.
pub fn entries(directory: &Path) -> Result<Vec<Entry>, StoreError> {
    let mut all = Vec::new();
    for day in days(directory)? {
        all.extend(of_day(directory, &day)?);
    }
    Ok(all)
}

/// The days that have recordings, the first one first; before them `.`, where some lie in the directory itself.
pub fn days(directory: &Path) -> Result<Vec<String>, StoreError> {
    let names = names(directory).map_err(|e| match e.kind() {
        ErrorKind::NotFound => StoreError::NoDirectory(directory.to_owned()),
        ErrorKind::NotADirectory => StoreError::NotADirectory(directory.to_owned()),
        _ => StoreError::Io(directory.to_owned(), e),
    })?;
    let has_some = names.iter().any(|name| id_of(name).is_some());
    let mut days: Vec<String> = names.into_iter().filter(|name| is_day(name)).collect();
    days.extend(has_some.then(|| NO_DAY.to_owned()));
    days.sort();
    Ok(days)
}

/// The recordings of a day, by id.
pub fn of_day(directory: &Path, day: &str) -> Result<Vec<Entry>, StoreError> {
    let path = match day {
        NO_DAY => directory.to_owned(),
        day => directory.join(day),
    };
    let mut names = match names(&path) {
        Ok(names) => names,
        // It was removed since, or is no directory.
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Vec::new(),
        Err(e) => return Err(StoreError::Io(path, e)),
    };
    names.sort();
    let entry = |name: &String| {
        let id = id_of(name)?;
        let runs = names.binary_search(&format!("{id}.tail")).is_ok();
        Some(Entry {
            path: path.join(name),
            day: day.to_owned(),
            id,
            runs,
            maker: String::new(),
            elsewhere: None,
        })
    };
    Ok(names.iter().filter_map(entry).collect())
}

/// The recording whose id begins so.
pub fn find(directory: &Path, id: &str) -> Result<Entry, StoreError> {
    let mut found: Vec<Entry> = entries(directory)?;
    found.retain(|entry| entry.id.starts_with(id));
    match found.len() {
        0 => Err(StoreError::NotThere(id.to_owned(), directory.to_owned())),
        1 => Ok(found.remove(0)),
        count => {
            let mut names: Vec<String> = found.into_iter().take(NAMED).map(|entry| entry.id).collect();
            if count > NAMED {
                names.push(format!("{} more", count - NAMED));
            }
            Err(StoreError::Several(id.to_owned(), names))
        }
    }
}

impl Entry {
    /// Reads it, with its tail; what is encrypted with these keys.
    pub fn open_with(&self, keys: &Keys) -> Result<FileSource, StoreError> {
        Ok(self.open()?.with_keys(keys.clone()))
    }

    /// Reads it, with its tail.
    pub fn open(&self) -> Result<FileSource, StoreError> {
        self.open_for(1 << 16)
    }

    /// The same, with so much of the file at a time.
    pub(crate) fn open_for(&self, bytes: usize) -> Result<FileSource, StoreError> {
        // First the tail: a block that is closed in between is then in the file, and the tail is one of the block before.
        let tail = match self.runs {
            true => self.tail(),
            false => None,
        };
        let file = self.file()?;
        Source::new(BufReader::with_capacity(bytes, file), tail).map_err(|e| match e {
            ReadError::Fault(_) => StoreError::NotARecording(self.path.clone()),
            ReadError::Io(e) => StoreError::Io(self.path.clone(), e),
        })
    }

    /// Whether a node makes it at this moment: it holds the file's lock. Of one that lies elsewhere nobody knows more than that it
    /// has not ended.
    pub fn is_made(&self) -> bool {
        if self.elsewhere.is_some() {
            return self.runs;
        }
        let file = self.runs.then(|| open(&self.path).ok()).flatten();
        file.is_some_and(|file| lock::try_hold(&Fd::from(OwnedFd::from(file))).is_err())
    }

    /// The same as it is now: it may have ended meanwhile.
    #[must_use]
    pub fn again(&self) -> Entry {
        if self.elsewhere.is_some() {
            return self.clone();
        }
        Entry {
            runs: self.path.with_extension("tail").symlink_metadata().is_ok(),
            ..self.clone()
        }
    }

    /// The file alone.
    pub fn file(&self) -> Result<File, StoreError> {
        match &self.elsewhere {
            None => open(&self.path).map_err(|e| StoreError::Io(self.path.clone(), e)),
            Some(elsewhere) => elsewhere
                .fetch(self)
                .map_err(|why| StoreError::Elsewhere(self.id.clone(), why)),
        }
    }

    /// What is in no block yet. What lies elsewhere has blocks alone.
    pub fn tail(&self) -> Option<Vec<u8>> {
        if self.elsewhere.is_some() {
            return Some(Vec::new());
        }
        read(&self.path.with_extension("tail"), MAX_TAIL).ok()
    }

    /// How long the file is.
    pub fn length(&self) -> u64 {
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.length();
        }
        std::fs::symlink_metadata(&self.path).map_or(0, |data| data.len())
    }

    /// The session's id as bytes.
    pub fn session(&self) -> [u8; 16] {
        let mut session = [0; 16];
        for (at, byte) in session.iter_mut().enumerate() {
            let digits = self.id.get(2 * at..2 * at + 2).unwrap_or_default();
            *byte = u8::from_str_radix(digits, 16).unwrap_or_default();
        }
        session
    }

    /// Its index's file, as it is.
    pub fn index(&self) -> Option<Vec<u8>> {
        read(&self.index_path()?, index::MAX as u64).ok()
    }

    fn index_path(&self) -> Option<PathBuf> {
        match &self.elsewhere {
            None => Some(self.path.with_extension("index")),
            Some(elsewhere) => elsewhere.index(self),
        }
    }

    /// Writes the index's file: whole, or not at all. That it could not is no error: the recording is searched without.
    pub fn write_index(&self, bytes: &[u8]) {
        let path = self.index_path();
        let Some((path, directory)) = path.as_ref().and_then(|path| Some((path, path.parent()?))) else {
            return;
        };
        let temporary = directory.join(format!(".{}.index.{}", self.id, std::process::id()));
        // A new file and no other: what lies there under that name is not ours to write to.
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary);
        let Ok(mut file) = made else {
            return;
        };
        let written = file
            .write_all(bytes)
            .and_then(|()| std::fs::rename(&temporary, path));
        if written.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
    }
}

/// Opens a regular file, and nothing that would wait or lead elsewhere.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)
        .open(path)
        .map_err(|e| match path.is_symlink() {
            true => io::Error::other(
                "this is a symbolic link, and none is followed: name the directory of the recording itself with --directory",
            ),
            false => e,
        })?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("this is no regular file")),
    }
}

/// A file that is not longer than `most`.
fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= most {
        true => Ok(bytes),
        false => Err(ErrorKind::FileTooLarge.into()),
    }
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    let name = |entry: io::Result<DirEntry>| entry.map(|entry| entry.file_name().into_string().ok());
    std::fs::read_dir(directory)?
        .filter_map(|entry| name(entry).transpose())
        .collect()
}

/// The session whose recording is called so.
fn id_of(name: &str) -> Option<String> {
    let id = name.strip_suffix(".rec")?;
    is_id(id).then(|| id.to_owned())
}

fn is_day(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.len() == 10
        && bytes.iter().enumerate().all(|(at, b)| match at {
            4 | 7 => *b == b'-',
            _ => b.is_ascii_digit(),
        })
}

fn is_id(name: &str) -> bool {
    name.len() == DIGITS && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}
