//! What is done beside parts: files that the catalogue does not know, files that are to go, and whether there is room.

use super::Keeper;
use super::batch::Batch;
use crate::entry::{Key, Place};
use crate::error::Error;
use crate::{directory, row};
use fleetgate_sys::file::room;

/// So much of the file system is left alone: auth's state and its audit log are mostly on the same.
const RESERVE: u64 = 1 << 30;
/// And where the file system is small, one part in so many of it.
const RESERVE_PART: u64 = 20;
/// Files that are left alone.
const RESERVE_FILES: u64 = 1000;
/// How long to wait for room, in seconds.
pub(super) const FULL: u32 = 60;
/// A recording that was removed is known for so long, so that its maker does not bring it again.
const KNOWN: u64 = 400 * 86_400;
/// Where so little is left as one part in so many, a machine that has such a part gets no more.
const PARTS: u64 = 4;
/// The most files that are removed at once.
const MOST: usize = 256;

impl Keeper {
    /// Takes the files that the catalogue does not know into it, and removes those that are nowhere any more by its word.
    pub(super) fn adopt_files(&mut self, is_new: bool) {
        let files = match directory::all(&self.settings.directory) {
            Ok(files) => files,
            Err(e) => return tracing::error!("{e}"),
        };
        if is_new && !files.is_empty() {
            tracing::warn!(
                files = files.len(),
                "the catalogue of recordings is made anew from their files"
            );
        }
        let mut batch = Batch::default();
        for found in files {
            let source = directory::source(&self.settings.directory, &found);
            // Whose it is cannot be read, and somebody's of this session is known: it is that one's file, or nobody's.
            if source.is_empty() && self.catalogue.has_session(&found.session).unwrap_or(true) {
                tracing::warn!("{}: whose recording it is cannot be read", found.path.display());
                continue;
            }
            let key = Key::of(&found.session, &source);
            match self.catalogue.row(&key) {
                Ok(None) => {}
                Ok(Some(known)) => {
                    // A kill came between the catalogue's word and the file's end.
                    if known.removed == 0
                        && known.entry.place == Place::Objects
                        && let Err(e) = directory::remove(&self.settings.directory, &known.entry)
                    {
                        tracing::error!("{e}");
                    }
                    continue;
                }
                Err(e) => return tracing::error!("{e}"),
            }
            match row::scan(&found) {
                Ok(Some(row)) => batch.change(row),
                Ok(None) => tracing::warn!(
                    "{}: nothing of it is proven: it does not count",
                    found.path.display()
                ),
                Err(e) => tracing::error!("{e}"),
            }
            if batch.len() >= MOST {
                self.commit(&mut batch);
                batch = Batch::default();
            }
        }
        self.commit(&mut batch);
        self.show();
    }

    /// Removes the files of recordings that were removed.
    pub(super) fn unlink(&mut self) {
        loop {
            let gone = match self.catalogue.to_unlink(Place::Directory, MOST) {
                Ok(rows) => rows,
                Err(e) => return tracing::error!("{e}"),
            };
            let mut batch = Batch::default();
            for mut row in gone {
                match directory::remove(&self.settings.directory, &row.entry) {
                    Ok(()) => {
                        // It may be on its way to the store just now, or there already without the catalogue's knowing.
                        match row.entry.whole && self.settings.store.is_some() {
                            true => row.entry.place = Place::Objects,
                            false => row.is_gone = true,
                        }
                        batch.change(row);
                    }
                    Err(e) => tracing::error!("{e}"),
                }
            }
            let done = batch.len();
            if done == 0 || !self.commit(&mut batch).is_empty() {
                return;
            }
        }
    }

    /// What time has done.
    pub(super) fn turn(&mut self) {
        self.unlink();
        let now = (self.settings.now)();
        if let Err(e) = self.catalogue.forget(now.saturating_sub(KNOWN)) {
            tracing::error!("{e}");
        }
        let full = self.why_full();
        if let Some((_, why)) = &full
            && self.full.is_none()
        {
            tracing::error!("no recordings are taken in: {why}");
        }
        self.full = full;
        self.crowders = self.crowders().unwrap_or_else(|e| {
            tracing::error!("{e}");
            Vec::new()
        });
    }

    /// Where three quarters of `max_size` are used: the machines that have one of them. So one alone does not keep the others out.
    fn crowders(&self) -> Result<Vec<String>, Error> {
        let most = self.settings.retention.max_size;
        match most > 0 && self.sums.bytes > most / PARTS * (PARTS - 1) {
            true => self.catalogue.sources_beyond(most / PARTS),
            false => Ok(Vec::new()),
        }
    }

    fn why_full(&self) -> Option<(u32, String)> {
        let most = self.settings.retention.max_size;
        if most > 0 && self.sums.bytes > most {
            return Some((
                FULL,
                format!(
                    "auth has more recordings than `max_size` in [auth.recordings] allows ({most} bytes)"
                ),
            ));
        }
        let room = room(&self.directory).ok()?;
        let reserve = RESERVE.min(room.bytes / RESERVE_PART);
        let has_files = room.files == 0 || room.files_left > RESERVE_FILES.min(room.files / RESERVE_PART);
        (room.bytes_left < reserve || !has_files).then(|| (FULL, "auth's disk is nearly full".to_owned()))
    }
}
