//! The answers to a peer's requests: given by the owner in any order, sent in the order of the requests. It holds no
//! answer longer than the ones before it are missing.

use super::one::{next_answer, note_answer};
use super::{Channels, GLOBAL, Message, send};
use crate::event::ReplyId;
use crate::transport::Outbox;

impl Channels {
    /// The owner's answer to a channel's request. One that nobody waits for (any more) is dropped.
    pub(crate) fn answer(&mut self, reply: ReplyId, done: bool, out: &mut impl Outbox) {
        let (channel, serial) = split(reply);
        let Some(ch) = self.get_mut(channel) else { return };
        if note_answer(&mut ch.waiting, serial, done) {
            self.send_answers(channel, out);
        }
    }

    /// The owner's answer to a request for the connection.
    pub(crate) fn answer_global(&mut self, reply: ReplyId, done: Option<&[u8]>, out: &mut impl Outbox) {
        let (channel, serial) = split(reply);
        if channel == GLOBAL && note_answer(&mut self.globals, serial, done.map(<[u8]>::to_vec)) {
            self.send_global_answers(out);
        }
    }

    pub(super) fn send_global_answers(&mut self, out: &mut impl Outbox) {
        while let Some(answer) = next_answer(&mut self.globals) {
            send(
                out,
                &match &answer {
                    Some(fields) => Message::GlobalDone(fields),
                    None => Message::GlobalRefused,
                },
            );
        }
    }

    pub(super) fn send_answers(&mut self, channel: u32, out: &mut impl Outbox) {
        let mut sent = 0;
        if let Some(ch) = self.get_mut(channel) {
            let theirs = ch.theirs.unwrap_or_default();
            while let Some(done) = ch.next_answer() {
                sent += 1;
                send(out, &Message::Reply { ours: theirs, done });
            }
        }
        self.in_flight -= sent;
    }

    /// What the owner did not answer is refused: nothing can be said after CLOSE.
    pub(super) fn refuse_waiting(&mut self, channel: u32, out: &mut impl Outbox) {
        if let Some(ch) = self.get_mut(channel) {
            for waiting in &mut ch.waiting {
                waiting.answer.get_or_insert(false);
            }
        }
        self.send_answers(channel, out);
    }
}

fn split(reply: ReplyId) -> (u32, u32) {
    let [a, b, c, d, low @ ..] = reply.0.to_be_bytes();
    (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes(low))
}
