//! How much is recorded of a stream that no terminal shows: what a person would have read. A transfer of gigabytes makes no
//! more, and is counted.

use crate::frame::{self, Kind};

/// So much of each stream of a program without a terminal is recorded.
const LIMIT: u64 = 64 << 10;
/// So much more of each is, for each minute that it lasts: who filled the limit with noise is not unseen afterwards.
const REFILL: u64 = 16 << 10;

/// A stream that is recorded up to a limit.
#[derive(Clone, Copy, Debug)]
pub struct Limited {
    kind: Kind,
    most: u64,
    left: u64,
    omitted: u64,
    /// In microseconds since the session's start.
    filled: u64,
}

impl Limited {
    /// Of this kind.
    pub const fn new(kind: Kind) -> Limited {
        Limited {
            kind,
            most: LIMIT,
            left: LIMIT,
            omitted: 0,
            filled: 0,
        }
    }

    /// Of this kind, and only counted.
    pub const fn counted(kind: Kind) -> Limited {
        Limited {
            most: 0,
            left: 0,
            ..Limited::new(kind)
        }
    }

    /// What it is.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// How many of the `len` bytes that come now are recorded, `now` microseconds since the session's start; the others are
    /// counted.
    pub fn take(&mut self, now: u64, len: usize) -> usize {
        let refill = now.saturating_sub(self.filled).saturating_mul(REFILL) / 60_000_000;
        if refill > 0 {
            self.filled = now;
            self.left = self.left.saturating_add(refill).min(self.most);
        }
        let count = usize::try_from(self.left).map_or(len, |left| left.min(len));
        self.left -= count as u64;
        self.omitted += (len - count) as u64;
        count
    }

    /// The bytes of a frame that says how many were not recorded, if some were; once.
    pub fn omission(&mut self) -> Option<[u8; 9]> {
        match std::mem::take(&mut self.omitted) {
            0 => None,
            omitted => Some(frame::omission(self.kind, omitted)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_fills_again_and_what_is_beyond_is_counted() {
        let mut stream = Limited::new(Kind::Stdout);
        assert_eq!(stream.take(0, 60 << 10), 60 << 10);
        assert_eq!(stream.take(0, 60 << 10), 4 << 10);
        assert_eq!(stream.take(60_000_000, 60 << 10), 16 << 10);
        assert_eq!(stream.take(u64::MAX, 1 << 20), 64 << 10);
        let omitted = ((60 - 4) << 10) + ((60 - 16) << 10) + (1 << 20) - (64 << 10);
        assert_eq!(stream.omission(), Some(frame::omission(Kind::Stdout, omitted)));
        assert_eq!(stream.omission(), None);
        let mut counted = Limited::counted(Kind::Stdin);
        assert_eq!((counted.take(0, 7), counted.take(u64::MAX, 3)), (0, 0));
        assert_eq!(counted.omission(), Some(frame::omission(Kind::Stdin, 10)));
    }
}
