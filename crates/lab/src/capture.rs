//! What went over a link, as it is seen on one side of it: recorded, written to a file, read again, counted.

use crate::relay::Line;
use crate::{Error, Result, pcap, turns};
use fleetgate_sys::clock;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What one recording may hold, in bytes; a longer one is an error when it ends.
const MAX_BYTES: usize = 64 << 20;

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

/// A recording that goes on. Dropping it ends it, and what was recorded is gone.
pub struct Recording {
    line: Arc<Line>,
    asks: Ipv4Addr,
}

/// A recording that ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Capture {
    asks: Ipv4Addr,
    packets: Vec<Packet>,
}

impl Tap {
    fn new(side: usize) -> Tap {
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
            at: Duration::new(at.sec as u64, at.nsec),
            bytes: bytes.to_vec(),
        });
    }

    /// What was seen, if all of it was kept.
    fn end(self, asks: Ipv4Addr) -> Result<Capture> {
        if self.bytes > MAX_BYTES {
            let what = format!("a recording of {} bytes", self.bytes);
            return Err(Error::new(what, format!("at most {MAX_BYTES} are kept")));
        }
        Ok(Capture {
            asks,
            packets: self.packets,
        })
    }
}

impl Recording {
    pub(crate) fn begin(line: Arc<Line>, side: usize, asks: Ipv4Addr) -> Recording {
        line.tap(Some(Tap::new(side)));
        Recording { line, asks }
    }

    /// Ends it: what was seen so far.
    pub fn end(self) -> Result<Capture> {
        let tap = self.line.tap(None);
        let tap =
            tap.ok_or_else(|| Error::new("a recording", "another one of the same link has ended it"))?;
        tap.end(self.asks)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.line.tap(None);
    }
}

impl Capture {
    /// Writes it in the form that tcpdump and Wireshark read.
    pub fn write(&self, path: &Path) -> Result<()> {
        let parent = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(path, pcap::write(&self.packets)))
            .map_err(|e| Error::new(path.display(), e))
    }

    /// Reads one that was written at `asks`.
    pub fn read(path: &Path, asks: Ipv4Addr) -> Result<Capture> {
        let bytes = std::fs::read(path).map_err(|e| Error::new(path.display(), e))?;
        let packets = pcap::read(&bytes).map_err(|why| Error::new(path.display(), why))?;
        Ok(Capture { asks, packets })
    }

    /// How many packets it has.
    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    /// The round trips in it: how often, one after another, the side that asks needed an answer of the other before it
    /// could go on. See the module `turns` for what is counted.
    pub fn round_trips(&self) -> u32 {
        turns::count(&self.packets, self.asks)
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
            let ended = tap.end(Ipv4Addr::LOCALHOST);
            assert_eq!(ended.is_ok_and(|c| c.packets() == packets), kept, "{packets} MB");
        }
    }
}
