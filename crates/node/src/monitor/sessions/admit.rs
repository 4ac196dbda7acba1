//! Admission: whether a front's Start becomes a session. It is held against the connection's grant and against the limits;
//! a refusal is told to the client and to the audit log. The steps that follow are `prepare` and `launch`.

use super::answers::{self, RunAccount, SameRun, SharedRun};
use super::helper_checks::account_in_use_without_shell;
use super::pending::PendingSession;
use super::{LimitOwner, Session, Sessions, State, TimeLimit};
use crate::config::cluster::ClusterLogin;
use crate::monitor::audit::{Event, SessionKind};
use crate::monitor::network::Networks;
use crate::monitor::open_login::OpenLogin;
use crate::monitor::timers::now;
use crate::monitor::tools::Tools;
use fleetgate_orders::{ClusterUser, MAX_LIST, SessionRefusal, choose_program, command_list, shorten};
use fleetgate_policy::commands::NamedCommand;
use fleetgate_policy::{Watching, recording};
use fleetgate_wire::common::Account;
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::front::{Start, Ticket};
use std::ffi::CString;

/// What came of a front's Start.
enum Admitted {
    /// A session, which is to be prepared.
    Begins(u64),
    /// The result of an earlier run is the answer, or that of one under way will be.
    ByAnotherRun,
}

impl Sessions {
    /// A front asks for a session. `account`: as the name service had it, at most `names::KEEP` ago.
    pub fn start(
        &mut self,
        tools: &mut Tools,
        networks: &Networks,
        open_login: &mut OpenLogin,
        account: Account,
        ticket: Ticket,
        start: Start,
    ) {
        let connection = open_login.connection;
        if let Some(list) = command_list(&open_login.grant, &start) {
            return answers::say_list(tools, open_login, ticket, "commands", list);
        }
        match self.admit(tools, networks, open_login, account, ticket, start) {
            Ok(Admitted::ByAnotherRun) => {}
            Ok(Admitted::Begins(number)) => self.prepare(tools, number),
            Err(why) => {
                open_login.tell_denied(&tools.audit, &tools.metrics, why.words.clone());
                tools.to_fronts.not_started(connection, ticket, &why);
            }
        }
    }

    /// Answers a request with the list of containers; what is too long for it is left out, and the list says so.
    pub fn answer_containers(
        &mut self,
        tools: &mut Tools,
        open_login: &OpenLogin,
        ticket: Ticket,
        (mut text, is_json): (String, bool),
    ) {
        shorten(&mut text, MAX_LIST, is_json);
        answers::say_list(tools, open_login, ticket, "containers", text);
    }

    /// The same with why not, as of a program that failed.
    pub fn answer_failure(
        &mut self,
        tools: &mut Tools,
        connection: ConnectionNumber,
        ticket: Ticket,
        why: &str,
    ) {
        answers::say_failure(tools, (connection, ticket), why);
    }

    /// The checks, and the session's entry.
    fn admit(
        &mut self,
        tools: &mut Tools,
        networks: &Networks,
        open_login: &mut OpenLogin,
        account: Account,
        ticket: Ticket,
        start: Start,
    ) -> Result<Admitted, SessionRefusal> {
        let connection = open_login.connection;
        let decided = choose_program(&open_login.grant, &start, now())?;
        if account.ids.uid != open_login.uid {
            return Err(SessionRefusal::new(
                "the account is not the one that logged in: log in again",
            ));
        }
        if self.by_ticket.contains_key(&(connection, ticket)) {
            return Err(SessionRefusal::new("the session's number is in use"));
        }
        self.has_room_on(open_login, tools.config.limits.sessions)?;
        let named_command = decided.named_command();
        let runs_as = decided
            .other_account(&open_login.grant.login)
            .map(ToString::to_string);
        if let Some(user) = &runs_as {
            self.may_run_as(user, &start)?;
        }
        let container = open_login.grant.login.container();
        if let (Some(user), Some(container)) = (&runs_as, container) {
            return Err(SessionRefusal::new(format!(
                "the command runs as {user} of this machine, and not in the container {container}"
            )));
        }
        let watching = open_login
            .cluster_logins
            .iter()
            .map(|of| of.allowed.watching)
            .fold(tools.config.watching(), Watching::and);
        // What named commands run is the administrator's; their lines in the audit log say all of it.
        let decisions = open_login
            .cluster_logins
            .iter()
            .map(|of| (of.allowed.recording, of.allowed.recording_failure));
        let level = match named_command {
            Some(_) => Default::default(),
            None => tools.config.recording.of_session(decisions),
        };
        let of_roles = open_login.cluster_logins.iter();
        let recipients = of_roles.map(|of| &of.allowed.recording_recipients[..]);
        let recipients = recording::union(recipients.chain([&tools.config.recording.recipients[..]]));
        // What a container answers is nobody else's.
        let same = named_command.filter(|_| container.is_none()).and_then(|command| {
            let account = match &runs_as {
                Some(user) => RunAccount::Named(user.clone()),
                None => RunAccount::Login(account.ids.uid),
            };
            SameRun::of(command, account, &open_login.grant.permits, &start, watching)
        });
        if same.is_some() {
            // What the helper would look at, were a process begun.
            account_in_use_without_shell(&open_login.grant, &account)?;
        }
        if let Some(same) = &same
            && self.answer_by_another_run(tools, open_login, ticket, same, decided.command())
        {
            return Ok(Admitted::ByAnotherRun);
        }
        self.has_room_for(named_command)?;
        // The agent and the display are the login's.
        let (agent, display) = match &runs_as {
            Some(_) => (None, None),
            None => forwarded(networks, connection, &start)?,
        };
        self.next += 1;
        let number = self.next;
        let shared = same.zip(named_command).map(|(same, command)| {
            self.can_be_joined(&same, number);
            SharedRun::new(same, command, (connection, ticket))
        });
        let [high, low] = fleetgate_sys::exe::random();
        let pam = tools.pam && decided.is_login() && container.is_none();
        let session = Session {
            connection,
            source: (&open_login.addresses.peer).into(),
            user: open_login.user(),
            end_command: None,
            parting: None,
            ticket,
            login: open_login.grant.login.to_string(),
            // All that a session runs in a container is its own, whoever it is there.
            uid: if container.is_some() { 0 } else { account.ids.uid },
            in_container: container.is_some(),
            id: (u128::from(high) << 64 | u128::from(low)).to_be_bytes(),
            kind: decided.kind,
            takes_no_signals: open_login.grant.permits.forced().is_some()
                || decided.kind == SessionKind::Sftp
                || shared.is_some()
                || runs_as.is_some(),
            terminal: None,
            command: decided.command(),
            original: decided.original.clone(),
            runs_as,
            cgroup: None,
            nobody_listens: false,
            left_by: None,
            end_is_told: false,
            hung_up: false,
            kill_when_running: false,
            leaves_nothing: false,
            named_command: named_command.map(|command| command.name.clone()),
            output_limit: named_command.and_then(|command| command.limits.output),
            shared,
            limit: time_limit(&open_login.cluster_logins, named_command),
            time_limit_timer: None,
            state: State::Pending(Box::new(PendingSession {
                grant: open_login.grant.clone(),
                addresses: open_login.addresses.clone(),
                start,
                account,
                decided,
                container: open_login.entry(),
                agent,
                display,
                context: None,
                watching,
                recording: level,
                recipients,
                recording_keep: open_login
                    .cluster_logins
                    .iter()
                    .filter_map(|of| of.allowed.recording_keep)
                    .max(),
                roles: roles(&open_login.cluster_logins),
                cluster_user: ClusterUser::of(&open_login.cluster_logins),
                shared_pam: if pam { open_login.pam.for_session() } else { None },
                pam,
                xauth: None,
                under_way: None,
            })),
        };
        self.all.insert(number, session);
        self.by_ticket.insert((connection, ticket), number);
        *self.by_connection.entry(connection).or_default() += 1;
        self.beginning.push(connection);
        Ok(Admitted::Begins(number))
    }

    /// Whether the connection may have one more session.
    fn has_room_on(&self, open_login: &OpenLogin, limit: u32) -> Result<(), SessionRefusal> {
        let connection = &open_login.connection;
        let count = self.by_connection.get(connection).copied().unwrap_or(0);
        if count >= limit {
            return Err(SessionRefusal::new(format!(
                "a connection has at most {limit} sessions (limits.sessions)"
            )));
        }
        let of_roles = |of: &ClusterLogin| of.allowed.limits.sessions;
        match open_login.cluster_logins.iter().filter_map(of_roles).min() {
            Some(most) if count >= most => Err(SessionRefusal::new(format!(
                "a connection has at most {most} sessions by its roles: end one of them"
            ))),
            _ => Ok(()),
        }
    }

    /// Whether a command may run as another account than its login's.
    fn may_run_as(&self, user: &str, start: &Start) -> Result<(), SessionRefusal> {
        // Its keys send signals, and TERM is the client's claim: neither is for another account's command.
        let missing = match (start.terminal.is_some(), self.root) {
            (true, _) => "has no terminal: run it without -t",
            (false, false) => "only a node that runs as root can do that",
            (false, true) => return Ok(()),
        };
        Err(SessionRefusal::new(format!(
            "the command runs as {user}, and {missing}"
        )))
    }

    /// Whether one more of a named command may run.
    fn has_room_for(&self, named_command: Option<&NamedCommand>) -> Result<(), SessionRefusal> {
        let Some((command, most)) =
            named_command.and_then(|command| Some((command, command.limits.concurrency?)))
        else {
            return Ok(());
        };
        let is_it = |session: &&Session| session.named_command.as_ref() == Some(&command.name);
        if self.all.values().filter(is_it).count() < most as usize {
            return Ok(());
        }
        Err(SessionRefusal::new(format!(
            "the command {:?} runs {most} times already, as often as its `concurrency` allows: ask again when one has ended",
            command.name
        )))
    }

    /// It will not be: the client is told, unless he was, and the audit log.
    pub(super) fn refuse(&mut self, tools: &mut Tools, number: u64, why: SessionRefusal) {
        let Some(session) = self.forget(number) else {
            return;
        };
        if let Some(cgroup) = &session.cgroup {
            let _ = std::fs::remove_dir(cgroup);
        }
        for (connection, ticket) in session.clients() {
            tools.to_fronts.not_started(connection, ticket, &why);
        }
        let connection = session.connection;
        tools.audit.tell(Event::SessionRefused {
            connection,
            login: session.login,
            reason: why.words,
        });
    }
}

/// The roles that let it in.
fn roles(cluster_logins: &[ClusterLogin]) -> Vec<String> {
    let all = cluster_logins.iter().flat_map(|of| &of.allowed.roles);
    all.map(ToString::to_string).collect()
}

/// For how long a session may last: the shorter of what its roles and its command say.
fn time_limit(cluster_logins: &[ClusterLogin], command: Option<&NamedCommand>) -> Option<TimeLimit> {
    let of_roles = cluster_logins
        .iter()
        .filter_map(|of| of.allowed.limits.session)
        .min();
    let of_command = command.and_then(|command| command.limits.timeout);
    let limits = [(LimitOwner::Command, of_command), (LimitOwner::Roles, of_roles)];
    let limits = limits
        .into_iter()
        .filter_map(|(by, time)| Some(TimeLimit { time: time?, by }));
    limits.min_by_key(|limit| limit.time)
}

/// The forwarded agent's socket, and the forwarded display's number, as far as the session asks for them.
fn forwarded(
    networks: &Networks,
    connection: ConnectionNumber,
    start: &Start,
) -> Result<(Option<CString>, Option<u16>), SessionRefusal> {
    let agent = start.agent.map(|of| {
        let agent = networks.agent(connection, of);
        agent.ok_or(SessionRefusal::new("there is no agent to forward"))
    });
    let display = start.x11.as_ref().map(|x11| {
        let number = networks.display(connection, x11.display);
        number.ok_or(SessionRefusal::new("there is no display to forward"))
    });
    Ok((agent.transpose()?, display.transpose()?))
}
