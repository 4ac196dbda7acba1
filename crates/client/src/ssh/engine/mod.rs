//! The connection at work: one loop that moves bytes between the carrier, the SSH core and the channels' ends here, and
//! answers what the far side asks. It owns all of its state and waits for nothing but all of it at once.

mod entry;
mod events;
mod flows;
mod forwarding;
mod own_terminal;
mod remembering;
mod stopping;
mod stream;
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
use crate::stderr;
use crate::timings::Timings;
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{ChannelId, Reason};
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
    /// It said something, wherever that was printed.
    has_banner: bool,
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
            has_banner: false,
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
        has_come(&mut self.timer, self.began + deadline, cx)
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

    fn warn(&self, words: &str) {
        if self.plan.options.level >= LogLevel::Info {
            stderr::raw_line(words);
        }
    }
}

/// Whether a moment has come; else the timer wakes the engine at it, wherever it stood before.
fn has_come(timer: &mut Option<Pin<Box<Sleep>>>, at: Instant, cx: &mut Context<'_>) -> bool {
    let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
    if timer.deadline() != at {
        timer.as_mut().reset(at);
    }
    timer.as_mut().poll(cx).is_ready()
}

/// For `-v`: the more, the more.
fn tell(plan: &Plan, level: u8, words: impl FnOnce() -> String) {
    if plan.options.verbose >= level {
        stderr::raw_line(words());
    }
}
