//! The tail: the frames of the block that is not closed yet, in a file beside the recording, so that a crash costs what came
//! in the last second and no more. The recorder writes over the tail of the block before, and each entry says which block it
//! follows (its anchor), so that stale ones are known: the file is never cut, and its length is bounded.

use crate::block::{Chain, MAX_PLAIN};
use crate::frame::Frames;
use sha2::{Digest, Sha256};

/// The length of an entry's head.
pub const HEAD: usize = 32;

/// What is already in the tail's file of the block that is not closed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    anchor: Option<Chain>,
    /// So much of the block's frames.
    taken: usize,
    /// Where the next entry goes.
    offset: u64,
}

impl Tail {
    /// Brings the tail up to all `frames` of a block, the first of which was at `first`: what to write, and where. Nothing if
    /// there is nothing new.
    pub fn write(&mut self, anchor: &Chain, first: u64, frames: &[u8]) -> Option<(u64, Vec<u8>)> {
        if self.anchor != Some(*anchor) || self.taken > frames.len() {
            *self = Tail {
                anchor: Some(*anchor),
                taken: 0,
                offset: 0,
            };
        }
        let new = &frames[self.taken..];
        if new.is_empty() {
            return None;
        }
        let mut entry = Vec::with_capacity(HEAD + new.len());
        entry.extend_from_slice(&anchor[..8]);
        entry.extend_from_slice(&first.to_le_bytes());
        for len in [new.len(), self.taken] {
            entry.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        }
        let check = check(&entry, anchor, new);
        entry.extend_from_slice(&check);
        entry.extend_from_slice(new);
        let offset = self.offset;
        self.taken = frames.len();
        self.offset += entry.len() as u64;
        Some((offset, entry))
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
}

/// What a tail's file holds of the block behind this anchor. Damaged and stale entries end it.
pub fn read(mut file: &[u8], anchor: &Chain) -> OpenFrames {
    let mut frames = OpenFrames::default();
    while let Some((head, rest)) = file.split_first_chunk::<HEAD>() {
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
        let (first, len, taken) = (long(8), word(16), word(20));
        if head[..8] != anchor[..8] || taken != frames.plain.len() || taken + len > MAX_PLAIN {
            break;
        }
        let Some(new) = rest.get(..len) else { break };
        if head[24..] != check(&head[..24], anchor, new) {
            break;
        }
        frames.first = first;
        frames.plain.extend_from_slice(new);
        file = &rest[len..];
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

fn check(head: &[u8], anchor: &Chain, new: &[u8]) -> [u8; 8] {
    let mut hash = Sha256::new();
    hash.update(head);
    hash.update(anchor);
    hash.update(new);
    let mut check = [0; 8];
    check.copy_from_slice(&hash.finalize()[..8]);
    check
}
