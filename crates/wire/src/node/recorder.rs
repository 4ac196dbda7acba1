//! Between the monitor and the recorder: what sessions show, on its way to the disk.
//!
//! ```text
//! recorder → monitor    Ready
//! monitor → recorder    (Begin · Resume)(+ recording, tail, pipe) → (Event · Signature)* → End
//! front → recorder      frames of a session, on the pipe (`record::pipe`)
//! recorder → monitor    Closed* → (Ended | Failed)
//! monitor → recorder    Flush → (Closed) → Flushed
//! ```
//!
//! The monitor makes files and pipe, and keeps what the recorder says of the chain: a new recorder goes on where the one
//! before it was. It signs a chain that only grows, so a recorder that is taken over cannot change what was signed before.

use crate::common::SessionId;
use crate::{choice, record};
use alloc::ffi::CString;
use alloc::vec::Vec;

/// The most bytes of an event's JSON, and of what begins or ends a recording.
pub const MAX_JSON: usize = 32 << 10;
/// So many events a recorder is sent before it has said that it took the first.
pub const CREDIT: u32 = 512;

record! {
    /// Where a recording's file ends.
    pub struct Position {
        /// How many blocks there are.
        pub blocks: u64,
        /// The hash that the last of them ends with.
        pub chain: [u8; 32],
        /// The hash that the last of them ends with that holds frames.
        pub anchor: [u8; 32],
        /// The file's length.
        pub length: u64,
        /// When the last frame was, in microseconds since the session's start.
        pub last: u64,
    }
}

choice! {
    /// Messages to the recorder.
    pub enum ToRecorder("message to the recorder") {
        /// Begin a recording. Three descriptors: its file, which has its beginning; its tail's; and the pipe's end, where
        /// something else than events comes. The monitor has written the first block, which says whose it is. `recipients`: the
        /// X25519 keys for which the rest is encrypted, if it is.
        0 => Begin { session: SessionId, at: Position, recipients: Vec<[u8; 32]> },
        /// Go on with one that another recorder began, with the same descriptors. What its tail had is in a block already.
        /// `json` says why there is a gap.
        1 => Resume { session: SessionId, at: Position, recipients: Vec<[u8; 32]>, gap_at: u64, json: Vec<u8> },
        /// Something that belongs into it.
        2 => Event { session: SessionId, at: u64, json: Vec<u8> },
        /// The bytes of a signature block, over the chain up to `blocks`.
        3 => Signature { session: SessionId, blocks: u64, bytes: Vec<u8> },
        /// It ends, when the pipe has.
        4 => End { session: SessionId, at: u64, json: Vec<u8> },
        /// Its last signature is written, or is not to be had: close its files.
        5 => Done { session: SessionId },
        /// Somebody is to see what is recorded: write what the pipe has into a block.
        6 => Flush { session: SessionId },
    }
}

choice! {
    /// Messages of the recorder.
    pub enum FromRecorder("message of the recorder") {
        /// The sandbox stands.
        0 => Ready,
        /// Blocks are in the file up to here. With `ended` the last of them is the end.
        1 => Closed { session: SessionId, at: Position, ended: bool },
        /// It cannot be gone on with.
        2 => Failed { session: SessionId, why: CString },
        /// So many events were taken.
        3 => More { events: u32 },
        /// A signature came when too many blocks stood behind those that it covers.
        4 => TooLate { session: SessionId },
        /// What was in the pipe at a [`ToRecorder::Flush`] is in the file, and was told of by [`FromRecorder::Closed`].
        5 => Flushed { session: SessionId },
    }
}
