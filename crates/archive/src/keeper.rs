//! The thread that writes. What waits for it is worked off together: parts are checked and written, then each file is
//! flushed once, then the catalogue, and only then is anything answered. So a kill at any moment costs nothing that was
//! acknowledged; what a file holds beyond the catalogue's word for it is written again.
//!
//! System calls for a part that proves something: one pwrite, one fdatasync of its file for all parts of it in the batch, and
//! its share of the catalogue's commit (four pwrites and one fdatasync for the whole batch). The first part of a recording
//! costs eight more: opening two files, a write and a flush of the one that says whose it is, and the flush of the day's
//! directory (open, fsync, close). A part that proves nothing yet makes none, as long as less than 128 KB wait with it.

mod batch;
mod stream;
mod upkeep;

use crate::catalogue::{Catalogue, Row, Sums};
use crate::counts::{Counts, add, set};
use crate::entry::{Key, Place};
use crate::error::Error;
use crate::intake::{Answer, Kept, Maker, Part, Room};
use crate::{Settings, directory};
use batch::{Batch, Waiting};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use stream::Stream;
use tokio::sync::{Notify, mpsc, oneshot};

/// The most pieces of work that are done together.
const MAX_TOGETHER: usize = 256;

/// What there is to do.
pub enum Work {
    /// Take this in.
    Part {
        /// By which way it came.
        stream: u64,
        /// Whose it is.
        maker: Maker,
        /// The part.
        part: Part,
        /// Its room in memory.
        room: Room,
        /// Who waits.
        answer: oneshot::Sender<Kept>,
    },
    /// A stream has ended.
    Gone(u64),
    /// Remove these.
    Remove(Vec<Key>, Waiting),
    /// A recording's bytes are in another place now, or in none.
    Moved {
        /// The recording.
        key: Key,
        /// Where it was.
        was: Place,
        /// Where it is.
        now_at: Place,
        /// It is nowhere.
        is_gone: bool,
        /// Who waits.
        answer: Waiting,
    },
    /// Look what time has done.
    Turn(oneshot::Sender<()>),
}

/// The thread's own.
pub struct Keeper {
    settings: Settings,
    /// For files without a name.
    directory: CString,
    catalogue: Catalogue,
    counts: Arc<Counts>,
    sums: Sums,
    streams: HashMap<u64, Stream>,
    /// Why nothing is taken in, and for how long to wait.
    full: Option<(u32, String)>,
    /// Little is left, and these machines have a large part of it.
    crowders: Vec<String>,
    has_whole: Arc<Notify>,
}

/// What follows from a part.
enum Step {
    /// This is answered.
    Now(Answer),
    /// What is kept is answered, when it is on the disk.
    WhenKept,
}

impl Keeper {
    /// On this catalogue.
    pub fn new(
        settings: Settings,
        catalogue: Catalogue,
        counts: Arc<Counts>,
        has_whole: Arc<Notify>,
    ) -> Result<Keeper, Error> {
        let directory = directory::c_path(&settings.directory)?;
        let sums = catalogue.sums()?;
        let keeper = Keeper {
            settings,
            directory,
            catalogue,
            counts,
            sums,
            streams: HashMap::new(),
            full: None,
            crowders: Vec::new(),
            has_whole,
        };
        keeper.show();
        Ok(keeper)
    }

    /// Works until nobody can ask any more. `is_new`: the catalogue was made just now.
    pub fn run(&mut self, mut waiting: mpsc::Receiver<Work>, is_new: bool) {
        self.adopt_files(is_new);
        self.turn();
        while let Some(first) = waiting.blocking_recv() {
            let mut together = vec![first];
            while together.len() < MAX_TOGETHER
                && let Ok(next) = waiting.try_recv()
            {
                together.push(next);
            }
            self.work(together);
        }
    }

    fn work(&mut self, together: Vec<Work>) {
        let mut batch = Batch::default();
        let (mut parts, mut turns) = (Vec::new(), Vec::new());
        for work in together {
            match work {
                Work::Part {
                    stream,
                    maker,
                    part,
                    room,
                    answer,
                } => {
                    add(&self.counts.parts, 1);
                    let step = self.part(&mut batch, stream, &maker, &part);
                    let key = Key::of(&part.session, &maker.name);
                    // Its bytes go before anything waits for the disk.
                    drop((part, room));
                    parts.push((key, step, answer));
                }
                Work::Gone(stream) => drop(self.streams.remove(&stream)),
                Work::Remove(recordings, answer) => {
                    let done = self.remove(&mut batch, &recordings);
                    batch.removals.push((done, answer));
                }
                Work::Moved {
                    key,
                    was,
                    now_at,
                    is_gone,
                    answer,
                } => {
                    let done = self.moved(&mut batch, &key, (was, now_at), is_gone);
                    batch.removals.push((done, answer));
                }
                Work::Turn(answer) => turns.push(answer),
            }
        }
        let failed = self.commit(&mut batch);
        self.show();
        for (key, step, answer) in parts {
            let answered = match (step, failed.get(&key)) {
                (Step::Now(answered), _) => answered,
                (Step::WhenKept, Some(why)) => Answer::Wait(stream::DISK, why.clone()),
                (Step::WhenKept, None) => self.kept(&key),
            };
            match &answered {
                Answer::Refused(_) => add(&self.counts.refused, 1),
                Answer::Wait(..) => add(&self.counts.postponed, 1),
                _ => {}
            }
            let _ = answer.send(Kept {
                session: key.session,
                answer: answered,
            });
        }
        for entry in batch
            .moved
            .iter()
            .filter(|entry| !failed.contains_key(&entry.key()))
        {
            if let Err(e) = directory::remove(&self.settings.directory, entry) {
                tracing::error!("{e}");
            }
        }
        if !batch.removals.is_empty() {
            self.unlink();
        }
        for (done, answer) in std::mem::take(&mut batch.removals) {
            let failed = || failed.values().next().map(|why| Error::Store(why.clone()));
            let _ = answer.send(done.and_then(|()| failed().map_or(Ok(()), Err)));
        }
        if !turns.is_empty() {
            self.turn();
        }
        for answer in turns {
            let _ = answer.send(());
        }
        self.show();
    }

    /// What is kept of a recording.
    fn kept(&self, key: &Key) -> Answer {
        match self.catalogue.row(key) {
            Ok(Some(row)) if row.entry.whole => Answer::Whole(row.whole()),
            Ok(Some(row)) => Answer::Offset(row.covered.offset),
            Ok(None) => Answer::Offset(0),
            Err(e) => Answer::Wait(stream::DISK, e.to_string()),
        }
    }

    /// Rows to be removed. Their files go when the catalogue says so.
    fn remove(&mut self, batch: &mut Batch, recordings: &[Key]) -> Result<(), Error> {
        let now = (self.settings.now)().max(1);
        for key in recordings {
            if let Some(mut row) = self.row(batch, key)?
                && row.removed == 0
            {
                row.removed = now;
                batch.change(row);
            }
        }
        Ok(())
    }

    /// A recording's bytes are elsewhere now. Where it was removed meanwhile, they go from there too.
    fn moved(
        &mut self,
        batch: &mut Batch,
        key: &Key,
        (was, now_at): (Place, Place),
        is_gone: bool,
    ) -> Result<(), Error> {
        let Some(mut row) = self.row(batch, key)? else {
            return Ok(());
        };
        if row.is_gone || row.entry.place != was {
            return Ok(());
        }
        row.entry.place = now_at;
        row.is_gone = is_gone;
        if was == Place::Directory && now_at == Place::Objects {
            batch.moved.push(row.entry.clone());
        }
        batch.change(row);
        Ok(())
    }

    /// A recording's row, as it is after what this batch did to it.
    fn row(&self, batch: &Batch, key: &Key) -> Result<Option<Row>, Error> {
        match batch.row(key) {
            Some(row) => Ok(Some(row.clone())),
            None => self.catalogue.row(key),
        }
    }

    fn show(&self) {
        let Sums {
            recordings,
            bytes,
            unfinished,
            ..
        } = self.sums;
        set(&self.counts.recordings, recordings);
        set(&self.counts.bytes, bytes);
        set(&self.counts.unfinished, unfinished);
        if self.settings.store.is_some() {
            set(&self.counts.spooled, self.sums.in_directory);
            set(&self.counts.spooled_bytes, self.sums.in_directory_bytes);
            let since = self.catalogue.moves_since().unwrap_or_default();
            set(&self.counts.spooled_since, since);
        }
        let open: usize = self.streams.values().map(Stream::open).sum();
        set(&self.counts.open, open as u64);
        set(
            &self.counts.unproven,
            self.streams.values().map(Stream::unproven).sum(),
        );
        set(&self.counts.full, u64::from(self.full.is_some()));
    }
}
