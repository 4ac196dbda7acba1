//! A tap on one side of a line: the packets that it saw.

use crate::{Error, Result};
use fleetgate_sys::clock;
use std::time::Duration;

/// What one recording may hold, in bytes; a longer one is an error when it ends.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// A packet as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Since 1970.
    pub(crate) at: Duration,
    /// From the header of the internet protocol on.
    pub(crate) bytes: Vec<u8>,
}

/// Where a recording is made: on one side of a line.
pub(crate) struct Tap {
    side: usize,
    packets: Vec<Packet>,
    bytes: usize,
}

impl Tap {
    pub(crate) fn new(side: usize) -> Tap {
        Tap {
            side,
            packets: Vec::new(),
            bytes: 0,
        }
    }

    pub(crate) fn side(&self) -> usize {
        self.side
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        if self.bytes > MAX_BYTES {
            return;
        }
        let at = clock::wall();
        self.packets.push(Packet {
            at: Duration::new(at.sec.cast_unsigned(), at.nsec),
            bytes: bytes.to_vec(),
        });
    }

    /// What was seen, if all of it was kept.
    pub(crate) fn end(self) -> Result<Vec<Packet>> {
        if self.bytes > MAX_BYTES {
            let what = format!("a recording of {} bytes", self.bytes);
            return Err(Error::new(what, format!("at most {MAX_BYTES} are kept")));
        }
        Ok(self.packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_that_was_not_kept_whole_is_none() {
        let packet = vec![0; 1 << 20];
        for (packets, kept) in [(MAX_BYTES >> 20, true), ((MAX_BYTES >> 20) + 1, false)] {
            let mut tap = Tap::new(0);
            (0..packets).for_each(|_| tap.take(&packet));
            let ended = tap.end();
            assert_eq!(
                ended.is_ok_and(|seen| seen.len() == packets),
                kept,
                "{packets} MB"
            );
        }
    }
}
