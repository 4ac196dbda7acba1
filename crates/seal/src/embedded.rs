//! An executable that travels inside another one, as `cargo xtask build` packed it.
//!
//! What is embedded stands in `fleetgate`'s build; here is the type and its unpacking. It never writes anywhere.

use crate::refusal::{Failure, Step};
use std::borrow::Cow;
use std::path::PathBuf;

/// How the bytes are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// As they are.
    Raw,
    /// One lz4 block, without a length in front: [`Embedded::len`] is the length.
    Lz4,
}

/// An embedded executable.
#[derive(Clone, Copy, Debug)]
pub struct Embedded {
    /// The program's name, which is also its argv[0]: `fleetgate-session`.
    pub name: &'static str,
    /// The version it was built as; part of the path of the installed file.
    pub version: &'static str,
    /// How `data` is packed.
    pub packing: Packing,
    /// The packed bytes.
    pub data: &'static [u8],
    /// The length of the executable.
    pub len: usize,
    /// The executable's SHA-256.
    pub sha256: [u8; 32],
}

impl Embedded {
    /// Where the package installs the same program.
    pub fn installed_path(&self) -> PathBuf {
        PathBuf::from(format!("/usr/lib/fleetgate/{}/{}", self.version, self.name))
    }

    /// The executable's bytes.
    pub(crate) fn bytes(&self) -> Result<Cow<'static, [u8]>, Failure> {
        let wrong = |why: String| Failure::because(Step::Unpack, why);
        match self.packing {
            Packing::Raw => Ok(Cow::Borrowed(self.data)),
            Packing::Lz4 => {
                let bytes =
                    lz4_flex::block::decompress(self.data, self.len).map_err(|e| wrong(e.to_string()))?;
                if bytes.len() != self.len {
                    return Err(wrong(format!("{} bytes came out of {}", bytes.len(), self.len)));
                }
                Ok(Cow::Owned(bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::digest;

    static TEXT: &[u8] = b"the image the image the image the image the image";

    #[test]
    fn packed_and_raw_give_the_same_bytes() {
        let packed: &'static [u8] = lz4_flex::block::compress(TEXT).leak();
        let mut embedded = Embedded {
            name: "x",
            version: "1",
            packing: Packing::Lz4,
            data: packed,
            len: TEXT.len(),
            sha256: digest(TEXT),
        };
        assert_eq!(embedded.bytes().expect("unpacks").as_ref(), TEXT);
        embedded.len += 1;
        assert!(embedded.bytes().is_err(), "a wrong length is found");
        embedded.data = &packed[..packed.len() - 1];
        assert!(embedded.bytes().is_err(), "a cut image is found");
        embedded = Embedded {
            packing: Packing::Raw,
            data: TEXT,
            len: TEXT.len(),
            ..embedded
        };
        assert_eq!(embedded.bytes().expect("raw").as_ref(), TEXT);
    }
}
