//! Backups: the state and the audit log in a directory of their own, made while the service runs, and put back while it
//! does not. A backup holds the authorities' keys, so it is its owner's alone.

use crate::audit::{self, Event};
use crate::book;
use crate::caller::Caller;
use crate::clock::Clock;
use crate::documents::{Document, Serial};
use crate::error::{Refused, Result};
use crate::init::{AUDIT_FILE, local, open_audit};
use crate::ledger::Ledger;
use crate::service::Service;
use fleetgate_proto::v1;
use fleetgate_store::sqlite::{Existing, Sqlite, restore as restore_state};
use fleetgate_store::{Error as StoreError, Outcome, Step, Store};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The state in a backup's directory; the audit log has the name that it has in the service's.
const STATE_FILE: &str = "state.db";

impl Service {
    /// Copies state and audit log into a directory that is made for them: it is there whole or not at all.
    pub async fn backup(&self, caller: &Caller, path: &str) -> Result<v1::BackupReply> {
        let to = Path::new(path);
        let (Some(file), true) = (self.file.get(), to.is_absolute() && to.file_name().is_some()) else {
            return Err(Refused::invalid(
                "a backup goes to an absolute path on the auth service's machine, and that is a directory that is made for it",
            ));
        };
        if fs::symlink_metadata(to).is_ok() {
            return Err(Refused::exists(format!(
                "{path} is there already: give a backup a path of its own"
            )));
        }
        let part = Part::new(to).map_err(|e| said(to, &e))?;
        file.backup(&part.0.join(STATE_FILE), Existing::Keep).await?;
        self.ledger.audit().copy(&part.0.join(AUDIT_FILE)).await?;
        let bytes = size(&part.0).map_err(|e| said(to, &e))?;
        part.rename(to).map_err(|e| said(to, &e))?;
        let event = self
            .event("backup", caller)
            .with("path", path)
            .with("bytes", bytes);
        self.ledger.tell(event).await?;
        Ok(v1::BackupReply { bytes })
    }
}

/// Puts a backup into the directory of a service that is not running. What is there is replaced only if told to. The
/// state's number goes on above every one that was published since, so that proxies and nodes take it for the newer one.
pub async fn restore(backup: &Path, directory: &Path, replace: bool, clock: Arc<dyn Clock>) -> Result<()> {
    let existing = match replace {
        true => Existing::Replace,
        false => Existing::Keep,
    };
    let from = backup.join(AUDIT_FILE);
    // Looked at before anything is replaced.
    audit::check(&from)?;
    restore_state(&backup.join(STATE_FILE), directory, existing)?;
    // The store is ours while it is open, so nobody has the audit log open either.
    let store = Arc::new(Sqlite::open(directory)?);
    put_audit(&from, &directory.join(AUDIT_FILE)).map_err(|e| {
        Refused::unavailable(format!(
            "{}: {e}: the state is restored, the audit log is not: restore again with --replace",
            directory.display()
        ))
    })?;
    let shared: Arc<dyn Store> = store;
    next_serial(&*shared, clock.millis()).await?;
    let log = open_audit(directory, audit::DEFAULT_SIZE, clock.clone())?;
    let (ledger, _follower) = Ledger::open(shared, log, clock.clone()).await?;
    let event = Event::new("restored", clock.millis())
        .with("by", local().by())
        .with("from", backup.to_string_lossy().as_ref());
    ledger.tell(event).await
}

async fn next_serial(store: &dyn Store, now_ms: u64) -> Result<()> {
    let at = book::key(&["serial"]);
    let entry = store.get(&at).await?;
    let before = entry
        .as_ref()
        .and_then(|e| Serial::read(&e.value).ok())
        .unwrap_or_default();
    let serial = Serial {
        serial: now_ms.max(before.serial + 1),
    };
    let steps: Vec<Step> = vec![book::replace(at, entry.map(|e| e.revision), &serial)];
    match store.transact(steps).await? {
        Outcome::Done(_) => Ok(()),
        Outcome::Conflict(_) => Err(StoreError::Broken("a restored store that somebody else writes").into()),
    }
}

/// Copies the audit log into its place: whole, or what was there stays.
fn put_audit(from: &Path, to: &Path) -> io::Result<()> {
    let new = to.with_extension("db.part");
    let _ = fs::remove_file(&new);
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    io::copy(&mut File::open(from)?, &mut out)?;
    out.sync_all()?;
    // What belongs to the old one would be taken for the new one's.
    for ending in ["db-wal", "db-shm"] {
        match fs::remove_file(to.with_extension(ending)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    fs::rename(&new, to)?;
    sync(to)
}

/// A backup that is being made, beside the place where it will be.
struct Part(PathBuf);

impl Part {
    fn new(to: &Path) -> io::Result<Part> {
        let mut name = to.as_os_str().to_owned();
        name.push(format!(".part{}", fleetgate_sys::process::id()));
        let path = PathBuf::from(name);
        // Left behind by a backup that was cut off.
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Part(path))
    }

    fn rename(self, to: &Path) -> io::Result<()> {
        File::open(&self.0)?.sync_all()?;
        fs::rename(&self.0, to)?;
        sync(to)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Renamed: then it is not there.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sync(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn size(directory: &Path) -> io::Result<u64> {
    let files = fs::read_dir(directory)?;
    files.map(|file| Ok(file?.metadata()?.len())).sum()
}

fn said(path: &Path, error: &io::Error) -> Refused {
    Refused::unavailable(format!("{}: {error}; nothing was made", path.display()))
}
