//! What a front writes into the pipe to the recorder: a head of sixteen bytes, and the frame's bytes. The recorder believes
//! none of it: a kind that is not the front's, or a length beyond the bound, ends that recording and no other.

use crate::frame::{Kind, MAX_BYTES};

/// The length of a head.
pub const HEAD: usize = 16;

/// A frame's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it is about.
    pub kind: Kind,
    /// How many bytes follow.
    pub len: usize,
    /// Microseconds since the session's start.
    pub at: u64,
}

impl Head {
    /// As bytes.
    pub fn encode(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[0] = self.kind as u8;
        let len = u32::try_from(self.len).unwrap_or(u32::MAX);
        head[4..8].copy_from_slice(&len.to_le_bytes());
        head[8..].copy_from_slice(&self.at.to_le_bytes());
        head
    }

    /// From a front's bytes; nothing where they are not what a front may write.
    pub fn decode(bytes: &[u8; HEAD]) -> Option<Head> {
        let [kind, 0, 0, 0, a, b, c, d, at @ ..] = *bytes else {
            return None;
        };
        let kind = Kind::of(kind).filter(|kind| kind.is_of_the_front())?;
        let len = usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?;
        (len <= MAX_BYTES).then_some(Head {
            kind,
            len,
            at: u64::from_le_bytes(at),
        })
    }
}
