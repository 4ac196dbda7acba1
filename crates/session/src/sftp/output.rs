//! Answers on their way to the client: one buffer, filled at its end, sent from its start.
//!
//! READ data is read by the kernel straight into its place in the answer; nothing is copied twice. What may wait
//! here is bounded by the loop (`serve`), not by this type.

use super::protocol::{Status, kind, short};
use super::request::Attributes;
use alloc::vec::Vec;
use fleetgate_sys::tree::Stat;

/// The buffer's length at the start: one READ of the longest kind with its header, and small answers beside it.
/// Pages of it that nothing was written to are never touched, and so cost nothing.
const FIRST: usize = 320 << 10;

/// The answers that were not sent yet.
pub struct Output {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The version that the client speaks: below 3 a status has no sentence.
    pub version: u32,
}

/// An answer being written; its length is filled in at the end.
#[must_use]
pub struct Answer<'a> {
    output: &'a mut Output,
    at: usize,
}

impl Output {
    /// An empty buffer.
    pub fn new() -> Output {
        Output {
            buffer: alloc::vec![0; FIRST],
            start: 0,
            end: 0,
            version: super::protocol::VERSION,
        }
    }

    /// How many bytes wait.
    pub fn waiting(&self) -> usize {
        self.end - self.start
    }

    /// What waits.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The first `n` bytes were sent.
    pub fn sent(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
        if self.start == self.end {
            // From the front again: the same pages, still in the processor's cache.
            (self.start, self.end) = (0, 0);
        }
    }

    /// Room for `n` more bytes: by moving what waits to the front, else by growing.
    fn room(&mut self, n: usize) -> &mut [u8] {
        if self.end + n > self.buffer.len() && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end + n > self.buffer.len() {
            let len = (self.end + n).max(self.buffer.len() * 2);
            self.buffer.resize(len, 0);
        }
        &mut self.buffer[self.end..self.end + n]
    }

    fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Begins an answer.
    pub fn answer(&mut self, kind: u8, id: u32) -> Answer<'_> {
        // Room first: it may move what waits, and with it the place of this answer.
        let [a, b, c, d] = id.to_be_bytes();
        self.room(9).copy_from_slice(&[0, 0, 0, 0, kind, a, b, c, d]);
        let at = self.waiting();
        self.end += 9;
        Answer { output: self, at }
    }

    /// A whole answer: how it went.
    pub fn status(&mut self, id: u32, status: Status) {
        self.status_because(id, status, status.text());
    }

    /// The same in other words.
    pub fn status_because(&mut self, id: u32, status: Status, text: &str) {
        let version = self.version;
        let mut answer = self.answer(kind::STATUS, id);
        answer.u32(status as u32);
        if version >= 3 {
            answer.string(text.as_bytes());
            answer.string(b"");
        }
        answer.finish();
    }

    /// A whole answer: one name without attributes.
    pub fn name(&mut self, id: u32, name: &[u8]) {
        let mut answer = self.answer(kind::NAME, id);
        answer.u32(1);
        answer.string(name);
        answer.string(name);
        answer.u32(0);
        answer.finish();
    }

    /// A whole answer: attributes.
    pub fn attributes(&mut self, id: u32, stat: &Stat) {
        let mut answer = self.answer(kind::ATTRS, id);
        answer.attributes(stat);
        answer.finish();
    }

    /// A whole answer: up to `len` bytes of data, that `fill` puts in place; no answer when it fails or has none.
    /// Returns how many bytes it put.
    pub fn data<E>(
        &mut self,
        id: u32,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        const HEADER: usize = 13;
        let place = self.room(HEADER + len);
        let n = fill(&mut place[HEADER..])?.min(len);
        if n == 0 && len > 0 {
            return Ok(0);
        }
        place[..4].copy_from_slice(&short(HEADER - 4 + n).to_be_bytes());
        place[4] = kind::DATA;
        place[5..9].copy_from_slice(&id.to_be_bytes());
        place[9..13].copy_from_slice(&short(n).to_be_bytes());
        self.end += HEADER + n;
        Ok(n)
    }
}

impl Answer<'_> {
    /// Appends a number.
    pub fn u32(&mut self, n: u32) {
        self.output.put(&n.to_be_bytes());
    }
    /// Appends a number.
    pub fn u64(&mut self, n: u64) {
        self.output.put(&n.to_be_bytes());
    }
    /// Appends a string with its length.
    pub fn string(&mut self, bytes: &[u8]) {
        self.u32(short(bytes.len()));
        self.output.put(bytes);
    }
    /// Appends attributes, all of them. Times beyond 2106 and before 1970 wrap: the draft gives them 32 bits.
    pub fn attributes(&mut self, stat: &Stat) {
        self.u32(Attributes::SIZE | Attributes::OWNER | Attributes::MODE | Attributes::TIMES);
        self.u64(stat.size);
        self.u32(stat.uid);
        self.u32(stat.gid);
        self.u32(stat.mode);
        for time in [stat.accessed, stat.modified] {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the draft's times have 32 bits"
            )]
            self.u32(time as u32);
        }
    }
    /// How long the answer is by now, its length field not counted.
    pub fn len(&self) -> usize {
        self.output.waiting() - self.at - 4
    }
    /// Writes `n` where `u32` wrote a number `back` bytes into the answer, its length field not counted.
    pub fn amend(&mut self, back: usize, n: u32) {
        let at = self.output.start + self.at + 4 + back;
        self.output.buffer[at..at + 4].copy_from_slice(&n.to_be_bytes());
    }
    /// Completes it.
    pub fn finish(self) {
        let len = short(self.len());
        let at = self.output.start + self.at;
        self.output.buffer[at..at + 4].copy_from_slice(&len.to_be_bytes());
    }
    /// Takes it back as if it had never been begun.
    pub fn abandon(self) {
        self.output.end = self.output.start + self.at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_stand_one_behind_the_other_and_leave_from_the_front() {
        let mut output = Output::new();
        output.status(7, Status::Eof);
        let first = b"\0\0\0\x1c\x65\0\0\0\x07\0\0\0\x01\0\0\0\x0bEnd of file\0\0\0\0";
        assert_eq!(output.bytes(), first);
        output.sent(first.len() - 1);
        assert_eq!(output.bytes(), b"\0");
        output.answer(kind::NAME, 1).abandon();
        output.name(8, b"ab");
        output.sent(1);
        assert_eq!(
            output.bytes(),
            b"\0\0\0\x19\x68\0\0\0\x08\0\0\0\x01\0\0\0\x02ab\0\0\0\x02ab\0\0\0\0"
        );
        output.sent(output.waiting());
        assert_eq!((output.waiting(), output.start), (0, 0));
    }

    #[test]
    fn data_is_put_in_its_place_and_growth_keeps_what_waits() {
        let mut output = Output::new();
        for id in 0..8u32 {
            let n = output.data::<()>(id, 100_000, |place| {
                place[..60_000].fill(id as u8);
                Ok(60_000)
            });
            assert_eq!(n, Ok(60_000));
        }
        assert_eq!(output.data(9, 10, |_| Err::<usize, i32>(5)), Err(5));
        assert_eq!(output.data::<()>(9, 10, |_| Ok(0)), Ok(0));
        assert_eq!(output.waiting(), 8 * 60_013);
        for id in 0..8u32 {
            let bytes = output.bytes();
            assert_eq!(bytes[..4], 60_009u32.to_be_bytes());
            assert_eq!(bytes[5..9], id.to_be_bytes());
            assert!(bytes[13..60_013].iter().all(|b| *b == id as u8));
            output.sent(60_013);
            output.status(1, Status::Ok);
            output.sent(0);
            let waiting = output.waiting();
            output.end -= waiting - (7 - id as usize) * 60_013;
        }
    }
}
