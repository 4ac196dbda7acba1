//! How wide a number is.

use fleetgate_calls::abi::Abi;

/// Bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Two,
    Four,
    Eight,
    /// Those of a `long`.
    Word,
}

impl Width {
    /// In bytes.
    pub(super) const fn bytes(self, abi: Abi) -> usize {
        match self {
            Width::Two => 2,
            Width::Four => 4,
            Width::Eight => 8,
            Width::Word => abi.word(),
        }
    }
}
