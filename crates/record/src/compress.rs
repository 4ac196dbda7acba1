//! zstd for blocks. Each is compressed by itself, so that a reader can begin anywhere; one [`Compressor`] serves all
//! recordings of a process, because it takes more memory than a recording does.

use crate::Fault;
use crate::block::MAX_PLAIN;
use zstd_safe::{CCtx, CParameter, DCtx};

/// zstd's own default: the levels above it take twice the time for a few percent.
const LEVEL: i32 = 3;
/// A block's frames are all within reach.
const WINDOW_LOG: u32 = 17;
/// What is shorter is kept as it is.
const WORTH_IT: usize = 128;

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
            room: Vec::with_capacity(zstd_safe::compress_bound(MAX_PLAIN)),
        })
    }

    /// The bytes, smaller; nothing if they do not become smaller.
    pub fn compress(&mut self, plain: &[u8]) -> Option<&[u8]> {
        if plain.len() < WORTH_IT {
            return None;
        }
        self.room.clear();
        let len = self.context.compress2(&mut self.room, plain).ok()?;
        (len < plain.len()).then_some(&self.room[..len])
    }
}

/// Decompresses blocks.
pub struct Decompressor {
    context: DCtx<'static>,
}

impl Decompressor {
    /// Makes one; nothing if there is no memory for it.
    pub fn new() -> Option<Decompressor> {
        Some(Decompressor {
            context: DCtx::try_create()?,
        })
    }

    /// Puts the `len` bytes that were compressed into `plain`, and fails where they are any others in number.
    pub fn decompress(&mut self, stored: &[u8], len: usize, plain: &mut Vec<u8>) -> Result<(), Fault> {
        plain.clear();
        // The context writes up to the capacity, which is all that a hostile block can fill.
        plain.reserve_exact(len.min(MAX_PLAIN));
        match self.context.decompress(plain, stored) {
            Ok(got) if got == len && plain.len() == len => Ok(()),
            _ => Err(Fault::Compression),
        }
    }
}
