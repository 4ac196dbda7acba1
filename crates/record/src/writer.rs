//! Frames in, blocks out. The caller appends the blocks to the file in the order in which they come.

use crate::age::Recipients;
use crate::block::{self, Chain, FILE_HEAD, FULL, Head, Holds};
use crate::compress::{Compressor, MAX_GROUP, Packed, reach};
use crate::frame::{Frame, Kind, MAX_BYTES, TICK};
use crate::signature::{self, LastKey};
use crate::tail::Sealed;

/// What comes of a stream within this time of a frame's beginning, in microseconds, is in that frame: nobody sees the difference.
const TOGETHER: u64 = TICK;

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
#[derive(Clone, Debug)]
pub struct Writer {
    position: Position,
    /// The frames of the block that is not closed yet.
    plain: Vec<u8>,
    /// When the first of them was.
    first: u64,
    /// The last of them, where it may become longer.
    growing: Option<Growing>,
    /// The last that the group holds of the blocks before, and how much it holds in all.
    group: Vec<u8>,
    grouped: usize,
    /// For whom frames are encrypted.
    recipients: Option<Recipients>,
    /// Blocks that were made and not handed out.
    made: Vec<u8>,
    last_key: LastKey,
}

#[derive(Clone, Copy, Debug)]
struct Growing {
    kind: Kind,
    /// When it began, and when the frame before it was.
    at: u64,
    before: u64,
    /// Where it begins in the block's frames, and how long it is.
    start: usize,
    len: usize,
}

impl Writer {
    /// Goes on behind what is in a file.
    pub fn at(position: Position) -> Writer {
        Writer {
            position,
            plain: Vec::new(),
            first: position.last,
            growing: None,
            group: Vec::new(),
            grouped: 0,
            recipients: None,
            made: Vec::new(),
            last_key: LastKey::default(),
        }
    }

    /// Encrypts what comes; the last block is readable.
    #[must_use]
    pub fn sealed_for(self, recipients: Option<Recipients>) -> Writer {
        Writer { recipients, ..self }
    }

    /// For whom frames are encrypted.
    pub fn recipients(&self) -> Option<&Recipients> {
        self.recipients.as_ref()
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
        let at = (frame.at / TICK * TICK).max(self.position.last);
        let bytes = &frame.bytes[..frame.bytes.len().min(MAX_BYTES)];
        if !self.grow(frame.kind, at, bytes) {
            if self.plain.is_empty() {
                self.first = at;
                self.position.last = at;
            }
            let (start, before) = (self.plain.len(), self.position.last);
            Frame {
                at,
                bytes,
                kind: frame.kind,
            }
            .encode(before, &mut self.plain);
            self.growing = frame.kind.is_stream().then_some(Growing {
                kind: frame.kind,
                at,
                before,
                start,
                len: bytes.len(),
            });
            self.position.last = at;
        }
        self.plain.len() >= FULL
    }

    /// Puts the next piece of a stream into the frame before it.
    fn grow(&mut self, kind: Kind, at: u64, bytes: &[u8]) -> bool {
        let Some(growing) = &mut self.growing else {
            return false;
        };
        let len = growing.len + bytes.len();
        if growing.kind != kind || at - growing.at >= TOGETHER || len > MAX_BYTES {
            return false;
        }
        let mut whole = Vec::new();
        let Growing {
            at, before, start, ..
        } = *growing;
        let old = self.plain.len() - growing.len - start;
        Frame { kind, at, bytes: &[] }.encode_head(before, len, &mut whole);
        self.plain.splice(start..start + old, whole);
        self.plain.extend_from_slice(bytes);
        growing.len = len;
        true
    }

    /// The frames that are there do not change any more.
    pub(crate) fn settle(&mut self) {
        self.growing = None;
    }

    /// Takes frames that were encoded already, as a tail holds them.
    pub(crate) fn push_encoded(&mut self, plain: &[u8], first: u64, last: u64) {
        self.plain.clear();
        self.plain.extend_from_slice(plain);
        self.first = first;
        self.position.last = last;
        self.settle();
    }

    /// Makes a block of an encrypted entry of a tail.
    pub(crate) fn push_sealed(&mut self, entry: &Sealed) {
        self.first = entry.first;
        self.position.last = self.position.last.max(entry.last);
        let block = self.block(Holds::Encrypted, false, &entry.stored, entry.plain);
        self.made.extend(block);
    }

    /// Closes the block, if there is a frame in it: its bytes, head and all.
    pub fn close(&mut self, compressor: Option<&mut Compressor>) -> Option<Vec<u8>> {
        let mut made = std::mem::take(&mut self.made);
        self.settle();
        if !self.plain.is_empty() {
            let plain = std::mem::take(&mut self.plain);
            made.extend(self.frames(compressor, &plain));
            // The room stays for the next block, unless the frames were unusually many.
            self.plain = plain;
            self.plain.clear();
        }
        (!made.is_empty()).then_some(made)
    }

    fn frames(&mut self, compressor: Option<&mut Compressor>, plain: &[u8]) -> Vec<u8> {
        let packed = match compressor {
            Some(compressor) => compressor.pack(&self.group, plain),
            None => Packed::plain(plain),
        };
        let continues = !self.group.is_empty();
        let block = match (&self.recipients, packed.is_compressed) {
            (Some(recipients), _) => {
                let sealed = recipients.seal(&packed.stored);
                self.block(Holds::Encrypted, continues, &sealed, plain.len())
            }
            (None, true) => self.block(Holds::Compressed, continues, &packed.stored, plain.len()),
            (None, false) => self.block(Holds::Frames, continues, &packed.stored, plain.len()),
        };
        self.grouped += packed.content.len();
        // A full block has enough in itself, and one that is busy has no room to spare.
        if plain.len() >= FULL || self.grouped > MAX_GROUP {
            (self.group, self.grouped) = (Vec::new(), 0);
        } else {
            reach(&mut self.group, &packed.content);
        }
        block
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
        bytes.extend(self.block(Holds::End, false, &plain, plain.len()));
        bytes
    }

    /// A block with a signature over the chain up to here.
    pub fn sign(&mut self, signature: &[u8]) -> Vec<u8> {
        let signature = signature::without_key(signature, &mut self.last_key);
        self.block(Holds::Signature, false, &signature, 0)
    }

    pub(crate) fn block(&mut self, holds: Holds, continues: bool, stored: &[u8], plain: usize) -> Vec<u8> {
        let head = Head {
            holds,
            continues,
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
