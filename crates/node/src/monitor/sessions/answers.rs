//! Named commands with a `cache`: one run serves every client that asks for the same. A client that asks while it runs waits
//! for its end with the others; one that asks within the `cache` time after it gets the same result, and nothing is started.
//!
//! The monitor collects the output of such a run itself, because no front outlives its connections and none may see another
//! login's bytes. At the end each client's front gets it in pipes that hold all of it, as if a program had just ended.
//!
//! Calls for a result that is kept: 3 pipes, 2 sizes, 2 writes, 3 closes and 2 frames in one send; no process.

use super::{About, Session, Sessions, key, text};
use crate::monitor::audit::Event;
use crate::monitor::open_login::OpenLogin;
use crate::monitor::tools::Tools;
use fleetgate_launch::streams::Streams;
use fleetgate_orders::SessionRefusal;
use fleetgate_policy::commands::NamedCommand;
use fleetgate_policy::text::printable_lines;
use fleetgate_policy::{Permits, Watching};
use fleetgate_sys::file;
use fleetgate_sys::poll::READ;
use fleetgate_sys::process::Exit;
use fleetgate_sys::{Errno, Fd};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::front::{ClientVariable, Start, Ticket, ToFront};
use fleetgate_wire::node::{ConnectionNumber, ProcessEnd};
use std::collections::HashMap;
use std::ffi::CString;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The bytes of output that are kept, of all results together. The oldest go first.
const MAX_KEPT_OUTPUT: usize = 8 << 20;
/// The results that are kept.
const MAX_RESULTS: usize = 4096;
/// Read at once.
const CHUNK: usize = 64 << 10;
/// Reads of one turn: a command that says more than its `output` holds up nobody.
const READS: usize = 16;

/// Whose run it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum RunAccount {
    /// The login's.
    Login(u32),
    /// The command's own.
    Named(String),
}

/// What two requests for the same run have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SameRun {
    account: RunAccount,
    argv: Vec<Vec<u8>>,
    environment: Vec<(String, String)>,
    sent: Vec<(Vec<u8>, Vec<u8>)>,
    /// What the login's key files set.
    set: Vec<(String, String)>,
    /// What its client's list says of the result: how much, and for how long.
    output: Option<u64>,
    cache: Duration,
    /// How closely it is watched.
    audit: &'static str,
}

impl SameRun {
    /// Of a command whose results are kept. One at a terminal, or with an agent or a display, is its client's alone.
    pub(super) fn of(
        command: &NamedCommand,
        account: RunAccount,
        permits: &Permits,
        start: &Start,
        watching: Watching,
    ) -> Option<SameRun> {
        let cache = command.cache?;
        if start.terminal.is_some() || start.agent.is_some() || start.x11.is_some() {
            return None;
        }
        let variable = |v: &ClientVariable| (v.name.clone(), v.value.clone());
        // Variables of the login do not reach another account.
        let (sent, set) = match account {
            RunAccount::Login(_) => (
                start.environment.iter().map(variable).collect(),
                permits.environment().to_vec(),
            ),
            RunAccount::Named(_) => Default::default(),
        };
        Some(SameRun {
            account,
            argv: command.argv.clone(),
            environment: command.environment.clone(),
            sent,
            set,
            output: command.limits.output,
            cache,
            audit: watching.audit.name(),
        })
    }
}

/// A run whose output is collected for its clients.
pub(super) struct SharedRun {
    same: SameRun,
    keep: Duration,
    most: usize,
    clients: Vec<(ConnectionNumber, Ticket)>,
    outputs: [Option<Fd>; 2],
    collected: [Vec<u8>; 2],
    is_cut: bool,
}

/// What a run came to.
struct RunResult {
    /// Standard output and standard error.
    output: [Vec<u8>; 2],
    /// So much is passed on, where there was more.
    most: Option<u64>,
    ended: ProcessEnd,
    why: CString,
}

/// One that is kept.
struct Kept {
    result: Rc<RunResult>,
    session: SessionId,
    ended_at: Instant,
    until: Instant,
}

/// The results that are kept, and the runs that clients can join.
#[derive(Default)]
pub(super) struct Answers {
    kept: HashMap<SameRun, Kept>,
    running: HashMap<SameRun, u64>,
}

impl Answers {
    fn drop_old(&mut self, now: Instant) {
        self.kept.retain(|_, kept| kept.until > now);
    }

    fn keep(&mut self, same: SameRun, kept: Kept) {
        self.drop_old(kept.ended_at);
        self.kept.insert(same, kept);
        let size = |kept: &Kept| kept.result.output.iter().map(Vec::len).sum::<usize>();
        while self.kept.len() > MAX_RESULTS || self.kept.values().map(size).sum::<usize>() > MAX_KEPT_OUTPUT {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.ended_at);
            let Some(same) = oldest.map(|(same, _)| same.clone()) else {
                return;
            };
            self.kept.remove(&same);
        }
    }
}

impl SharedRun {
    /// For its first client.
    pub(super) fn new(
        same: SameRun,
        command: &NamedCommand,
        client: (ConnectionNumber, Ticket),
    ) -> Box<SharedRun> {
        Box::new(SharedRun {
            same,
            keep: command.cache.unwrap_or_default(),
            most: usize::try_from(command.limits.output.unwrap_or(0)).unwrap_or(usize::MAX),
            clients: vec![client],
            outputs: [None, None],
            collected: [Vec::new(), Vec::new()],
            is_cut: false,
        })
    }

    /// Takes what the program has said.
    fn read(&mut self) {
        let mut room = [0u8; CHUNK];
        for which in 0..2 {
            for _ in 0..READS {
                let Some(fd) = &self.outputs[which] else { break };
                match file::read(fd.raw(), &mut room) {
                    Err(Errno::EAGAIN) => break,
                    Ok(0) | Err(_) => self.outputs[which] = None,
                    Ok(n) => {
                        let left = self
                            .most
                            .saturating_sub(self.collected.iter().map(Vec::len).sum());
                        self.is_cut |= n > left;
                        self.collected[which].extend_from_slice(&room[..n.min(left)]);
                    }
                }
            }
        }
    }

    fn finish(&mut self, ended: ProcessEnd, why: CString) -> RunResult {
        self.read();
        RunResult {
            output: std::mem::take(&mut self.collected),
            // A byte less than there is: the front says that it left some out.
            most: self.is_cut.then(|| (self.most as u64).saturating_sub(1)),
            ended,
            why,
        }
    }
}

impl Sessions {
    /// Whether a run that was or is answers a request; where none does, the command is to be started.
    pub(super) fn answer_by_another_run(
        &mut self,
        tools: &mut Tools,
        open_login: &OpenLogin,
        ticket: Ticket,
        same: &SameRun,
        command: Option<Vec<u8>>,
    ) -> bool {
        let now = Instant::now();
        self.answers.drop_old(now);
        let client = (open_login.connection, ticket);
        let (session, age) = if let Some(kept) = self.answers.kept.get(same) {
            hand_over(tools, client, &kept.result);
            (kept.session, Some(now - kept.ended_at))
        } else if let Some(session) = self.join_run(same, client) {
            (session, None)
        } else {
            return false;
        };
        tools.audit.tell(Event::CommandAnswered {
            connection: open_login.connection,
            login: open_login.grant.login.to_string(),
            session,
            source: (&open_login.addresses.peer).into(),
            user: open_login.user(),
            command,
            age,
        });
        true
    }

    /// Waits for the run that is under way, if there is one; its session.
    fn join_run(&mut self, same: &SameRun, client: (ConnectionNumber, Ticket)) -> Option<SessionId> {
        let number = *self.answers.running.get(same)?;
        let session = self.all.get_mut(&number).filter(|s| !s.is_ending())?;
        session.shared.as_mut()?.clients.push(client);
        self.by_ticket.insert(client, number);
        *self.by_connection.entry(client.0).or_default() += 1;
        Some(session.id)
    }

    /// Others can join the run.
    pub(super) fn can_be_joined(&mut self, same: &SameRun, number: u64) {
        self.answers.running.insert(same.clone(), number);
    }

    /// The program runs: its output is collected.
    pub(super) fn collect_output(&mut self, tools: &Tools, number: u64, outputs: Vec<Fd>) {
        let Some(shared) = self.all.get_mut(&number).and_then(|s| s.shared.as_mut()) else {
            return;
        };
        for (place, fd) in shared.outputs.iter_mut().zip(outputs) {
            if let Err(e) = tools.wakes.watch(&fd, READ, key(number, About::Output)) {
                // What does not fit into the pipe is missing then.
                tracing::error!("the output of a named command cannot be watched: {e}");
            }
            *place = Some(fd);
        }
    }

    /// It has said something.
    pub(super) fn hear_output(&mut self, number: u64) {
        if let Some(shared) = self.all.get_mut(&number).and_then(|s| s.shared.as_mut()) {
            shared.read();
        }
    }

    /// A client does not wait any more: of a ticket, or of a whole connection. Whether others still do.
    pub(super) fn leave_run(
        &mut self,
        number: u64,
        connection: ConnectionNumber,
        ticket: Option<Ticket>,
    ) -> bool {
        let Some(session) = self.all.get_mut(&number) else {
            return false;
        };
        let first = (session.connection, session.ticket);
        let Some(shared) = &mut session.shared else {
            return false;
        };
        let leaves = |client: &(ConnectionNumber, Ticket)| {
            client.0 == connection && ticket.is_none_or(|ticket| client.1 == ticket)
        };
        for client in shared.clients.extract_if(.., |client| leaves(client)) {
            self.by_ticket.remove(&client);
            if let Some(count) = self.by_connection.get_mut(&client.0).filter(|_| client != first) {
                *count -= 1;
            }
        }
        !shared.clients.is_empty()
    }

    /// Nobody joins the run of this session any more, which is gone from the list of sessions.
    pub(super) fn forget_run(&mut self, number: u64, session: &Session) {
        let Some(shared) = &session.shared else { return };
        if self.answers.running.get(&shared.same) == Some(&number) {
            self.answers.running.remove(&shared.same);
        }
        let first = (session.connection, session.ticket);
        for client in &shared.clients {
            self.by_ticket.remove(client);
            if let Some(count) = self.by_connection.get_mut(&client.0).filter(|_| *client != first) {
                *count -= 1;
            }
        }
    }

    /// The run is over: all who wait get its result, and those who ask in time. One that was ended is nobody's later.
    pub(super) fn share_result(&mut self, tools: &mut Tools, session: &mut Session, exit: Option<Exit>) {
        let is_own_end = matches!(exit, Some(Exit::Code(_))) && session.parting.is_none();
        let why = text(session.parting.as_deref().unwrap_or_default());
        let (ended_at, id) = (Instant::now(), session.id);
        let Some(shared) = &mut session.shared else { return };
        let result = Rc::new(shared.finish(super::ended(exit), why));
        for client in &shared.clients {
            hand_over(tools, *client, &result);
        }
        if is_own_end {
            let kept = Kept {
                result,
                session: id,
                ended_at,
                until: ended_at + shared.keep,
            };
            self.answers.keep(shared.same.clone(), kept);
        }
    }
}

impl Session {
    /// Those who hear of it.
    pub(super) fn clients(&self) -> Vec<(ConnectionNumber, Ticket)> {
        match &self.shared {
            Some(shared) => shared.clients.clone(),
            None if self.nobody_listens => Vec::new(),
            None => vec![(self.connection, self.ticket)],
        }
    }

    /// It is ended, or about to be: its result is not what its command says.
    fn is_ending(&self) -> bool {
        self.kill_when_running || self.hung_up || self.parting.is_some()
    }

    /// What the helper itself said, of a command that could not be begun.
    pub(super) fn share_refusal(&mut self, tools: &mut Tools, outputs: Vec<Fd>, status: i32) {
        let Some(shared) = &mut self.shared else { return };
        for (place, fd) in shared.outputs.iter_mut().zip(outputs) {
            *place = Some(fd);
        }
        let result = shared.finish(super::ended(Some(Exit::Code(status))), CString::default());
        for client in std::mem::take(&mut shared.clients) {
            hand_over(tools, client, &result);
        }
    }
}

/// Gives a client's front the list that it asked for, which the node itself has, as of a program that said it and ended well.
pub(super) fn say_list(
    tools: &mut Tools,
    open_login: &OpenLogin,
    ticket: Ticket,
    list: &'static str,
    text: String,
) {
    tools.audit.tell(Event::Listed {
        connection: open_login.connection,
        login: open_login.grant.login.to_string(),
        source: (&open_login.addresses.peer).into(),
        user: open_login.user(),
        list,
    });
    let result = RunResult {
        output: [text.into_bytes(), Vec::new()],
        most: None,
        ended: super::ended(Some(Exit::Code(0))),
        why: CString::default(),
    };
    hand_over(tools, (open_login.connection, ticket), &result);
}

/// Gives it why not, on standard error, as of a program that failed with ssh's own code.
pub(super) fn say_failure(tools: &mut Tools, client: (ConnectionNumber, Ticket), why: &str) {
    let result = RunResult {
        output: [Vec::new(), format!("{}\r\n", printable_lines(why)).into_bytes()],
        most: None,
        ended: super::ended(Some(Exit::Code(255))),
        why: CString::default(),
    };
    hand_over(tools, client, &result);
}

/// Gives a client's front the result, as of a program that has just ended.
fn hand_over(tools: &mut Tools, (connection, ticket): (ConnectionNumber, Ticket), result: &RunResult) {
    let streams = match Streams::holding(&result.output) {
        Ok(streams) => streams,
        Err(e) => {
            tracing::error!("the result of a named command cannot be given to its client: {e}");
            let why = "the command's result could not be handed over; the host's log says why";
            let why = SessionRefusal::new(why);
            return tools.to_fronts.not_started(connection, ticket, &why);
        }
    };
    let started = ToFront::Started {
        connection,
        ticket,
        is_socket: false,
        output_limit: result.most,
        recorded: None,
    };
    tools.to_fronts.say(connection, started, streams);
    let ended = ToFront::Ended {
        connection,
        ticket,
        ended: result.ended.clone(),
        why: result.why.clone(),
    };
    tools.to_fronts.say(connection, ended, Vec::new());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(word: &str) -> SameRun {
        SameRun {
            account: RunAccount::Login(1000),
            argv: vec![b"/bin/x".to_vec(), word.as_bytes().to_vec()],
            environment: Vec::new(),
            sent: Vec::new(),
            set: Vec::new(),
            output: None,
            cache: Duration::ZERO,
            audit: "none",
        }
    }

    fn kept(bytes: usize, at: Instant, keep: Duration) -> Kept {
        Kept {
            result: Rc::new(RunResult {
                output: [vec![0; bytes], Vec::new()],
                most: None,
                ended: super::super::ended(Some(Exit::Code(0))),
                why: CString::default(),
            }),
            session: SessionId::default(),
            ended_at: at,
            until: at + keep,
        }
    }

    #[test]
    fn variables_of_a_key_are_part_of_what_is_the_same() {
        use fleetgate_policy::commands::{Command, Commands};
        use fleetgate_policy::{Audit, Rule};
        let mut list = Commands::new();
        let command = Command::define(&["/bin/x"], &[]).expect("a command");
        let limits = fleetgate_policy::commands::CommandLimits {
            output: Some(1024),
            ..Default::default()
        };
        let command = command.limited(limits).with_cache(Duration::from_secs(1));
        list.add("x", command.expect("it may be kept")).expect("one");
        let command = list.find(b"x", &Rule::new("the test")).expect("it is there");
        let start = Start {
            program: fleetgate_wire::node::front::Program::Shell,
            terminal: None,
            environment: Vec::new(),
            agent: None,
            x11: None,
        };
        let by_key = |account: RunAccount, scope: &str| {
            let mut permits = Permits::all();
            permits.set("SCOPE", scope);
            SameRun::of(&command, account, &permits, &start, Watching::default())
        };
        let own = |scope| by_key(RunAccount::Login(1000), scope);
        assert_eq!(own("one"), own("one"));
        assert_ne!(own("one"), own("two"));
        // They do not reach a command of another account.
        let others = |scope| by_key(RunAccount::Named("root".to_owned()), scope);
        assert_eq!(others("one"), others("two"));
        // Nor does a client get more of a result, or an older one, than its own list says, or one that nobody watched.
        let (permits, account) = (Permits::all(), RunAccount::Login(1000));
        let of = |command: &NamedCommand, audit| {
            let watching = Watching {
                audit,
                ..Watching::default()
            };
            SameRun::of(command, account.clone(), &permits, &start, watching)
        };
        let (mut less, mut newer) = (command.clone(), command.clone());
        less.limits.output = Some(10);
        newer.cache = Some(Duration::from_millis(10));
        let usual = of(&command, Audit::None);
        assert_eq!(usual, of(&command, Audit::None));
        for other in [
            of(&less, Audit::None),
            of(&newer, Audit::None),
            of(&command, Audit::Files),
        ] {
            assert_ne!(usual, other);
        }
    }

    #[test]
    fn results_are_kept_for_their_time_and_within_the_bound() {
        let (mut answers, begun, minute) = (Answers::default(), Instant::now(), Duration::from_secs(60));
        for n in 0..20u64 {
            let at = begun + Duration::from_millis(n);
            answers.keep(same(&n.to_string()), kept(1 << 20, at, minute));
        }
        assert_eq!(answers.kept.len(), MAX_KEPT_OUTPUT >> 20);
        assert!(answers.kept.contains_key(&same("19")), "the newest");
        assert!(!answers.kept.contains_key(&same("11")), "an older one");
        for n in 0..=MAX_RESULTS as u64 {
            let at = begun + Duration::from_millis(100 + n);
            answers.keep(same(&format!("small {n}")), kept(1, at, minute));
        }
        assert_eq!(answers.kept.len(), MAX_RESULTS);
        answers.drop_old(begun + Duration::from_secs(120));
        assert!(answers.kept.is_empty());
    }

    #[test]
    fn output_is_collected_up_to_its_bound() {
        for (said, most, held, is_cut) in [
            (200_000, 300_000, 200_000, false),
            (200_000, 200_000, 200_000, false),
            (200_001, 200_000, 200_000, true),
        ] {
            let mut shared = SharedRun {
                same: same(""),
                keep: Duration::ZERO,
                most,
                clients: Vec::new(),
                outputs: [None, None],
                collected: [Vec::new(), Vec::new()],
                is_cut: false,
            };
            let (output, errors) = (vec![b'o'; said - 5], vec![b'e'; 5]);
            let mut streams = Streams::holding(&[output, errors]).expect("pipes").into_iter();
            let (_, out, err) = (streams.next(), streams.next(), streams.next());
            shared.outputs = [out, err];
            let result = shared.finish(super::super::ended(None), CString::default());
            let total: usize = result.output.iter().map(Vec::len).sum();
            assert_eq!((total, result.most.is_some()), (held, is_cut), "{said} of {most}");
        }
    }
}
