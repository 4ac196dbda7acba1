//! The files that keep audit events until auth has them.

use super::sessions::OpenSessions;
use super::{WAITING, since_1970, time};
use crate::files::{RECORDINGS, replace};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What is kept of events while auth is away; more are counted and told.
pub const SPOOL_MAX: u64 = 256 << 20;
/// One batch.
pub const BATCH: usize = 256 << 10;
/// A log that is delivered and as long as this is followed by a new one.
const LOG_MAX: u64 = 1 << 20;
/// How often a process looks for what others have left undelivered.
pub(crate) const ADOPT: Duration = Duration::from_secs(60);
/// Processes of one proxy at once, each with a directory of its own: all but one of them drain.
pub const PLACES: usize = 64;

/// The file.
pub(crate) struct Spool {
    /// Which of the directories it is.
    pub(crate) place: usize,
    pub(crate) directory: PathBuf,
    /// No other process has the directory meanwhile.
    _lock: File,
    pub(crate) file: File,
    pub(crate) number: u64,
    pub(crate) length: u64,
    pub(crate) delivered: u64,
    sessions: OpenSessions,
}

/// The directory, as soon as there is one. Meanwhile events wait in the queue, and are counted when that is full.
pub(crate) async fn wait_for_spool(state: &Path) -> Spool {
    loop {
        match Spool::take(state) {
            Ok(spool) => return spool,
            Err(error) => tracing::error!(
                "audit events cannot be kept, and are lost beyond {WAITING}: {error}; it is tried again in {} s",
                ADOPT.as_secs()
            ),
        }
        tokio::time::sleep(ADOPT).await;
    }
}

/// The directory of that number.
pub(crate) fn directory(state: &Path, place: usize) -> PathBuf {
    match place {
        0 => state.join("audit"),
        place => state.join(format!("audit-{place}")),
    }
}

/// What another cluster has not had yet is nothing for the one that the machine joins now: it stays beside, for whoever
/// looks after it.
pub(crate) fn put_aside(state: &Path) -> Result<(), String> {
    let since = since_1970(SystemTime::now()).as_micros();
    let recordings = state.join(RECORDINGS);
    for directory in (0..PLACES)
        .map(|place| directory(state, place))
        .chain([recordings])
    {
        let mut aside = directory.clone().into_os_string();
        aside.push(format!(".before-{since}"));
        match std::fs::rename(&directory, &aside) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {e}", directory.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Spool {
    /// The first directory that no other process has.
    pub(crate) fn take(state: &Path) -> Result<Spool, String> {
        for place in 0..PLACES {
            if let Some(spool) = Spool::open(directory(state, place), place)? {
                return Ok(spool);
            }
        }
        Err(format!("{PLACES} processes of this proxy run already"))
    }

    /// None: another process has it.
    pub(crate) fn open(directory: PathBuf, place: usize) -> Result<Option<Spool>, String> {
        let failed = |e: std::io::Error| format!("{}: {e}", directory.display());
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(failed)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join("lock"))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let position = std::fs::read_to_string(directory.join("position")).unwrap_or_default();
        let mut parts = position.split_whitespace().map(|part| part.parse::<u64>().ok());
        let known = parts.next().flatten().zip(parts.next().flatten());
        let (number, delivered) = known.unwrap_or_else(|| (since_1970(SystemTime::now()).as_secs(), 0));
        let (file, length) = log(&directory, number)?;
        let sessions = OpenSessions::load(&directory).map_err(failed)?;
        let mut spool = Spool {
            place,
            directory,
            _lock: lock,
            file,
            number,
            length,
            delivered,
            sessions,
        };
        if delivered > length {
            // Auth has more than is there, because a disk lost it or somebody cut it: what is written behind would be taken
            // for what auth has.
            spool.begin(number + 1)?;
        } else if known.is_none() {
            // Or the next process would not find what this one leaves.
            spool.save_position()?;
        }
        spool.end_sessions();
        Ok(Some(spool))
    }

    /// Writes the ends of sessions that ended with the process which wrote here before.
    fn end_sessions(&mut self) {
        let ends = self.sessions.ends(&time(SystemTime::now()));
        if ends.is_empty() {
            return;
        }
        let written = self.append(ends.as_bytes());
        let noted = written.and_then(|()| self.sessions.clear().map_err(|e| e.to_string()));
        if let Err(error) = noted {
            tracing::error!("the ends of sessions on plain sshds are not told: {error}");
        }
    }

    /// Writes lines. Which sessions are open by them is noted beside, as far as the disk takes it.
    pub(crate) fn write(&mut self, lines: &[String]) -> Result<(), String> {
        let begun = self.sessions.begin(lines);
        self.append(lines.concat().as_bytes())?;
        let ended = self.sessions.end(lines);
        if let Err(error) = begun.and(ended) {
            tracing::warn!("which sessions on plain sshds are open cannot be noted: {error}");
        }
        Ok(())
    }

    /// Goes on in a new log; the old one has nothing left. Its successor is known before it goes.
    fn begin(&mut self, number: u64) -> Result<(), String> {
        let (file, length) = log(&self.directory, number)?;
        save_position(&self.directory, number, 0)?;
        let old = self.directory.join(format!("{}.jsonl", self.number));
        (self.file, self.length) = (file, length);
        (self.number, self.delivered) = (number, 0);
        let _ = std::fs::remove_file(old);
        Ok(())
    }

    fn save_position(&self) -> Result<(), String> {
        save_position(&self.directory, self.number, self.delivered)
    }

    /// What auth knows the log by.
    pub(crate) fn name(&self) -> String {
        match self.place {
            0 => self.number.to_string(),
            place => format!("{}-{place}", self.number),
        }
    }

    fn append(&mut self, text: &[u8]) -> Result<(), String> {
        if self.length - self.delivered + text.len() as u64 > SPOOL_MAX {
            return Err(format!("{} MB wait for auth already", SPOOL_MAX >> 20));
        }
        // At its place: what a full disk cut off is written over.
        self.file
            .write_all_at(text, self.length)
            .map_err(|e| format!("{}: {e}", self.directory.display()))?;
        self.length += text.len() as u64;
        Ok(())
    }

    /// Whole lines from where auth has them up to. They are on the disk before auth has them: what a power cut takes would
    /// make a log that is shorter than what auth has of it.
    pub(crate) fn batch(&self) -> Result<Vec<u8>, std::io::Error> {
        self.file.sync_data()?;
        let left = usize::try_from(self.length - self.delivered).unwrap_or(BATCH);
        let mut bytes = vec![0; left.min(BATCH)];
        self.file.read_exact_at(&mut bytes, self.delivered)?;
        if let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') {
            bytes.truncate(end + 1);
        }
        Ok(bytes)
    }

    pub(crate) fn note(&mut self, delivered: u64) -> Result<(), String> {
        self.delivered = delivered.min(self.length);
        match self.delivered == self.length && self.length >= LOG_MAX {
            true => self.begin(self.number + 1),
            false => self.save_position(),
        }
    }
}

fn save_position(directory: &Path, number: u64, delivered: u64) -> Result<(), String> {
    replace(
        &directory.join("position"),
        format!("{number} {delivered}\n").as_bytes(),
    )
}

fn log(directory: &Path, number: u64) -> Result<(File, u64), String> {
    let path = directory.join(format!("{number}.jsonl"));
    let open = || {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    };
    open().map_err(|e: std::io::Error| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_of_another_cluster_begins_with_no_events() {
        let state = std::env::temp_dir().join(format!("fleetgate-proxy-aside-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&state);
        let mut first = Spool::take(&state).expect("a place");
        first.append(b"of the first cluster\n").expect("written");
        drop(first);
        std::fs::create_dir(state.join(RECORDINGS)).expect("made");
        put_aside(&state).expect("put aside");
        let second = Spool::take(&state).expect("a place");
        assert_eq!((second.place, second.length), (0, 0));
        let aside = std::fs::read_dir(&state).expect("read").flatten();
        let names: Vec<_> = aside
            .map(|e| e.file_name().into_string().expect("text"))
            .collect();
        assert_eq!(names.len(), 3, "nothing is removed: {names:?}");
        assert!(!state.join(RECORDINGS).exists());
        std::fs::remove_dir_all(&state).expect("removed");
    }

    #[test]
    fn each_process_has_a_log_of_its_own_and_takes_what_was_left() {
        let state = std::env::temp_dir().join(format!("fleetgate-proxy-audit-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&state);
        let take = || Spool::take(&state).expect("a place");
        let (mut first, mut second) = (take(), take());
        assert_eq!((first.place, second.place), (0, 1));
        first.append(b"one\n").expect("written");
        second.append(b"two\n").expect("written");
        assert_ne!(first.name(), second.name());
        assert_eq!(first.batch().expect("read"), b"one\n");
        assert!(
            Spool::open(directory(&state, 1), 1).expect("no error").is_none(),
            "it is locked"
        );
        // The second ends; its events are there for whoever looks.
        drop(second);
        let left = Spool::open(directory(&state, 1), 1)
            .expect("no error")
            .expect("free");
        assert_eq!(left.batch().expect("read"), b"two\n");
        assert_eq!(take().place, 2);
        drop(left);
        let mut kept = vec![first];
        while let Ok(spool) = Spool::take(&state) {
            kept.push(spool);
        }
        assert_eq!(kept.len(), PLACES);
        std::fs::remove_dir_all(&state).expect("removed");
    }

    /// A position is on the disk at once, and lines are not: after a power cut the log may be shorter.
    #[test]
    fn what_is_written_behind_a_loss_is_nothing_that_auth_has() {
        let state = std::env::temp_dir().join(format!("fleetgate-proxy-loss-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&state);
        let take = || Spool::take(&state).expect("a place");
        let mut spool = take();
        spool.append(b"one\ntwo\n").expect("written");
        spool.note(8).expect("noted");
        let (name, path) = (spool.name(), state.join(format!("audit/{}.jsonl", spool.number)));
        drop(spool);
        let mut control = take();
        assert_eq!((control.name(), control.delivered), (name.clone(), 8), "control");
        control.append(b"lost\n").expect("written");
        control.note(13).expect("noted");
        drop(control);
        let file = OpenOptions::new().write(true).open(&path).expect("there");
        file.set_len(4).expect("cut");
        for again in [false, true] {
            let mut spool = take();
            assert_ne!(spool.name(), name, "auth knows this one to be longer");
            if !again {
                spool.append(b"three\n").expect("written");
            }
            assert_eq!(
                (spool.delivered, spool.batch().expect("read")),
                (0, b"three\n".to_vec())
            );
        }
        assert!(!path.exists());
        std::fs::remove_dir_all(&state).expect("removed");
    }

    #[test]
    fn a_log_goes_when_the_next_one_is_known() {
        let state = std::env::temp_dir().join(format!("fleetgate-proxy-next-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&state);
        let take = || Spool::take(&state).expect("a place");
        // A process that was killed before auth had anything of it.
        let mut spool = take();
        spool.append(b"one\n").expect("written");
        // Another second: the number of a new log.
        let number = spool.number - 10;
        let position = state.join("audit/position");
        let told = std::fs::read_to_string(&position).expect("noted at once");
        assert_eq!(told, format!("{} 0\n", spool.number));
        drop(spool);
        std::fs::rename(
            state.join(format!("audit/{}.jsonl", number + 10)),
            state.join(format!("audit/{number}.jsonl")),
        )
        .expect("moved");
        save_position(&state.join("audit"), number, 0).expect("noted");
        let mut spool = take();
        assert_eq!(spool.batch().expect("read"), b"one\n");
        // The position cannot be written: nothing goes, and nothing is written under a name that nobody knows.
        spool.append(&vec![b'\n'; LOG_MAX as usize]).expect("written");
        let (length, old) = (spool.length, state.join(format!("audit/{number}.jsonl")));
        std::fs::create_dir(position.with_extension("new")).expect("in the way");
        assert!(spool.note(length).is_err());
        assert_eq!((spool.number, old.exists()), (number, true));
        std::fs::remove_dir(position.with_extension("new")).expect("removed");
        spool.note(length).expect("noted");
        assert_eq!((spool.number, spool.length, old.exists()), (number + 1, 0, false));
        assert_eq!(
            std::fs::read_to_string(&position).expect("there"),
            format!("{} 0\n", number + 1)
        );
        std::fs::remove_dir_all(&state).expect("removed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_is_not_there_at_first_is_taken_later() {
        let state = std::env::temp_dir().join(format!("fleetgate-proxy-later-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&state);
        std::fs::create_dir_all(&state).expect("made");
        std::fs::write(state.join("audit"), "in the way").expect("written");
        let taking = wait_for_spool(&state);
        tokio::pin!(taking);
        assert!(
            tokio::time::timeout(ADOPT * 3, &mut taking).await.is_err(),
            "control"
        );
        std::fs::remove_file(state.join("audit")).expect("removed");
        assert_eq!(taking.await.place, 0);
        std::fs::remove_dir_all(&state).expect("removed");
    }

    #[test]
    fn the_ends_of_a_killed_process_sessions_are_told_by_the_next_one() {
        let state = std::env::temp_dir().join(format!("fleetgate-proxy-ends-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&state);
        let take = || Spool::take(&state).expect("a place");
        let line = |event: &str, session: &str| {
            format!("{{\"event\":\"{event}\",\"node\":\"db1\",\"session\":\"{session}\",\"user\":\"ada\"}}\n")
        };
        let mut spool = take();
        let lines = [
            line("session_started", "a"),
            line("session_started", "b"),
            line("session_ended", "a"),
        ];
        spool.write(&lines).expect("written");
        let (name, told) = (spool.name(), spool.length);
        // It was delivered whole, and nothing of it is there any more.
        spool.note(told).expect("noted");
        drop(spool);
        let spool = take();
        let left = String::from_utf8(spool.batch().expect("read")).expect("text");
        assert_eq!((spool.name(), left.lines().count()), (name, 1), "{left}");
        let end: serde_json::Value = serde_json::from_str(&left).expect("a line");
        let of = ["event", "session", "node", "user"].map(|field| end[field].as_str().unwrap_or("-"));
        assert_eq!(of, ["session_ended", "b", "db1", "ada"]);
        assert_eq!(end["inherited"], true);
        let length = spool.length;
        drop(spool);
        assert_eq!(take().length, length, "once");
        std::fs::remove_dir_all(&state).expect("removed");
    }
}
