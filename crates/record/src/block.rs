//! Blocks: a head of 72 bytes, and what it is about. The hash in the head covers the head before it, the bytes behind it, and
//! the hash of the block before: no block can be changed, left out or moved without every later hash being wrong.

use crate::Fault;
use sha2::{Digest, Sha256};

/// A file begins with these, and with the session's id.
pub const MAGIC: &[u8; 16] = b"fleetgate-rec 1\n";
/// The length of a file's beginning.
pub const FILE_HEAD: usize = 32;
/// The length of a block's head.
pub const HEAD: usize = 72;
/// A block is closed when its frames are so long.
pub const FULL: usize = 64 << 10;
/// The most bytes of a block's frames.
pub const MAX_PLAIN: usize = FULL + crate::frame::MAX_ENCODED;
/// The most bytes behind a head: what does not become smaller is kept as it is, and may be encrypted.
pub const MAX_STORED: usize = MAX_PLAIN + crate::age::MAX_OVERHEAD;

const START: &[u8; 4] = b"FGRB";

/// A hash over everything up to a block's end.
pub type Chain = [u8; 32];

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Frames, as they are.
    Frames,
    /// Frames, compressed by zstd.
    Compressed,
    /// A signature ([`crate::signature`]) over the chain up to here.
    Signature,
    /// The last frame: how it ended. Nothing but signatures follows.
    End,
    /// Frames, compressed where that makes them smaller, in an age file ([`crate::age`]).
    Encrypted,
}

impl Holds {
    const fn number(self) -> u8 {
        match self {
            Holds::Frames => 0,
            Holds::Compressed => 1,
            Holds::Signature => 2,
            Holds::End => 3,
            Holds::Encrypted => 4,
        }
    }

    /// Whether these are frames of what happened, which belong to a group.
    pub(crate) const fn is_of_a_group(self) -> bool {
        matches!(self, Holds::Frames | Holds::Compressed | Holds::Encrypted)
    }
}

/// A block's head, without the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the block holds.
    pub holds: Holds,
    /// It is compressed with what the blocks before it hold, back to one that does not say this: a group.
    pub continues: bool,
    /// How many bytes follow.
    pub stored: usize,
    /// How many bytes of frames these are.
    pub plain: usize,
    /// Counted from 0.
    pub number: u64,
    /// When its first frame was, in microseconds since the session's start.
    pub first: u64,
    /// When its last frame was.
    pub last: u64,
}

impl Head {
    fn words(&self) -> [u8; 40] {
        let mut out = [0; 40];
        out[..4].copy_from_slice(START);
        out[4] = self.holds.number();
        out[5] = u8::from(self.continues);
        let len = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        out[8..12].copy_from_slice(&len(self.stored));
        out[12..16].copy_from_slice(&len(self.plain));
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[24..32].copy_from_slice(&self.first.to_le_bytes());
        out[32..].copy_from_slice(&self.last.to_le_bytes());
        out
    }

    /// The head and the chain that the block ends with, of a block behind `before`.
    pub fn seal(&self, before: &Chain, stored: &[u8]) -> ([u8; HEAD], Chain) {
        let words = self.words();
        let chain = chained(before, &words, stored);
        let mut head = [0; HEAD];
        head[..40].copy_from_slice(&words);
        head[40..].copy_from_slice(&chain);
        (head, chain)
    }

    /// From a file: the head, and the chain that it names. Whether that is right, [`Head::follows`] says.
    pub fn decode(bytes: &[u8; HEAD]) -> Result<(Head, Chain), Fault> {
        let word = |at: usize| {
            let mut four = [0; 4];
            four.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(four)
        };
        let long = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(eight)
        };
        let holds = match (&bytes[..4] == START, bytes[4]) {
            (true, 0) => Holds::Frames,
            (true, 1) => Holds::Compressed,
            (true, 2) => Holds::Signature,
            (true, 3) => Holds::End,
            (true, 4) => Holds::Encrypted,
            _ => return Err(Fault::NoBlock),
        };
        let continues = match bytes[5..8] {
            [0, 0, 0] => false,
            [1, 0, 0] if holds.is_of_a_group() => true,
            _ => return Err(Fault::NoBlock),
        };
        let head = Head {
            holds,
            continues,
            stored: word(8) as usize,
            plain: word(12) as usize,
            number: long(16),
            first: long(24),
            last: long(32),
        };
        if head.stored > MAX_STORED || head.plain > MAX_PLAIN {
            return Err(Fault::TooLarge);
        }
        let is_plain = matches!(holds, Holds::Frames | Holds::End);
        if is_plain && head.stored != head.plain {
            return Err(Fault::NoBlock);
        }
        let mut chain = [0; 32];
        chain.copy_from_slice(&bytes[40..]);
        Ok((head, chain))
    }

    /// Whether a block with these bytes and this chain follows one that ended with `before`.
    pub fn follows(&self, before: &Chain, stored: &[u8], chain: &Chain) -> bool {
        chained(before, &self.words(), stored) == *chain
    }
}

fn chained(before: &Chain, words: &[u8; 40], stored: &[u8]) -> Chain {
    let mut hash = Sha256::new();
    hash.update(before);
    hash.update(words);
    hash.update(stored);
    hash.finalize().into()
}

/// A file's beginning.
pub fn file_head(session: &[u8; 16]) -> [u8; FILE_HEAD] {
    let mut head = [0; FILE_HEAD];
    head[..16].copy_from_slice(MAGIC);
    head[16..].copy_from_slice(session);
    head
}

/// The session that a file's beginning names.
pub fn session_of(head: &[u8; FILE_HEAD]) -> Result<[u8; 16], Fault> {
    let (magic, session) = head.split_at(16);
    match (magic == MAGIC, <[u8; 16]>::try_from(session)) {
        (true, Ok(session)) => Ok(session),
        _ => Err(Fault::NotARecording),
    }
}

/// The chain before the first block.
pub fn first_chain(head: &[u8; FILE_HEAD]) -> Chain {
    Sha256::digest(head).into()
}
