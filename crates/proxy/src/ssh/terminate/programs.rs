//! The programs of a connection: whether one may begin, and what ends one before its time. The sshd runs them; here they are
//! counted, told to the audit log, and killed.

use super::pair::{Forward, Item, Program, Starting};
use super::relay::{Relay, Side};
use super::requests::MAX_DENIAL_LINES;
use super::{RecordedSession, SessionEvent};
use crate::recorder::{Opening, STUCK, end};
use fleetgate_net::backoff::random;
use fleetgate_policy::cluster::Name;
use fleetgate_policy::permits::What;
use fleetgate_policy::{Recipient, Recording, RecordingFailure};
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{ChannelId, ReplyId, Request, Stream};
use std::future::Future;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::sleep;

/// What ssh exits with when it fails itself.
const FAILED: u32 = 255;

/// How a program may begin.
#[derive(Default)]
struct Admission {
    /// It may last so long.
    limit: Option<Duration>,
    /// It is recorded: how much, and what follows where that cannot be.
    recording: Option<(Recording, RecordingFailure)>,
    /// For whom the recording is encrypted; nobody: it is readable.
    recipients: Vec<Recipient>,
    /// The roles that let its user in.
    roles: Vec<Name>,
    /// For how long the cluster keeps the recording, where a role says so.
    keep: Option<Duration>,
}

impl Relay<'_> {
    /// Begins a program on a channel, which is told and gets an id; what comes to the host is its request alone. `reply`: the
    /// request waits for an answer.
    pub(super) fn begin(
        &mut self,
        (channel, reply): (ChannelId, Option<ReplyId>),
        what: &Option<What<'_>>,
        kind: &'static str,
        command: &[u8],
    ) -> Result<(), String> {
        let admission = self.may_begin(what)?;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&random().to_be_bytes());
        id[8..].copy_from_slice(&random().to_be_bytes());
        let program = Program {
            session: format!("{:032x}", u128::from_be_bytes(id)),
            kind,
            command: command.to_vec(),
            limit: admission.limit,
        };
        let Some(at) = self.at(Side::User, channel) else {
            return Ok(());
        };
        let Some((recording, failure)) = admission.recording else {
            self.begun(at, program, Ok(None));
            return Ok(());
        };
        let Some(pair) = &mut self.pairs[at] else {
            return Ok(());
        };
        let recorded = RecordedSession {
            session: id,
            kind,
            command,
            terminal: pair.terminal.as_ref(),
            recording,
            recipients: &admission.recipients,
            roles: &admission.roles,
            keep: admission.keep,
        };
        match self.host.record(self.caller, &recorded) {
            Ok(Opening { tap, opened }) => {
                pair.tap = Some(tap);
                pair.failure = failure;
                pair.starting = Some(Starting {
                    program,
                    recording,
                    failure,
                    opened,
                    late: Box::pin(sleep(STUCK)),
                    request: pair.up.len(),
                    reply,
                });
                Ok(())
            }
            Err(why) => self.begin_unrecorded(at, program, failure, &why),
        }
    }

    /// Whether a program may begin.
    fn may_begin(&self, what: &Option<What<'_>>) -> Result<Admission, String> {
        let Some(what) = what else {
            return Ok(Admission::default());
        };
        let allowed = self.decided(what)?;
        let limits = allowed.limits;
        let running = self
            .pairs
            .iter()
            .flatten()
            .filter(|pair| pair.program.is_some() || pair.starting.is_some())
            .count();
        match limits.sessions {
            Some(most) if running >= most as usize => {
                let words = format!("a connection has at most {most} sessions by its roles: end one of them");
                self.tell_denied(&words);
                Err(words)
            }
            _ => Ok(Admission {
                limit: limits.session,
                recording: allowed
                    .recording
                    .is_wanted()
                    .then_some((allowed.recording, allowed.recording_failure)),
                recipients: allowed.recording_recipients,
                roles: allowed.roles,
                keep: allowed.recording_keep,
            }),
        }
    }

    /// OpenSSH's client shows nothing of a channel whose request failed, so to a user the words come as those of a program,
    /// which ended with the code that ssh has for a failure of its own; a subsystem's reader would take them for data.
    pub(super) fn not_begun(
        &mut self,
        channel: ChannelId,
        request: &Request,
        reply: Option<ReplyId>,
        words: &str,
        user: &mut Connection,
    ) {
        let subsystem = matches!(request, Request::Subsystem { .. });
        if let Some(reply) = reply {
            user.answer(reply, !subsystem);
        }
        if let Some(at) = self.at(Side::User, channel)
            && let Some(pair) = &mut self.pairs[at]
        {
            pair.refused = true;
            // Behind what was asked for before, which is answered still.
            pair.up.push(Item::Close);
            pair.down
                .push(Item::Data(Stream::Stderr, format!("{words}\r\n").into_bytes()));
            if !subsystem {
                pair.down
                    .push(Item::Request(Request::ExitStatus { code: FAILED }, false));
            }
            pair.down.push(Item::Eof);
        }
    }

    /// Ends a program whose roles let it last no longer, or whose end was ordered.
    pub(super) fn end_early(&mut self, at: usize, host: &mut Connection, cx: &mut Context<'_>) {
        let Some(pair) = self.pairs.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        let over = pair
            .over
            .as_mut()
            .and_then(|(sleep, limit)| sleep.as_mut().poll(cx).is_ready().then_some(*limit));
        let words = match over {
            Some(limit) => {
                format!("a session of more than {limit} s is not allowed by its roles: it was ended")
            }
            None => match pair.ordered.as_mut().map(|ordered| ordered.as_mut().poll(cx)) {
                Some(Poll::Ready(words)) => words,
                _ => return,
            },
        };
        self.end_now(at, &words, host);
        let line = self.host.tell(Some(self.caller), SessionEvent::Denied(&words));
        self.lines.borrow_mut().push(line);
    }

    /// Ends a program, and says why.
    pub(super) fn end_now(&mut self, at: usize, words: &str, host: &mut Connection) {
        let Some(pair) = self.pairs.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        (pair.over, pair.ordered) = (None, None);
        if let Some(channel) = pair.host {
            host.request(channel, &kill(), false);
        }
        pair.up.clear();
        pair.up.push(Item::Close);
        pair.down
            .push(Item::Data(Stream::Stderr, format!("{words}\r\n").into_bytes()));
    }

    /// Ends the programs that run. An sshd does that for commands and shells of all but root; with the connection go
    /// terminals, files and whoever reads or writes.
    pub(super) fn kill(&self, host: &mut Connection) {
        for pair in self.pairs.iter().flatten().filter(|pair| pair.program.is_some()) {
            if let Some(channel) = pair.host {
                host.request(channel, &kill(), false);
            }
        }
    }

    /// Tells the ends of programs that end with the connection, and how much more was refused than was told.
    pub(super) fn tell_ends(&mut self) {
        let further = self.denials.get().saturating_sub(MAX_DENIAL_LINES);
        if further > 0 {
            let words = format!("{further} further refusals, of which only the number is told");
            self.host.tell(Some(self.caller), SessionEvent::Denied(&words));
        }
        for line in self.lines.take() {
            self.record_event(&line);
        }
        for at in 0..self.pairs.len() {
            let forward = self.pairs[at].as_ref().and_then(|pair| pair.forward.as_ref());
            if let Some(line) = forward.and_then(Forward::line) {
                self.record_event(&line);
            }
        }
        for at in 0..self.pairs.len() {
            self.tell_end(at);
        }
    }

    /// Tells the end of a channel's program, if one ran there.
    pub(super) fn tell_end(&mut self, at: usize) {
        let Some(pair) = self.pairs.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        // One that did not begin leaves no recording.
        let was_starting = pair.starting.take().is_some();
        let tap = pair.tap.take();
        let Some(session) = pair.program.take() else {
            if was_starting && let Some(tap) = tap {
                tap.discard();
            }
            return;
        };
        let (session, code) = (&*session, pair.code);
        let line = self
            .host
            .tell(Some(self.caller), SessionEvent::Ended { session, code });
        if let Some(mut tap) = tap {
            tap.event(&line);
            tap.end(end(code, pair.signal.as_deref()));
        }
    }
}

fn kill() -> Request {
    Request::Signal {
        name: b"KILL".to_vec(),
    }
}
