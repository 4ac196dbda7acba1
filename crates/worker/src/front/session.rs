//! Sessions: what the client asks for before a program runs, the program's start, its signals and its end. The monitor
//! starts it; here is what is to be started, and what is said to the client in which order (as OpenSSH's sshd has it):
//!
//! - output as it comes; EOF when standard output and error have ended, held back for a moment so that it goes out with
//!   the exit status, as for most programs both come at once;
//! - exit-status or exit-signal when the process ended, also while background children hold its output;
//! - CLOSE after both.

use super::Context;
use super::channel::{Channel, Session, Stage, Use};
use super::connection::FrontConnection;
use super::pump::Pump;
use super::tap::Tap;
use crate::start::WorkerEnd;
use fleetgate_ssh::event::{ChannelId, LEAVE_NOTHING, NOT_BEGUN, ReplyId, Request, Stream};
use fleetgate_sys::{Fd, terminal};
use fleetgate_wire::net::What;
use fleetgate_wire::node::front::{self, FromFront, Program, Recorded, RequestKind, Start, Terminal, Ticket};
use fleetgate_wire::node::{self, FrontPermit, MAX_COMMAND, MAX_MODES, MAX_TERM, MAX_X11};
use std::ffi::{CStr, CString};
use std::time::Duration;

/// How long an EOF waits for the exit status. The process's descriptors close before its end is told.
const EOF_HELD: Duration = Duration::from_millis(3);
/// In this turn; becomes a moment at its end.
const NOW: Duration = Duration::MAX;
/// The longest name of a subsystem or signal.
const MAX_NAME: usize = 255;
/// The most of a refused command that is told for the audit log.
const MAX_TOLD_COMMAND: usize = 200;
/// The most of a reason that is shown to the user.
const MAX_SHOWN: usize = 1024;

impl FrontConnection {
    /// A request on a channel.
    pub(super) fn request(
        &mut self,
        channel: ChannelId,
        request: Request,
        reply: Option<ReplyId>,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        let permits = self.permits;
        let Some(Channel::Session(session)) = self.channels.get_mut(&channel.0) else {
            // eow@openssh.com makes sense on any channel, all others on sessions only.
            if let (Request::EndOfWrite, Some(ch)) = (request, self.channels.get_mut(&channel.0)) {
                ch.pump().end_output();
            }
            self.answer(reply, false);
            return Ok(());
        };
        let early = session.stage == Stage::Before;
        let done = match request {
            Request::Pty(pty) if early => {
                if !permits.has(FrontPermit::Pty) {
                    self.deny(RequestKind::Terminal, b"pty-req", context)?;
                    false
                } else if pty.term.len() > MAX_TERM || pty.modes.len() > MAX_MODES {
                    false
                } else {
                    session.pty = Some(pty);
                    true
                }
            }
            Request::Env { name, value } if early => session.set(name, value),
            Request::Shell if early => return self.want(channel, Program::Shell, reply, context),
            Request::Exec { command } if early && command.len() <= MAX_COMMAND => {
                return self.want(channel, Program::Exec { command }, reply, context);
            }
            Request::Subsystem { name } if early && name.len() <= MAX_NAME => {
                return self.want(channel, Program::Subsystem { name }, reply, context);
            }
            Request::WindowChange(size) => {
                let done = session.resize(size);
                self.notice_recording(channel.0);
                done
            }
            Request::Break { .. } => session
                .pump
                .master()
                .is_some_and(|m| terminal::send_break(m).is_ok()),
            Request::Signal { name } => match (session.stage, CString::new(name)) {
                (Stage::Running(ticket), Ok(name)) if name.as_bytes().len() <= MAX_NAME => {
                    context.control.say(&FromFront::Signal {
                        connection: self.number,
                        ticket,
                        name,
                    })?;
                    true
                }
                _ => false,
            },
            Request::Other { name, .. } if name == LEAVE_NOTHING => match session.stage {
                Stage::Starting(ticket) | Stage::Running(ticket) => {
                    context.control.say(&FromFront::LeaveNothing {
                        connection: self.number,
                        ticket,
                    })?;
                    true
                }
                _ => false,
            },
            Request::Agent if early => return self.want_agent(channel, reply, context),
            Request::X11 {
                single,
                protocol,
                cookie,
                screen,
            } if early && session.x11.is_none() && protocol.len() + cookie.len() <= MAX_X11 => {
                session.x11 = Some(front::X11 {
                    display: 0,
                    protocol,
                    cookie,
                    screen,
                });
                return self.want_display(channel, single, reply, context);
            }
            Request::EndOfWrite => {
                session.pump.end_output();
                self.settle(channel.0);
                true
            }
            _ => false,
        };
        self.answer(reply, done);
        Ok(())
    }

    /// A program is asked for: it starts when what it needs is there.
    fn want(
        &mut self,
        channel: ChannelId,
        program: Program,
        reply: Option<ReplyId>,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        let kind = match &program {
            Program::Shell => FrontPermit::Shell,
            Program::Subsystem { name } if name == b"sftp" => FrontPermit::Sftp,
            Program::Exec { .. } | Program::Subsystem { .. } => FrontPermit::Exec,
        };
        if !self.permits.has(kind) {
            self.answer(reply, false);
            let (kind, what) = match &program {
                Program::Shell => (RequestKind::Shell, b"shell".to_vec()),
                Program::Exec { command } => {
                    let head = &command[..command.len().min(MAX_TOLD_COMMAND)];
                    (RequestKind::Exec, [b"exec ", head].concat())
                }
                Program::Subsystem { name } => {
                    let kind = match kind {
                        FrontPermit::Sftp => RequestKind::Sftp,
                        _ => RequestKind::Exec,
                    };
                    (kind, [b"subsystem ", &name[..]].concat())
                }
            };
            return self.deny(kind, &what, context);
        }
        let Some(Channel::Session(session)) = self.channels.get_mut(&channel.0) else {
            return Ok(());
        };
        session.stage = Stage::Wanted;
        session.earlier_ticket = self.last_ticket;
        session.wanted = Some((program, reply));
        self.start_if_ready(channel.0, context)
    }

    /// Starts the programs that waited for something to listen, as what listens for the client is decided.
    pub(super) fn start_waiting(&mut self, context: &mut Context<'_>) -> Result<(), WorkerEnd> {
        let waits = |ch: &Channel| matches!(ch, Channel::Session(session) if session.wanted.is_some());
        let waiting: Vec<u32> = self
            .channels
            .iter()
            .filter(|(_, ch)| waits(ch))
            .map(|(number, _)| *number)
            .collect();
        waiting
            .into_iter()
            .try_for_each(|channel| self.start_if_ready(channel, context))
    }

    /// Has the monitor start what is wanted, once nothing is awaited. A program that the client asks for behind a port that is
    /// to listen for it (`ssh -R`) finds it listening, as with sshd, which does one thing after the other.
    pub(super) fn start_if_ready(
        &mut self,
        channel: u32,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        let Some(Channel::Session(session)) = self.channels.get_mut(&channel) else {
            return Ok(());
        };
        let mut before = self.uses.range(..=session.earlier_ticket);
        if session.awaited > 0 || before.any(|(_, what)| what.is_undecided_listener()) {
            return Ok(());
        }
        let Some((program, reply)) = session.wanted.take() else {
            return Ok(());
        };
        session.subsystem = matches!(program, Program::Subsystem { .. });
        let pty = session.pty.as_ref();
        let start = Start {
            program,
            terminal: pty.map(|pty| Terminal {
                term: pty.term.clone(),
                columns: pty.size.columns,
                rows: pty.size.rows,
                width: pty.size.width,
                height: pty.size.height,
                modes: pty.modes.clone(),
            }),
            environment: std::mem::take(&mut session.environment),
            agent: session.agent,
            x11: session.x11.clone(),
        };
        let ticket = self.ticket(Use::Start(channel, reply));
        if let Some(Channel::Session(session)) = self.channels.get_mut(&channel) {
            session.stage = Stage::Starting(ticket);
            session.asked_at = context.log.start();
        }
        let message = FromFront::Start {
            connection: self.number,
            ticket,
            start,
        };
        if context.control.say_if_it_fits(&message)? {
            return Ok(());
        }
        self.not_started(ticket, c"the command and its environment are too long", true);
        let what = b"exec: the command and its environment are too long";
        self.deny(RequestKind::Unable, what, context)
    }

    /// The monitor started it.
    pub(super) fn started(
        &mut self,
        ticket: Ticket,
        (is_socket, output_limit, recorded): (bool, Option<u64>, Option<Recorded>),
        mut fds: Vec<Fd>,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        let Some(Use::Start(channel, reply)) = self.uses.remove(&ticket) else {
            return Ok(());
        };
        let Some(Channel::Session(session)) = self.channels.get_mut(&channel) else {
            // The client closed the channel meanwhile, and the monitor was told to hang up.
            return Ok(());
        };
        context.log.timing("session start", session.asked_at.take());
        let recorded = recorded.and_then(|of| Some((fds.pop()?, of)));
        let mut fds = fds.into_iter();
        let pump = match (is_socket, fds.next(), fds.next(), fds.next()) {
            (true, Some(socket), None, _) => Ok(Pump::socket(socket)),
            (false, Some(master), None, _) => Pump::terminal(master),
            (false, Some(stdin), Some(stdout), Some(stderr)) => Pump::pipes(stdin, stdout, stderr),
            _ => {
                return Err(WorkerEnd::Because(
                    "a session came with the wrong descriptors".to_owned(),
                ));
            }
        };
        match pump {
            Ok(pump) => {
                let terminal = pump.shared_master();
                let tap = recorded.map(|(pipe, of)| Tap::new(pipe, of.since, of.input, terminal));
                session.pump = pump
                    .after(std::mem::take(&mut session.pump))
                    .limited(output_limit)
                    .recorded(tap);
            }
            Err(e) => return Err(WorkerEnd::Because(format!("a session's descriptors: {e}"))),
        }
        session.stage = Stage::Running(ticket);
        // A change that came while it was starting.
        if let Some(pty) = &session.pty {
            let size = pty.size;
            session.resize(size);
        }
        if session.no_input {
            session.pump.finish();
        }
        self.answer(reply, true);
        if let Err(e) = self.watch(channel, context) {
            // More descriptors than the kernel watches for this user: the session cannot be carried.
            self.drop_input(channel);
            self.core.close(ChannelId(channel));
            let what = format!("session: watching its descriptors: {e}");
            return self.deny(RequestKind::Unable, what.as_bytes(), context);
        }
        self.flush(channel);
        self.watch_if_full(channel, context);
        Ok(())
    }

    /// Another recorder goes on with a session's recording, or none does.
    pub(super) fn record_anew(&mut self, ticket: Ticket, fds: Vec<Fd>) {
        let is = |ch: &Channel| matches!(ch, Channel::Session(s) if s.ticket() == Some(ticket));
        let Some(channel) = self.channels.iter().find(|(_, ch)| is(ch)).map(|(n, _)| *n) else {
            return;
        };
        if let Some(Channel::Session(session)) = self.channels.get_mut(&channel) {
            let pipe = fds.into_iter().next();
            // It is being ended because nothing records it: what it still shows is shown to nobody.
            if pipe.is_none() && session.is_ending {
                session.pump.end_output();
            }
            session.pump.record_anew(pipe);
        }
        self.queue(channel);
        self.settle(channel);
    }

    /// The monitor did not start it; the user is told why.
    pub(super) fn not_started(&mut self, ticket: Ticket, why: &CStr, is_final: bool) {
        let Some(Use::Start(channel, reply)) = self.uses.remove(&ticket) else {
            return;
        };
        let Some(Channel::Session(session)) = self.channels.get_mut(&channel) else {
            return;
        };
        session.stage = Stage::Over;
        session.exited = true;
        let mut text = why.to_bytes().to_vec();
        text.truncate(MAX_SHOWN);
        text.extend_from_slice(b"\r\n");
        let subsystem = session.subsystem;
        let channel = ChannelId(channel);
        // For a client that has other ways to go on; any other one skips what it does not know (RFC 4254 §5.4).
        let not_begun = Request::Other {
            name: NOT_BEGUN.to_vec(),
            payload: vec![u8::from(is_final)],
        };
        self.core.request(channel, &not_begun, false);
        // OpenSSH's client shows nothing of a channel whose request failed, so to a user the text comes as those of a
        // program, which ended with the code that ssh has for a failure of its own.
        if !subsystem {
            self.answer(reply, true);
        }
        self.core.write(channel, Stream::Stderr, &text);
        match subsystem {
            true => self.answer(reply, false),
            false => self
                .core
                .request(channel, &Request::ExitStatus { code: 255 }, false),
        }
        // OpenSSH's sshd leaves the channel open; its client ends by itself. Others wait for a CLOSE.
        self.core.close(channel);
    }

    /// Its process is being ended: the text about that comes with its end, and none can be said behind the end of its output.
    pub(super) fn program_ends(&mut self, ticket: Ticket) {
        for channel in self.channels.values_mut() {
            if let Channel::Session(session) = channel
                && session.stage == Stage::Running(ticket)
            {
                session.is_ending = true;
            }
        }
    }

    /// Its process ended. `why`: the text for a user whose session somebody ended; empty: it ended by itself.
    pub(super) fn program_ended(&mut self, ticket: Ticket, ended: &node::ProcessEnd, why: &CStr) {
        let is = |ch: &Channel| matches!(ch, Channel::Session(s) if s.stage == Stage::Running(ticket));
        let Some(channel) = self.channels.iter().find(|(_, ch)| is(ch)).map(|(n, _)| *n) else {
            return;
        };
        let mut text = why.to_bytes().to_vec();
        text.truncate(MAX_SHOWN);
        // Nothing can be said behind the end of the output: then the client has words of its own.
        if let Some(Channel::Session(session)) = self.channels.get(&channel)
            && session.eof_sent
        {
            text.clear();
        }
        let request = match ended.signalled {
            false => Request::ExitStatus {
                code: ended.status.cast_unsigned(),
            },
            true => Request::ExitSignal {
                name: signal_name(ended.status).into(),
                core: ended.core,
                // With words, for a client that would else have some of its own.
                message: text.clone(),
            },
        };
        if !text.is_empty() {
            // A terminal of the client's is raw, and its cursor anywhere.
            let text = [b"\r\n", &text[..], b"\r\n"].concat();
            self.core.write(ChannelId(channel), Stream::Stderr, &text);
        }
        self.core.request(ChannelId(channel), &request, false);
        // Nobody reads what the client still sends.
        self.drop_input(channel);
        if let Some(Channel::Session(session)) = self.channels.get_mut(&channel) {
            session.stage = Stage::Ended(ticket);
            session.exited = true;
        }
        // What it wrote last may not have been told yet: it is read now, and its end with it.
        if let Some(ch) = self.channels.get_mut(&channel) {
            ch.pump().look();
        }
        self.queue(channel);
        self.settle(channel);
    }

    /// EOF and CLOSE of a session where they are due.
    pub(super) fn settle_session(&mut self, channel: u32) {
        let Some(Channel::Session(session)) = self.channels.get_mut(&channel) else {
            return;
        };
        // A client that closed after the EOF of the output waits for the exit status; others for nothing.
        if session.left && !session.eof_sent && !session.closed && session.pump.kept() == 0 {
            session.closed = true;
            return self.core.close(ChannelId(channel));
        }
        if session.exited {
            session.pump.end_views_with_program();
        }
        let running = matches!(session.stage, Stage::Running(_) | Stage::Ended(_) | Stage::Over);
        if !running || session.closed || !session.pump.is_drained() {
            return;
        }
        if session.exited {
            session.pump.end_views();
            // Its last words are with the recorder before the client hears of the end.
            if !session.pump.finish_recording() {
                return self.notice_recording(channel);
            }
            session.closed = true;
            // EOF goes before it.
            self.core.close(ChannelId(channel));
        } else if !session.eof_sent && self.eof_due.is_none() {
            self.eof_due = Some(NOW);
        }
    }

    /// Says the EOFs whose exit status did not come in time.
    pub(super) fn pass_eofs(&mut self, now: Duration) {
        if self.eof_due.is_none_or(|due| due > now) {
            return;
        }
        self.eof_due = None;
        for (number, ch) in &mut self.channels {
            if let Channel::Session(session) = ch
                && session.owes_eof()
            {
                session.eof_sent = true;
                self.core.eof(ChannelId(*number));
            }
        }
    }

    /// At the end of a turn: gives EOFs that came in it their time, and forgets it where none is owed any more.
    pub(super) fn hold_eofs(&mut self, now: Duration) {
        if self.eof_due.is_some() {
            let owed = self
                .channels
                .values()
                .any(|ch| matches!(ch, Channel::Session(s) if s.owes_eof()));
            let due = self.eof_due.filter(|due| *due != NOW).unwrap_or(now + EOF_HELD);
            self.eof_due = owed.then_some(due);
        }
    }

    /// The client closed a session, or both sides did.
    pub(super) fn session_closed(
        &mut self,
        session: Session,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        if let Some(x11) = &session.x11
            && x11.display != 0
        {
            self.stop_listening(x11.display, context)?;
        }
        match session.stage {
            Stage::Starting(ticket) | Stage::Running(ticket) => context.control.say(&FromFront::HangUp {
                connection: self.number,
                ticket,
            }),
            Stage::Before | Stage::Wanted | Stage::Ended(_) | Stage::Over => Ok(()),
        }
    }

    /// The agent's socket: one for all sessions of the connection.
    fn want_agent(
        &mut self,
        channel: ChannelId,
        reply: Option<ReplyId>,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        if !self.permits.has(FrontPermit::Agent) {
            self.answer(reply, false);
            return self.deny(RequestKind::Agent, b"auth-agent-req@openssh.com", context);
        }
        if let Some(ticket) = self.agent
            && !self.uses.contains_key(&ticket)
        {
            // It is there already.
            self.agent_ready(channel.0, reply, Some(ticket));
            return Ok(());
        }
        if let Some(Channel::Session(session)) = self.channels.get_mut(&channel.0) {
            session.awaited += 1;
        }
        if let Some(Use::Agent(waiting)) = self.agent.and_then(|t| self.uses.get_mut(&t)) {
            waiting.push((channel.0, reply));
            return Ok(());
        }
        let ticket = self.ticket(Use::Agent(vec![(channel.0, reply)]));
        self.agent = Some(ticket);
        self.ask(ticket, What::AgentSocket, context)
    }

    /// The agent's socket is there for a session, or cannot be.
    pub(super) fn agent_ready(&mut self, channel: u32, reply: Option<ReplyId>, ticket: Option<Ticket>) {
        if let Some(Channel::Session(session)) = self.channels.get_mut(&channel) {
            session.agent = ticket;
        }
        self.answer(reply, ticket.is_some());
    }
}

/// RFC 4254 §6.10 names these; others get the suffix that the RFC asks for.
fn signal_name(number: i32) -> &'static str {
    match number {
        1 => "HUP",
        2 => "INT",
        3 => "QUIT",
        4 => "ILL",
        6 => "ABRT",
        8 => "FPE",
        9 => "KILL",
        10 => "USR1",
        11 => "SEGV",
        12 => "USR2",
        13 => "PIPE",
        14 => "ALRM",
        15 => "TERM",
        _ => "SIG@openssh.com",
    }
}
