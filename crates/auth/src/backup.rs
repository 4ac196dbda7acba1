//! Backups: the state and the audit log in a directory of their own, made while the service runs, and put back while it
//! does not. A backup holds the authorities' keys, so it is its owner's alone.

use crate::audit::{self, Event, event};
use crate::cache;
use crate::caller::{Caller, CallerProof};
use crate::clock::Clock;
use crate::documents::{Document, Serial};
use crate::error::{Refused, Result};
use crate::init::{AUDIT_FILE, local, open_audit};
use crate::ledger::Ledger;
use crate::service::Service;
use fleetgate_policy::cluster::Name;
use fleetgate_proto::v1;
use fleetgate_store::{Address, Error as StoreError, Existing, Outcome, Step, Store};
use fleetgate_sys::file::flags::{O_DIRECTORY, O_NOFOLLOW};
use fleetgate_sys::{Errno, process, tree};
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The state in a backup's directory; the audit log has the name that it has in the service's.
const STATE_FILE: &str = "state.db";
/// The longest path that a kernel takes.
const MAX_PATH: usize = 4096;

impl Service {
    /// Whoever made a backup on this machine says so, before it has its name: none is without its event.
    pub async fn backed_up(&self, caller: &Caller, request: &v1::BackedUpRequest) -> Result<()> {
        let CallerProof::Local(_) = caller.who else {
            return Err(Refused::forbidden(
                "a backup is made on the auth service's machine, by the user that it runs as",
            ));
        };
        if request.path.len() > MAX_PATH {
            return Err(Refused::invalid("the path of a backup is longer than any may be"));
        }
        let event = self
            .event(event::BACKUP, caller)
            .with("path", request.path.as_str())
            .with("bytes", request.bytes);
        self.ledger.tell(event).await
    }
}

/// What a restored state says of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Its name.
    pub cluster: Name,
    /// Where its proxies are, `host:port`.
    pub proxies: Vec<String>,
}

/// State and audit log of a service, copied; they go again unless they are kept.
pub struct Copied {
    part: Part,
    to: PathBuf,
    bytes: u64,
}

/// Copies the state, and the audit log from a service's directory, whether it runs or not, for a directory `to` that is made for
/// them. The service itself opens no file but its own, so whoever may read those writes the copy.
pub fn copy(directory: &Path, state: &Address, to: &Path) -> Result<Copied> {
    if !to.is_absolute() || to.file_name().is_none() {
        return Err(Refused::invalid(format!(
            "{}: a backup is a directory that is made for it: give its absolute path",
            to.display()
        )));
    }
    let found = fs::symlink_metadata(directory).map_err(|e| {
        Refused::unavailable(format!(
            "the auth service's directory {}: {e}; run this on auth's machine, where --state or --config says which one",
            directory.display()
        ))
    })?;
    let us = process::effective_uid();
    if found.uid() != us {
        return Err(Refused::forbidden(format!(
            "{} is of the user {}, and this is the user {us}: a backup is made by the user that the auth service runs as",
            directory.display(),
            found.uid()
        )));
    }
    if fs::symlink_metadata(to).is_ok() {
        return Err(Refused::exists(format!(
            "{} is there already: give a backup a path of its own",
            to.display()
        )));
    }
    let part = Part::new(to)?;
    state
        .backup(&part.path.join(STATE_FILE), Existing::Keep)
        .map_err(|e| Refused::of_store(&e))?;
    audit::copy(&directory.join(AUDIT_FILE), &part.path.join(AUDIT_FILE))?;
    let bytes = size(&part.path).map_err(|e| said(to, &e))?;
    Ok(Copied {
        part,
        to: to.to_owned(),
        bytes,
    })
}

impl Copied {
    /// How many they are.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the backup its name: it is there whole from then on.
    pub fn keep(self) -> Result<()> {
        self.part.rename(&self.to)
    }
}

/// Puts a backup into the directory of a service that is not running. What is there is replaced only if told to. The
/// state's number goes on above every one that was published since, so that proxies and nodes take it for the newer one.
pub async fn restore(
    backup: &Path,
    directory: &Path,
    to: &Address,
    replace: bool,
    clock: Arc<dyn Clock>,
) -> Result<Restored> {
    let existing = match replace {
        true => Existing::Replace,
        false => Existing::Keep,
    };
    let from = backup.join(AUDIT_FILE);
    let state = backup.join(STATE_FILE);
    for file in [&state, &from] {
        if !file.is_file() {
            return Err(Refused::invalid(format!(
                "{} is no backup of fleetgate's: {} is not there",
                backup.display(),
                file.display()
            )));
        }
    }
    // Looked at before anything is replaced.
    audit::check(&from)?;
    to.restore(&state, existing).map_err(|e| match e {
        StoreError::Corrupt(path, why) if path == state => Refused::invalid(format!(
            "the backup {} is damaged: {why}; nothing was changed, take another backup",
            path.display()
        )),
        StoreError::Foreign(path) if path == state => Refused::invalid(format!(
            "{} is no store of fleetgate's, or is damaged; nothing was changed, take another backup",
            path.display()
        )),
        e => Refused::of_store(&e),
    })?;
    // The store is ours while it is open, so nobody has the audit log open either.
    let store = to.open().map_err(|e| Refused::of_store(&e))?;
    put_audit(&from, &directory.join(AUDIT_FILE)).map_err(|e| {
        Refused::unavailable(format!(
            "{}: {e}: the state is restored, the audit log is not: restore again with --replace",
            directory.display()
        ))
    })?;
    next_serial(&*store, clock.millis()).await?;
    let log = open_audit(directory, audit::DEFAULT_SIZE, clock.clone())?;
    let (ledger, _follower) = Ledger::open(store, log, clock.clone()).await?;
    let restored = ledger.cache().cluster.as_ref().map(|stored| Restored {
        cluster: stored.document.name.clone(),
        proxies: stored.document.proxies.clone(),
    });
    let event = Event::new(event::RESTORED, clock.millis())
        .with("by", local().by())
        .with("from", backup.to_string_lossy().as_ref());
    ledger.tell(event).await?;
    restored.ok_or_else(|| Refused::unavailable("the backup holds no cluster: take another one"))
}

async fn next_serial(store: &dyn Store, now_ms: u64) -> Result<()> {
    let at = cache::key(&["serial"]);
    let entry = store.get(&at).await?;
    let before = entry
        .as_ref()
        .and_then(|e| Serial::read(&e.value).ok())
        .unwrap_or_default();
    let serial = Serial {
        serial: now_ms.max(before.serial + 1),
    };
    let steps: Vec<Step> = vec![cache::replace(at, entry.map(|e| e.revision), &serial)];
    match store.transact(steps).await? {
        Outcome::Done(_) => Ok(()),
        Outcome::Conflict(_) => Err(StoreError::Broken("a restored store that somebody else writes").into()),
    }
}

/// Copies the audit log into its place: whole, or what was there stays.
fn put_audit(from: &Path, to: &Path) -> io::Result<()> {
    let new = to.with_extension("db.part");
    // The state may be elsewhere, so that nobody has made it yet.
    if let Some(directory) = to.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
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

/// A backup that is being made, beside the place where it will be: this user's alone, and of one backup at a time.
struct Part {
    path: PathBuf,
    /// Locked while it is ours.
    directory: File,
    /// It has another name.
    named: bool,
}

impl Part {
    fn new(to: &Path) -> Result<Part> {
        let mut name = to.as_os_str().to_owned();
        name.push(".part");
        let path = PathBuf::from(name);
        match DirBuilder::new().mode(0o700).create(&path) {
            // Left behind by a backup that was cut off, or of one that is being made.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(|e| said(&path, &e))?,
        }
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags(O_DIRECTORY | O_NOFOLLOW)
            .open(&path)
            .map_err(|e| said(&path, &e))?;
        let found = directory.metadata().map_err(|e| said(&path, &e))?;
        if found.uid() != process::effective_uid() || found.mode() & 0o077 != 0 {
            return Err(Refused::forbidden(format!(
                "{} is not this user's alone: remove it, or back up to another path",
                path.display()
            )));
        }
        match directory.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Refused::busy(format!(
                    "{} is being written by another backup: wait for it, or back up to another path",
                    path.display()
                )));
            }
            Err(TryLockError::Error(e)) => return Err(said(&path, &e)),
        }
        let part = Part {
            path,
            directory,
            named: false,
        };
        part.clear().map_err(|e| said(&part.path, &e))?;
        Ok(part)
    }

    /// Removes what a backup that was cut off left.
    fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }

    fn rename(mut self, to: &Path) -> Result<()> {
        let failed = |e: &io::Error| said(to, e);
        // Whoever owns the directory above may have put another one in its place.
        let (ours, there) = (
            self.directory.metadata().map_err(|e| failed(&e))?,
            fs::symlink_metadata(&self.path).map_err(|e| failed(&e))?,
        );
        if (ours.dev(), ours.ino()) != (there.dev(), there.ino()) {
            return Err(Refused::unavailable(format!(
                "{} was replaced while the backup was written: give it a directory that nobody else may change",
                self.path.display()
            )));
        }
        self.directory.sync_all().map_err(|e| failed(&e))?;
        let name = |path: &Path| {
            CString::new(path.as_os_str().as_bytes())
                .map_err(|_| Refused::invalid(format!("{}: a zero byte in a path", path.display())))
        };
        match tree::rename(&name(&self.path)?, &name(to)?, true) {
            Ok(()) => self.named = true,
            Err(Errno::EEXIST) => {
                return Err(Refused::exists(format!("{} came meanwhile", to.display())));
            }
            Err(e) => return Err(failed(&io::Error::from_raw_os_error(e.0))),
        }
        sync(to).map_err(|e| {
            Refused::unavailable(format!(
                "{}: {e}; the backup is there, and a crash may take it yet",
                to.display()
            ))
        })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.named {
            let _ = fs::remove_dir_all(&self.path);
        }
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
