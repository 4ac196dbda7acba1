//! Frames in, blocks out. The caller appends the blocks to the file in the order in which they come.

use crate::block::{self, Chain, FILE_HEAD, FULL, Head, Holds};
use crate::compress::Compressor;
use crate::frame::{Frame, Kind, MAX_BYTES};

/// Where a recording's file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// How many blocks there are.
    pub blocks: u64,
    /// What the last of them ends with.
    pub chain: Chain,
    /// What the last of them ends with that holds frames: signatures may stand behind it. A tail belongs to this.
    pub anchor: Chain,
    /// The file's length.
    pub length: u64,
    /// When the last frame was.
    pub last: u64,
}

impl Position {
    /// Of a file that has its beginning and nothing else.
    pub fn start(session: &[u8; 16]) -> Position {
        let chain = block::first_chain(&block::file_head(session));
        Position {
            blocks: 0,
            chain,
            anchor: chain,
            length: FILE_HEAD as u64,
            last: 0,
        }
    }
}

/// Writes one recording.
#[derive(Debug)]
pub struct Writer {
    position: Position,
    /// The frames of the block that is not closed yet.
    plain: Vec<u8>,
    /// When the first of them was.
    first: u64,
}

impl Writer {
    /// Goes on behind what is in a file.
    pub fn at(position: Position) -> Writer {
        Writer {
            position,
            plain: Vec::new(),
            first: position.last,
        }
    }

    /// Where the file ends once all blocks that were handed out are in it.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// The frames that are in no block yet.
    pub fn open_frames(&self) -> &[u8] {
        &self.plain
    }

    /// When the first frame of the block that is not closed yet was.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Takes a frame; true: the block is full, and is to be closed before the next one. What is longer than a frame may be is
    /// cut, which the callers see to.
    pub fn push(&mut self, frame: &Frame<'_>) -> bool {
        let at = frame.at.max(self.position.last);
        if self.plain.is_empty() {
            self.first = at;
            self.position.last = at;
        }
        let cut = Frame {
            at,
            bytes: &frame.bytes[..frame.bytes.len().min(MAX_BYTES)],
            kind: frame.kind,
        };
        cut.encode(self.position.last, &mut self.plain);
        self.position.last = at;
        self.plain.len() >= FULL
    }

    /// Takes frames that were encoded already, as a tail holds them.
    pub(crate) fn push_encoded(&mut self, plain: &[u8], first: u64, last: u64) {
        self.plain.clear();
        self.plain.extend_from_slice(plain);
        self.first = first;
        self.position.last = last;
    }

    /// Closes the block, if there is a frame in it: its bytes, head and all.
    pub fn close(&mut self, compressor: Option<&mut Compressor>) -> Option<Vec<u8>> {
        if self.plain.is_empty() {
            return None;
        }
        let plain = std::mem::take(&mut self.plain);
        let block = match compressor.and_then(|c| c.compress(&plain)) {
            Some(stored) => self.block(Holds::Compressed, stored, plain.len()),
            None => self.block(Holds::Frames, &plain, plain.len()),
        };
        // The room stays for the next block, unless the frames were unusually many.
        self.plain = plain;
        self.plain.clear();
        Some(block)
    }

    /// The last block: how it ended. Nothing but signatures follows it.
    pub fn end(&mut self, compressor: Option<&mut Compressor>, at: u64, json: &[u8]) -> Vec<u8> {
        let mut bytes = self.close(compressor).unwrap_or_default();
        self.push(&Frame {
            kind: Kind::End,
            at,
            bytes: json,
        });
        let plain = std::mem::take(&mut self.plain);
        bytes.extend(self.block(Holds::End, &plain, plain.len()));
        bytes
    }

    /// A block with a signature over the chain up to here.
    pub fn sign(&mut self, signature: &[u8]) -> Vec<u8> {
        self.block(Holds::Signature, signature, 0)
    }

    pub(crate) fn block(&mut self, holds: Holds, stored: &[u8], plain: usize) -> Vec<u8> {
        let head = Head {
            holds,
            stored: stored.len(),
            plain,
            number: self.position.blocks,
            first: match holds {
                Holds::Signature => self.position.last,
                _ => self.first,
            },
            last: self.position.last,
        };
        let (head, chain) = head.seal(&self.position.chain, stored);
        let mut block = Vec::with_capacity(head.len() + stored.len());
        block.extend_from_slice(&head);
        block.extend_from_slice(stored);
        self.position.blocks += 1;
        self.position.chain = chain;
        if holds != Holds::Signature {
            self.position.anchor = chain;
        }
        self.position.length += block.len() as u64;
        block
    }
}
