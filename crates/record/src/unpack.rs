//! From what is stored of a block to its frames: decrypted with the reader's keys, decompressed with what its group holds, and put
//! in order.

use crate::Fault;
use crate::age::{Keys, OpenError};
use crate::block::{Head, Holds};
use crate::columns;
use crate::compress::{Decompressor, reach};

/// Reads blocks in the order in which they stand.
pub(crate) struct Unpacker {
    keys: Keys,
    decompressor: Decompressor,
    /// The last that the group holds up to here, as it is before it is compressed.
    group: Vec<u8>,
    opened: Vec<u8>,
    arranged: Vec<u8>,
}

impl Unpacker {
    /// Makes one; nothing if there is no memory for it.
    pub(crate) fn new() -> Option<Unpacker> {
        Some(Unpacker {
            keys: Keys::default(),
            decompressor: Decompressor::new()?,
            group: Vec::new(),
            opened: Vec::new(),
            arranged: Vec::new(),
        })
    }

    pub(crate) fn set_keys(&mut self, keys: Keys) {
        self.keys = keys;
    }

    /// Puts the frames of a block into `plain`. False: it is encrypted, and there are no keys.
    pub(crate) fn unpack(&mut self, head: &Head, stored: &[u8], plain: &mut Vec<u8>) -> Result<bool, Fault> {
        if head.holds == Holds::Encrypted && self.keys.is_empty() {
            // Nothing that can be read goes on from there.
            self.group.clear();
            return Ok(false);
        }
        if !head.continues {
            self.group.clear();
        }
        if head.continues && self.group.is_empty() {
            return Err(Fault::Compression);
        }
        let packed = match head.holds {
            Holds::Encrypted => {
                self.keys.open(stored, &mut self.opened).map_err(|e| match e {
                    OpenError::OtherKey => Fault::OtherKey,
                    OpenError::NotAge | OpenError::Damaged => Fault::Encryption,
                })?;
                &self.opened[..]
            }
            _ => stored,
        };
        // What is encrypted does not say whether it is compressed: compressed it is shorter.
        let is_compressed = match head.holds {
            Holds::Encrypted => packed.len() != head.plain,
            holds => holds == Holds::Compressed,
        };
        if !is_compressed {
            plain.clear();
            plain.extend_from_slice(packed);
            reach(&mut self.group, packed);
            return Ok(true);
        }
        self.decompressor
            .decompress(&self.group, packed, &mut self.arranged)?;
        columns::restore(&self.arranged, head.plain, plain).ok_or(Fault::Compression)?;
        reach(&mut self.group, &self.arranged);
        Ok(true)
    }
}
