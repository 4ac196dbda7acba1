//! A copy of the store in one file, made while it is used, and the way back. A copy is never seen half made, and takes
//! no other file's place unless told to.

use super::connect::{self, beside};
use super::fault;
use super::place::{self, Place, private_file, said};
use super::rows::{self, State};
use super::schema::{self, STEPS};
use crate::{Error, Existing, Revision};
use fleetgate_sys::{Errno, exe, tree};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How far a restored store's revision is moved on, as etcd's `--bump-revision` does: what the lost store had come to is
/// unknown, and no revision may mean two things to who remembers one.
pub const RESTORED: u64 = 1_000_000_000;

/// Writes a copy of the whole store in `directory` to the file `to`, mode 0600, and says which revision it is of. Who has
/// the store open, in whatever process, reads and writes on meanwhile.
pub fn backup(directory: &Path, to: &Path, existing: Existing) -> Result<Revision, Error> {
    let from = Place::existing(directory)?.database();
    if is_inside(to, &from) {
        let why = "is in the store's own directory; give another one, best on another disk".to_owned();
        return Err(Error::File(to.to_owned(), why));
    }
    // Said before the work; the rename says it again should one come meanwhile.
    if existing == Existing::Keep && fs::symlink_metadata(to).is_ok() {
        return Err(Error::Exists(to.to_owned()));
    }
    let source = connect::open_to_copy(&from).map_err(|e| fault::told(&from, &e))?;
    let part = Part::new(to)?;
    let copy = part.copy(&from, &source.database)?;
    connect::sound(&from, &copy, false)?;
    let state = rows::state(&copy).map_err(|e| fault::told(to, &e))?;
    part.finish(copy)?;
    part.rename(to, existing)?;
    Ok(state.revision)
}

/// Makes the backup in the file `from` the store in `directory`, and says the revision that it begins at. The store must
/// not be open anywhere. The backup is checked as a whole before anything is replaced; watches begin anew.
pub fn restore(from: &Path, directory: &Path, existing: Existing) -> Result<Revision, Error> {
    let there = fs::metadata(from).map_err(|e| said(from, "could not be read", e))?;
    if !there.is_file() {
        return Err(Error::File(
            from.to_owned(),
            "is no plain file; give a backup's path".to_owned(),
        ));
    }
    let place = Place::new(directory)?;
    let _held = place.hold()?;
    let to = place.database();
    if existing == Existing::Keep && fs::symlink_metadata(&to).is_ok() {
        return Err(Error::Exists(to));
    }
    let source = connect::open_to_read(from).map_err(|e| fault::told(from, &e))?;
    let part = Part::new(&to)?;
    let mut copy = part.copy(from, &source.database)?;
    connect::sound(from, &copy, true)?;
    // An empty file is sound, and no backup.
    if schema::version(&copy, STEPS.len()).map_err(|e| fault::unfit(from, e))? == 0 {
        return Err(Error::Foreign(from.to_owned()));
    }
    schema::migrate(&mut copy, &STEPS).map_err(|e| fault::unfit(&part.path, e))?;
    let revision = begin_anew(&copy).map_err(|e| fault::told(&part.path, &e))?;
    part.finish(copy)?;
    settle(&to)?;
    part.rename(&to, existing)?;
    Ok(revision)
}

/// Whether there is a database in `directory`.
pub fn exists(directory: &Path) -> bool {
    place::database(directory).exists()
}

/// Looks whether the store in `directory` can be read, and is sound. It is not opened for writing, and nothing is mended.
pub fn look(directory: &Path) -> Result<(), Error> {
    let place = Place::existing(directory)?;
    place.check()?;
    let path = place.database();
    let store = connect::open_to_copy(&path).map_err(|e| fault::told(&path, &e))?;
    connect::sound(&path, &store.database, false)?;
    match schema::version(&store.database, STEPS.len()).map_err(|e| fault::unfit(&path, e))? {
        0 => Err(Error::Foreign(path)),
        _ => Ok(()),
    }
}

/// A file that is being written under a name of its own; removed unless it was renamed.
struct Part {
    path: PathBuf,
}

impl Part {
    fn new(to: &Path) -> Result<Part, Error> {
        let [random, _] = exe::random();
        let mut name = OsString::from(to);
        name.push(format!(".{random:016x}.part"));
        let path = PathBuf::from(name);
        private_file(&path, true).map_err(|e| said(&path, "could not be made", e))?;
        Ok(Part { path })
    }

    /// Copies the whole of `source` in one step, so in one moment: a writer's commits come after it.
    fn copy(&self, from: &Path, source: &Connection) -> Result<Connection, Error> {
        let told = |e| fault::told(&self.path, &e);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut copy = Connection::open_with_flags(&self.path, flags).map_err(told)?;
        let step = Backup::new(source, &mut copy).and_then(|backup| backup.step(-1));
        match step.map_err(told)? {
            StepResult::Done => {}
            _ => return Err(Error::Locked(from.to_owned())),
        }
        // The copy says of itself that it has a WAL beside it, as the original: a backup is one file.
        copy.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))
            .map_err(|e| fault::told(from, &e))?;
        Ok(copy)
    }

    /// Closes it and has it on the disk.
    fn finish(&self, copy: Connection) -> Result<(), Error> {
        copy.close().map_err(|(_, e)| fault::told(&self.path, &e))?;
        // The connection is closed: no lock of SQLite's is lost with this descriptor.
        let synced = File::open(&self.path).and_then(|file| file.sync_all());
        synced.map_err(|e| said(&self.path, "could not be written", e))
    }

    /// Gives it its name, for good.
    fn rename(self, to: &Path, existing: Existing) -> Result<(), Error> {
        let (from, target) = (c_path(&self.path)?, c_path(to)?);
        match tree::rename(&from, &target, existing == Existing::Keep) {
            Ok(()) => {}
            Err(Errno::EEXIST) => return Err(Error::Exists(to.to_owned())),
            Err(e) => return Err(said(to, "could not be named", io::Error::from_raw_os_error(e.0))),
        }
        std::mem::forget(self);
        let directory = parent(to);
        let synced = File::open(directory).and_then(|d| d.sync_all());
        synced.map_err(|e| said(directory, "could not be written", e))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(beside(&self.path, "-journal"));
    }
}

/// No watch goes on from before the restore.
fn begin_anew(copy: &Connection) -> rusqlite::Result<Revision> {
    let before = rows::state(copy)?.revision;
    let revision = Revision(before.0.saturating_add(RESTORED));
    rows::forget(copy, before)?;
    rows::set_state(
        copy,
        State {
            revision,
            compacted: revision,
        },
    )?;
    Ok(revision)
}

/// Brings what is in the old database's WAL into it and removes the WAL: it would be taken for the new one's. So nothing
/// of the old store is lost before the rename. An old store that is damaged is only freed of its WAL.
fn settle(old: &Path) -> Result<(), Error> {
    if let Ok(connected) = connect::open(old) {
        let _ = connected.database.close();
    }
    for ending in ["-wal", "-shm"] {
        let path = beside(old, ending);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(said(&path, "could not be removed", e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether `file` is in the same directory as `store`.
fn is_inside(file: &Path, store: &Path) -> bool {
    match (parent(file).canonicalize(), parent(store).canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn c_path(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::File(path.to_owned(), "has a zero byte in its name".to_owned()))
}
