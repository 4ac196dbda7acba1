//! What was read and not dealt with. Copies of a received byte: none by us where it came with the rest of its packet
//! (the kernel put it here, it is decrypted in place and lent to the owner), one where the packet came in two reads and
//! its first part had to be moved to the front of the buffer.

use super::buffer::Buffer;
use crate::cipher::Keys;
use crate::cipher::keys::LENGTH;
use crate::event::{End, Reason};
use std::ops::Range;
use zeroize::Zeroize;

/// Room that a read is given, if the owner asks for less.
const ROOM: usize = 16 * 1024;
/// A packet's length field before there are keys: a KEXINIT or a key exchange message of any sane size fits.
const LENGTH_BEFORE_KEYS: u32 = 35_000;
/// The shortest packet: padding length, one byte of payload, four of padding (RFC 4253 §6).
const LENGTH_MIN: u32 = 6;

pub(crate) struct Inbox {
    buffer: Buffer,
    start: usize,
    end: usize,
    /// The length field of the packet at `start`, once it is known.
    length: Option<u32>,
    /// The last packet that was handed out, to be wiped where it may hold a password.
    last: Range<usize>,
    /// Wipe packets once they are dealt with: so until the login.
    pub(crate) wipe: bool,
    pub(crate) keys: Keys,
    pub(crate) sequence: u32,
    /// Since the last keys.
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) max_packet: u32,
}

impl Inbox {
    pub(crate) fn new(max_packet: u32) -> Inbox {
        Inbox {
            buffer: Buffer::default(),
            start: 0,
            end: 0,
            length: None,
            last: 0..0,
            wipe: true,
            keys: Keys::plain(),
            sequence: 0,
            bytes: 0,
            packets: 0,
            max_packet,
        }
    }

    #[cfg(test)]
    pub(crate) fn holds_a_buffer(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// What was not dealt with.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Where to read to. Empty where more is held than any packet is long.
    pub(crate) fn room(&mut self, at_least: usize) -> &mut [u8] {
        self.forget();
        let held = self.end - self.start;
        let most = self.max_packet as usize + 2 * super::buffer::SIZE;
        if held >= most {
            return &mut [];
        }
        let wanted = at_least.max(ROOM).min(most - held).max(self.missing());
        if self.buffer.len() < held + wanted {
            let mut larger = Buffer::of(held + wanted);
            larger[..held].copy_from_slice(self.unread());
            if self.wipe {
                self.buffer[self.start..self.end].zeroize();
            }
            self.buffer = larger;
            (self.start, self.end) = (0, held);
        } else if self.buffer.len() - self.end < wanted {
            self.buffer.copy_within(self.start..self.end, 0);
            if self.wipe {
                let from = held.max(self.start);
                self.buffer[from..self.end].zeroize();
            }
            (self.start, self.end) = (0, held);
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes were read there.
    pub(crate) fn received(&mut self, n: usize) {
        assert!(
            n <= self.buffer.len() - self.end,
            "no more was read than there was room for"
        );
        self.end += n;
        if n == 0 {
            self.give_back();
            self.shrink();
        }
    }

    /// Puts bytes there, of any number: those that came with the state of a moved connection.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let held = self.end - self.start;
        let mut buffer = Buffer::of(held + bytes.len());
        buffer[..held].copy_from_slice(self.unread());
        buffer[held..held + bytes.len()].copy_from_slice(bytes);
        self.buffer = buffer;
        (self.start, self.end) = (0, held + bytes.len());
    }

    /// The next line, without its LF and a CR before it. The outer none: it is longer than `max`; the inner: it has not
    /// come whole.
    pub(crate) fn line(&mut self, max: usize) -> Option<Option<Range<usize>>> {
        self.forget();
        let unread = self.unread();
        let Some(at) = unread.iter().take(max).position(|&b| b == b'\n') else {
            return (unread.len() < max).then_some(None);
        };
        let cr = usize::from(unread[..at].ends_with(b"\r"));
        let line = self.start..self.start + at - cr;
        self.start += at + 1;
        Some(Some(line))
    }

    /// The next packet's payload, opened where it stands, and its message number. None: it has not come whole.
    pub(crate) fn packet(&mut self) -> Result<Option<(u8, Range<usize>)>, End> {
        self.forget();
        let held = self.end - self.start;
        let Some(&field) = self.unread().first_chunk() else {
            self.give_back();
            return Ok(None);
        };
        let length = match self.length {
            Some(length) => length,
            None => self.read_length(field)?,
        };
        let (whole, tag) = (LENGTH + length as usize, self.keys.tag_len());
        if held < whole + tag {
            return Ok(None);
        }
        let (packet, tag) = self.buffer[self.start..self.start + whole + tag].split_at_mut(whole);
        self.keys
            .open(self.sequence, packet, tag)
            .map_err(|_| altered())?;
        // LENGTH_MIN bytes are there at least.
        let (padding, number) = (usize::from(packet[LENGTH]), packet[LENGTH + 1]);
        // At least one byte of payload, so that there is a message number.
        if padding < 4 || padding + 2 > length as usize {
            return Err(End::protocol(format!(
                "a packet of {length} bytes has {padding} bytes of padding"
            )));
        }
        let payload = self.start + LENGTH + 1..self.start + whole - padding;
        self.start += whole + tag.len();
        self.length = None;
        self.sequence = self.sequence.wrapping_add(1);
        self.packets += 1;
        self.bytes += (whole + tag.len()) as u64;
        self.last = payload.clone();
        Ok(Some((number, payload)))
    }

    /// A payload or line that was handed out last.
    pub(crate) fn lent(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// New keys for what comes from here on.
    pub(crate) fn renew(&mut self, keys: Keys, reset_sequence: bool) {
        self.keys = keys;
        (self.bytes, self.packets) = (0, 0);
        if reset_sequence {
            self.sequence = 0;
        }
    }

    fn read_length(&mut self, field: [u8; LENGTH]) -> Result<u32, End> {
        let length = self.keys.length(self.sequence, field);
        let plain = self.keys.is_plain();
        let max = if plain {
            self.max_packet.min(LENGTH_BEFORE_KEYS)
        } else {
            self.max_packet
        };
        let padded = length as usize + if self.keys.length_is_padded() { LENGTH } else { 0 };
        if !(LENGTH_MIN..=max).contains(&length) || !padded.is_multiple_of(self.keys.block()) {
            // With keys, nobody vouches for this number: whoever altered it learns no more from our answer than from
            // that to a wrong MAC.
            return Err(if plain {
                End::protocol(format!(
                    "a packet of {length} bytes is not taken before there are keys"
                ))
            } else {
                altered()
            });
        }
        self.length = Some(length);
        Ok(length)
    }

    /// A connection that waits for its peer holds no buffer.
    fn give_back(&mut self) {
        if self.start == self.end && !self.buffer.is_empty() {
            self.forget();
            self.buffer = Buffer::default();
            (self.start, self.end) = (0, 0);
        }
    }

    /// Before the login, a peer that holds back the end of a packet has us hold what came of it, not a whole buffer.
    /// After it the copy would cost more than it saves.
    fn shrink(&mut self) {
        if self.wipe && self.start != self.end && self.buffer.len() == super::buffer::SIZE {
            let small = Buffer::exact(self.unread());
            self.buffer[self.start..self.end].zeroize();
            (self.start, self.end) = (0, small.len());
            self.buffer = small;
        }
    }

    /// Bytes that the packet at hand still lacks.
    fn missing(&self) -> usize {
        let Some(length) = self.length else { return 0 };
        (LENGTH + length as usize + self.keys.tag_len()).saturating_sub(self.end - self.start)
    }

    /// The packet that was handed out last is dealt with.
    fn forget(&mut self) {
        let last = std::mem::take(&mut self.last);
        if self.wipe {
            self.buffer[last].zeroize();
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.forget();
    }
}

fn altered() -> End {
    End::ours(
        Reason::MacError,
        "a packet was altered on its way, or its length is out of bounds",
    )
}
