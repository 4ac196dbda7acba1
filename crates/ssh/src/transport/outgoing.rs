//! What waits to be sent. Copies of a sent byte: none by us for channel data (read(2) puts it here, it is sealed in
//! place and written from here), one for all other messages, which are small. During a key exchange messages wait in
//! plain and are sealed by the new keys.

use super::buffer::Buffer;
use super::outbox::{Outbox, PARTS_MAX};
use crate::cipher::Keys;
use crate::cipher::keys::{LENGTH, TAG_MAX};
use crate::codec::{Write, number};
use crate::random;
use std::cell::RefCell;
use zeroize::Zeroize;

/// What a packet has beside its payload, at most: length, padding length, padding and tag.
const OVERHEAD: usize = LENGTH + 1 + PADDING_MAX + TAG_MAX;
/// Four bytes at least, one less than a block more at most.
const PADDING_MAX: usize = 4 + 15;
/// Scratch space that stays when a message is written.
const SCRATCH_KEPT: usize = 1024;

pub(crate) struct Outgoing {
    buffer: Buffer,
    start: usize,
    end: usize,
    /// A message while it is written.
    scratch: Vec<u8>,
    /// Messages that wait for new keys, each behind its length.
    held: Vec<u8>,
    /// A key exchange is under way: from our KEXINIT to our NEWKEYS.
    holding: bool,
    /// Nothing more is sent: DISCONNECT was the last.
    closed: bool,
    pub(crate) keys: Keys,
    pub(crate) sequence: u32,
    /// Since the last keys.
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    /// In all.
    pub(crate) total_packets: u64,
    max_buffered: usize,
}

impl Outgoing {
    pub(crate) fn new(max_buffered: usize) -> Outgoing {
        Outgoing {
            buffer: Buffer::default(),
            start: 0,
            end: 0,
            scratch: Vec::new(),
            held: Vec::new(),
            holding: false,
            closed: false,
            keys: Keys::plain(),
            sequence: 0,
            bytes: 0,
            packets: 0,
            total_packets: 0,
            max_buffered,
        }
    }

    #[cfg(test)]
    pub(crate) fn holds_a_buffer(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// What is to be written.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// So much of it was.
    pub(crate) fn sent(&mut self, n: usize) {
        assert!(n <= self.end - self.start, "no more was sent than there was");
        self.start += n;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.buffer = Buffer::default();
        }
    }

    /// Bytes that wait in plain, for new keys.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn holding(&self) -> bool {
        self.holding
    }

    /// Bytes as they are: the version line, what a moved connection had not sent.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        let at = self.reserve(bytes.len());
        self.buffer[at..at + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// From here on messages wait for new keys. To be called behind our KEXINIT.
    pub(crate) fn hold(&mut self) {
        self.holding = true;
    }

    /// New keys for what goes from here on. To be called behind our NEWKEYS.
    pub(crate) fn renew(&mut self, keys: Keys, reset_sequence: bool) {
        self.keys = keys;
        (self.bytes, self.packets) = (0, 0);
        if reset_sequence {
            self.sequence = 0;
        }
        self.holding = false;
    }

    /// Sends what was held. To be called after `renew`.
    pub(crate) fn release(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        let mut rest = &held[..];
        while let Some((len, behind)) = rest.split_first_chunk() {
            let (payload, behind) = behind.split_at(u32::from_be_bytes(*len) as usize);
            self.seal(payload);
            rest = behind;
        }
        held.zeroize();
    }

    /// A payload that does not wait: a message of the key exchange, or DISCONNECT.
    pub(crate) fn now(&mut self, payload: &[u8]) {
        if !self.closed {
            self.seal(payload);
        }
    }

    /// The last packet.
    pub(crate) fn close(&mut self, payload: &[u8]) {
        self.now(payload);
        self.shut();
    }

    /// Nothing more is sent.
    pub(crate) fn shut(&mut self) {
        self.closed = true;
        self.held.zeroize();
    }

    fn seal(&mut self, payload: &[u8]) {
        let at = self.reserve(payload.len() + OVERHEAD);
        self.buffer[at + LENGTH + 1..][..payload.len()].copy_from_slice(payload);
        self.finish(payload.len());
    }

    /// Bytes of padding behind a payload of so many.
    fn padding(&self, payload: usize) -> usize {
        let block = self.keys.block();
        let counted = 1 + payload + if self.keys.length_is_padded() { LENGTH } else { 0 };
        let padding = block - counted % block;
        if padding < 4 { padding + block } else { padding }
    }

    /// Seals the packet whose payload stands behind the unsent bytes, five bytes on.
    fn finish(&mut self, payload: usize) {
        let padding = self.padding(payload);
        let length = 1 + payload + padding;
        let (whole, tag) = (LENGTH + length, self.keys.tag_len());
        let (packet, behind) = self.buffer[self.end..].split_at_mut(whole);
        packet[..LENGTH].copy_from_slice(&number(length).to_be_bytes());
        packet[LENGTH] = u8::try_from(padding).unwrap_or(u8::MAX);
        fill_padding(&mut packet[whole - padding..]);
        self.keys.seal(self.sequence, packet, &mut behind[..tag]);
        self.end += whole + tag;
        self.sequence = self.sequence.wrapping_add(1);
        self.packets += 1;
        self.total_packets += 1;
        self.bytes += (whole + tag) as u64;
    }

    /// Room for so many bytes behind the unsent ones, and where it begins.
    fn reserve(&mut self, more: usize) -> usize {
        let unsent = self.end - self.start;
        if self.buffer.len() - self.end < more {
            if self.buffer.len() >= unsent + more {
                self.buffer.copy_within(self.start..self.end, 0);
            } else {
                let mut larger = Buffer::of(unsent + more);
                larger[..unsent].copy_from_slice(self.unsent());
                self.buffer = larger;
            }
            (self.start, self.end) = (0, unsent);
        }
        self.end
    }
}

impl Outbox for Outgoing {
    fn packet(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.closed {
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        write(&mut scratch);
        if self.holding {
            self.held.put_string(&scratch);
        } else {
            self.seal(&scratch);
        }
        // It may have held a password. Short ones are cheap to wipe, long ones are not kept.
        scratch.zeroize();
        if scratch.capacity() <= SCRATCH_KEPT {
            self.scratch = scratch;
        }
    }

    fn room(&self) -> usize {
        if self.holding || self.closed {
            return 0;
        }
        self.max_buffered
            .saturating_sub(self.end - self.start + OVERHEAD + 64)
    }

    fn data<E>(
        &mut self,
        header: &[u8],
        part: usize,
        max: usize,
        fill: impl FnOnce(&mut [&mut [u8]]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let (part, max) = (part.min(self.room()), max.min(self.room()));
        if part == 0 || max == 0 {
            return Ok(0);
        }
        let before = LENGTH + 1 + header.len();
        let framed =
            LENGTH + 1 + header.len() + part + self.padding(header.len() + part) + self.keys.tag_len();
        // No more than a buffer of the usual size has room for, and the bound on what is unsent leaves.
        let fit = (super::buffer::SIZE.min(self.max_buffered)).saturating_sub(self.end - self.start) / framed;
        let count = max.div_ceil(part).min(fit).clamp(1, PARTS_MAX);
        let max = max.min(count * part);
        let at = self.reserve(count * framed + OVERHEAD);
        let mut rest = &mut self.buffer[at..];
        let mut places: [&mut [u8]; PARTS_MAX] = Default::default();
        for (i, place) in places[..count].iter_mut().enumerate() {
            let (packet, behind) = std::mem::take(&mut rest).split_at_mut(framed);
            *place = &mut packet[before..][..part.min(max - i * part)];
            rest = behind;
        }
        let filled = fill(&mut places[..count])?.min(max);
        let mut left = filled;
        while left > 0 {
            let n = left.min(part);
            let body = self.end + before;
            self.buffer[body - header.len()..body].copy_from_slice(header);
            self.buffer[body - 4..body].copy_from_slice(&number(n).to_be_bytes());
            self.finish(header.len() + n);
            left -= n;
        }
        Ok(filled)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.held.zeroize();
        self.scratch.zeroize();
    }
}

/// Padding, from a batch of random bytes: one system call for many packets.
fn fill_padding(padding: &mut [u8]) {
    struct Batch {
        bytes: [u8; 512],
        used: usize,
    }
    thread_local! {
        static BATCH: RefCell<Batch> = const { RefCell::new(Batch { bytes: [0; 512], used: 512 }) };
    }
    BATCH.with_borrow_mut(|batch| {
        if batch.bytes.len() - batch.used < padding.len() {
            random::fill(&mut batch.bytes);
            batch.used = 0;
        }
        padding.copy_from_slice(&batch.bytes[batch.used..][..padding.len()]);
        batch.used += padding.len();
    });
}
