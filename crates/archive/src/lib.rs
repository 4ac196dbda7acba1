//! The recordings that a cluster keeps (docs/recording.md): taken in from the machines that made them, kept in a directory,
//! moved to an object store where there is one, found, read and removed again. It knows nobody's permissions and tells no
//! audit events: its caller does both.
//!
//! One thread (`keeper`) writes. What comes in is checked before it is written: the chain of hashes, and the signatures of the
//! machine that it came from (`checker`). So a file holds nothing that its maker did not sign, but for what stands between
//! the blocks that a signature covers and the signature itself.
//!
//! *What is acknowledged.* An answer's offset is where the blocks end that the last signature covers. The signature itself
//! stands behind them, and is written too, but only a later signature covers it; so the offset stays before it until then.
//! Of a recording that has ended all is acknowledged, the last signature included. Each part has exactly one answer. A part
//! may begin where the one before it on the same stream ended, at the acknowledged offset, or where the file ends; any other
//! is answered with the acknowledged offset, and what was not acknowledged is forgotten.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

mod catalogue;
pub mod checker;
mod counts;
mod directory;
mod entry;
mod error;
mod intake;
mod keeper;
mod moving;
mod objects;
mod reading;
mod retention;
mod row;
pub mod settings;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod trouble;
mod unproven;

pub use counts::Counts;
pub use directory::prepare;
pub use entry::{Entry, Key, Mark, PAGE, Place, Query};
pub use error::Error;
pub use intake::{Answer, Intake, Kept, MAX_OPEN, Maker, Part, SpeaksFor, Whole};
pub use reading::Reader;
pub use retention::{Removal, Retention};
pub use trouble::store_trouble;

use catalogue::Catalogue;
use keeper::{Keeper, Work};
use objects::Objects;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};

/// The directory's name below auth's own.
pub const DIRECTORY: &str = "recordings";
/// Parts that wait for the thread that writes.
const MAX_QUEUED: usize = 1024;
/// Bytes of parts in memory, of all streams together.
const MAX_IN_FLIGHT: usize = 32 << 20;
/// Pages of the catalogue that are read at once: each has a connection of its own.
const MAX_READERS: usize = 8;

/// Unix seconds, as the service has them.
pub type Now = Arc<dyn Fn() -> u64 + Send + Sync>;

/// How recordings are kept.
#[derive(Clone)]
pub struct Settings {
    /// Where.
    pub directory: PathBuf,
    /// For how long, and how many bytes.
    pub retention: Retention,
    /// Where whole ones go, if anywhere.
    pub store: Option<settings::Store>,
    /// The time.
    pub now: Now,
}

/// What an archive holds, as another process sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Recordings.
    pub recordings: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whole ones in the directory.
    pub in_directory: u64,
    /// Their bytes.
    pub in_directory_bytes: u64,
    /// When the oldest of them came, Unix seconds; 0: there is none.
    pub in_directory_since: u64,
}

/// Looks at an archive that a service has open: where none has, SQLite would make files that the service cannot use.
pub fn held(directory: &Path) -> Result<Held, Error> {
    let catalogue = Catalogue::reader(directory)?;
    let sums = catalogue.sums()?;
    Ok(Held {
        recordings: sums.recordings,
        bytes: sums.bytes,
        in_directory: sums.in_directory,
        in_directory_bytes: sums.in_directory_bytes,
        in_directory_since: catalogue.moves_since()?,
    })
}

/// All recordings of a cluster. Copies are the same archive.
#[derive(Clone)]
pub struct Archive(Arc<Inner>);

struct Inner {
    settings: Settings,
    work: mpsc::Sender<Work>,
    counts: Arc<Counts>,
    in_flight: Arc<Semaphore>,
    readers: Semaphore,
    objects: Option<Objects>,
    /// A recording became whole, or was removed.
    has_whole: Arc<Notify>,
}

impl Archive {
    /// Opens it, and makes its directory where there is none. A catalogue that is missing or damaged is made anew from the
    /// files, which takes its time; until then parts wait.
    pub fn open(settings: Settings) -> Result<Archive, Error> {
        directory::prepare(&settings.directory)?;
        let (catalogue, is_new) = Catalogue::open(&settings.directory)?;
        let objects = settings.store.as_ref().map(Objects::new).transpose()?;
        let (counts, has_whole) = (Arc::new(Counts::default()), Arc::new(Notify::new()));
        let (work, waiting) = mpsc::channel(MAX_QUEUED);
        let mut keeper = Keeper::new(settings.clone(), catalogue, counts.clone(), has_whole.clone())?;
        std::thread::Builder::new()
            .name("recordings".to_owned())
            .spawn(move || keeper.run(waiting, is_new))
            .map_err(|e| Error::Io(settings.directory.clone(), e.to_string()))?;
        Ok(Archive(Arc::new(Inner {
            settings,
            work,
            counts,
            in_flight: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
            readers: Semaphore::new(MAX_READERS),
            objects,
            has_whole,
        })))
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.0.settings.directory
    }

    /// What it counts.
    pub fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// Those that are wanted, from behind `after` on, in the order in which they began: at most [`PAGE`].
    pub async fn list(&self, query: &Query, after: Option<Mark>) -> Result<Vec<Entry>, Error> {
        let query = query.clone();
        self.catalogue(move |catalogue| catalogue.list(&query, after))
            .await
    }

    /// The one whose id begins so.
    pub async fn find(&self, prefix: &str) -> Result<Entry, Error> {
        let prefix = prefix.to_ascii_lowercase();
        self.catalogue(move |catalogue| catalogue.find(&prefix)).await
    }

    /// Its bytes, from `offset` on.
    pub async fn read(&self, entry: &Entry, offset: u64) -> Result<Reader, Error> {
        if entry.whole {
            return Reader::open(&self.0, entry, offset, entry.bytes).await;
        }
        let key = entry.key();
        let row = self.catalogue(move |catalogue| catalogue.row(&key)).await?;
        let covered = row.map_or(0, |row| row.covered.offset);
        Reader::open(&self.0, entry, offset, covered).await
    }

    /// Removes one. What its maker still has of it is not taken in again.
    pub async fn delete(&self, key: &Key) -> Result<Entry, Error> {
        let (key, id) = (key.clone(), entry::name(&key.session));
        let wanted = key.clone();
        let row = self.catalogue(move |catalogue| catalogue.row(&wanted)).await?;
        let row = row.filter(|row| row.removed == 0).ok_or(Error::Missing(id))?;
        self.ask(|answer| Work::Remove(vec![key], answer)).await??;
        Ok(row.entry)
    }

    /// What has to go now by age or size; the caller tells the audit log, and then calls [`Archive::remove`].
    pub async fn due(&self) -> Result<Vec<Removal>, Error> {
        let (retention, now) = (self.0.settings.retention, (self.0.settings.now)());
        self.catalogue(move |catalogue| catalogue.due(&retention, now))
            .await
    }

    /// Removes what was due.
    pub async fn remove(&self, removal: Removal) -> Result<(), Error> {
        self.ask(|answer| Work::Remove(removal.recordings, answer))
            .await?
    }

    /// Looks what time has done; to be called every few seconds.
    pub async fn turn(&self) -> Result<(), Error> {
        self.ask(Work::Turn).await
    }

    /// Reads the catalogue, by a connection of its own.
    async fn catalogue<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Catalogue) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let _place = self.0.readers.acquire().await.map_err(|_| Error::Closed)?;
        let directory = self.0.settings.directory.clone();
        let reading = tokio::task::spawn_blocking(move || read(&Catalogue::reader(&directory)?));
        reading.await.unwrap_or(Err(Error::Closed))
    }

    async fn ask<T>(&self, work: impl FnOnce(oneshot::Sender<T>) -> Work) -> Result<T, Error> {
        let (answer, done) = oneshot::channel();
        let sent = self.0.work.send(work(answer)).await;
        sent.map_err(|_| Error::Closed)?;
        done.await.map_err(|_| Error::Closed)
    }
}
