//! Sessions of other processes on this connection. One is asked for in one flight, right behind the login or whenever it
//! comes; each is told on its own socket what becomes of it, and its end there is its end here.

use super::events::is_told;
use super::{Engine, Flow, PendingRequest, Stage, has_come};
use crate::master_client::words;
use crate::ssh::escape::{self, EscapeCommand, Escapes};
use crate::ssh::guests::Guest;
use crate::ssh::local::Local;
use crate::ssh::{SshError, exit};
use crate::stderr::printable;
use crate::waiting::ANSWER_TIMEOUT;
use fleetgate_ssh::event::{ChannelId, ChannelKind, NOT_BEGUN, Pty, Request, WindowSize, is_final};
use fleetgate_sys::clock;
use fleetgate_wire::master::{FromMaster, Size, ToMaster, Work};
use std::collections::VecDeque;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

/// After so many seconds without a word the other side may be gone, and nobody has noticed (its answer to being asked comes
/// sooner): then a session is asked for when its channel is open. So a command is never sent to where it cannot be told
/// whether it ran, at the price of a round trip.
const SURELY_THERE: u64 = 40;

/// A session, from its channel to its end.
pub(super) struct Visitor {
    guest: Guest,
    asked: VecDeque<PendingRequest>,
    /// When it was asked for: from then on it may have been done.
    asked_at: Option<Instant>,
    /// The far side does it.
    has_begun: bool,
    terminal: bool,
    /// The node says that it is not begun; the answer that follows says otherwise, for other clients. True: nowhere.
    refused: Option<bool>,
    code: Option<i32>,
}

impl Visitor {
    /// What the far side tells of the session.
    pub(super) fn heed(&mut self, request: &Request) {
        match request {
            Request::ExitStatus { code } => self.code = i32::try_from(code & 0xff).ok(),
            Request::ExitSignal { name, message, .. } => {
                if is_told(name, message) {
                    self.say(
                        &format!("the command was ended by SIG{}\n", printable(name)),
                        false,
                    );
                }
                self.code = Some(exit::FAILED);
            }
            Request::Other { name, payload } if name == NOT_BEGUN && !self.has_begun => {
                self.refused = Some(is_final(payload));
            }
            _ => {}
        }
    }

    /// The session is over.
    pub(super) fn ended(self) {
        let code = self.code.unwrap_or(exit::FAILED);
        self.guest.answer(&FromMaster::Ended { code, words: None });
    }

    pub(super) fn say(&self, words: &str, raw: bool) {
        let words = crate::master_client::words(words);
        let _ = self.guest.socket.send(&FromMaster::Say { words, raw }, &[]);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Engine<'_, S> {
    /// Begins what waits, and hears those that are here.
    pub(super) fn receive_guests(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = self.hear_visitors(cx);
        while self.opened
            && let Some(guests) = &mut self.guests
        {
            match guests.poll_next(cx) {
                Poll::Ready(Some(guest)) => self.admit(guest),
                _ => break,
            }
            moved = true;
        }
        moved
    }

    /// Those that are there are asked for in the same flight as what stands before them.
    pub(super) fn admit_present(&mut self) {
        while let Some(guest) = self.guests.as_mut().and_then(|guests| guests.present()) {
            self.admit(guest);
        }
    }

    fn admit(&mut self, guest: Guest) {
        let streams = match guest.streams() {
            Ok(streams) => streams,
            Err(e) => {
                let why = words(&format!("the standard streams: {e}"));
                return guest.answer(&FromMaster::Failed { why });
            }
        };
        let Some(channel) = self.connection.open(&ChannelKind::Session) else {
            return guest.answer(&FromMaster::Cold);
        };
        let mut flow = Flow::new(channel, Local::Streams(streams), "session".into());
        flow.main = true;
        let escape = guest.order.terminal.as_ref().and_then(|t| t.escape);
        flow.escapes = escape.filter(|_| guest.order.input).map(Escapes::new);
        if !guest.order.input {
            flow = flow.without_input();
        }
        self.join(flow);
        self.visitors.insert(
            channel.0,
            Visitor {
                guest,
                asked: VecDeque::new(),
                asked_at: None,
                has_begun: false,
                terminal: false,
                refused: None,
                code: None,
            },
        );
        let silence = clock::boot().sec.abs_diff(self.heard.sec);
        if self.stage != Stage::Up || silence < SURELY_THERE {
            self.ask_visitor(channel);
        }
    }

    /// Sends what its session is made of.
    fn ask_visitor(&mut self, channel: ChannelId) {
        let Some(visitor) = self.visitors.get_mut(&channel.0).filter(|v| v.asked_at.is_none()) else {
            return;
        };
        visitor.asked_at = Some(Instant::now());
        let order = &visitor.guest.order;
        let mut requests = Vec::new();
        if let Some(terminal) = &order.terminal {
            let pty = Pty {
                term: terminal.term.clone(),
                size: window(&terminal.size),
                modes: terminal.modes.clone(),
            };
            requests.push((Request::Pty(pty), Some(PendingRequest::Terminal)));
        }
        for variable in &order.environment {
            let (name, value) = (variable.name.clone(), variable.value.clone());
            requests.push((Request::Env { name, value }, None));
        }
        let work = match &order.work {
            Work::Shell => Request::Shell,
            Work::Exec { command } => Request::Exec {
                command: command.clone(),
            },
            Work::Subsystem { name } => Request::Subsystem { name: name.clone() },
        };
        requests.push((work, Some(PendingRequest::Work)));
        for (request, pending) in requests {
            self.connection.request(channel, &request, pending.is_some());
            visitor.asked.extend(pending);
        }
        if !order.input {
            self.connection.eof(channel);
        }
    }

    pub(super) fn visitor_opened(&mut self, channel: ChannelId) {
        self.ask_visitor(channel);
    }

    /// An answer to the first of what was asked. What the far side does not do, the command asks for again on a connection of
    /// its own, where it hears why; but for what would not be done there either, whose words come as those of a program.
    pub(super) fn visitor_replied(&mut self, channel: ChannelId, done: bool) {
        let Some(visitor) = self.visitors.get_mut(&channel.0) else {
            return;
        };
        match (visitor.asked.pop_front(), done && visitor.refused != Some(false)) {
            (Some(PendingRequest::Work), true) => {
                visitor.has_begun = true;
                let terminal = visitor.terminal;
                // The command makes its terminal raw, and says so.
                if let Some(flow) = self.flows.get_mut(&channel.0) {
                    (flow.paused, flow.held) = (terminal, terminal);
                }
                let _ = visitor.guest.socket.send(&FromMaster::Began { terminal }, &[]);
            }
            // Of a subsystem, whose channel the node closes behind the words.
            (Some(PendingRequest::Work), false) if visitor.refused == Some(true) => visitor.has_begun = true,
            (Some(PendingRequest::Work), false) => self.visitor_leaves(channel, Some(&FromMaster::Refused)),
            (Some(PendingRequest::Terminal), done) => visitor.terminal = done,
            _ => {}
        }
    }

    /// The far side opens no channel for it. Whether it was one of theirs.
    pub(super) fn visitor_refused(&mut self, channel: ChannelId) -> bool {
        let is_one = self.visitors.contains_key(&channel.0);
        if is_one {
            self.flows.remove(&channel.0);
            if let Some(visitor) = self.visitors.remove(&channel.0) {
                visitor.guest.answer(&FromMaster::Refused);
            }
        }
        is_one
    }

    /// Ends its channel, and tells it what is to be told.
    fn visitor_leaves(&mut self, channel: ChannelId, word: Option<&FromMaster>) {
        self.connection.close(channel);
        self.flows.remove(&channel.0);
        if let (Some(visitor), Some(word)) = (self.visitors.remove(&channel.0), word) {
            visitor.guest.answer(word);
        }
    }

    fn hear_visitors(&mut self, cx: &mut Context<'_>) -> bool {
        let (mut gone, mut moved) = (Vec::new(), false);
        for (number, visitor) in &mut self.visitors {
            while let Poll::Ready(word) = visitor.guest.socket.poll_receive::<ToMaster>(cx) {
                moved = true;
                match word {
                    Ok((ToMaster::Window { size }, _)) if visitor.guest.order.terminal.is_some() => {
                        let request = Request::WindowChange(window(&size));
                        self.connection.request(ChannelId(*number), &request, false);
                    }
                    Ok((ToMaster::Resume, _)) => {
                        if let Some(flow) = self.flows.get_mut(number) {
                            (flow.paused, flow.held) = (false, false);
                        }
                    }
                    // Its process ended, by a signal for one.
                    _ => {
                        gone.push(ChannelId(*number));
                        break;
                    }
                }
            }
        }
        for channel in gone {
            self.visitor_leaves(channel, None);
        }
        moved
    }

    /// What its user asked for by an escape.
    pub(super) fn grant_visitor(&mut self, channel: ChannelId, asked: &EscapeCommand) {
        let place = &self.plan.place;
        let Some(visitor) = self.visitors.get(&channel.0) else {
            return;
        };
        match asked {
            EscapeCommand::End => {
                let code = exit::FAILED;
                let words = Some(words(&format!("Connection to {place} ended.\r\n")));
                self.visitor_leaves(channel, Some(&FromMaster::Ended { code, words }));
            }
            EscapeCommand::Suspend => {
                if let Some(flow) = self.flows.get_mut(&channel.0) {
                    flow.paused = true;
                }
                let _ = visitor.guest.socket.send(&FromMaster::Suspend, &[]);
            }
            EscapeCommand::Help => visitor.say(escape::HELP, true),
            EscapeCommand::List => visitor.say(&format!("Open:\r\n  #{} session\r\n", channel.0), true),
            EscapeCommand::Break => {
                let request = Request::Break { milliseconds: 1000 };
                self.connection.request(channel, &request, false);
            }
            EscapeCommand::Rekey => self.connection.rekey(),
        }
    }

    /// Whether the connection has been kept for long enough without a use, or drains and nobody is left.
    pub(super) fn is_out_of_use(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(guests) = self.guests.as_deref().filter(|_| self.visitors.is_empty()) else {
            return false;
        };
        if guests.are_over() {
            return true;
        }
        let Some(until) = guests.kept_until() else {
            return false;
        };
        has_come(&mut self.idle, until, cx)
    }

    /// Whether a session was asked for, and nothing at all has come since for as long as an answer may take.
    pub(super) fn is_answered_in_time(&mut self, cx: &mut Context<'_>) -> Result<(), SshError> {
        let unheard = self
            .visitors
            .values()
            .filter(|v| !v.has_begun)
            .filter_map(|v| v.asked_at);
        let Some(since) = unheard.filter(|at| *at > self.heard_at).min() else {
            self.answer = None;
            return Ok(());
        };
        let is_late = has_come(&mut self.answer, since + ANSWER_TIMEOUT, cx);
        match (is_late, &self.guests) {
            (true, Some(guests)) => Err(SshError::Lost(format!(
                "no answer within {} s from {}",
                ANSWER_TIMEOUT.as_secs(),
                guests.whom()
            ))),
            _ => Ok(()),
        }
    }

    /// The connection ends. Whose session was not asked for waits for another one; who cannot know what became of it is told
    /// that.
    pub(super) fn visitors_end(&mut self, outcome: &Result<i32, SshError>) {
        let was_up = self.stage == Stage::Up;
        for (_, visitor) in std::mem::take(&mut self.visitors) {
            match outcome {
                // Without a login nothing was done.
                Err(error) if was_up && visitor.asked_at.is_some() => {
                    let words = match visitor.has_begun {
                        true => words(&error.to_string()),
                        false => words(&format!(
                            "{error}; whether it was begun, the node's audit log says"
                        )),
                    };
                    let words = Some(words);
                    let code = exit::FAILED;
                    visitor.guest.answer(&FromMaster::Ended { code, words });
                }
                _ => {
                    if let Some(guests) = &mut self.guests {
                        guests.put_back(visitor.guest);
                    }
                }
            }
        }
    }
}

fn window(size: &Size) -> WindowSize {
    WindowSize {
        columns: size.columns,
        rows: size.rows,
        ..WindowSize::default()
    }
}
