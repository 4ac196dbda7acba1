//! What went over a link, as it is seen on one side of it: recorded, written to a file, read again, counted.

use crate::relay::Line;
use crate::tap::{Packet, Tap};
use crate::{Error, Result, pcap, turns};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

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
        Ok(Capture {
            asks: self.asks,
            packets: tap.end()?,
        })
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
