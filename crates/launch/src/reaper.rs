//! What is left to do when a session ends: logout records, audit, the cgroup, the state file. One thread waits
//! for all sessions in one epoll.
//!
//! A session is noted in a file when its program runs, before the front hears of it; the file goes when everything is
//! closed. So whatever a crash left behind is found at the next start: sessions that still run are watched again, those that
//! ended meanwhile are closed then. Only a crash between the launch and the note leaves nothing to find. A note of another
//! boot is only removed: utmp began anew, and wtmp's boot record ends its sessions.

use crate::record_files::{own_directory, read_record, remove_record};
use crate::session_record::{Owner, SessionRecord, boot_id, describe, start_time};
use crate::wtmpdb::{Writers, Wtmpdb};
use crate::{SessionReaperError, SessionToClose, cgroup};
use fleetgate_logins::{Places, audit, audit::Event};
use fleetgate_sys::epoll::{self, Epoll};
use fleetgate_sys::poll::{PRIORITY, READ};
use fleetgate_sys::process::{self, Exit, Usage};
use fleetgate_sys::{Errno, Fd, clock};
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Where the notes are, unless told otherwise.
pub const STATE_DIRECTORY: &str = "/run/fleetgate/sessions";

/// What was found at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Sessions that still run and are watched again.
    pub adopted: usize,
    /// Sessions that had ended; their records are closed now.
    pub closed: usize,
    /// Notes of another boot.
    pub outdated: usize,
    /// Files that are no notes, put aside as `.broken`.
    pub broken: usize,
}

/// Closes sessions. Dropping it stops the thread after what has ended is closed; sessions that still run stay
/// noted for the next one.
pub struct SessionReaper {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
    mended: RepairReport,
}

/// How a session's process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Its exit; none when it was somebody else's child (PAM's, or adopted after a crash).
    pub exit: Option<Exit>,
    /// What it and the children that it waited for used; none likewise.
    pub usage: Option<Usage>,
}

type OnEnd = Box<dyn FnOnce(End) + Send>;
/// Called at the end of a session that an earlier server began; with how long it lasted, where its end was seen.
type OnInheritedEnd = Arc<dyn Fn(&SessionToClose, Option<Duration>) + Send + Sync>;

/// Clock ticks a second, as the kernel counts for user space on every machine of ours (USER_HZ).
const TICKS: u64 = 100;

struct Shared {
    directory: PathBuf,
    places: Places,
    wtmpdb: Option<Writers>,
    boot: String,
    owner: Owner,
    epoll: Epoll,
    bell: Fd,
    on_inherited_end: OnInheritedEnd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    watched: HashMap<u64, WatchEntry>,
    next: u64,
    stopping: bool,
}

enum WatchEntry {
    Running {
        pidfd: Fd,
        session: SessionToClose,
        on_end: OnEnd,
    },
    /// A cgroup that is not empty yet, by its cgroup.events.
    Emptying { events: Fd, cgroup: PathBuf },
}

/// The bell's key; sessions count from 1.
const BELL: u64 = 0;

impl SessionReaper {
    /// Mends what is in `directory`, made with mode 0700 if need be, and begins to watch.
    pub fn start(directory: &Path, places: Places) -> Result<SessionReaper, SessionReaperError> {
        SessionReaper::start_with(directory, places, None)
    }

    /// As [`SessionReaper::start`], and has logins and logouts written to wtmpdb too.
    pub fn start_with(
        directory: &Path,
        places: Places,
        wtmpdb: Option<Wtmpdb>,
    ) -> Result<SessionReaper, SessionReaperError> {
        SessionReaper::start_telling(directory, places, wtmpdb, |_, _| {})
    }

    /// As [`SessionReaper::start_with`], and `on_inherited_end` hears of the end of each session that an earlier server began
    /// and did not close: here of those that have ended already, on the reaper's thread of those that still run.
    pub fn start_telling(
        directory: &Path,
        places: Places,
        wtmpdb: Option<Wtmpdb>,
        on_inherited_end: impl Fn(&SessionToClose, Option<Duration>) + Send + Sync + 'static,
    ) -> Result<SessionReaper, SessionReaperError> {
        own_directory(directory)?;
        let wtmpdb = wtmpdb.map(Writers::start).transpose()?;
        let epoll = Epoll::new().map_err(|e| SessionReaperError::System("making an epoll", e))?;
        let bell = epoll::bell().map_err(|e| SessionReaperError::System("making an eventfd", e))?;
        epoll
            .add(&bell, READ, BELL)
            .map_err(|e| SessionReaperError::System("watching the eventfd", e))?;
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            places,
            wtmpdb,
            boot: boot_id(),
            owner: Owner::own(),
            epoll,
            bell,
            on_inherited_end: Arc::new(on_inherited_end),
            state: Mutex::default(),
        });
        let mended = shared.mend()?;
        let thread = std::thread::Builder::new()
            .name("session-reaper".to_owned())
            .stack_size(256 << 10)
            .spawn({
                let shared = shared.clone();
                move || shared.watch()
            });
        let thread = thread
            .map_err(|e| SessionReaperError::System("starting the session reaper's thread", e.into()))?;
        Ok(SessionReaper {
            shared,
            thread: Some(thread),
            mended,
        })
    }

    /// What the start found.
    pub fn mended(&self) -> RepairReport {
        self.mended
    }

    /// Notes the session down and watches its process; `on_end` hears of its end first, before records are
    /// closed, on the reaper's thread. The reaper reaps the process. A session whose note cannot be written goes
    /// on, with a warning: it is closed as others are, but not after a crash.
    pub fn keep(
        &self,
        pidfd: Fd,
        session: SessionToClose,
        on_end: impl FnOnce(End) + Send + 'static,
    ) -> Result<(), SessionReaperError> {
        let note = SessionRecord {
            boot: self.shared.boot.clone(),
            // A process of the resolver's may be gone and reaped already; then its pidfd says so at once.
            start: start_time(session.entry.pid).unwrap_or(0),
            session,
            reaper: self.shared.owner,
        };
        self.shared.note(&note);
        if let Some(wtmpdb) = &self.shared.wtmpdb {
            wtmpdb.login(&note.session);
        }
        self.shared.add(pidfd, note.session, Box::new(on_end))
    }

    /// How many sessions run.
    pub fn running(&self) -> usize {
        let state = self.shared.lock();
        state
            .watched
            .values()
            .filter(|w| matches!(w, WatchEntry::Running { .. }))
            .count()
    }
}

impl Drop for SessionReaper {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        epoll::ring(&self.shared.bell);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic ends the whole process, so a poisoned lock is never seen.
        self.state.lock().expect("no panic is survived")
    }

    fn add(&self, pidfd: Fd, session: SessionToClose, on_end: OnEnd) -> Result<(), SessionReaperError> {
        self.insert(|| WatchEntry::Running {
            pidfd,
            session,
            on_end,
        })
        .map_err(|e| SessionReaperError::System("watching the session's process", e))
    }

    fn insert(&self, what: impl FnOnce() -> WatchEntry) -> Result<(), Errno> {
        // Under the lock until it is in the map: its end may be reported at once.
        let mut state = self.lock();
        state.next += 1;
        let key = state.next;
        let what = what();
        match &what {
            WatchEntry::Running { pidfd, .. } => self.epoll.add(pidfd, READ, key)?,
            WatchEntry::Emptying { events, .. } => self.epoll.add(events, PRIORITY, key)?,
        }
        state.watched.insert(key, what);
        Ok(())
    }

    /// The thread's life.
    fn watch(&self) {
        let mut events = [epoll::Event::EMPTY; 64];
        loop {
            let count = match self.epoll.wait(&mut events, None) {
                Ok(count) => count,
                Err(e) => {
                    tracing::error!(
                        "the session reaper cannot wait for its sessions: {e}; logouts are not recorded any more"
                    );
                    return;
                }
            };
            for event in &events[..count] {
                if event.key() == BELL {
                    epoll::quiet(&self.bell);
                    continue;
                }
                let taken = self.lock().watched.remove(&event.key());
                match taken {
                    Some(WatchEntry::Running {
                        pidfd,
                        session,
                        on_end,
                    }) => {
                        let _ = self.epoll.remove(&pidfd);
                        // ECHILD: somebody else's child (PAM's, or adopted after a crash).
                        let ended = process::wait_usage(&pidfd, false).ok().flatten();
                        on_end(End {
                            exit: ended.map(|(exit, _)| exit),
                            usage: ended.map(|(_, usage)| usage),
                        });
                        self.close(&session);
                    }
                    Some(WatchEntry::Emptying { events, cgroup }) => {
                        let _ = self.epoll.remove(&events);
                        self.remove_cgroup(cgroup);
                    }
                    None => {}
                }
            }
            // What has ended is closed before the stop is seen, because the bell came after it.
            if count < events.len() && self.lock().stopping {
                return;
            }
        }
    }

    /// Closes everything of a session that has ended; its note goes last.
    fn close(&self, session: &SessionToClose) {
        if session.utmp
            && let Err(e) = fleetgate_logins::logout(&self.places, &session.entry, clock::wall())
        {
            tracing::warn!("the logout of {} is not recorded: {e}", describe(session));
        }
        if session.audit
            && let Err(e) = audit::tell(
                &session.entry,
                &[Event::SessionEnd, Event::CredentialsDisposed],
                true,
            )
        {
            tracing::warn!(
                "the kernel's audit was not told of the logout of {}: {e}",
                describe(session)
            );
        }
        if let Some(cgroup) = &session.cgroup {
            if session.kill_remaining
                && let Err(e) = cgroup::kill(cgroup)
            {
                tracing::warn!(
                    "what the session of {} left running is not killed: {e}",
                    describe(session)
                );
            }
            self.remove_cgroup(cgroup.clone());
        }
        let note = self.directory.join(session.file_name());
        match &self.wtmpdb {
            Some(wtmpdb) => wtmpdb.logout(session, &note),
            None => remove_record(&note),
        }
    }

    fn remove_cgroup(&self, cgroup: PathBuf) {
        let watched = cgroup::remove(&cgroup).and_then(|events| match events {
            Some(events) => {
                let cgroup = cgroup.clone();
                self.insert(|| WatchEntry::Emptying { events, cgroup })
            }
            None => Ok(()),
        });
        if let Err(e) = watched {
            tracing::warn!("the cgroup {} is not removed: {e}", cgroup.display());
        }
    }

    fn note(&self, note: &SessionRecord) {
        if let Err(e) = self.write(note) {
            tracing::warn!(
                "the session of {} is not noted in {}: {e}; after a crash its login record stays open",
                describe(&note.session),
                self.directory.display()
            );
        }
    }

    /// Writes a note so that it is there whole or not at all.
    fn write(&self, note: &SessionRecord) -> std::io::Result<()> {
        let name = note.session.file_name();
        let new = self.directory.join(format!(".{}.{name}", self.owner.pid));
        let place = self.directory.join(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(note.to_text().as_bytes())?;
        std::fs::rename(&new, &place)
    }

    /// Goes through the notes that an earlier server left.
    fn mend(&self) -> Result<RepairReport, SessionReaperError> {
        let failed = |e| SessionReaperError::Directory(self.directory.clone(), e);
        let mut mended = RepairReport::default();
        for entry in std::fs::read_dir(&self.directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if let Some(hidden) = name.strip_prefix('.') {
                // Half written: its launch was never reported as done, unless its writer is at it just now.
                let writer = hidden.split('.').next().and_then(|pid| pid.parse().ok());
                let lives = |pid| pid != self.owner.pid && start_time(pid).is_some();
                if !writer.is_some_and(lives) {
                    let _ = std::fs::remove_file(&path);
                }
            } else if name.ends_with(".json") {
                self.mend_one(&path, &mut mended);
            }
        }
        if mended != RepairReport::default() {
            tracing::info!(
                "sessions of an earlier server: {} still run, {} had ended and are closed, {} were of another boot, \
                 {} notes could not be read",
                mended.adopted,
                mended.closed,
                mended.outdated,
                mended.broken
            );
        }
        Ok(mended)
    }

    fn mend_one(&self, path: &Path, mended: &mut RepairReport) {
        let note = match read_record(path) {
            Ok(note) => note,
            Err(why) => {
                tracing::warn!(
                    "{} is no session's note: {why}; put aside as .broken",
                    path.display()
                );
                let _ = std::fs::rename(path, path.with_extension("broken"));
                mended.broken += 1;
                return;
            }
        };
        if note.boot != self.boot {
            mended.outdated += 1;
            (self.on_inherited_end)(&note.session, None);
            let _ = std::fs::remove_file(path);
            return;
        }
        if note.reaper.is_another() {
            // A server that ends with its last session; it closes this one itself.
            return;
        }
        // The descriptor first, then the start time: so it is the time of the process that the descriptor holds.
        let pid = note.session.entry.pid;
        let pidfd = process::pidfd_open(pid)
            .ok()
            .filter(|_| start_time(pid) == Some(note.start));
        match pidfd {
            Some(pidfd) => {
                mended.adopted += 1;
                let note = SessionRecord {
                    reaper: self.owner,
                    ..note
                };
                self.note(&note);
                if let Some(wtmpdb) = &self.wtmpdb {
                    wtmpdb.login(&note.session);
                }
                let (on_end, session) = (self.on_inherited_end.clone(), note.session.clone());
                let on_end: OnEnd = Box::new(move |_| on_end(&session, Some(since(note.start))));
                if let Err(e) = self.add(pidfd, note.session, on_end) {
                    tracing::warn!("{}: {e}", path.display());
                }
            }
            None => {
                mended.closed += 1;
                (self.on_inherited_end)(&note.session, None);
                self.close(&note.session);
            }
        }
    }
}

/// How long ago a process started, by its start time in clock ticks since boot.
fn since(start: u64) -> Duration {
    let now = u64::try_from(clock::boot().as_nanos()).unwrap_or(0);
    let start = u128::from(start) * 1_000_000_000 / u128::from(TICKS);
    Duration::from_nanos(now.saturating_sub(u64::try_from(start).unwrap_or(u64::MAX)))
}
