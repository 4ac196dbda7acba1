//! The tail: the frames of the block that is not closed yet, in a file beside the recording, so that a crash costs what came
//! in the last second and no more. The recorder writes over the tail of the block before, and each entry says which block it
//! follows (its anchor), so that stale ones are known: the file is never cut, and its length is bounded.
//!
//! Of a recording that is encrypted each entry is an age file of its own, and can become a block as it is.

use crate::block::{Chain, Head, Holds, MAX_PLAIN, MAX_STORED};
use crate::compress::Compressor;
use crate::frame::Frames;
use crate::writer::Writer;
use sha2::{Digest, Sha256};

/// The length of an entry's head.
pub const HEAD: usize = 48;
const CHECK: usize = 40;

/// What is already in the tail's file of the block that is not closed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    anchor: Option<Chain>,
    /// So much of the block's frames.
    taken: usize,
    /// When the last of these was.
    last: u64,
    /// Where the next entry goes.
    offset: u64,
}

/// An entry's facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// How many bytes of frames the entries before it have.
    pub taken: usize,
    /// How many it has.
    pub plain: usize,
    /// From when its first frame counts: when the frame before it was.
    pub from: u64,
    /// When its last frame was.
    pub last: u64,
    /// Whether it is an age file.
    pub is_sealed: bool,
}

impl Tail {
    /// Brings the tail up to all frames of a block that are in no block yet: what to write, and where. Nothing if there is nothing
    /// new.
    pub fn write(&mut self, writer: &mut Writer, compressor: &mut Compressor) -> Option<(u64, Vec<u8>)> {
        let at = *writer.position();
        let all = writer.open_frames().len();
        if self.anchor != Some(at.anchor) || self.taken > all {
            *self = Tail {
                anchor: Some(at.anchor),
                ..Tail::default()
            };
        }
        if self.taken == all {
            return None;
        }
        // What is in the file does not change any more.
        writer.settle();
        let new = &writer.open_frames()[self.taken..];
        let entry = Entry {
            taken: self.taken,
            plain: new.len(),
            from: match self.taken {
                0 => writer.first(),
                _ => self.last,
            },
            last: at.last,
            is_sealed: writer.recipients().is_some(),
        };
        let bytes = match writer.recipients() {
            None => entry.encode(&at.anchor, new),
            Some(recipients) => entry.encode(&at.anchor, &recipients.seal(&compressor.pack(&[], new).stored)),
        };
        let offset = self.offset;
        self.taken = all;
        self.last = at.last;
        self.offset += bytes.len() as u64;
        Some((offset, bytes))
    }
}

impl Entry {
    /// An entry with these bytes, behind this block.
    pub fn encode(&self, anchor: &Chain, stored: &[u8]) -> Vec<u8> {
        let mut entry = Vec::with_capacity(HEAD + stored.len());
        entry.extend_from_slice(&anchor[..8]);
        entry.extend_from_slice(&self.from.to_le_bytes());
        for len in [stored.len(), self.taken, self.plain] {
            entry.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        }
        entry.extend_from_slice(&u32::from(self.is_sealed).to_le_bytes());
        entry.extend_from_slice(&self.last.to_le_bytes());
        let check = check(&entry, anchor, stored);
        entry.extend_from_slice(&check);
        entry.extend_from_slice(stored);
        entry
    }

    /// The entry at the beginning of `file`, if it is one of the block behind this anchor; its bytes, and what follows.
    fn decode<'a>(file: &'a [u8], anchor: &Chain) -> Option<(Entry, &'a [u8], &'a [u8])> {
        let (head, rest) = file.split_first_chunk::<HEAD>()?;
        let long = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        let word = |at: usize| {
            let mut four = [0; 4];
            four.copy_from_slice(&head[at..at + 4]);
            u32::from_le_bytes(four) as usize
        };
        let entry = Entry {
            from: long(8),
            taken: word(20),
            plain: word(24),
            is_sealed: word(28) == 1,
            last: long(32),
        };
        let (stored, behind) = rest.split_at_checked(word(16))?;
        let is_right = head[..8] == anchor[..8]
            && word(28) <= 1
            && entry.taken.saturating_add(entry.plain) <= MAX_PLAIN
            && stored.len() <= MAX_STORED
            && (entry.is_sealed || stored.len() == entry.plain)
            && head[CHECK..] == check(&head[..CHECK], anchor, stored);
        is_right.then_some((entry, stored, behind))
    }
}

/// The frames that a tail holds of a block, and when the first was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenFrames {
    /// As they are in a block.
    pub plain: Vec<u8>,
    /// When the first was.
    pub first: u64,
    /// When the last was.
    pub last: u64,
    /// Those of a recording that is encrypted.
    pub sealed: Vec<Sealed>,
}

/// An encrypted entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// An age file.
    pub stored: Vec<u8>,
    /// How many bytes of frames are in it.
    pub plain: usize,
    /// From when its first frame counts.
    pub first: u64,
    /// When its last frame was.
    pub last: u64,
}

impl Sealed {
    /// The head of a block that holds it, but for its place in the chain.
    pub(crate) fn head(&self) -> Head {
        Head {
            holds: Holds::Encrypted,
            continues: false,
            stored: self.stored.len(),
            plain: self.plain,
            number: 0,
            first: self.first,
            last: self.last,
        }
    }
}

/// What a tail's file holds of the block behind this anchor. Damaged and stale entries end it.
pub fn read(mut file: &[u8], anchor: &Chain) -> OpenFrames {
    let mut frames = OpenFrames::default();
    let mut taken = 0;
    while let Some((entry, stored, behind)) = Entry::decode(file, anchor) {
        // One of the other sort is of another recorder. Each is about something new: a file of empty ones would have no end.
        let is_mixed = match entry.is_sealed {
            true => !frames.plain.is_empty(),
            false => !frames.sealed.is_empty(),
        };
        if entry.taken != taken || is_mixed || entry.plain == 0 {
            break;
        }
        if taken == 0 {
            frames.first = entry.from;
        }
        match entry.is_sealed {
            true => frames.sealed.push(Sealed {
                stored: stored.to_vec(),
                plain: entry.plain,
                first: entry.from,
                last: entry.last,
            }),
            false => frames.plain.extend_from_slice(stored),
        }
        taken += entry.plain;
        file = behind;
    }
    // An entry holds whole frames; should it not, what can be read of them counts.
    let mut whole = 0;
    frames.last = frames.first;
    let mut all = Frames::new(&frames.plain, frames.first);
    while let Some(Ok(frame)) = all.next() {
        frames.last = frame.at;
        whole = frames.plain.len() - all.left();
    }
    frames.plain.truncate(whole);
    frames
}

fn check(head: &[u8], anchor: &Chain, stored: &[u8]) -> [u8; 8] {
    let mut hash = Sha256::new();
    hash.update(head);
    hash.update(anchor);
    hash.update(stored);
    let mut check = [0; 8];
    check.copy_from_slice(&hash.finalize()[..8]);
    check
}
