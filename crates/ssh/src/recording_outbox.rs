//! An outbox for tests: it keeps every payload as it is and has as much room as it is told. Nothing outside tests uses
//! it.

use crate::transport::outbox::{Outbox, PARTS_MAX};

/// What was sent.
#[derive(Debug)]
pub(crate) struct RecordingOutbox {
    /// Payloads, first sent first.
    pub packets: Vec<Vec<u8>>,
    /// For channel data; what is sent lessens it.
    pub room: usize,
}

impl RecordingOutbox {
    /// With room for all that a test sends.
    pub fn new() -> RecordingOutbox {
        RecordingOutbox {
            packets: Vec::new(),
            room: 1 << 40,
        }
    }

    /// Bytes that wait.
    pub fn waiting(&self) -> usize {
        self.packets.iter().map(Vec::len).sum()
    }
}

impl Outbox for RecordingOutbox {
    fn packet(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut payload = Vec::new();
        write(&mut payload);
        assert!(!payload.is_empty(), "an empty payload");
        self.packets.push(payload);
    }

    fn room(&self) -> usize {
        self.room
    }

    fn data<E>(
        &mut self,
        header: &[u8],
        part: usize,
        max: usize,
        fill: impl FnOnce(&mut [&mut [u8]]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let max = max.min(self.room).min(part * PARTS_MAX);
        if max == 0 {
            return Ok(0);
        }
        let mut bytes = vec![0; max];
        let mut places: Vec<&mut [u8]> = bytes.chunks_mut(part).collect();
        let n = fill(&mut places)?;
        let (fields, _) = header.split_at(header.len() - 4);
        for bytes in bytes[..n].chunks(part) {
            let length = crate::codec::number(bytes.len());
            self.packets.push([fields, &length.to_be_bytes(), bytes].concat());
        }
        self.room -= n;
        Ok(n)
    }
}
