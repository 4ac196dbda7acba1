//! Sessions that are recorded. A program's request waits until its recording's files are there; what passes then goes into
//! the recording too, and nothing more passes while that is behind. What follows where it cannot be recorded, roles say.

use super::SessionEvent;
use super::pair::{Item, Program};
use super::relay::Relay;
use fleetgate_policy::{Recording, RecordingFailure};
use fleetgate_ssh::Connection;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::sleep;

/// What a user reads whose session does not begin.
const REFUSED: &str = "the session has to be recorded, and cannot be; the proxy's log says why";
/// What he reads whose session ends.
const ENDED: &str =
    "the session was ended: it has to be recorded, and cannot be any more; the proxy's log says why";

impl Relay<'_> {
    /// A program begins. `recording`: how much of it is recorded, or why nothing is though it should be.
    pub(super) fn begun(&mut self, at: usize, program: Program, recording: Result<Option<Recording>, &str>) {
        let began = SessionEvent::Began {
            session: &program.session,
            kind: program.kind,
            command: &program.command,
            recording,
        };
        let line = self.host.tell(Some(self.caller), began);
        let ordered = self.host.ordered(&program.session);
        if let Some(pair) = &mut self.pairs[at] {
            if let Some(tap) = &mut pair.tap {
                tap.event(&line);
            }
            pair.program = Some(program.session);
            pair.ordered = Some(ordered);
            pair.over = program
                .limit
                .map(|limit| (Box::pin(sleep(limit)), limit.as_secs()));
        }
    }

    /// A program cannot be recorded. It begins without, or there are words for its user.
    pub(super) fn begin_unrecorded(
        &mut self,
        at: usize,
        program: Program,
        failure: RecordingFailure,
        why: &str,
    ) -> Result<(), String> {
        tracing::error!(node = self.host.name(), "a session is not recorded: {why}");
        if failure == RecordingFailure::GoOn {
            self.begun(at, program, Err(why));
            return Ok(());
        }
        let not_recorded = SessionEvent::NotRecorded {
            session: &program.session,
            reason: why,
            ended: true,
        };
        self.host.tell(Some(self.caller), not_recorded);
        Err(REFUSED.to_owned())
    }

    /// Lets a program begin whose recording's files are there.
    pub(super) fn poll_starting(&mut self, at: usize, user: &mut Connection, cx: &mut Context<'_>) {
        let Some(pair) = self.pairs.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        let Some(starting) = &mut pair.starting else {
            return;
        };
        let opened = match Pin::new(&mut starting.opened).poll(cx) {
            Poll::Ready(opened) => {
                opened.unwrap_or_else(|_| Err("the thread that records has ended".to_owned()))
            }
            Poll::Pending if starting.late.as_mut().poll(cx).is_ready() => {
                Err("its files could not be made in time".to_owned())
            }
            Poll::Pending => return,
        };
        let Some(starting) = pair.starting.take() else {
            return;
        };
        let channel = pair.user.filter(|_| !pair.left);
        let failed = match (opened, channel) {
            (Ok(()), Some(_)) => return self.begun(at, starting.program, Ok(Some(starting.recording))),
            // Nobody is there any more for whom it would run.
            (Ok(()), None) => None,
            (Err(why), _) => Some(why),
        };
        if let Some(tap) = pair.tap.take() {
            tap.discard();
        }
        let refusal = match failed {
            Some(why) => match self.begin_unrecorded(at, starting.program, starting.failure, &why) {
                Ok(()) => return,
                Err(words) => words,
            },
            None => String::new(),
        };
        let Some(pair) = self.pairs.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        pair.asked_up.retain(|reply| Some(*reply) != starting.reply);
        let Some(request) = pair.up.withdraw(starting.request) else {
            return;
        };
        match channel {
            Some(channel) => self.not_begun(channel, &request, starting.reply, &refusal, user),
            None => pair.up.push(Item::Close),
        }
    }

    /// Holds a session whose recording is behind, and ends one that has to be recorded and cannot be any more.
    pub(super) fn poll_recording(&mut self, at: usize, host: &mut Connection, cx: &mut Context<'_>) {
        let Some(pair) = self.pairs.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        // Until its files are there nothing passes anyway.
        if pair.starting.is_some() {
            return;
        }
        let Some(tap) = &mut pair.tap else { return };
        let why = match tap.poll(cx) {
            Ok(held) => {
                pair.held = held;
                return;
            }
            Err(why) => why,
        };
        pair.held = false;
        if let Some(tap) = pair.tap.take() {
            tap.give_up();
        }
        let session = pair.program.clone().unwrap_or_default();
        let ended = pair.failure == RecordingFailure::End;
        tracing::error!(node = self.host.name(), "a session is recorded no more: {why}");
        let not_recorded = SessionEvent::NotRecorded {
            session: &session,
            reason: &why,
            ended,
        };
        self.host.tell(Some(self.caller), not_recorded);
        if ended {
            self.end_now(at, ENDED, host);
        }
    }

    /// An event that belongs to all sessions of the connection, as JSON.
    pub(super) fn record_event(&mut self, json: &str) {
        let taps = self
            .pairs
            .iter_mut()
            .flatten()
            .filter_map(|pair| pair.tap.as_mut());
        taps.for_each(|tap| tap.event(json));
    }
}
