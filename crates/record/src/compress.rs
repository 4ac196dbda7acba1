//! zstd for blocks. A block is compressed with what its group holds before it, so that one which is closed because it is old costs
//! no more than if it had been closed when it was full. One [`Compressor`] serves all recordings of a process, because it takes
//! more memory than a recording does.

use crate::Fault;
use crate::block::{FULL, MAX_PLAIN};
use crate::columns;
use zstd_safe::{CCtx, CParameter, DCtx};

/// zstd's own default: the levels above it take twice the time for a few percent.
const LEVEL: i32 = 3;
/// A block's frames and its group are all within reach.
const WINDOW_LOG: u32 = 18;
/// What is shorter is kept as it is.
const WORTH_IT: usize = 16;
/// So much of what a group holds a block is compressed with: the last bytes of it.
pub(crate) const REACH: usize = FULL;
/// A group ends when it holds more than this, so that a reader can begin in the middle of a long recording.
pub(crate) const MAX_GROUP: usize = 4 * FULL;

/// What the first block of a group is compressed with: what terminals show everywhere, so that a short session is short. It is a
/// part of the format.
const DICTIONARY: &[u8] = include_bytes!("dictionary.bin");

/// What a block is compressed with: what its group holds, or the dictionary at its beginning.
fn before(group: &[u8]) -> &[u8] {
    match group.is_empty() {
        true => DICTIONARY,
        false => group,
    }
}

/// What the next block of a group is compressed with, after one that holds this.
pub(crate) fn reach(group: &mut Vec<u8>, content: &[u8]) {
    if group.is_empty() {
        group.extend_from_slice(DICTIONARY);
    }
    group.extend_from_slice(content);
    let surplus = group.len().saturating_sub(REACH);
    group.drain(..surplus);
}
/// The most that is compressed: a block's frames, in columns.
const MAX: usize = MAX_PLAIN + 10;

/// Compresses blocks.
pub struct Compressor {
    context: CCtx<'static>,
    room: Vec<u8>,
}

impl Compressor {
    /// Makes one; nothing if there is no memory for it.
    pub fn new() -> Option<Compressor> {
        let mut context = CCtx::try_create()?;
        for parameter in [
            CParameter::CompressionLevel(LEVEL),
            CParameter::WindowLog(WINDOW_LOG),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
        ] {
            context.set_parameter(parameter).ok()?;
        }
        Some(Compressor {
            context,
            room: Vec::with_capacity(zstd_safe::compress_bound(MAX)),
        })
    }

    /// Frames as they are stored. `group`: what their group holds before them.
    pub(crate) fn pack(&mut self, group: &[u8], plain: &[u8]) -> Packed {
        let arranged = columns::arrange(plain);
        let smaller = arranged
            .as_deref()
            .and_then(|all| self.compress(group, all, plain.len()));
        match (smaller, arranged) {
            (Some(stored), Some(content)) => Packed {
                stored,
                is_compressed: true,
                content,
            },
            _ => Packed::plain(plain),
        }
    }

    /// Nothing if it does not become smaller than `most`.
    fn compress(&mut self, group: &[u8], arranged: &[u8], most: usize) -> Option<Vec<u8>> {
        if arranged.len() < WORTH_IT {
            return None;
        }
        self.room.clear();
        // Whatever the bytes are, the reader loads the same.
        self.context.load_dictionary(before(group)).ok()?;
        let len = self.context.compress2(&mut self.room, arranged).ok()?;
        (len < most).then(|| self.room[..len].to_vec())
    }
}

/// Frames as they are stored.
pub(crate) struct Packed {
    pub(crate) stored: Vec<u8>,
    /// Whether that is compressed. If not, it is as long as the frames.
    pub(crate) is_compressed: bool,
    /// What the group holds of them.
    pub(crate) content: Vec<u8>,
}

impl Packed {
    /// As they are.
    pub(crate) fn plain(plain: &[u8]) -> Packed {
        Packed {
            stored: plain.to_vec(),
            is_compressed: false,
            content: plain.to_vec(),
        }
    }
}

/// Decompresses blocks.
pub(crate) struct Decompressor {
    context: DCtx<'static>,
}

impl Decompressor {
    /// Makes one; nothing if there is no memory for it.
    pub(crate) fn new() -> Option<Decompressor> {
        Some(Decompressor {
            context: DCtx::try_create()?,
        })
    }

    /// Puts what was compressed behind this group into `plain`.
    pub(crate) fn decompress(
        &mut self,
        group: &[u8],
        stored: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        plain.clear();
        // The context writes up to the capacity, which is all that a hostile block can fill.
        plain.reserve_exact(MAX);
        self.context
            .load_dictionary(before(group))
            .map_err(|_| Fault::Compression)?;
        match self.context.decompress(plain, stored) {
            Ok(_) => Ok(()),
            Err(_) => Err(Fault::Compression),
        }
    }
}
