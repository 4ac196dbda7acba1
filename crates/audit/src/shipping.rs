//! The audit log on its way to the cluster: whole lines are read behind what is kept there already, one batch at a time,
//! and the next when that one is kept. It runs on the thread that writes the log, which is the one that waits for the
//! disk; it writes nothing to the log and knows no proxy. Others may write to it too: after a restart the monitor before goes
//! on with its sessions. So the file is looked at though this process has written nothing.
//!
//! Lines gather for a moment behind the first of them, because each batch is signed, sealed, and waited for on the cluster's
//! disk: the lines of a login are one batch, and while many log in there are four a second.
//!
//! The position is noted at most once a second. A crash forgets the newest of it, and lines are sent again: whoever keeps
//! them knows by log and offset that he has them.

use fleetgate_node_config::identity::{self, DIRECTORY, Home, IdentityError};
use serde::{Deserialize, Serialize};
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Where the position is noted, beside the node's identity.
const NOTE: &str = "audit.json";
/// The most bytes of one batch: with what is around them they fit one frame to the tunnel.
pub const MAX_BATCH: usize = 120 << 10;
/// So long lines gather behind the first, unless there is more than a batch of them.
const GATHER: Duration = Duration::from_millis(250);
/// How often the file is looked at for lines of other processes.
const LOOK: Duration = Duration::from_millis(500);
/// The position is noted at most this often. Less than what the monitor rests after, or this thread would map again what it
/// has just given back.
const NOTE_EVERY: Duration = Duration::from_secs(1);

/// Lines to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Which file.
    pub log: String,
    /// Where in it they begin.
    pub offset: u64,
    /// The lines.
    pub lines: Vec<u8>,
}

/// Whom batches are given to.
pub type Deliver = Box<dyn Fn(Batch) + Send>;

/// The way there.
pub struct Shipping {
    path: PathBuf,
    home: Home,
    deliver: Deliver,
    reading: Option<Reading>,
    /// Where the batch that is under way ends.
    under_way: Option<u64>,
    /// There may be lines that are not on their way.
    unsent: bool,
    /// Until when lines gather; none: whatever there is may go.
    gathering: Option<Instant>,
    /// When the file was last looked at.
    looked: Instant,
    noted: Option<Instant>,
    is_noted: bool,
    complained: bool,
}

/// A file that is being read.
struct Reading {
    file: File,
    at: Position,
}

/// How far it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Position {
    /// Names the file, for good: an inode's number is used again.
    log: String,
    device: u64,
    inode: u64,
    /// When the file was made, in nanoseconds; 0 where the file system does not say.
    made: u64,
    offset: u64,
}

impl Shipping {
    /// Of the log at `path`, by this node.
    pub fn new(path: &Path, home: Home, deliver: Deliver) -> Shipping {
        let reading = resume(path, &home.place(NOTE));
        Shipping {
            path: path.to_owned(),
            home,
            deliver,
            reading,
            under_way: None,
            unsent: true,
            gathering: None,
            looked: Instant::now(),
            noted: None,
            is_noted: true,
            complained: false,
        }
    }

    /// This much is kept. Whatever is not what was sent says nothing.
    pub fn kept(&mut self, log: &str, offset: u64) {
        if let Some(reading) = &mut self.reading
            && reading.at.log == log
            && self.under_way == Some(offset)
        {
            reading.at.offset = offset;
            self.under_way = None;
            self.looked = Instant::now();
            self.is_noted = false;
        }
    }

    /// Sends the next lines, if there are any, none are under way and it is time, and notes the position when it is time.
    /// `written`: there are new ones.
    pub fn turn(&mut self, written: bool) {
        let is_due = self.look_in().is_some_and(|wait| wait.is_zero());
        if (written || is_due && self.has_grown()) && !self.unsent {
            self.unsent = true;
            self.gathering = Some(Instant::now() + GATHER);
        }
        if self.send_in().is_some_and(|wait| wait.is_zero())
            && let Err(why) = self.send()
        {
            // With the next line it is tried again.
            self.unsent = false;
            if !self.complained {
                self.complained = true;
                tracing::error!("the audit log cannot be read to be kept by the cluster: {why}");
            }
        }
        if self.note_in().is_some_and(|wait| wait.is_zero()) {
            self.note();
        }
    }

    /// In how long there is something to do even if nothing happens; none: there is nothing.
    pub fn due_in(&self) -> Option<Duration> {
        let due = [self.send_in(), self.look_in(), self.note_in()];
        due.into_iter().flatten().min()
    }

    /// In how long the file is to be looked at; none: lines are on their way, and it is looked at behind them.
    fn look_in(&self) -> Option<Duration> {
        (!self.unsent && self.under_way.is_none()).then(|| LOOK.saturating_sub(self.looked.elapsed()))
    }

    /// Whether somebody has written to the log since: to the file that is read, or to one that took its place.
    fn has_grown(&mut self) -> bool {
        self.looked = Instant::now();
        let Some(Reading { file, at }) = &self.reading else {
            return self.path.exists();
        };
        let len = |meta: std::io::Result<Metadata>| meta.map(|meta| (at.is(&meta), meta.len()));
        match (len(std::fs::metadata(&self.path)), len(file.metadata())) {
            (Ok((false, len)), _) if len > 0 => true,
            (Ok((true, len)), _) => len != at.offset,
            (_, Ok((_, len))) => len > at.offset,
            _ => false,
        }
    }

    /// In how long lines may go.
    fn send_in(&self) -> Option<Duration> {
        (self.unsent && self.under_way.is_none()).then(|| {
            self.gathering.map_or(Duration::ZERO, |until| {
                until.saturating_duration_since(Instant::now())
            })
        })
    }

    /// In how long there is a position to note.
    fn note_in(&self) -> Option<Duration> {
        (!self.is_noted).then(|| {
            self.noted
                .map_or(Duration::ZERO, |at| NOTE_EVERY.saturating_sub(at.elapsed()))
        })
    }

    /// It is sent to this cluster no more. The position is not noted again: the note went with all else that the cluster
    /// gave this machine, and what stands there now is another's.
    pub fn ends(&mut self) {
        self.is_noted = true;
    }

    fn note(&mut self) {
        let Some(reading) = &self.reading else { return };
        self.noted = Some(Instant::now());
        self.is_noted = true;
        let text = serde_json::to_vec(&reading.at).unwrap_or_default();
        if let Err(e) = self.home.replace(NOTE, &text) {
            tracing::warn!("the audit log's position is not noted, and lines may be sent twice: {e}");
        }
    }

    fn send(&mut self) -> std::io::Result<()> {
        loop {
            let named = match std::fs::metadata(&self.path) {
                Ok(named) => named,
                // Moved away, and not made anew yet.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                    self.unsent = self.send_from()?.unwrap_or(false);
                    return Ok(());
                }
                Err(e) => return Err(e),
            };
            // The same thread writes: when the path names another file, this one gets no more lines.
            let is_same = self.reading.as_ref().is_some_and(|r| r.at.is(&named));
            let is_cut = is_same && self.reading.as_ref().is_some_and(|r| named.len() < r.at.offset);
            if !is_cut {
                let sent = self.send_from()?;
                if sent.is_some() || is_same {
                    // Behind the end of a file that was moved away there is another one.
                    self.unsent = sent.is_some_and(|more| more || !is_same);
                    return Ok(());
                }
            }
            let file = File::open(&self.path)?;
            let at = Position::first(&file.metadata()?);
            self.reading = Some(Reading { file, at });
            // Under this name from the first line on, whatever happens.
            self.note();
        }
    }

    /// Sends what is left of the file at hand; whether there is more of it. None: nothing is left.
    fn send_from(&mut self) -> std::io::Result<Option<bool>> {
        let Some(Reading { file, at }) = &mut self.reading else {
            return Ok(None);
        };
        let left = file.metadata()?.len().saturating_sub(at.offset);
        let mut lines = vec![0; MAX_BATCH.min(usize::try_from(left).unwrap_or(MAX_BATCH))];
        let mut len = 0;
        while len < lines.len() {
            match file.read_at(&mut lines[len..], at.offset + len as u64) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        // A line that was not written whole waits for its end. One that is longer than any of ours goes in parts.
        let whole = match lines[..len].iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if len == MAX_BATCH => len,
            None => return Ok(None),
        };
        lines.truncate(whole);
        self.gathering = None;
        self.under_way = Some(at.offset + whole as u64);
        (self.deliver)(Batch {
            log: at.log.clone(),
            offset: at.offset,
            lines,
        });
        Ok(Some(left > whole as u64))
    }
}

/// Of the log at `path`, what stands there already is nothing for the cluster that the machine joins now: it may be the
/// history of another one, or be kept there already under another name.
pub fn begin_at_end(state_directory: &Path, path: &Path) -> Result<(), IdentityError> {
    let note = state_directory.join(DIRECTORY).join(NOTE);
    let written = std::fs::metadata(path).ok().filter(Metadata::is_file);
    let Some(written) = written.filter(|_| path.is_absolute()) else {
        // The first file that is written is sent from its first line on.
        let _ = std::fs::remove_file(note);
        return Ok(());
    };
    let at = Position {
        offset: written.len(),
        ..Position::first(&written)
    };
    identity::replace(&note, &serde_json::to_vec(&at).unwrap_or_default())
}

impl Drop for Shipping {
    fn drop(&mut self) {
        if !self.is_noted {
            self.note();
        }
    }
}

impl Position {
    fn first(file: &Metadata) -> Position {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Position {
            log: format!("{}-{}", since.as_micros(), file.ino()),
            device: file.dev(),
            inode: file.ino(),
            made: made(file),
            offset: 0,
        }
    }

    fn is(&self, file: &Metadata) -> bool {
        (self.device, self.inode, self.made) == (file.dev(), file.ino(), made(file))
    }
}

fn made(file: &Metadata) -> u64 {
    let since = file
        .created()
        .ok()
        .and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |t| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX))
}

/// Goes on where it was: in the log, or in the file that the log was moved to.
fn resume(path: &Path, note: &Path) -> Option<Reading> {
    let text = match identity::read(note) {
        Ok(text) => text?,
        Err(e) => {
            tracing::warn!("the audit log's position is not known, and lines may be sent twice: {e}");
            return None;
        }
    };
    let at: Position = serde_json::from_slice(&text)
        .inspect_err(|e| tracing::warn!("{}: {e}; lines may be sent twice", note.display()))
        .ok()?;
    let found = |path: &Path| {
        let file = File::open(path).ok()?;
        file.metadata().is_ok_and(|m| at.is(&m)).then_some(file)
    };
    let file = found(path).or_else(|| {
        let siblings = std::fs::read_dir(path.parent()?).ok()?;
        siblings.flatten().find_map(|entry| {
            use std::os::unix::fs::DirEntryExt;
            if entry.ino() == at.inode {
                found(&entry.path())
            } else {
                None
            }
        })
    });
    if file.is_none() {
        tracing::warn!(
            offset = at.offset,
            "the audit log was moved away while nobody sent it on, and its file is not beside it: what was left of it is \
             not kept by the cluster"
        );
    }
    file.map(|file| Reading { file, at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_net::x509::Key;
    use std::io::Write;
    use std::sync::mpsc;

    struct Place {
        directory: PathBuf,
        got: mpsc::Receiver<Batch>,
        shipping: Shipping,
    }

    impl Place {
        fn new(name: &str) -> Place {
            let directory =
                std::env::temp_dir().join(format!("fleetgate-shipping-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&directory);
            std::fs::create_dir_all(&directory).expect("made");
            let (shipping, got) = start(&directory);
            Place {
                directory,
                got,
                shipping,
            }
        }

        /// As after a crash: nothing is noted at the end.
        fn crash(&mut self) {
            self.shipping.is_noted = true;
            self.restart();
        }

        fn restart(&mut self) {
            let directory = self.directory.clone();
            drop(std::mem::replace(
                &mut self.shipping,
                Shipping::new(
                    Path::new("/nowhere/log"),
                    Home::of(Path::new("/nowhere"), &Key::generate()),
                    Box::new(|_| ()),
                ),
            ));
            (self.shipping, self.got) = start(&directory);
        }

        fn append(&self, text: &str) {
            let mut file = File::options()
                .append(true)
                .create(true)
                .open(self.directory.join("log"))
                .expect("opened");
            file.write_all(text.as_bytes()).expect("written");
        }

        fn rotate(&self, to: &str) {
            std::fs::rename(self.directory.join("log"), self.directory.join(to)).expect("moved");
        }

        /// What the next turn sends; it is kept if `keep`.
        fn turn(&mut self, keep: bool) -> Option<String> {
            self.shipping.turn(true);
            if self.shipping.gathering.take().is_some() {
                self.shipping.turn(false);
            }
            let batch = self.got.try_recv().ok()?;
            if keep {
                let end = batch.offset + batch.lines.len() as u64;
                self.shipping.kept(&batch.log, end);
            }
            Some(String::from_utf8(batch.lines).expect("text"))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }

    fn start(directory: &Path) -> (Shipping, mpsc::Receiver<Batch>) {
        let (to, got) = mpsc::channel();
        let deliver = Box::new(move |batch| to.send(batch).expect("the test listens"));
        let key = Key::generate();
        identity::save_tls_key(directory, key.pkcs8()).expect("written");
        let home = Home::of(directory, &key);
        (Shipping::new(&directory.join("log"), home, deliver), got)
    }

    #[test]
    fn lines_are_sent_once_and_in_order_over_rotations_and_restarts() {
        let mut place = Place::new("order");
        assert_eq!(place.turn(true), None);
        place.append("one\ntwo\nthr");
        assert_eq!(place.turn(false).as_deref(), Some("one\ntwo\n"));
        // One at a time, and nothing but what was sent counts as kept.
        place.append("ee\n");
        assert_eq!(place.turn(true), None);
        for (log, offset) in [("other", 8), ("", 8)] {
            place.shipping.kept(log, offset);
        }
        let log = place.shipping.reading.as_ref().expect("open").at.log.clone();
        place.shipping.kept(&log, 7);
        assert_eq!(place.turn(true), None);
        place.shipping.kept(&log, 8);
        assert_eq!(place.turn(true).as_deref(), Some("three\n"));
        // A rotation: first what is left of the old file.
        place.append("four\n");
        place.rotate("log.1");
        assert_eq!(place.turn(true).as_deref(), Some("four\n"));
        place.append("five\n");
        assert_eq!(place.turn(true).as_deref(), Some("five\n"));
        assert_ne!(place.shipping.reading.as_ref().expect("open").at.log, log);
        // A restart, with a rotation in between.
        place.append("six\n");
        place.restart();
        place.rotate("log.2");
        place.append("seven\n");
        place.restart();
        assert_eq!(place.turn(true).as_deref(), Some("six\n"));
        assert_eq!(place.turn(true).as_deref(), Some("seven\n"));
        assert_eq!(place.turn(true), None);
        // A crash forgets the newest, and it is sent again from the same place; nothing is left out.
        place.append("eight\n");
        assert_eq!(place.turn(false).as_deref(), Some("eight\n"));
        place.crash();
        let again = place.turn(true).expect("again");
        assert!(again.ends_with("eight\n"), "{again}");
        // Cut in place: from its beginning, under another name.
        File::create(place.directory.join("log")).expect("cut");
        place.append("nine\n");
        assert_eq!(place.turn(true).as_deref(), Some("nine\n"));
    }

    #[test]
    fn lines_that_another_process_wrote_are_seen_without_one_of_ours() {
        let mut place = Place::new("others");
        // As the thread does that has nothing to write: it waits until something is due.
        let next = |place: &mut Place| {
            for _ in 0..20 {
                std::thread::park_timeout(place.shipping.due_in().expect("it looks"));
                place.shipping.turn(false);
                if let Ok(batch) = place.got.try_recv() {
                    let end = batch.offset + batch.lines.len() as u64;
                    place.shipping.kept(&batch.log, end);
                    return Some(String::from_utf8(batch.lines).expect("text"));
                }
            }
            None
        };
        place.append("own\n");
        assert_eq!(place.turn(true).as_deref(), Some("own\n"));
        assert_eq!(next(&mut place), None);
        place.append("another's\n");
        assert_eq!(next(&mut place).as_deref(), Some("another's\n"));
        // In the file that took its place, with what was left of the one before.
        place.append("left\n");
        place.rotate("log.1");
        place.append("next\n");
        assert_eq!(next(&mut place).as_deref(), Some("left\n"));
        assert_eq!(next(&mut place).as_deref(), Some("next\n"));
        assert_eq!(next(&mut place), None);
    }

    #[test]
    fn a_machine_that_joins_sends_nothing_of_before() {
        let mut place = Place::new("join");
        place.append("the first cluster's\n");
        assert!(place.turn(true).is_some());
        // Another cluster: a new directory, or the old one with the note of the cluster before.
        for again in [false, true] {
            place.append("of before\n");
            if !again {
                std::fs::remove_dir_all(place.directory.join(DIRECTORY)).expect("removed");
            }
            begin_at_end(&place.directory, &place.directory.join("log")).expect("noted");
            place.append("of now\n");
            // The one that ran has another key by now, and notes nothing.
            let directory = place.directory.clone();
            (place.shipping, place.got) = start(&directory);
            assert_eq!(place.turn(true).as_deref(), Some("of now\n"), "{again}");
        }
        // No log yet: whatever is written is of this cluster.
        place.rotate("log.1");
        begin_at_end(&place.directory, &place.directory.join("log")).expect("noted");
        let directory = place.directory.clone();
        (place.shipping, place.got) = start(&directory);
        place.append("the first line\n");
        assert_eq!(place.turn(true).as_deref(), Some("the first line\n"));
    }

    #[test]
    fn lines_gather_behind_the_first_and_none_is_forgotten() {
        let mut place = Place::new("gather");
        // What was there before goes at once.
        place.append("one\n");
        place.shipping.turn(false);
        let first = place.got.try_recv().expect("sent");
        assert_eq!(
            place.shipping.due_in(),
            None,
            "it is under way, and nothing more is there"
        );
        place.append("two\n");
        place.shipping.turn(true);
        place.shipping.kept(&first.log, 4);
        place.shipping.turn(false);
        assert!(place.got.try_recv().is_err());
        // It comes back for them by itself.
        assert!(place.shipping.due_in().expect("lines wait") <= GATHER);
        std::thread::sleep(place.shipping.due_in().expect("lines wait"));
        place.shipping.turn(false);
        let second = place.got.try_recv().expect("sent");
        assert_eq!(second.lines, b"two\n");
        place.shipping.kept(&second.log, 8);
        place.shipping.turn(false);
        // Only the position is left to note.
        assert!(place.shipping.due_in().expect("it is not noted") > GATHER);
        // More than a batch: the next goes when the one before it is kept.
        place.append(&"x\n".repeat(MAX_BATCH));
        assert_eq!(place.turn(true).expect("lines").len(), MAX_BATCH);
        place.shipping.turn(false);
        assert_eq!(place.got.try_recv().expect("at once").lines.len(), MAX_BATCH);
    }

    #[test]
    fn batches_are_bounded_and_end_with_a_line() {
        let mut place = Place::new("bounds");
        let line = format!("{}\n", "x".repeat(999));
        place.append(&line.repeat(300));
        let mut sent = 0;
        while let Some(lines) = place.turn(true) {
            assert!(lines.len() <= MAX_BATCH && lines.ends_with('\n'));
            sent += lines.len();
        }
        assert_eq!(sent, 300_000);
    }
}
