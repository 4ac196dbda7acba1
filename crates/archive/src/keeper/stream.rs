//! Taking a part in: which recording of its stream it goes on with, whether it is right, and what of it is proven now.

use super::batch::Batch;
use super::upkeep::FULL;
use super::{Keeper, Step};
use crate::catalogue::Row;
use crate::checker::{Checker, Point, Proof};
use crate::counts::add;
use crate::entry::Key;
use crate::error::Error;
use crate::intake::{Answer, MAX_OPEN, Maker, Part};
use crate::unproven::Unproven;
use crate::{directory, row};
use fleetgate_sys::file::{read_at, truncate};
use fleetgate_sys::{Errno, Fd, tree};
use std::cell::Cell;
use std::collections::HashMap;

/// How long to wait when the disk does not do it, in seconds.
pub const DISK: u32 = 30;
/// The same where a signature is of a key that its machine is not known to have.
const OTHER_KEY: u32 = 600;
/// The same where a stream has as many as it may.
const BUSY: u32 = 5;
/// The most bytes of a recording that no signature covers. A recording that runs is signed each second.
const MAX_UNPROVEN: u64 = 128 << 20;
/// The same of all recordings of a stream.
const MAX_UNPROVEN_OF_STREAM: u64 = 256 << 20;
/// The most recordings of a stream of which so much waits that it is in a file.
const MAX_FILES_OF_STREAM: usize = 16;
/// The most of all streams: each is a descriptor.
const MAX_FILES: usize = 256;
/// The most bytes of all streams that wait in memory.
const MAX_IN_MEMORY: u64 = 64 << 20;
/// What stands behind the proven part of a file is read again up to this length.
const MAX_BEHIND: u64 = 8 << 20;

/// Recordings that come in by one way.
#[derive(Default)]
pub struct Stream {
    uploads: HashMap<Key, Upload>,
    unproven: u64,
    /// So many of these are in memory.
    in_memory: u64,
    files: usize,
}

/// A recording that comes in.
struct Upload {
    checker: Checker,
    unproven: Unproven,
}

impl Stream {
    /// How many recordings come in.
    pub fn open(&self) -> usize {
        self.uploads.len()
    }

    /// How many bytes wait for a signature.
    pub fn unproven(&self) -> u64 {
        self.unproven
    }

    /// Forgets what is not proven of a recording.
    pub fn close(&mut self, key: &Key) {
        drop(self.take(key));
    }

    fn take(&mut self, key: &Key) -> Option<Upload> {
        let upload = self.uploads.remove(key)?;
        self.unproven -= upload.unproven.len();
        self.in_memory -= upload.unproven.in_memory();
        self.files -= usize::from(upload.unproven.has_file());
        Some(upload)
    }

    fn put(&mut self, key: Key, upload: Upload) {
        self.unproven += upload.unproven.len();
        self.in_memory += upload.unproven.in_memory();
        self.files += usize::from(upload.unproven.has_file());
        self.uploads.insert(key, upload);
    }

    /// Makes room for one more: one that rests can go on later where its file ends. False: all of them are in the middle.
    fn make_room(&mut self) -> bool {
        if self.uploads.len() < MAX_OPEN {
            return true;
        }
        let resting = self.uploads.iter().find(|(_, upload)| upload.rests());
        let Some(key) = resting.map(|(key, _)| key.clone()) else {
            return false;
        };
        self.close(&key);
        true
    }
}

impl Upload {
    /// Nothing came since the last proof.
    fn rests(&self) -> bool {
        self.checker
            .proof()
            .is_some_and(|proof| proof.length == self.checker.next())
    }
}

fn start() -> Point {
    Point {
        offset: 0,
        blocks: 0,
        chain: [0; 32],
        last: 0,
        ended: false,
    }
}

impl Keeper {
    pub(super) fn part(&mut self, batch: &mut Batch, stream: u64, maker: &Maker, part: &Part) -> Step {
        let taken = self.take_in(batch, stream, maker, part);
        taken.unwrap_or_else(|e| {
            self.close(stream, &Key::of(&part.session, &maker.name));
            Step::Now(Answer::Wait(DISK, format!("auth's disk: {e}")))
        })
    }

    fn close(&mut self, stream: u64, key: &Key) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.close(key);
        }
    }

    fn take_in(&mut self, batch: &mut Batch, stream: u64, maker: &Maker, part: &Part) -> Result<Step, Error> {
        let key = Key::of(&part.session, &maker.name);
        let row = self.row(batch, &key)?;
        if let Some(answer) = row.as_ref().and_then(decided) {
            self.close(stream, &key);
            return Ok(Step::Now(answer));
        }
        if part.bytes.is_empty() {
            self.close(stream, &key);
            return Ok(Step::WhenKept);
        }
        if let Some((seconds, why)) = &self.full {
            let answer = Answer::Wait(*seconds, why.clone());
            self.close(stream, &key);
            return Ok(Step::Now(answer));
        }
        if self.crowders.contains(&maker.name) {
            let why = format!(
                "little is left of `max_size`, and {} has a quarter of it",
                maker.name
            );
            self.close(stream, &key);
            return Ok(Step::Now(Answer::Wait(FULL, why)));
        }
        let known = self.streams.entry(stream).or_default().take(&key);
        let upload = match known {
            Some(upload) if upload.checker.next() == part.offset => Some(upload),
            _ => self.resume(row.as_ref(), &part.session, part.offset, maker)?,
        };
        let Some(mut upload) = upload else {
            return Ok(Step::WhenKept);
        };
        if let Some(step) = self.bounds(stream, &upload, part) {
            return Ok(step);
        }
        let failed = |e: Errno| Error::Io(self.settings.directory.clone(), e.to_string());
        upload
            .unproven
            .push(&part.bytes, &self.directory)
            .map_err(failed)?;
        let is_unknown = Cell::new(false);
        let check = |text: &str, signature: &[u8]| {
            let signed = maker.signed(text, signature);
            is_unknown.set(signed.is_err() && maker.has_not_the_key_of(text, signature));
            signed
        };
        if let Err(refusal) = upload.checker.feed(&part.bytes, &check) {
            // A machine that has other host keys than before says so when it renews its certificates.
            return Ok(Step::Now(match is_unknown.get() {
                true => Answer::Wait(OTHER_KEY, refusal.to_string()),
                false => Answer::Refused(refusal.to_string()),
            }));
        }
        let is_whole = self.prove(batch, row, maker, &mut upload)?;
        if part.whole && !is_whole {
            return Ok(Step::Now(Answer::Refused(
                "it ends, and no signature covers an end: it is cut off, or not signed".to_owned(),
            )));
        }
        if !is_whole {
            self.streams.entry(stream).or_default().put(key, upload);
        }
        Ok(Step::WhenKept)
    }

    /// Goes on with a recording where its proven part ends, or where its file does; nothing: the part is another place's.
    fn resume(
        &self,
        row: Option<&Row>,
        session: &[u8; 16],
        offset: u64,
        maker: &Maker,
    ) -> Result<Option<Upload>, Error> {
        let Some(row) = row else {
            let upload = || Upload {
                checker: Checker::new(*session),
                unproven: Unproven::at(0),
            };
            return Ok((offset == 0).then(upload));
        };
        let covered = row.covered;
        let mut upload = Upload {
            checker: Checker::resume(*session, covered, maker.last_keys()),
            unproven: Unproven::at(covered.offset),
        };
        let behind = row.entry.bytes.saturating_sub(covered.offset);
        if offset == covered.offset {
            return Ok(Some(upload));
        }
        if offset != row.entry.bytes || behind > MAX_BEHIND {
            return Ok(None);
        }
        // Its signatures were verified when it came, and say now which key the next ones may leave out.
        let file = directory::open(&self.settings.directory, &row.entry)?;
        let mut bytes = vec![0; usize::try_from(behind).unwrap_or(0)];
        let mut done = 0;
        while done < bytes.len() {
            let failed = |e: Errno| Error::Io(self.settings.directory.clone(), e.to_string());
            match read_at(file.raw(), &mut bytes[done..], covered.offset + done as u64).map_err(failed)? {
                0 => return Ok(None),
                n => done += n,
            }
        }
        let failed = |e: Errno| Error::Io(self.settings.directory.clone(), e.to_string());
        upload.unproven.push(&bytes, &self.directory).map_err(failed)?;
        let check = |text: &str, signature: &[u8]| maker.signed(text, signature);
        let fits = upload.checker.feed(&bytes, &check).is_ok();
        Ok(fits.then_some(upload))
    }

    /// What is answered where a bound is reached.
    fn bounds(&mut self, stream: u64, upload: &Upload, part: &Part) -> Option<Step> {
        let files: usize = self.streams.values().map(|stream| stream.files).sum();
        let in_memory: u64 = self.streams.values().map(|stream| stream.in_memory).sum();
        let stream = self.streams.entry(stream).or_default();
        let waits = upload.unproven.len() + part.bytes.len() as u64;
        if waits > MAX_UNPROVEN {
            return Some(Step::Now(Answer::Refused(format!(
                "{} MB of it are covered by no signature",
                MAX_UNPROVEN >> 20
            ))));
        }
        let may_have_file = upload.unproven.has_file()
            || !upload.unproven.needs_file(part.bytes.len())
            || stream.files < MAX_FILES_OF_STREAM && files < MAX_FILES;
        let is_small = upload.unproven.has_file()
            || in_memory + upload.unproven.in_memory() + part.bytes.len() as u64 <= MAX_IN_MEMORY;
        if !may_have_file || !is_small || stream.unproven + waits > MAX_UNPROVEN_OF_STREAM {
            let why = "too many bytes wait for a signature that covers them";
            return Some(Step::Now(Answer::Wait(BUSY, why.to_owned())));
        }
        if !stream.make_room() {
            let why = format!("{MAX_OPEN} recordings of this machine come in at once, the most");
            return Some(Step::Now(Answer::Wait(BUSY, why)));
        }
        None
    }

    /// Writes what a signature covers now, and did not before; whether the recording is whole.
    fn prove(
        &mut self,
        batch: &mut Batch,
        row: Option<Row>,
        maker: &Maker,
        upload: &mut Upload,
    ) -> Result<bool, Error> {
        let covered = row.as_ref().map_or_else(start, |row| row.covered);
        let proof = match upload.checker.proof() {
            Some(proof) if proof.covered.offset > covered.offset => *proof,
            _ => return Ok(row.is_some_and(|row| row.entry.whole)),
        };
        let now = (self.settings.now)();
        let is_new = row.is_none();
        let mut row = match (row, upload.checker.begin()) {
            (Some(row), _) => row,
            (None, Some(begin)) => row::new(upload.checker.session(), &maker.name, begin, now, |node| {
                maker.node(node)
            }),
            // A proof of a recording's first blocks has the first of them.
            (None, None) => return Ok(false),
        };
        if is_new {
            let session = &row.entry.session;
            row.entry.aside = batch.has_session(session) || self.catalogue.has_session(session)?;
        }
        self.write(batch, &row, is_new, upload, &proof)?;
        add(
            &self.counts.taken_in,
            proof.length.saturating_sub(row.entry.bytes),
        );
        row.prove(&proof, upload.checker.end(), now);
        let is_whole = row.entry.whole;
        batch.change(row);
        Ok(is_whole)
    }

    fn write(
        &self,
        batch: &mut Batch,
        row: &Row,
        is_new: bool,
        upload: &mut Upload,
        proof: &Proof,
    ) -> Result<(), Error> {
        let root = &self.settings.directory;
        let file: &Fd = match batch.files.entry(row.entry.key()) {
            std::collections::hash_map::Entry::Occupied(file) => file.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) if is_new => {
                batch.days.insert(directory::day(root, &row.entry));
                place.insert(directory::make(root, &row.entry)?)
            }
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(directory::open(root, &row.entry)?)
            }
        };
        let failed = |e: Errno| Error::Io(directory::path(root, &row.entry), e.to_string());
        if tree::stat_open(file.raw()).map_err(failed)?.size < row.covered.offset {
            return Err(Error::Io(
                directory::path(root, &row.entry),
                "the file is shorter than what was written: somebody has cut it".to_owned(),
            ));
        }
        upload
            .unproven
            .write(row.covered.offset, proof.length, file)
            .map_err(failed)?;
        if row.entry.bytes > proof.length {
            truncate(file, proof.length).map_err(failed)?;
        }
        upload
            .unproven
            .forget(proof.covered.offset, &self.directory)
            .map_err(failed)
    }
}

/// What is answered without looking at the part.
fn decided(row: &Row) -> Option<Answer> {
    match (row.removed > 0, row.entry.whole) {
        (_, true) => Some(Answer::Whole(row.whole())),
        (true, false) => Some(Answer::Refused("it was removed from the cluster".to_owned())),
        (false, false) => None,
    }
}
