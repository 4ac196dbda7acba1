//! What the SSH core tells: each event goes to the part of the engine that it is about. The core lends an event's bytes until
//! the next call of it, so an answer is noted first and given when the event is done with.

use super::{Engine, PendingRequest, Stage, entry, tell};
use crate::ssh::options::LogLevel;
use crate::ssh::{SshError, Work, exit};
use crate::stderr::{self, printable};
use fleetgate_ssh::event::{
    AuthReply, ChannelId, ChannelKind, DRAINING, End, Event, Global, Reason, ReplyId, Request,
};
use std::task::Context;
use tokio::io::{AsyncRead, AsyncWrite};

impl<S: AsyncRead + AsyncWrite + Unpin> Engine<'_, S> {
    pub(super) fn events(&mut self, cx: &mut Context<'_>) -> Result<(), SshError> {
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
                        self.has_banner = true;
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
                                Request::ExitSignal { name, message, .. } => {
                                    let words = format!("the command was ended by SIG{}", printable(name));
                                    match is_told(name, message) && self.capture.is_none() {
                                        true => self.warn(&words),
                                        false => tell(self.plan, 1, || words),
                                    }
                                    self.code = Some(exit::FAILED);
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
}

/// Whether a user is told of the signal that ended his program: the node has said nothing of it, and a shell would speak of it
/// too, which is silent where he pressed Ctrl-C or nobody reads on.
pub(super) fn is_told(name: &[u8], message: &[u8]) -> bool {
    message.is_empty() && !matches!(name, b"INT" | b"PIPE")
}
