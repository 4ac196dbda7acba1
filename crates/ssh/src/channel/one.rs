//! One channel: its windows, what is still to be answered, what was said on it too early. It neither reads nor writes
//! messages.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

/// How far the opening of a channel got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The peer asked for it; the owner decides.
    Asked,
    /// We asked for it; the peer decides.
    Opening,
    /// Both agree.
    Open,
}

/// A channel.
#[derive(Debug)]
pub(super) struct Channel {
    pub stage: Stage,
    /// The peer's number; a guess while `Opening`, if there is one.
    pub theirs: Option<u32>,
    /// What we may still send, and in one packet.
    pub send_window: u32,
    pub send_packet: u32,
    /// What the peer may still send.
    pub window: u32,
    /// What the owner was given and did not consume.
    pub unread: u32,
    /// What the owner consumed and the peer was not told of.
    pub owed: u32,
    /// The whole window: the sum of the three above.
    pub whole: u32,
    pub eof_sent: bool,
    pub eof_received: bool,
    pub close_sent: bool,
    /// The owner answers the peer's CLOSE itself.
    pub close_later: bool,
    /// It did not yet.
    pub close_received: bool,
    /// The owner wanted to write and could not; it is told when it can. Atomic because `writable` takes `&self`.
    starved: AtomicBool,
    /// Answers that we expect.
    pub expected: u32,
    /// The peer's requests that wait for their answer, first asked first.
    pub waiting: VecDeque<Waiting>,
    /// Messages that came before the channel was open (`Asked`: the peer's, `Opening`: ours).
    pub held: VecDeque<Vec<u8>>,
}

/// A request that waits, for the owner's answer or for those before it.
#[derive(Debug)]
pub(super) struct Waiting<T = bool> {
    pub serial: u32,
    pub answer: Option<T>,
}

impl Channel {
    pub fn new(stage: Stage, theirs: Option<u32>) -> Channel {
        Channel {
            stage,
            theirs,
            send_window: 0,
            send_packet: 0,
            window: 0,
            unread: 0,
            owed: 0,
            whole: 0,
            eof_sent: false,
            eof_received: false,
            close_sent: false,
            close_later: false,
            close_received: false,
            starved: AtomicBool::new(false),
            expected: 0,
            waiting: VecDeque::new(),
            held: VecDeque::new(),
        }
    }

    /// What may be sent now, as far as the channel itself goes.
    pub fn sendable(&self) -> usize {
        if self.stage != Stage::Open || self.eof_sent || self.close_sent || self.close_received {
            return 0;
        }
        self.send_window.min(self.send_packet) as usize
    }

    /// The owner found no room.
    pub fn starve(&self) {
        self.starved.store(true, Ordering::Relaxed);
    }

    pub fn starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }

    pub fn fed(&mut self) {
        *self.starved.get_mut() = false;
    }

    /// The peer sent so many bytes. False: more than it may.
    pub fn take_in(&mut self, n: u32) -> bool {
        let Some(left) = self.window.checked_sub(n) else {
            return false;
        };
        self.window = left;
        self.unread += n;
        true
    }

    /// The channel is open; the peer was told of this window.
    pub fn begin(&mut self, window: u32) {
        self.stage = Stage::Open;
        (self.window, self.whole) = (window, window);
    }

    /// The owner is done with so many bytes. Some: what the peer is to be told that it may send more. It is told of
    /// half a window at a time, so that there is one such message for many of data. The window of an owner that keeps
    /// up grows then, to `most`, by what is left of `growth`.
    pub fn consume(&mut self, n: usize, most: u32, growth: &mut u32) -> Option<u32> {
        let n = u32::try_from(n).map_or(self.unread, |n| n.min(self.unread));
        self.unread -= n;
        self.owed += n;
        let is_ending = self.eof_received || self.close_received || self.close_sent;
        if self.owed == 0 || self.owed < self.whole / 2 || is_ending {
            return None;
        }
        let mut more = std::mem::take(&mut self.owed);
        if self.unread <= self.whole / 4 {
            let grows = self.whole.min(most - self.whole).min(*growth);
            *growth -= grows;
            self.whole += grows;
            more += grows;
        }
        self.window += more;
        Some(more)
    }

    /// Takes the answers that can be given now: those that no unanswered request stands before.
    pub fn next_answer(&mut self) -> Option<bool> {
        next_answer(&mut self.waiting)
    }
}

/// Notes an answer. False: nobody waits for it.
pub(super) fn note_answer<T>(waiting: &mut VecDeque<Waiting<T>>, serial: u32, answer: T) -> bool {
    match waiting.iter_mut().find(|w| w.serial == serial) {
        Some(w) if w.answer.is_none() => {
            w.answer = Some(answer);
            true
        }
        _ => false,
    }
}

/// The first answer, if it is there.
pub(super) fn next_answer<T>(waiting: &mut VecDeque<Waiting<T>>) -> Option<T> {
    let answer = waiting.front_mut()?.answer.take()?;
    waiting.pop_front();
    if waiting.is_empty() {
        waiting.shrink_to(0);
    }
    Some(answer)
}
