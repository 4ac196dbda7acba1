//! The programs of a connection: whether one may begin, and what ends one before its time. The sshd runs them; here they are
//! counted, told to the audit log, and killed.

use super::SessionEvent;
use super::pair::Item;
use super::relay::{Relay, Side};
use super::requests::MAX_DENIAL_LINES;
use fleetgate_net::backoff::random;
use fleetgate_policy::RecordingFailure;
use fleetgate_policy::cluster::Allowed;
use fleetgate_policy::permits::What;
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
    /// Why it is not recorded, though a role wants that.
    not_recorded: Option<String>,
}

impl Relay<'_> {
    /// Begins a program on a channel, which is told and gets an id; what comes to the host is its request alone.
    pub(super) fn begin(
        &mut self,
        channel: ChannelId,
        what: &Option<What<'_>>,
        kind: &str,
        command: &[u8],
    ) -> Result<(), String> {
        let Admission { limit, not_recorded } = self.may_begin(what)?;
        let session = format!("{:016x}{:016x}", random(), random());
        let began = SessionEvent::Began {
            session: &session,
            kind,
            command,
            not_recorded: not_recorded.as_deref(),
        };
        self.host.tell(Some(self.caller), began);
        let ordered = self.host.ordered(&session);
        if let Some(pair) = self.pair(Side::User, channel) {
            pair.program = Some(session);
            pair.ordered = Some(ordered);
            pair.over = limit.map(|limit| (Box::pin(sleep(limit)), limit.as_secs()));
        }
        Ok(())
    }

    /// Whether a program may begin.
    fn may_begin(&self, what: &Option<What<'_>>) -> Result<Admission, String> {
        let Some(what) = what else {
            return Ok(Admission::default());
        };
        let allowed = self.decided(what)?;
        let not_recorded =
            not_recorded(&allowed, self.host.name()).inspect_err(|words| self.tell_denied(words))?;
        let limits = allowed.limits;
        let running = self
            .pairs
            .iter()
            .flatten()
            .filter(|pair| pair.program.is_some())
            .count();
        match limits.sessions {
            Some(most) if running >= most as usize => {
                let words = format!("a connection has at most {most} sessions by its roles: end one of them");
                self.tell_denied(&words);
                Err(words)
            }
            _ => Ok(Admission {
                limit: limits.session,
                not_recorded,
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
        (pair.over, pair.ordered) = (None, None);
        if let Some(channel) = pair.host {
            host.request(channel, &kill(), false);
        }
        pair.up.clear();
        pair.up.push(Item::Close);
        pair.down
            .push(Item::Data(Stream::Stderr, format!("{words}\r\n").into_bytes()));
        self.host.tell(Some(self.caller), SessionEvent::Denied(&words));
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
        for pair in self.pairs.iter_mut().flatten() {
            if let Some(session) = pair.program.take() {
                let (session, code) = (&*session, pair.code);
                self.host
                    .tell(Some(self.caller), SessionEvent::Ended { session, code });
            }
        }
    }
}

/// Nothing records what a plain sshd runs. None: no role asks for it. An error: a role rather has no session then.
fn not_recorded(allowed: &Allowed, node: &str) -> Result<Option<String>, String> {
    if !allowed.recording.is_wanted() {
        return Ok(None);
    }
    match (allowed.recording_failure, &allowed.recording_role) {
        (RecordingFailure::End, Some(role)) => Err(format!(
            "role {role} wants sessions recorded, and {node} has a plain sshd, whose sessions are not: install fleetgate \
             there, or ask an administrator for recording_failure = \"go-on\" in role {role}"
        )),
        (RecordingFailure::End, None) => Err(format!(
            "{node} has a plain sshd, whose sessions are not recorded"
        )),
        (RecordingFailure::GoOn, _) => Ok(Some(format!(
            "{node} has a plain sshd, whose sessions are not recorded"
        ))),
    }
}

fn kill() -> Request {
    Request::Signal {
        name: b"KILL".to_vec(),
    }
}
