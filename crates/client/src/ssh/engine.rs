//! The connection at work: one loop that moves bytes between the carrier, the SSH core and the channels' ends here, and
//! answers what the far side asks. It owns all of its state and waits for nothing but all of it at once.

mod entry;
mod forwarding;
mod own_terminal;
mod remembering;
mod stopping;
mod visitors;

use super::capture::Capture;
use super::escape::{self, EscapeCommand};
use super::flow::Flow;
use super::forward::{Listener, Target};
use super::guests::Guests;
use super::hosts::Hosts;
use super::local::{Local, Streams};
use super::login::Login;
use super::options::LogLevel;
use super::server_memory::{LoginFlight, ServerMemory};
use super::signals::Signals;
use super::socks;
use super::terminal::{self, Raw};
use super::{Plan, SshError, Work};
use crate::stderr::{self, printable};
use crate::timings::Timings;
use crate::transport::Refused;
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{
    AuthReply, ChannelId, ChannelKind, DRAINING, End, Event, Global, Reason, ReplyId, Request,
};
use fleetgate_sys::clock::{self, Time};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};
use visitors::Visitor;

/// Connections that are being opened or say what they want by SOCKS, at most.
pub const MAX_OPENING: usize = 64;
/// What a read of the carrier has room for at least.
const READ_AT_LEAST: usize = 64 * 1024;
/// How long the last words may take to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How far the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Exchange,
    /// There are keys; what else the server says at once is read first.
    Keyed,
    Login,
    Up,
}

/// What a reply on the session's channel is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingRequest {
    Agent,
    X11,
    Terminal,
    Work,
}

impl PendingRequest {
    /// In words.
    fn name(self) -> &'static str {
        match self {
            PendingRequest::Agent => "the agent",
            PendingRequest::X11 => "X11",
            PendingRequest::Terminal => "the terminal",
            PendingRequest::Work => "the command",
        }
    }
}

/// What became of something that took its time.
enum TaskResult {
    /// This end of a channel that the far side opened.
    Reached(ChannelId, io::Result<Local>, String),
    /// Somebody here said by SOCKS where he wants to go.
    Wants(TcpStream, io::Result<(Target, socks::Version)>),
}

/// For whom a connection's sessions are.
pub(super) enum Client<'a> {
    /// This command, with its standard streams and its signals.
    Own,
    /// Other processes, whose sessions the master runs.
    Guests(&'a mut Guests),
    /// A run on many nodes: one session, whose output is kept.
    Capture(&'a mut Capture),
}

pub(super) struct Engine<'a, S> {
    pub stream: S,
    pub connection: Connection,
    pub plan: &'a Plan,
    pub hosts: &'a Hosts,
    memory: &'a mut ServerMemory,
    /// What is sent in one flight with the login, if the server's numbering of channels is not known by its name.
    flight: LoginFlight,
    pub login: &'a mut Login,
    pub timings: &'a mut Timings,
    /// Send what follows the login right behind it.
    pub ahead: bool,
    stage: Stage,
    opened: bool,
    began: Instant,
    flows: BTreeMap<u32, Flow>,
    /// The session, or the channel of `-W`.
    main: Option<ChannelId>,
    asked: VecDeque<PendingRequest>,
    /// The far side took the agent, the display: it may open their channels.
    lends_agent: bool,
    lends_display: bool,
    /// Forwards of the far side, as they were asked for, and the port of each that stands.
    remotes_asked: VecDeque<usize>,
    remote_ports: Vec<Option<u16>>,
    listeners: &'a mut Vec<(Listener, Target)>,
    pending: JoinSet<TaskResult>,
    /// Sessions of other processes: those to come, and those that are here.
    guests: Option<&'a mut Guests>,
    visitors: BTreeMap<u32, Visitor>,
    /// What the server said before the login, where that is not printed.
    banner: String,
    /// What becomes of the session, of a run on many nodes.
    capture: Option<&'a mut Capture>,
    asked_by_escape: Vec<(ChannelId, EscapeCommand)>,
    idle: Option<Pin<Box<Sleep>>>,
    /// When the other side was last heard, by a clock that goes on while the machine sleeps, and by the runtime's.
    heard: Time,
    heard_at: Instant,
    /// Until when a session has to be answered.
    answer: Option<Pin<Box<Sleep>>>,
    streams: Option<Streams>,
    raw: Option<Raw>,
    /// None where they are another process's.
    signals: Option<Signals>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Until when there have to be keys.
    patience: Option<Pin<Box<Sleep>>>,
    /// The exit status that the far side told, or that it told of a signal.
    code: Option<i32>,
    /// What is to be sent asks for something: it is not what a stream has, or its end, which nobody waits for.
    asks: bool,
    /// Something was asked for since the other side was last waited for.
    spoke: bool,
    /// The carrier has nothing more for us.
    lost: bool,
}

impl Client<'_> {
    /// For one connection of several.
    pub(super) fn lend(&mut self) -> Client<'_> {
        match self {
            Client::Own => Client::Own,
            Client::Guests(guests) => Client::Guests(guests),
            Client::Capture(capture) => Client::Capture(capture),
        }
    }
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Engine<'a, S> {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        stream: S,
        connection: Connection,
        plan: &'a Plan,
        hosts: &'a Hosts,
        memory: &'a mut ServerMemory,
        login: &'a mut Login,
        timings: &'a mut Timings,
        listeners: &'a mut Vec<(Listener, Target)>,
        ahead: bool,
        client: Client<'a>,
    ) -> Result<Self, SshError> {
        let is_own = matches!(client, Client::Own);
        let (guests, capture) = match client {
            Client::Own => (None, None),
            Client::Guests(guests) => (Some(guests), None),
            Client::Capture(capture) => (None, Some(capture)),
        };
        let signals = match is_own {
            true => Some(Signals::new().map_err(|e| SshError::Local(format!("signals: {e}")))?),
            false => None,
        };
        let streams = match plan.options.work {
            Work::None => None,
            _ if !is_own => Some(Streams::none()),
            _ => Some(
                Streams::open(plan.options.input, true)
                    .map_err(|e| SshError::Local(format!("the standard streams: {e}")))?,
            ),
        };
        Ok(Engine {
            stream,
            connection,
            plan,
            hosts,
            memory,
            flight: LoginFlight::Login,
            login,
            timings,
            ahead,
            stage: Stage::Exchange,
            opened: false,
            began: Instant::now(),
            flows: BTreeMap::new(),
            main: None,
            asked: VecDeque::new(),
            lends_agent: false,
            lends_display: false,
            remotes_asked: VecDeque::new(),
            remote_ports: vec![None; plan.options.remotes.len()],
            listeners,
            pending: JoinSet::new(),
            guests,
            visitors: BTreeMap::new(),
            banner: String::new(),
            capture,
            asked_by_escape: Vec::new(),
            idle: None,
            heard: clock::boot(),
            heard_at: Instant::now(),
            answer: None,
            streams,
            raw: None,
            signals,
            timer: None,
            patience: plan
                .options
                .connect_time
                .map(|time| Box::pin(tokio::time::sleep(time))),
            code: None,
            asks: true,
            spoke: true,
            lost: false,
        })
    }

    /// Until the work is done. The exit code as ssh has it.
    pub async fn run(mut self) -> Result<i32, SshError> {
        let outcome = std::future::poll_fn(|cx| self.poll(cx)).await;
        self.raw = None;
        self.visitors_end(&outcome);
        self.note_failure(&outcome);
        if outcome.is_ok() {
            self.connection
                .disconnect(Reason::ByApplication, "disconnected by user");
        }
        let drain = self.plan.options.explain.is_some() && outcome.is_ok();
        let last = std::future::poll_fn(|cx| {
            if self.write(cx).is_ok() && !self.connection.output().is_empty() {
                return Poll::Pending;
            }
            let _ = std::task::ready!(Pin::new(&mut self.stream).poll_shutdown(cx));
            let mut room = [0; 1024];
            loop {
                let mut nothing = ReadBuf::new(&mut room);
                match Pin::new(&mut self.stream).poll_read(cx, &mut nothing) {
                    Poll::Pending if drain => return Poll::Pending,
                    Poll::Ready(Ok(())) if drain && !nothing.filled().is_empty() => {}
                    _ => return Poll::Ready(()),
                }
            }
        });
        let _ = tokio::time::timeout(LAST_WORDS, last).await;
        outcome
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<i32, SshError>> {
        match self.turns(cx) {
            Ok(Some(code)) => Poll::Ready(Ok(code)),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Turns until nothing moves.
    fn turns(&mut self, cx: &mut Context<'_>) -> Result<Option<i32>, SshError> {
        loop {
            self.connection.tick(self.began.elapsed());
            let mut moved = self.read(cx)?;
            self.events(cx)?;
            moved |= self.ready(cx)?;
            moved |= self.accept(cx);
            moved |= self.receive_guests(cx);
            moved |= self.heed_stop(cx)?;
            self.asks |= !self.connection.output().is_empty();
            moved |= self.flow(cx)?;
            self.heed(cx)?;
            moved |= self.write(cx)?;
            if let Some(code) = self.over() {
                return Ok(Some(code));
            }
            self.is_answered_in_time(cx)?;
            if self.is_out_of_use(cx) {
                return Ok(Some(0));
            }
            if self.lost && !moved {
                return Err(self.gone("the other side closed the connection"));
            }
            if self.stage != Stage::Exchange {
                self.patience = None;
            }
            if let Some(starter) = &self.plan.starter
                && self.stage == Stage::Up
                && self.remotes_asked.is_empty()
            {
                starter.leave();
            }
            if let Some(patience) = &mut self.patience
                && patience.as_mut().poll(cx).is_ready()
            {
                return Err(SshError::Connect(format!(
                    "{} did not answer in time",
                    self.plan.place
                )));
            }
            if !moved && !self.due(cx) {
                break;
            }
        }
        if self.spoke && self.timings.is_open() && self.connection.output().is_empty() {
            self.spoke = false;
            self.timings.round_trip();
        }
        Ok(None)
    }

    /// Whether the connection's own time has come; else it is waited for.
    fn due(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.connection.deadline() else {
            self.timer = None;
            return false;
        };
        let at = self.began + deadline;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx).is_ready()
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, SshError> {
        if self.lost || !self.connection.wants_input() {
            return Ok(false);
        }
        let room = self.connection.room(READ_AT_LEAST);
        if room.is_empty() {
            return Ok(false);
        }
        let mut buffer = ReadBuf::new(room);
        let got = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        let n = buffer.filled().len();
        self.connection.received(n);
        match got {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(())) => {
                self.lost = n == 0;
                if self.guests.is_some() {
                    (self.heard, self.heard_at) = (clock::boot(), Instant::now());
                }
                Ok(true)
            }
            Poll::Ready(Err(e)) => match e.get_ref().and_then(|e| e.downcast_ref::<Refused>()) {
                Some(refused) => Err(SshError::Denied(refused.clone())),
                None => Err(self.gone(&e.to_string())),
            },
        }
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, SshError> {
        let mut moved = false;
        while !self.connection.output().is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, self.connection.output()) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(Ok(n)) if n > 0 => {
                    self.connection.sent(n);
                    self.spoke |= std::mem::take(&mut self.asks);
                    moved = true;
                }
                Poll::Ready(Ok(_)) => return Err(self.gone("the carrier takes nothing more")),
                // What the other side said last may still be there to be read.
                Poll::Ready(Err(e)) if self.lost => return Err(self.gone(&e.to_string())),
                Poll::Ready(Err(_)) => return Ok(moved),
            }
        }
        if let Poll::Ready(Err(e)) = Pin::new(&mut self.stream).poll_flush(cx) {
            return Err(self.gone(&e.to_string()));
        }
        Ok(moved)
    }

    /// The carrier is gone: no error where the work was done.
    fn gone(&self, why: &str) -> SshError {
        match self.code {
            _ if self.was_misled() => SshError::Changed,
            Some(code) if self.main.is_none() => SshError::Over(code),
            _ if self.stage == Stage::Up => SshError::Lost(why.to_owned()),
            _ => SshError::Connect(format!("the connection ended before the login: {why}")),
        }
    }

    fn over(&mut self) -> Option<i32> {
        if self.stage != Stage::Up || matches!(self.plan.options.work, Work::None) {
            return None;
        }
        // As ssh has it: forwarded connections that are open are waited for, new ones are not taken.
        if self.main.is_none() && self.opened {
            self.listeners.clear();
            if self.flows.is_empty() && self.pending.is_empty() {
                return Some(match self.plan.options.work {
                    Work::To(_) => self.code.unwrap_or(0),
                    _ => self.code.unwrap_or(super::exit::FAILED),
                });
            }
        }
        None
    }

    fn events(&mut self, cx: &mut Context<'_>) -> Result<(), SshError> {
        enum Then {
            Nothing,
            Trust(Result<Option<String>, String>),
            Consumed(ChannelId, usize),
            Reply(AuthReply),
            Open(ChannelId, ChannelKind),
            Failed(ChannelId, String),
            Answer(ReplyId),
            AnswerGlobal(ReplyId),
            Remote(Option<Vec<u8>>),
        }
        loop {
            let then = match self.connection.poll() {
                Err(end) => return Err(self.ended(end)),
                Ok(None) if self.stage == Stage::Keyed => {
                    self.begin_login()?;
                    continue;
                }
                Ok(None) => return Ok(()),
                Ok(Some(event)) => match event {
                    Event::HostKey(blob) => Then::Trust(self.hosts.check(blob)),
                    Event::Established => {
                        self.stage = Stage::Keyed;
                        Then::Nothing
                    }
                    Event::Banner(text) => {
                        let is_told = self.plan.options.level >= LogLevel::Info;
                        match &mut self.capture {
                            Some(capture) => capture.keep_banner(text),
                            None if is_told => stderr::write(printable(text).replace('\n', "\r\n")),
                            None => entry::keep_banner(&mut self.banner, &printable(text)),
                        }
                        Then::Nothing
                    }
                    Event::AuthReply(reply) => Then::Reply(reply),
                    Event::Open { channel, kind } => Then::Open(channel, kind),
                    Event::Opened(channel) => {
                        self.note_channel(channel);
                        if let Some(flow) = self.flows.get_mut(&channel.0) {
                            flow.opened();
                        }
                        self.visitor_opened(channel);
                        if !matches!(
                            self.plan.options.work,
                            Work::Shell | Work::Exec(_) | Work::Subsystem(_)
                        ) {
                            self.timings.end();
                        }
                        Then::Nothing
                    }
                    Event::OpenFailed { channel, text, .. } => Then::Failed(channel, printable(text)),
                    Event::Data {
                        channel,
                        stream,
                        bytes,
                    } => {
                        if let Some(capture) = &mut self.capture
                            && Some(channel) == self.main
                        {
                            capture.keep(stream, bytes);
                        }
                        let n = match self.flows.get_mut(&channel.0) {
                            Some(flow) => flow.deliver(cx, stream, bytes),
                            None => bytes.len(),
                        };
                        Then::Consumed(channel, n)
                    }
                    Event::Eof(channel) => {
                        if let Some(flow) = self.flows.get_mut(&channel.0) {
                            flow.ended = true;
                        }
                        Then::Nothing
                    }
                    // Its number is kept until all is written that came on it.
                    Event::Leaving(channel) => {
                        if let Some(flow) = self.flows.get_mut(&channel.0) {
                            (flow.ended, flow.closed) = (true, true);
                        }
                        Then::Nothing
                    }
                    // This side had closed it before, and its number is free now.
                    Event::Closed(channel) => {
                        self.part(channel);
                        Then::Nothing
                    }
                    Event::Request {
                        channel,
                        request,
                        reply,
                    } => {
                        if let Some(visitor) = self.visitors.get_mut(&channel.0) {
                            visitor.heed(&request);
                        }
                        if Some(channel) == self.main {
                            if let Some(capture) = &mut self.capture {
                                capture.heed(&request);
                            }
                            match &request {
                                Request::ExitStatus { code } => {
                                    self.code = Some(i32::from(code.to_le_bytes()[0]))
                                }
                                Request::ExitSignal { name, .. } => {
                                    tell(self.plan, 1, || {
                                        format!("the command was ended by SIG{}", printable(name))
                                    });
                                    self.code = Some(super::exit::FAILED);
                                }
                                _ => {}
                            }
                        }
                        reply.map_or(Then::Nothing, Then::Answer)
                    }
                    Event::Replied { channel, done } => {
                        match self.visitors.contains_key(&channel.0) {
                            true => self.visitor_replied(channel, done),
                            false => self.replied(done)?,
                        }
                        Then::Nothing
                    }
                    Event::Global { request, reply } => {
                        if matches!(&request, Global::Other { name, .. } if name == DRAINING)
                            && let Some(guests) = &mut self.guests
                        {
                            guests.close();
                        }
                        reply.map_or(Then::Nothing, Then::AnswerGlobal)
                    }
                    Event::GlobalReplied { done } => Then::Remote(done.map(<[u8]>::to_vec)),
                    Event::Writable(_) | Event::Alive | Event::CookieWanted => Then::Nothing,
                    Event::SignExchange(_) | Event::Auth(_) | Event::AuthInfo(_) => Then::Nothing,
                },
            };
            match then {
                Then::Nothing => {}
                Then::Trust(Ok(words)) => {
                    if let Some(words) = words.filter(|_| self.plan.options.level >= LogLevel::Info) {
                        stderr::raw_line(words);
                    }
                    self.connection.trust_host(true);
                    self.timings.begin("login and command", self.plan.leg);
                }
                Then::Trust(Err(words)) => {
                    self.connection.trust_host(false);
                    let _ = self.write(cx);
                    return Err(SshError::Host(words));
                }
                Then::Consumed(channel, n) => self.connection.consumed(channel, n),
                Then::Reply(reply) => self.login_replied(reply)?,
                Then::Open(channel, kind) => self.far_side_opens(channel, kind),
                Then::Failed(channel, text) => self.refused(channel, &text)?,
                Then::Answer(reply) => self.connection.answer(reply, false),
                Then::AnswerGlobal(reply) => self.connection.answer_global(reply, None),
                Then::Remote(done) => self.remote_answered(done)?,
            }
        }
    }

    fn ended(&self, end: End) -> SshError {
        match (self.code, &end) {
            _ if self.was_misled() => SshError::Changed,
            (Some(code), _) if self.main.is_none() => SshError::Over(code),
            // A proxy that lets in and does not reach the sshd behind it: what was asked for was not begun.
            (_, End::Theirs { reason, text })
                if *reason == Reason::ServiceNotAvailable as u32
                    && self.asked.contains(&PendingRequest::Work) =>
            {
                SshError::Refused(text.clone())
            }
            (_, End::Theirs { text, .. }) => self.gone(&format!("the other side says: {text}")),
            (_, End::Ours { .. }) => self.gone(&end.to_string()),
        }
    }

    /// Joins a channel and its local end. The number belongs to them until both are over.
    fn join(&mut self, flow: Flow) {
        self.connection.close_later(flow.id);
        self.flows.insert(flow.id.0, flow);
    }

    /// Both are over.
    fn part(&mut self, channel: ChannelId) {
        self.flows.remove(&channel.0);
        if Some(channel) == self.main {
            self.main = None;
        }
        if let Some(visitor) = self.visitors.remove(&channel.0) {
            visitor.ended();
        }
    }

    fn flow(&mut self, cx: &mut Context<'_>) -> Result<bool, SshError> {
        let (mut moved, mut wish) = (false, None);
        for flow in self.flows.values_mut() {
            let mut own = None;
            moved |= flow.turn(cx, &mut self.connection, &mut own);
            if let Some(asked) = own {
                match self.visitors.contains_key(&flow.id.0) {
                    true => self.asked_by_escape.push((flow.id, asked)),
                    false => wish = Some(asked),
                }
            }
        }
        let over = self.flows.values().filter(|flow| flow.is_over());
        for channel in over.map(|flow| flow.id).collect::<Vec<_>>() {
            // Of its end an event is told before another channel can have its number.
            self.connection.close(channel);
            self.part(channel);
            moved = true;
        }
        for (channel, asked) in std::mem::take(&mut self.asked_by_escape) {
            self.grant_visitor(channel, &asked);
        }
        match wish {
            None => {}
            Some(EscapeCommand::End) => {
                stderr::write(format_args!("Connection to {} ended.\r\n", self.plan.place));
                return Err(SshError::Over(super::exit::FAILED));
            }
            Some(wish) => self.grant(wish),
        }
        Ok(moved)
    }

    fn warn(&self, words: &str) {
        if self.plan.options.level >= LogLevel::Info {
            stderr::raw_line(words);
        }
    }
}

/// For `-v`: the more, the more.
fn tell(plan: &Plan, level: u8, words: impl FnOnce() -> String) {
    if plan.options.verbose >= level {
        stderr::raw_line(words());
    }
}
