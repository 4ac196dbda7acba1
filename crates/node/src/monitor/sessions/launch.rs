//! A session's launch: the streams, what the helper is given (`helper_order`), the launch itself (inside PAM, where that is
//! used), and what it comes to.

use super::answers;
use super::helper_checks::account_in_use_without_shell;
use super::helper_order::{HelperOrder, begin_watching, failed};
use super::pending::{PendingLaunch, PendingSession};
use super::{About, Session, Sessions, State, ended, key, recorded, running, say, text};
use crate::monitor::audit::{Event, NotRecorded, SessionKind};
use crate::monitor::containers::Entry;
use crate::monitor::login::pam;
use crate::monitor::timers::micros;
use crate::monitor::tools::Tools;
use fleetgate_base::selinux;
use fleetgate_launch::cgroup::{Cgroups, SessionCgroup};
use fleetgate_launch::streams::Streams;
use fleetgate_launch::within_pam::PamEntry;
use fleetgate_launch::{Begun, Launch, LaunchError, LaunchOutcome, RunningHelper};
use fleetgate_orders::{OrderFacts, SessionRefusal};
use fleetgate_policy::permits::Program as Permitted;
use fleetgate_sys::poll::READ;
use fleetgate_sys::process::Exit;
use fleetgate_sys::{Errno, Fd, clock};
use fleetgate_wire::node::front::{Terminal, ToFront};
use fleetgate_wire::{Failure, Reason};
use std::ffi::CString;
use std::time::Duration;

impl Sessions {
    /// A launch came to something.
    pub fn launched(&mut self, tools: &mut Tools, id: u64, outcome: LaunchOutcome) {
        match super::parts(id) {
            Some((number, About::Xauth)) => self.xauth_launched(tools, number, outcome),
            Some((number, About::Launch)) => self.program_launched(tools, number, outcome),
            _ => {}
        }
    }

    /// Makes the order and hands it on.
    pub(super) fn launch(&mut self, tools: &mut Tools, number: u64) {
        // While this waited the connection may have ended.
        if self.all.get(&number).is_some_and(|s| s.nobody_listens) {
            self.forget(number);
            return;
        }
        if let Err(why) = self.try_launch(tools, number) {
            self.refuse(tools, number, why);
        }
    }

    fn try_launch(&mut self, tools: &mut Tools, number: u64) -> Result<(), SessionRefusal> {
        let Some(session) = self.all.get_mut(&number) else {
            return Ok(());
        };
        let State::Pending(pending) = &mut session.state else {
            return Ok(());
        };
        let is_shared = session.shared.is_some();
        let streams = streams_for(pending, is_shared)?;
        let config = tools.config.clone();
        let facts = OrderFacts {
            config: &config,
            grant: &pending.grant,
            addresses: &pending.addresses,
            start: &pending.start,
            account: &pending.account,
            session: session.id,
            at: clock::wall(),
            terminal: streams.path.as_ref(),
            agent: pending.agent.as_ref(),
            display: pending.display,
            cluster_user: &pending.cluster_user,
            inherited: &self.inherited,
            context: pending.context.as_ref(),
            pam: pending.pam,
            root: self.root,
        };
        let container = pending.container.as_ref();
        if container.is_some() {
            // What the helper looks at for others.
            account_in_use_without_shell(&pending.grant, &pending.account)?;
        }
        let recording = recorded::prepare(
            tools,
            (session.connection, session.id),
            (session.user.as_deref(), &session.login),
            pending,
        )?;
        let order = match &pending.decided.program {
            Permitted::Sftp { arguments } => HelperOrder::file_server(&facts, arguments, &tools.resolver)?,
            _ => {
                let whose = (session.connection, &*session.login, session.id);
                let watched = begin_watching(tools, whose, pending.watching)?;
                HelperOrder::program(&facts, &pending.decided, watched)?
            }
        };
        let HelperOrder {
            work,
            given: beside,
            mut record,
            events,
            audit,
        } = order;
        // In a container it is born in the container's.
        let cgroups = self.cgroups.as_mut().filter(|_| container.is_none());
        let cgroup = cgroups.and_then(own_cgroup);
        record.kill_remaining = config.kill_user_processes && cgroup.is_some();
        record.cgroup = cgroup.as_ref().map(|made| made.path.clone());
        session.cgroup = record.cgroup.clone();
        if container.is_some() {
            // For who looks at the sessions that run: there is no login record to take it from.
            record.entry.user = text(&session.login);
            record.entry.host = fleetgate_orders::address(&pending.addresses.peer);
            record.entry.address = pending.addresses.peer.address;
        }
        let is_terminal = streams.path.is_some();
        session.terminal = streams.path;
        let mut given = streams.given;
        given.extend(beside);
        let launch = Launch {
            cgroup: cgroup.map(|made| made.directory),
            deadline: config.limits.launch.0,
            ..Launch::new(work, given)
        };
        let is_direct = pending.decided.named_command().is_some();
        pending.under_way = Some(PendingLaunch {
            ours: streams.ours,
            is_socket: streams.is_socket,
            record,
            events,
            audit,
            is_direct,
            recording,
            awaits_terminal: container.is_some() && is_terminal,
        });
        let key = key(number, About::Launch);
        if let Some(container) = container {
            let entry = Entry {
                window: pending
                    .start
                    .terminal
                    .as_ref()
                    .map(Terminal::window)
                    .unwrap_or_default(),
                ..container.clone()
            };
            let begun = tools.launches.submit_in_container(entry, launch, key);
            return begun.map_err(|e| in_container(&e));
        }
        if !pending.pam {
            return tools.launches.submit(launch, key).map_err(|e| not_launched(&e));
        }
        let tty = session.terminal.clone().unwrap_or_else(|| c"ssh".into());
        let entry = PamEntry {
            shared: pending.shared_pam.take(),
            start: pam::start_again(&config, &pending.grant, &pending.account.name, &tty),
        };
        let variables_of_keys = pending.grant.permits.environment().len();
        let resolver = tools.resolver.clone();
        tools
            .launches
            .submit_in_pam(resolver, entry, (launch, variables_of_keys), key)
            .map_err(|e| not_launched(&e))
    }

    fn program_launched(&mut self, tools: &mut Tools, number: u64, outcome: LaunchOutcome) {
        let pam = tools.launches.take_pam(key(number, About::Launch));
        let Some(session) = self.all.get_mut(&number) else {
            return;
        };
        let State::Pending(pending) = std::mem::replace(&mut session.state, State::Between) else {
            return;
        };
        let connection = session.connection;
        self.no_longer_beginning(connection);
        let Some(session) = self.all.get_mut(&number) else {
            return;
        };
        let mut pending = pending;
        let Some(under_way) = pending.under_way.take() else {
            return;
        };
        let PendingLaunch {
            ours,
            is_socket,
            mut record,
            events,
            audit,
            is_direct,
            recording,
            awaits_terminal,
        } = under_way;
        let mut ours = ours;
        let (running, begun) = match outcome {
            Ok(done) => done,
            Err(e) => return self.launch_failed(tools, number, e, ours, is_socket, is_direct),
        };
        if awaits_terminal {
            match Streams::receive_terminal(&mut ours) {
                Ok(path) => session.terminal = Some(path),
                Err(e) => tracing::error!("the terminal of a container did not come: {e}"),
            }
        }
        record.entry.pid = running.pid;
        record.connection = session.connection;
        let begun_recording = recorded::begin(tools, session, &pending, recording);
        tell_start(tools, session, &running, &begun, audit, begun_recording.told);
        let (pipe, recorded) = begun_recording.front.unzip();
        ours.extend(pipe);
        let message = ToFront::Started {
            connection: session.connection,
            ticket: session.ticket,
            is_socket,
            output_limit: session.output_limit,
            recorded,
        };
        // It only queues: the front hears it at the end of the wake-up, when the reaper's file is written.
        match session.shared {
            Some(_) => self.collect_output(tools, number, ours),
            None => say(tools, session, message, ours),
        }
        let Some(session) = self.all.get_mut(&number) else {
            return;
        };
        let key = |about| key(number, about);
        if let Some(events) = &events {
            // Without it the transfer goes on untold; the count at its end says so.
            let _ = tools.wakes.watch(events, READ, key(About::Files));
        }
        if let Some(pam) = &pam
            && let Err(e) = tools.wakes.watch(pam.socket(), READ, key(About::Pam))
        {
            tracing::error!("a PAM session cannot be listened to: {e}");
        }
        let to_signal = running.pidfd.duplicate(3).ok();
        if let Some(pidfd) = to_signal
            .as_ref()
            .filter(|_| Sessions::ends_early(session, pending.pam))
        {
            // Without it the end is told when the session is closed.
            let _ = tools.wakes.watch(pidfd, READ, key(About::Exited));
        }
        session.state = State::Running(Box::new(running::RunningSession {
            since: std::time::Instant::now(),
            pid: running.pid,
            pidfd: to_signal,
            control: running.control,
            events,
            pam,
            in_pam: pending.pam,
            exit: None,
            reaped: None,
        }));
        let ends = self.ends.clone();
        let cgroup = record.cgroup.clone();
        let keep = self.session_reaper.keep(running.pidfd, record, move |end| {
            ends.tell(number, end, cgroup.as_deref())
        });
        if let Err(e) = keep {
            tracing::error!("{e}; the end of a session is not noticed");
        }
        session.time_limit_timer = session
            .limit
            .as_ref()
            .map(|limit| tools.timers.after(limit.time, key(About::TimeUp)));
        if session.kill_when_running {
            session.kill();
        }
        if session.nobody_listens || session.hung_up {
            self.hang_up_session(number);
        }
    }

    /// The launch failed. What the user was told on his terminal or standard error (no logins now, no shell) is his to
    /// read, with the exit code that sshd gives: the session is said to have run.
    fn launch_failed(
        &mut self,
        tools: &mut Tools,
        number: u64,
        error: LaunchError,
        ours: Vec<Fd>,
        is_socket: bool,
        is_direct: bool,
    ) {
        let told = match &error {
            LaunchError::Refused(failure) => told_code(failure, is_direct),
            _ => None,
        };
        let is_into_container = self.all.get(&number).is_some_and(|session| session.in_container);
        let why = match told {
            Some(_) => SessionRefusal::new(error.to_string()),
            None if is_into_container => in_container(&error),
            None => not_launched(&error),
        };
        if let Some(session) = self.all.get_mut(&number)
            && is_into_container
            && session.kind == SessionKind::Sftp
        {
            // OpenSSH's clients show nothing of a subsystem that is refused. Why there is no container to copy to is for their user.
            session.nobody_listens = true;
            let client = (session.connection, session.ticket);
            answers::say_failure(tools, client, &why.words);
            tools.metrics.launch_failed();
            return self.refuse(tools, number, why);
        }
        let Some((status, session)) = told.zip(self.all.get_mut(&number)) else {
            tools.metrics.launch_failed();
            return self.refuse(tools, number, why);
        };
        if session.shared.is_some() {
            session.share_refusal(tools, ours, status);
            return self.refuse(tools, number, why);
        }
        let (connection, ticket) = (session.connection, session.ticket);
        say(
            tools,
            session,
            ToFront::Started {
                connection,
                ticket,
                is_socket,
                output_limit: None,
                recorded: None,
            },
            ours,
        );
        let ended = ended(Some(Exit::Code(status)));
        say(
            tools,
            session,
            ToFront::Ended {
                connection,
                ticket,
                ended,
                why: CString::default(),
            },
            Vec::new(),
        );
        session.nobody_listens = true;
        self.refuse(tools, number, why);
    }
}

/// A session's two sides.
fn streams_for(pending: &PendingSession, is_shared: bool) -> Result<Streams, SessionRefusal> {
    match &pending.start.terminal {
        _ if matches!(pending.decided.program, Permitted::Sftp { .. }) => {
            Streams::socket().map_err(failed("making a socket"))
        }
        Some(_) if pending.container.is_some() => {
            Streams::console().map_err(failed("making a socket for the terminal"))
        }
        Some(terminal) => {
            // Of a user in an SELinux context.
            let label = |user: &Fd| match &pending.context {
                Some(context) => selinux::label_terminal(user, context),
                None => Ok(()),
            };
            Streams::terminal(terminal, label).map_err(failed("making a terminal"))
        }
        None if is_shared => Streams::outputs().map_err(failed("making pipes")),
        None => Streams::pipes().map_err(failed("making pipes")),
    }
}

/// A cgroup of the session's own, or none.
fn own_cgroup(cgroups: &mut Cgroups) -> Option<SessionCgroup> {
    let made = cgroups.take();
    made.inspect_err(|e| tracing::warn!("a session goes without a cgroup of its own: {e}"))
        .ok()
}

/// Tells metrics, log and audit log of a session that runs.
fn tell_start(
    tools: &mut Tools,
    session: &Session,
    running: &RunningHelper,
    begun: &Begun,
    audit: Option<&'static str>,
    recording: Result<Option<&'static str>, String>,
) {
    let spent = running.spent;
    let micros = micros(spent.order + spent.spawn + spent.ready);
    tracing::debug!(step = "launch", micros, "timing");
    let (spans, connection) = (&mut tools.spans, session.connection);
    spans.add(connection, c"node", "launch", Duration::from_micros(micros));
    spans.add_earlier(connection, c"node", "exec", spent.spawn, spent.ready);
    spans.add(connection, c"helper", "ready", spent.ready);
    tools.metrics.launched(running.strategy);
    tools.metrics.session_started(session.kind);
    let (unrecorded, unwatched) = match begun {
        Begun::Executed {
            unrecorded,
            unwatched,
            ..
        } => (
            unrecorded.as_ref().map(in_words),
            unwatched.as_ref().map(in_words),
        ),
        _ => (None, None),
    };
    if let Some(why) = &unwatched {
        let login = &session.login;
        tracing::error!(%login, pid = running.pid, "a session is not watched, though it should be: {why}");
    }
    if let Some(why) = &unrecorded {
        let login = &session.login;
        tracing::warn!(%login, pid = running.pid, "a login record is not written: {why}");
    }
    tools.audit.tell(Event::SessionStarted {
        connection: session.connection,
        session: session.id,
        login: session.login.clone(),
        source: session.source,
        user: session.user.clone(),
        kind: session.kind,
        pid: running.pid,
        terminal: session
            .terminal
            .as_ref()
            .map(|t| t.to_string_lossy().into_owned()),
        command: session.command.clone(),
        original: session.original.clone(),
        runs_as: session.runs_as.clone(),
        container: running.container.clone(),
        strategy: running.strategy.name(),
        unrecorded,
        audit: audit.filter(|_| unwatched.is_none()),
        unwatched,
        recording: recording.as_ref().ok().copied().flatten(),
        not_recorded: recording.err().map(|reason| NotRecorded { reason }),
    });
}

/// What failed, and why.
fn in_words(failure: &Failure) -> String {
    let subject = failure.subject.to_string_lossy();
    match failure.errno {
        0 => subject.into_owned(),
        errno => format!("{subject}: {}", Errno(errno)),
    }
}

/// Words for the user; the log has the others.
fn not_launched(error: &LaunchError) -> SessionRefusal {
    tracing::error!("a session is not started: {error}");
    match error {
        LaunchError::Pam(_) => SessionRefusal::new("PAM refused the session; the host's log says why"),
        LaunchError::Busy { .. } => SessionRefusal::new("the host has too much to do; try again"),
        LaunchError::Refused(failure) if failure.subject.to_bytes().starts_with(b"watching") => {
            SessionRefusal::new("the session is to be watched, and cannot be; the host's log says why")
        }
        _ => refused_by(
            error,
            "the session could not be started; the host's log says why".to_owned(),
        ),
    }
}

/// What is wrong with a container is for its user to read.
fn in_container(error: &LaunchError) -> SessionRefusal {
    refused_by(error, error.into_a_container())
}

fn refused_by(error: &LaunchError, words: String) -> SessionRefusal {
    SessionRefusal {
        words,
        is_final: !error.may_pass(),
    }
}

/// The exit code of a helper that told the user himself why not: sshd's.
fn told_code(failure: &Failure, is_direct: bool) -> Option<i32> {
    match failure.reason {
        Reason::NoLogin => Some(254),
        Reason::AccountExpired | Reason::PasswordExpired => Some(1),
        Reason::NoProgram if !is_direct => Some(1),
        Reason::NoProgram if failure.errno == fleetgate_sys::Errno::ENOENT.0 => Some(127),
        Reason::NoProgram => Some(126),
        _ => None,
    }
}
