//! What is wrong with a recording, and where.

use std::fmt;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The file is something else.
    NotARecording,
    /// It ends in the middle of a block.
    Cut,
    /// A block does not begin as blocks do.
    NoBlock,
    /// A block says that it is larger than any block is.
    TooLarge,
    /// A block has another number than the one before it leads to.
    Number,
    /// A block's hash is not that of its bytes and of the block before it.
    Changed,
    /// A block cannot be decompressed.
    Compression,
    /// A block is encrypted, and for other keys than those that are there.
    OtherKey,
    /// A block that is encrypted cannot be decrypted, whatever the key.
    Encryption,
    /// The frames of a block are none.
    Frames,
    /// A block of the end holds something else, or another block holds the end.
    End,
    /// A signature's own bytes are none.
    Signature,
    /// A signature is about another chain than the one that it stands in.
    OtherChain,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::NotARecording => "this is no recording of fleetgate",
            Fault::Cut => "the file ends in the middle of a block",
            Fault::NoBlock => "there is no block where one should begin",
            Fault::TooLarge => "a block is larger than any block may be",
            Fault::Number => "a block is missing, or is in the wrong place",
            Fault::Changed => "the bytes of a block were changed, or a block before it was",
            Fault::Compression => "a block cannot be decompressed",
            Fault::OtherKey => "a block is encrypted for other keys than those that were given",
            Fault::Encryption => "a block is encrypted, and cannot be decrypted",
            Fault::Frames => "a block holds something else than frames",
            Fault::End => "the end is not where an end is",
            Fault::Signature => "a signature is damaged",
            Fault::OtherChain => "a signature is about other blocks than those before it",
        })
    }
}

/// A fault and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What is wrong.
    pub fault: Fault,
    /// The block's number, counted from 0.
    pub block: u64,
    /// Where the block begins in the file.
    pub offset: u64,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            Fault::NotARecording => self.fault.fmt(f),
            fault => write!(f, "{fault} (block {}, at byte {})", self.block, self.offset),
        }
    }
}

impl std::error::Error for Error {}
