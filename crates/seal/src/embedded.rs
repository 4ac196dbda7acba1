//! An executable that travels inside another one, as `cargo xtask build` packed it.
//!
//! Only the type: what is embedded stands in `fleetgate`'s build; unpacking and sealing are `image`'s.

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
