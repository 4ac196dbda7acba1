//! Sessions: from a front's Start to an order, its launch, and its end. Every request is checked against the connection's
//! grant before anything is made, and a refusal is told to the client and to the audit log.
//!
//! ```text
//! start → (other account) → (SELinux context) → (xauth) → launch, inside PAM on a thread → Started → the end → Ended
//! ```
//!
//! Read in this order: `admit` (may it be?), the crate `orders` (what runs, and what the helper is told), `prepare` (what is still
//! missing), `launch` with `launch::streams`, `helper_order` (what the helper is given), `running` (what may happen to it then).
//! Beside the way lie `pending` (what is known of a session that does not run yet), `answers` (one run for several clients),
//! `helper_checks` (accounts that are not in use, sftp's root), `files` (what the file server tells). But for `answers`, this
//! module never reads or writes what a session says.

mod admit;
mod answers;
mod files;
mod helper_checks;
mod helper_order;
mod launch;
mod pending;
mod prepare;
mod recorded;
pub(in crate::monitor) use recorded::ENOUGH;
mod running;
mod shown;

pub use fleetgate_orders::Inherited;
pub use running::usage;
pub use shown::ShownSession;

use super::audit::{EndCommand, Event, SessionKind, Usage, digits};
use super::timers::Timer;
use super::tools::Tools;
use super::wakes::{Key, Owner};
use crate::config::cluster::ClusterLogin;
use crate::config::{Config, SelinuxUse};
use fleetgate_launch::cgroup::Cgroups;
use fleetgate_launch::{End, SessionReaper, present};
use fleetgate_policy::cluster::{Identity, Refusal};
use fleetgate_sys::poll::READ;
use fleetgate_sys::process::{Exit, SIGKILL};
use fleetgate_sys::{Errno, Fd, epoll};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::front::{Ticket, ToFront};
use fleetgate_wire::node::{ConnectionNumber, ProcessEnd};
use std::collections::{BTreeSet, HashMap};
use std::ffi::CString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The most sessions whose ids are told in one event: 35 KB, of the 64 KB that auth takes.
const MAX_TOLD_SESSIONS: usize = 1000;

/// All sessions.
pub struct Sessions {
    session_reaper: Arc<SessionReaper>,
    cgroups: Option<Cgroups>,
    inherited: Inherited,
    root: bool,
    selinux: bool,
    ends: Arc<EndedSessions>,
    answers: answers::Answers,
    next: u64,
    all: HashMap<u64, Session>,
    by_ticket: HashMap<(ConnectionNumber, Ticket), u64>,
    by_connection: HashMap<ConnectionNumber, u32>,
    /// The connections of sessions that are on their way, each as often as it has some.
    beginning: Vec<ConnectionNumber>,
    /// Those whose fronts are told that they are ended; killed when that is said.
    announced: Vec<u64>,
}

/// What a wake-up of a session's is about; the low bits of a key's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum About {
    /// Its launch.
    Launch = 0,
    /// The file server's events.
    Files = 1,
    /// Its PAM session.
    Pam = 2,
    /// xauth's launch.
    Xauth = 3,
    /// xauth's end.
    XauthEnded = 4,
    /// xauth's time is up.
    XauthLate = 5,
    /// Its SELinux context.
    Context = 6,
    /// It lasted as long as its roles allow.
    TimeUp = 7,
    /// The output of one whose result several clients get.
    Output = 8,
    /// The account that it runs as.
    Account = 9,
    /// Its process ended.
    Exited = 10,
}

const ABOUT_BITS: u32 = 4;
/// The bell of the session reaper's thread.
const BELL: Key = Key::new(Owner::Sessions, 0);

fn key(number: u64, about: About) -> Key {
    Key::new(Owner::Sessions, number << ABOUT_BITS | about as u64)
}

/// Number and matter of a key's id; none: the bell.
fn parts(id: u64) -> Option<(u64, About)> {
    const ALL: [About; 11] = [
        About::Launch,
        About::Files,
        About::Pam,
        About::Xauth,
        About::XauthEnded,
        About::XauthLate,
        About::Context,
        About::TimeUp,
        About::Output,
        About::Account,
        About::Exited,
    ];
    let about = ALL.get((id & ((1 << ABOUT_BITS) - 1)) as usize)?;
    (id != BELL.id).then_some((id >> ABOUT_BITS, *about))
}

/// One session.
struct Session {
    connection: ConnectionNumber,
    /// Where from, and as whom of the cluster: for the audit log.
    source: SocketAddr,
    user: Option<String>,
    /// Somebody commanded its end.
    end_command: Option<EndCommand>,
    /// Why it was ended, for its user.
    parting: Option<String>,
    ticket: Ticket,
    login: String,
    uid: u32,
    /// It is in a container.
    in_container: bool,
    id: SessionId,
    kind: SessionKind,
    /// It may not be sent signals: what runs is not what the client asked for, as in sshd.
    takes_no_signals: bool,
    terminal: Option<CString>,
    command: Option<Vec<u8>>,
    original: Option<Vec<u8>>,
    /// The account, where a named command has another than its login.
    runs_as: Option<String>,
    cgroup: Option<PathBuf>,
    /// Its connection is gone, or its front was told of its end: nobody is told of it any more.
    nobody_listens: bool,
    /// Its connection is gone; as whom of the cluster it came, since locks still count.
    left_by: Option<Vec<Identity>>,
    /// Its end was told before it was closed here, so it counts for its connection no more.
    end_is_told: bool,
    hung_up: bool,
    /// Nothing of it is to stay when its program has ended or its channel has closed: the client asked for that.
    leaves_nothing: bool,
    /// It is to be killed as soon as it runs.
    kill_when_running: bool,
    /// The named command that it is.
    named_command: Option<String>,
    /// So much of its output is passed on.
    output_limit: Option<u64>,
    /// Its result is for all who ask for the same; its own client is one of them.
    shared: Option<Box<answers::SharedRun>>,
    /// How long it may last.
    limit: Option<TimeLimit>,
    time_limit_timer: Option<Timer>,
    state: State,
}

/// How long a session may last, and who says so.
struct TimeLimit {
    time: Duration,
    by: LimitOwner,
}

#[derive(Clone, Copy)]
enum LimitOwner {
    /// A role's `session`.
    Roles,
    /// A named command's `timeout`.
    Command,
}

enum State {
    /// On its way; nothing of it runs.
    Pending(Box<pending::PendingSession>),
    /// It runs.
    Running(Box<running::RunningSession>),
    /// Being moved from one to the other.
    Between,
}

/// What the session reaper's thread says: sessions that ended.
struct EndedSessions {
    bell: Fd,
    list: Mutex<Vec<(u64, End, Usage)>>,
}

impl Sessions {
    /// No sessions yet. `cgroups`: none where they cannot be used.
    pub fn new(
        session_reaper: Arc<SessionReaper>,
        cgroups: Option<Cgroups>,
        inherited: Inherited,
        tools: &Tools,
    ) -> Result<Sessions, Errno> {
        let ends = Arc::new(EndedSessions {
            bell: epoll::bell()?,
            list: Mutex::default(),
        });
        tools.wakes.watch(&ends.bell, READ, BELL)?;
        Ok(Sessions {
            session_reaper,
            cgroups,
            inherited,
            root: !tools.user_mode,
            selinux: needs_contexts(&tools.config),
            ends,
            answers: answers::Answers::default(),
            next: 0,
            all: HashMap::new(),
            by_ticket: HashMap::new(),
            by_connection: HashMap::new(),
            beginning: Vec::new(),
            announced: Vec::new(),
        })
    }

    /// How many there are, those on their way too.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Whether a session of this connection is on its way: its start, or why there is none, is still to be told.
    pub fn is_beginning(&self, connection: ConnectionNumber) -> bool {
        self.beginning.contains(&connection)
    }

    /// A session of this connection is on its way no more.
    fn no_longer_beginning(&mut self, connection: ConnectionNumber) {
        if let Some(at) = self.beginning.iter().position(|of| *of == connection) {
            self.beginning.swap_remove(at);
        }
    }

    /// A descriptor or a timer of theirs has news.
    pub fn woken(&mut self, tools: &mut Tools, id: u64) {
        match parts(id) {
            None => self.hear_ends(tools),
            Some((number, About::Files)) => self.hear_files(tools, number),
            Some((number, About::Pam)) => self.hear_pam(tools, number),
            Some((number, About::XauthEnded)) => self.xauth_ended(tools, number),
            Some((number, About::XauthLate)) => self.xauth_late(number),
            Some((number, About::TimeUp)) => self.lasted_too_long(tools, number),
            Some((number, About::Output)) => self.hear_output(number),
            Some((number, About::Exited)) => self.exited(tools, number),
            Some(_) => {}
        }
    }

    /// Makes ahead what the next session needs, when nobody waits for a message of this turn any more.
    pub fn make_ahead(&mut self) {
        if let Some(cgroups) = &mut self.cgroups {
            cgroups.refill();
        }
    }

    /// The connection is gone, and its grant with it: nothing more is begun for it, and what sits at a terminal is hung
    /// up, and named commands are ended. Others go on until they notice, as with sshd, or until a lock on one
    /// of these logins ends them.
    pub fn connection_ended(&mut self, connection: ConnectionNumber, cluster_logins: &[ClusterLogin]) {
        if self.by_connection.remove(&connection).is_none() {
            return;
        }
        let of_it: Vec<u64> = self
            .all
            .iter()
            .filter(|(_, s)| s.connection == connection || s.clients().iter().any(|c| c.0 == connection))
            .map(|(n, _)| *n)
            .collect();
        for number in of_it {
            if self.leave_run(number, connection, None) {
                continue;
            }
            if let Some(session) = self.all.get_mut(&number) {
                session.nobody_listens = true;
                session.left_by = Some(cluster_logins.iter().map(|of| of.identity.clone()).collect());
                self.by_ticket.remove(&(connection, session.ticket));
            }
            self.hang_up_session(number);
        }
    }

    /// Sessions that go on without their connection: number, account, and as whom of the cluster they came.
    pub fn without_connection(&self) -> impl Iterator<Item = (u64, &str, &[Identity])> {
        self.all
            .iter()
            .filter(|(_, session)| !session.kill_when_running && !session.end_is_told)
            .filter_map(|(number, session)| {
                let identities = session.left_by.as_deref()?;
                Some((*number, session.login.as_str(), identities))
            })
    }

    /// A lock is against a session that goes on without its connection.
    pub fn end_locked(&mut self, tools: &Tools, number: u64, refusal: &Refusal) {
        let Some(session) = self.all.get_mut(&number) else {
            return;
        };
        tracing::info!(
            connection = session.connection,
            login = session.login,
            "a session without a connection is ended: {refusal}"
        );
        tools.audit.tell(Event::Locked {
            connection: session.connection,
            source: session.source,
            login: session.login.clone(),
            user: session.user.clone(),
            rule: refusal.rule.clone(),
            reason: refusal.words.clone(),
        });
        session.kill_when_running = true;
        session.kill();
    }

    /// The connection is locked: nothing more is begun for it, and what runs is killed.
    pub fn end_all(&mut self, connection: ConnectionNumber) {
        self.connection_ended(connection, &[]);
        // A run that others wait for is theirs now.
        let is_its_own =
            |s: &&mut Session| s.connection == connection && s.clients().iter().all(|c| c.0 == connection);
        for session in self.all.values_mut().filter(is_its_own) {
            session.kill_when_running = true;
            session.kill();
        }
    }

    /// The ids of all sessions of this machine, those of other monitors too; none: they are not known, or too many to tell.
    pub fn ids(&self, runtime_directory: &Path) -> Option<Vec<String>> {
        let noted = present::noted(&runtime_directory.join("sessions"), MAX_TOLD_SESSIONS).ok()??;
        // What could not be noted runs for all that.
        let ours = self.all.values().map(|session| digits(&session.id));
        let ids: BTreeSet<String> = noted.into_iter().chain(ours).collect();
        (ids.len() <= MAX_TOLD_SESSIONS).then(|| ids.into_iter().collect())
    }

    /// Ends one session by its id, whichever connection it is of; whether it is one of ours that was not told before.
    pub fn end_by_command(&mut self, tools: &mut Tools, id: &SessionId, command: &EndCommand) -> bool {
        let mut all = self.all.iter_mut();
        let Some((number, session)) = all.find(|(_, s)| s.id == *id && s.end_command.is_none()) else {
            return false;
        };
        session.end_command = Some(command.clone());
        session.announce_end(tools, command.words());
        self.announced.push(*number);
        true
    }

    /// The same without a command, with a text for its user.
    pub fn end_announced(&mut self, tools: &mut Tools, id: &SessionId, words: &str) {
        if let Some((number, session)) = self.all.iter_mut().find(|(_, s)| s.id == *id) {
            session.announce_end(tools, words.to_owned());
            self.announced.push(*number);
        }
    }

    /// Kills the sessions whose fronts were told of it. Before that, a front could see the end of the output first, tell the
    /// client, and have no way left to say why.
    pub fn kill_announced(&mut self) {
        for number in std::mem::take(&mut self.announced) {
            if let Some(session) = self.all.get(&number) {
                session.kill();
            }
        }
    }

    /// Forgets a session that is over, or never was.
    fn forget(&mut self, number: u64) -> Option<Session> {
        let session = self.all.remove(&number)?;
        if matches!(session.state, State::Pending(_)) {
            self.no_longer_beginning(session.connection);
        }
        if !session.end_is_told {
            self.no_longer_of(session.connection, session.ticket);
        }
        self.forget_run(number, &session);
        Some(session)
    }

    /// The client has one session less.
    fn no_longer_of(&mut self, connection: ConnectionNumber, ticket: Ticket) {
        self.by_ticket.remove(&(connection, ticket));
        if let Some(count) = self.by_connection.get_mut(&connection) {
            *count -= 1;
        }
    }
}

/// Whether each session, file server and networking helper needs a SELinux context of its own.
pub fn needs_contexts(config: &Config) -> bool {
    config.selinux == SelinuxUse::Required || std::path::Path::new("/sys/fs/selinux/enforce").exists()
}

/// Tells the front, unless nobody listens any more. Clients of a shared run hear of it at its end.
fn say(tools: &mut Tools, session: &Session, message: ToFront, fds: Vec<Fd>) {
    if !session.nobody_listens && session.shared.is_none() {
        tools.to_fronts.say(session.connection, message, fds);
    }
}

impl Session {
    /// It is to be ended, with a text for its user.
    fn announce_end(&mut self, tools: &mut Tools, parting: String) {
        self.parting = Some(parting);
        self.kill_when_running = true;
        let (connection, ticket) = (self.connection, self.ticket);
        say(tools, self, ToFront::Ending { connection, ticket }, Vec::new());
    }

    /// The end, as the front is told of it.
    fn ended(&self, exit: Option<Exit>) -> ToFront {
        let why = match (&self.parting, exit) {
            (Some(parting), _) => parting,
            (None, Some(Exit::Signal { number: SIGKILL, .. })) if self.in_container => KILLED_INSIDE,
            _ => "",
        };
        ToFront::Ended {
            connection: self.connection,
            ticket: self.ticket,
            ended: ended(exit),
            why: text(why),
        }
    }
}

/// What is told of a program in a container that was killed.
const KILLED_INSIDE: &str =
    "the program was killed (SIGKILL): its container ended or has no memory left, or somebody killed it";

/// An exit as the front is told of it. One that nobody could wait for is said to be the shells' 255.
fn ended(exit: Option<Exit>) -> ProcessEnd {
    let (status, signalled, core) = match exit {
        Some(Exit::Code(status)) => (status, false, false),
        Some(Exit::Signal { number, core }) => (number, true, core),
        None => (255, false, false),
    };
    ProcessEnd {
        status,
        signalled,
        core,
    }
}

fn text(words: &str) -> CString {
    CString::new(words.replace('\0', " ")).unwrap_or_default()
}

/// How long since `since`.
fn lasted(since: Instant) -> Duration {
    since.elapsed()
}
