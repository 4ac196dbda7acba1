//! What may happen to a session that runs: signals, a hang-up, its end.

use super::{EndedSessions, LimitOwner, Session, Sessions, State, TimeLimit, files, lasted, recorded, say};
use crate::monitor::audit::Usage;
use crate::monitor::audit::{EndCommand, Event, SessionKind};
use crate::monitor::open_login::OpenLogin;
use crate::monitor::tools::Tools;
use fleetgate_launch::pam::{PamEvent, PamSession};
use fleetgate_launch::{End, cgroup};
use fleetgate_sys::process::{self, Exit, numbers};
use fleetgate_sys::{Fd, epoll};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::front::{Ticket, ToFront};
use std::ffi::CStr;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

/// The signals that a client may send, sshd's list; POSIX names without SIG (RFC 4254 §6.10).
const SIGNALS: [(&[u8], i32); 12] = [
    (b"ABRT", numbers::SIGABRT),
    (b"ALRM", numbers::SIGALRM),
    (b"FPE", numbers::SIGFPE),
    (b"HUP", numbers::SIGHUP),
    (b"INT", numbers::SIGINT),
    (b"KILL", numbers::SIGKILL),
    (b"PIPE", numbers::SIGPIPE),
    (b"QUIT", numbers::SIGQUIT),
    (b"SEGV", numbers::SIGSEGV),
    (b"TERM", numbers::SIGTERM),
    (b"USR1", numbers::SIGUSR1),
    (b"USR2", numbers::SIGUSR2),
];

/// The longest command to end a session that is read.
const MAX_END_COMMAND: u64 = 8 << 10;

/// A session that runs.
pub(super) struct RunningSession {
    pub since: Instant,
    pub pid: i32,
    /// A second descriptor of its process: the session reaper has the first.
    pub pidfd: Option<Fd>,
    /// The helper's control socket; closed at the other end once the user's program runs.
    pub control: Fd,
    pub events: Option<Fd>,
    pub pam: Option<PamSession>,
    pub in_pam: bool,
    /// How it ended: by PAM's word inside PAM, else by waiting.
    pub exit: Option<Exit>,
    /// What the session reaper said of its end.
    pub reaped: Option<(End, Usage)>,
}

/// What a session used, for its audit line.
pub fn usage(cgroup: Option<&Path>, process: Option<process::Usage>) -> Usage {
    let used = cgroup::used(cgroup, process);
    Usage {
        cpu_micros: used.cpu_micros,
        memory: used.memory,
        read: used.read,
        written: used.written,
    }
}

impl EndedSessions {
    /// Called on the session reaper's thread: before the session's cgroup is removed, so what was used in it is still there.
    pub fn tell(&self, number: u64, end: End, cgroup: Option<&Path>) {
        let usage = usage(cgroup, end.usage);
        self.list
            .lock()
            .expect("no panic is survived")
            .push((number, end, usage));
        epoll::ring(&self.bell);
    }
}

impl Sessions {
    /// A client sends a signal to his session's processes.
    pub fn signal(&mut self, tools: &mut Tools, open_login: &mut OpenLogin, ticket: Ticket, name: &CStr) {
        let number = self.by_ticket.get(&(open_login.connection, ticket));
        let Some(session) = number.and_then(|number| self.all.get(number)) else {
            return;
        };
        let signal = SIGNALS
            .iter()
            .find(|(n, _)| *n == name.to_bytes())
            .map(|(_, signal)| *signal);
        let shown = name.to_string_lossy();
        let why = match signal {
            None => Some(format!("the signal {shown:?}, which may not be sent")),
            Some(_) if session.takes_no_signals => Some(format!(
                "the signal {shown} to a session that is not the client's own command"
            )),
            Some(signal) => {
                session.signal(signal);
                None
            }
        };
        if let Some(what) = why {
            open_login.tell_denied(&tools.audit, &tools.metrics, what);
        }
    }

    /// The client closed the session's channel.
    pub fn hang_up(&mut self, open_login: &OpenLogin, ticket: Ticket) {
        let number = self.by_ticket.get(&(open_login.connection, ticket)).copied();
        if let Some(number) = number
            && !self.leave_run(number, open_login.connection, Some(ticket))
        {
            self.hang_up_session(number);
        }
    }

    /// The client wants nothing of this session to stay. What a forced command leaves is its owner's matter, as signals to
    /// it are.
    pub fn leave_nothing(&mut self, open_login: &OpenLogin, ticket: Ticket) {
        let number = self.by_ticket.get(&(open_login.connection, ticket));
        if let Some(session) = number
            .and_then(|number| self.all.get_mut(number))
            .filter(|s| !s.takes_no_signals)
        {
            session.leaves_nothing = true;
        }
    }

    /// As a terminal that goes away does: to who sits at one. A named command is ended, since nobody is left to read what
    /// it says, and nobody logged in who could end it; and so is what its client wanted ended with it. Any other session
    /// without a terminal sees the end of its standard input, and goes on as long as it likes; sshd does the same.
    pub(super) fn hang_up_session(&mut self, number: u64) {
        // What lives on of one that has ended by itself is left alone, as after its end.
        if let Some(session) = self.all.get_mut(&number).filter(|s| !s.end_is_told) {
            session.hung_up = true;
            if session.kind == SessionKind::Command || session.leaves_nothing {
                // One that is still on its way is hung up on once more when it runs.
                session.kill();
            } else if session.terminal.is_some() {
                session.signal(numbers::SIGHUP);
            }
        }
    }

    /// Sessions whose processes ended, from the session reaper's thread.
    pub(super) fn hear_ends(&mut self, tools: &mut Tools) {
        epoll::quiet(&self.ends.bell);
        let list = std::mem::take(&mut *self.ends.list.lock().expect("no panic is survived"));
        for (number, end, usage) in list {
            if let Some(Session {
                state: State::Running(running),
                ..
            }) = self.all.get_mut(&number)
            {
                running.reaped = Some((end, usage));
                if !running.in_pam || running.pam.is_none() {
                    running.exit = end.exit.or(running.exit);
                }
            }
            self.over(tools, number);
        }
    }

    /// PAM's process sent something.
    pub(super) fn hear_pam(&mut self, tools: &mut Tools, number: u64) {
        let Some(session) = self.all.get_mut(&number) else {
            return;
        };
        let State::Running(running) = &mut session.state else {
            return;
        };
        let mut told = None;
        let mut waits = false;
        while let Some(pam) = &mut running.pam {
            match pam.heard() {
                Ok(None) => {
                    waits = true;
                    break;
                }
                Ok(Some(PamEvent::Exited(exit))) => {
                    running.exit = Some(exit);
                    if !session.nobody_listens {
                        // Said behind this loop, which has the session borrowed.
                        told = Some(exit);
                    }
                }
                Ok(Some(PamEvent::Ended(errors))) => {
                    for error in errors {
                        tracing::warn!(
                            "closing the PAM session of {}: {}",
                            session.login,
                            error.to_string_lossy()
                        );
                    }
                    running.pam = None;
                }
                Err(e) => {
                    tracing::warn!("the PAM session of {}: {e}", session.login);
                    running.pam = None;
                }
            }
        }
        if let Some(exit) = told {
            self.tell_end(tools, number, exit);
        }
        if !waits {
            self.over(tools, number);
        }
    }

    /// Its process ended. The session reaper closes it and says what it used, on its own thread: its client need not wait
    /// for that, 100 us of a command's 1.5 ms.
    pub(super) fn exited(&mut self, tools: &mut Tools, number: u64) {
        let Some(session) = self.all.get_mut(&number) else {
            return;
        };
        let State::Running(running) = &mut session.state else {
            return;
        };
        let Some(pidfd) = &running.pidfd else { return };
        tools.wakes.forget(pidfd);
        let ended = process::ended(pidfd);
        // Who was killed may have been so by somebody's order, which is told with the end.
        if let Ok(Some(exit @ Exit::Code(_))) = ended
            && !session.nobody_listens
            && !session.leaves_nothing
        {
            running.exit = Some(exit);
            session.end_is_told = true;
            let (connection, ticket) = (session.connection, session.ticket);
            self.tell_end(tools, number, exit);
            self.no_longer_of(connection, ticket);
        } else if session.in_container && matches!(ended, Ok(Some(Exit::Signal { .. }))) {
            // Words come with its end, and none can be said behind the end of its output.
            let (connection, ticket) = (session.connection, session.ticket);
            say(tools, session, ToFront::Ending { connection, ticket }, Vec::new());
        }
    }

    /// Whether a session's end can be told before it is closed here: nothing else has something to say of it.
    pub(super) fn ends_early(session: &Session, in_pam: bool) -> bool {
        !in_pam && session.shared.is_none() && session.kind != SessionKind::Sftp
    }

    fn tell_end(&mut self, tools: &mut Tools, number: u64, exit: Exit) {
        let Some(session) = self.all.get_mut(&number) else {
            return;
        };
        let message = session.ended(Some(exit));
        say(tools, session, message, Vec::new());
        session.nobody_listens = true;
    }

    /// The file server has told what was done.
    pub(super) fn hear_files(&mut self, tools: &mut Tools, number: u64) {
        let Some(session) = self.all.get_mut(&number) else {
            return;
        };
        let State::Running(running) = &session.state else {
            return;
        };
        let Some(events) = &running.events else { return };
        if !files::hear(events, tools, session)
            && let State::Running(running) = &mut session.state
        {
            running.events = None;
        }
    }

    /// The end, once everybody who knows of it has said so.
    fn over(&mut self, tools: &mut Tools, number: u64) {
        let Some(Session {
            state: State::Running(running),
            ..
        }) = self.all.get(&number)
        else {
            return;
        };
        if running.reaped.is_none() || running.pam.is_some() {
            return;
        }
        // What was told before the end comes before it in the log. Its sender is gone, so there is an end to it.
        for _ in 0..files::TURNS_AT_THE_END {
            self.hear_files(tools, number);
        }
        let Some(mut session) = self.forget(number) else {
            return;
        };
        if let Some(timer) = session.time_limit_timer {
            tools.timers.cancel(timer);
        }
        if session.leaves_nothing {
            session.kill_cgroup();
        }
        if let State::Running(running) = &session.state {
            let exit = running.exit;
            self.share_result(tools, &mut session, exit);
        }
        let State::Running(running) = &session.state else {
            return;
        };
        if let Some(pidfd) = running.pidfd.as_ref().filter(|_| !session.end_is_told) {
            tools.wakes.forget(pidfd);
        }
        let usage = running.reaped.map(|(_, usage)| usage).unwrap_or_default();
        let connection = session.connection;
        let message = session.ended(running.exit);
        say(tools, &session, message, Vec::new());
        if session.kind == SessionKind::Sftp {
            files::last_word(&running.control, tools, &session);
        }
        tools.metrics.session_ended();
        // Only what was killed may have been killed by a command: a session that ends by itself costs no look at the disk.
        let end_command = match running.exit {
            Some(Exit::Code(_)) => None,
            _ => session
                .end_command
                .clone()
                .or_else(|| left_end_command(&tools.config.runtime_directory, &session.id)),
        };
        let (code, signal) = match running.exit {
            Some(Exit::Code(code)) => (Some(code), None),
            Some(Exit::Signal { number, .. }) => (None, Some(number)),
            None => (None, None),
        };
        tools.views.session_over(&session.id);
        tools.recordings.end(&session.id, recorded::end(code, signal));
        tools.audit.tell(Event::SessionEnded {
            connection,
            session: session.id,
            login: session.login.clone(),
            code,
            signal,
            lasted: Some(lasted(running.since)),
            usage,
            end_command,
            inherited: false,
        });
    }
}

/// What `fleetgate sessions end` left on this machine before it killed the session: who it was, and why.
fn left_end_command(runtime_directory: &Path, id: &SessionId) -> Option<EndCommand> {
    let path = fleetgate_launch::end_command_path(&runtime_directory.join("sessions"), id);
    let file = std::fs::File::open(&path).ok()?;
    let mut text = Vec::new();
    file.take(MAX_END_COMMAND).read_to_end(&mut text).ok()?;
    let _ = std::fs::remove_file(&path);
    let command: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let field = |name: &str| command[name].as_str().unwrap_or_default().to_owned();
    Some(EndCommand {
        by: field("by"),
        reason: field("reason"),
    })
}

impl Sessions {
    /// It may last no longer.
    pub(super) fn lasted_too_long(&mut self, tools: &mut Tools, number: u64) {
        let Some(session) = self.all.get_mut(&number).filter(|s| !s.end_is_told) else {
            return;
        };
        let Some(TimeLimit { time, by }) = &session.limit else {
            return;
        };
        let limit = time.as_secs_f64();
        let group = match session.cgroup {
            Some(_) => "with all that it started",
            // What left the group lives on, and nobody here can tell it from the account's other processes.
            None => "with its process group, because it has no cgroup",
        };
        let (what, parting) = match (by, &session.named_command) {
            (LimitOwner::Command, Some(name)) => (
                format!("the command {name:?} for more than {limit} s, its `timeout`: it was ended {group}"),
                format!("the command {name:?} was ended: it may take {limit} s (`timeout`)"),
            ),
            _ => (
                format!("a session of more than {limit} s is not allowed by its roles: it was ended"),
                format!("the session was ended: your roles allow {limit} s for one"),
            ),
        };
        tracing::info!(connection = session.connection, login = session.login, "{what}");
        tools.audit.tell(Event::Denied {
            connection: session.connection,
            login: session.login.clone(),
            what,
        });
        session.announce_end(tools, parting);
        self.announced.push(number);
    }
}

impl Session {
    /// All of it that can be told from other processes: its cgroup, or the group that its first process leads.
    pub(super) fn kill(&self) {
        self.kill_cgroup();
        self.signal(process::SIGKILL);
    }

    /// What is in its cgroup. One that is removed already was empty.
    fn kill_cgroup(&self) {
        if let Some(cgroup) = &self.cgroup {
            // Linux 5.14; before that, the process group has to do.
            let _ = std::fs::write(cgroup.join("cgroup.kill"), "1");
        }
    }

    /// To the whole group that the session's first process leads, as the user could; one that is gone is left alone.
    fn signal(&self, signal: i32) {
        if let State::Running(running) = &self.state
            && let RunningSession {
                pid,
                pidfd: Some(pidfd),
                reaped: None,
                ..
            } = &**running
            && let Err(e) = process::signal_group_as(pidfd, *pid, signal, self.uid)
        {
            tracing::debug!("signal {signal} for a session of {}: {e}", self.login);
        }
    }
}
