//! Has wtmpdb's writer run, once per login and once per logout, away from the reaper's thread.
//!
//! The writer is a program (`fleetgate wtmpdb …`), because SQLite may wait, allocate and crash, none of which may
//! happen here. One thread starts one writer after the other, so a logout is never written before its login; a
//! session's note goes only after its logout is written, so a crash in between is mended at the next start.
//! Where `/var/lib/wtmpdb` does not exist nothing is ever started.

use crate::record_files::{own_directory, remove_record};
use crate::session_record::{describe, hex};
use crate::{SessionReaperError, SessionToClose};
use fleetgate_sys::clock::{self, Time};
use fleetgate_sys::poll::{self, READ, Watch};
use fleetgate_sys::process::{self, Exit, SIGKILL};
use fleetgate_sys::spawn::{Program, Spawn, Stack, Strings, spawn};
use fleetgate_sys::{Errno, Fd, file};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where the writer keeps each open row's number.
pub const WTMPDB_STATE: &str = "/run/fleetgate/wtmpdb";
/// The database's directory: no database without it.
const DATABASE: &str = "/var/lib/wtmpdb";
/// How many logins and logouts may wait for their writer; beyond, they are left out with a warning.
pub const WAITING: usize = 1024;
/// How long one writer may take (it waits for a locked database itself, for less).
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The writer: which program it is, and where it keeps rows' numbers.
#[derive(Clone, Debug)]
pub struct Wtmpdb {
    /// Executed as `fleetgate wtmpdb …`.
    pub program: PathBuf,
    /// A directory of the server's own, made with mode 0700.
    pub state: PathBuf,
    /// Where wtmpdb's database would be.
    pub database: PathBuf,
}

impl Wtmpdb {
    /// This very program, and the machine's database.
    pub fn system() -> Wtmpdb {
        Wtmpdb {
            program: "/proc/self/exe".into(),
            state: WTMPDB_STATE.into(),
            database: DATABASE.into(),
        }
    }
}

/// Writers that are to be started, on a thread of their own. Dropped, it ends after the last of them.
pub(crate) struct Writers {
    queue: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    state: PathBuf,
    database: PathBuf,
}

struct Job {
    args: Vec<CString>,
    /// For the log.
    about: String,
    /// Removed when the writer is done, whatever came of it.
    note: Option<PathBuf>,
}

impl Writers {
    pub fn start(wtmpdb: Wtmpdb) -> Result<Writers, SessionReaperError> {
        own_directory(&wtmpdb.state)?;
        let program = CString::new(OsString::from(wtmpdb.program).into_vec())
            .map_err(|_| SessionReaperError::System("opening wtmpdb's writer", Errno::EINVAL))?;
        let failed = |doing| move |e| SessionReaperError::System(doing, e);
        let mut desk = Desk {
            program: file::openat(file::CWD, &program, file::flags::O_RDONLY, 0)
                .map_err(failed("opening wtmpdb's writer"))?,
            null: file::openat(file::CWD, c"/dev/null", file::flags::O_RDWR, 0)
                .map_err(failed("opening /dev/null"))?,
            stack: Stack::new().map_err(failed("mapping a stack for wtmpdb's writer"))?,
        };
        let (queue, jobs): (_, Receiver<Job>) = sync_channel(WAITING);
        let thread = std::thread::Builder::new()
            .name("wtmpdb".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                for job in jobs {
                    desk.serve(job);
                }
            })
            .map_err(|e| SessionReaperError::System("starting wtmpdb's thread", e.into()))?;
        Ok(Writers {
            queue: Some(queue),
            thread: Some(thread),
            state: wtmpdb.state,
            database: wtmpdb.database,
        })
    }

    /// Has the login written; again is no harm.
    pub fn login(&self, session: &SessionToClose) {
        let entry = &session.entry;
        let rest = [
            entry.user.clone(),
            entry.line.clone(),
            entry.host.clone(),
            c"fleetgate".into(),
        ];
        self.order(c"login", session, entry.at, &rest, None);
    }

    /// Has the logout written, and then removes `note`.
    pub fn logout(&self, session: &SessionToClose, note: &Path) {
        self.order(c"logout", session, clock::wall(), &[], Some(note));
    }

    fn order(
        &self,
        what: &std::ffi::CStr,
        session: &SessionToClose,
        at: Time,
        rest: &[CString],
        note: Option<&Path>,
    ) {
        let done = |note: Option<&Path>| {
            if let Some(note) = note {
                remove_record(note);
            }
        };
        if !session.utmp || !self.database.is_dir() {
            return done(note);
        }
        let state = self.state.join(hex(&session.id));
        let Ok(state) = CString::new(OsString::from(state).into_vec()) else {
            return done(note);
        };
        let micros = CString::new(format!("{}", at.as_nanos() / 1000)).unwrap_or_default();
        let mut args = vec![c"fleetgate".into(), c"wtmpdb".into(), what.into(), state, micros];
        args.extend_from_slice(rest);
        let job = Job {
            args,
            about: format!("the {} of {}", what.to_string_lossy(), describe(session)),
            note: note.map(Path::to_owned),
        };
        let Some(queue) = &self.queue else { return };
        if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) = queue.try_send(job) {
            // The note stays, if there is one: the next start tries again.
            tracing::warn!("{} is not in wtmpdb: {WAITING} writers wait already", job.about);
        }
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread works with.
struct Desk {
    program: Fd,
    null: Fd,
    stack: Stack,
}

impl Desk {
    fn serve(&mut self, job: Job) {
        if let Err(why) = self.write(&job) {
            tracing::warn!("{} is not in wtmpdb: {why}", job.about);
        }
        if let Some(note) = &job.note {
            remove_record(note);
        }
    }

    /// Starts one writer and waits for its end. Its own sentence goes to our standard error.
    fn write(&mut self, job: &Job) -> Result<(), String> {
        let argv = Strings::new(job.args.iter().map(CString::as_c_str));
        let envp = Strings::new([]);
        let what = Spawn {
            program: Program::Fd(&self.program),
            argv: &argv,
            envp: &envp,
            fds: &[self.null.raw(), self.null.raw(), 2],
            cgroup: None,
        };
        let child = spawn(&what, &mut self.stack).map_err(|e| format!("its writer was not started: {e}"))?;
        let mut watch = [Watch::new(child.pidfd.raw(), READ)];
        let ended = poll::poll(&mut watch, Some(poll::milliseconds(DEADLINE))).unwrap_or(0) > 0;
        if !ended {
            let _ = process::signal(&child.pidfd, SIGKILL);
        }
        match process::wait(&child.pidfd, true) {
            _ if !ended => Err(format!(
                "its writer took longer than {} s and was killed",
                DEADLINE.as_secs()
            )),
            Ok(Some(Exit::Code(0))) => Ok(()),
            Ok(Some(Exit::Code(code))) => Err(format!("its writer ended with code {code}")),
            Ok(Some(Exit::Signal { number, .. })) => Err(format!("signal {number} ended its writer")),
            Ok(None) | Err(_) => Err("its writer's end was seen by somebody else".to_owned()),
        }
    }
}
