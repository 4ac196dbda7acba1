//! One recording: frames from its pipe and events from the monitor become blocks. What a front sends is not trusted: a head
//! that no front may write ends the recording.

use crate::disk::{Disk, Files};
use fleetgate_record::compress::Compressor;
use fleetgate_record::frame::{Frame, Kind, MAX_BYTES};
use fleetgate_record::pipe::{HEAD, Head};
use fleetgate_record::signature::MAX_LATE;
use fleetgate_record::tail::Tail;
use fleetgate_record::writer::Writer;
use fleetgate_sys::{Errno, Fd, file};
use fleetgate_wire::common::SessionId;
use std::sync::Arc;

/// One read of a pipe, which is what a pipe holds.
pub(crate) const ROOM: usize = 64 << 10;
/// Reads of one recording before others have their turn.
const READS: usize = 4;

/// One recording.
pub(crate) struct Recording {
    session: SessionId,
    /// None: the session's front has closed it.
    pipe: Option<Fd>,
    files: Arc<Files>,
    writer: Writer,
    tail: Tail,
    /// The beginning of a frame whose rest did not come yet.
    part: Vec<u8>,
    /// How it ended, by the monitor's word.
    end: Option<(u64, Vec<u8>)>,
    ended: bool,
}

/// What came of a look at a pipe.
pub(crate) enum Heard {
    /// There may be more.
    More,
    /// The other end is closed.
    Closed,
    /// Something else than a front may write: the recording cannot go on.
    Garbage,
}

impl Recording {
    /// Goes on behind `writer`. `pipe`: none where nothing but events comes.
    pub(crate) fn new(session: SessionId, files: Files, pipe: Option<Fd>, writer: Writer) -> Recording {
        Recording {
            session,
            pipe,
            files: Arc::new(files),
            writer,
            tail: Tail::default(),
            part: Vec::new(),
            end: None,
            ended: false,
        }
    }

    pub(crate) fn pipe(&self) -> Option<&Fd> {
        self.pipe.as_ref()
    }

    /// Whether its pipe is not to be read now: the disk is behind with it.
    pub(crate) fn is_behind(&self) -> bool {
        self.files.is_behind()
    }

    /// Reads what there is, with `room` to read it into.
    pub(crate) fn hear(
        &mut self,
        room: &mut [u8],
        compressor: &mut Compressor,
        disk: &Disk,
    ) -> Result<Heard, Errno> {
        for _ in 0..READS {
            let Some(pipe) = &self.pipe else {
                return Ok(Heard::Closed);
            };
            let kept = self.part.len();
            room[..kept].copy_from_slice(&self.part);
            let n = match file::read(pipe.raw(), &mut room[kept..]) {
                Ok(0) => {
                    self.pipe = None;
                    self.tell_cut(compressor, disk);
                    self.end_if_due(compressor, disk);
                    return Ok(Heard::Closed);
                }
                Ok(n) => n,
                Err(Errno::EAGAIN) => break,
                Err(e) => return Err(e),
            };
            self.part.clear();
            let mut rest = &room[..kept + n];
            while let Some((head, after)) = rest.split_first_chunk::<HEAD>() {
                let Some(head) = Head::decode(head) else {
                    self.pipe = None;
                    return Ok(Heard::Garbage);
                };
                let Some(bytes) = after.get(..head.len) else { break };
                self.put(
                    &Frame {
                        kind: head.kind,
                        at: head.at,
                        bytes,
                    },
                    compressor,
                    disk,
                );
                rest = &after[head.len..];
            }
            self.part.extend_from_slice(rest);
            if n < room.len() - kept || self.files.is_behind() {
                break;
            }
        }
        Ok(Heard::More)
    }

    /// Its front ended in the middle of a frame: what it had written of that is lost, and the recording says so.
    fn tell_cut(&mut self, compressor: &mut Compressor, disk: &Disk) {
        let bytes = std::mem::take(&mut self.part).len();
        if bytes > 0 {
            let at = self.writer.position().last;
            let json = format!(r#"{{"reason":"the front ended in the middle of a frame","bytes":{bytes}}}"#);
            self.note(Kind::Gap, at, json.as_bytes(), compressor, disk);
        }
    }

    /// Something that the monitor knows.
    pub(crate) fn note(
        &mut self,
        kind: Kind,
        at: u64,
        json: &[u8],
        compressor: &mut Compressor,
        disk: &Disk,
    ) {
        let bytes = &json[..json.len().min(MAX_BYTES)];
        self.put(&Frame { kind, at, bytes }, compressor, disk);
    }

    /// How it ended; true: nothing more comes from its pipe.
    pub(crate) fn end(&mut self, at: u64, json: Vec<u8>, compressor: &mut Compressor, disk: &Disk) {
        self.end = Some((at, json));
        self.end_if_due(compressor, disk);
    }

    /// A signature over the chain up to `blocks`. False: it is too late for readers to know what it is about.
    pub(crate) fn sign(&mut self, blocks: u64, bytes: &[u8], disk: &Disk) -> bool {
        if self.writer.position().blocks.saturating_sub(blocks) >= MAX_LATE as u64 {
            return false;
        }
        let block = self.writer.sign(bytes);
        self.write(block, disk);
        true
    }

    /// How many bytes of frames are in no block yet.
    pub(crate) fn open_bytes(&self) -> usize {
        self.writer.open_frames().len()
    }

    /// Closes the block as it is.
    pub(crate) fn close_block(&mut self, compressor: &mut Compressor, disk: &Disk) {
        if let Some(block) = self.writer.close(Some(compressor)) {
            self.write(block, disk);
        }
    }

    /// Brings the tail's file up to date. Whether something is in no block.
    pub(crate) fn save(&mut self, compressor: &mut Compressor, disk: &Disk) -> bool {
        if let Some(entry) = self.tail.write(&mut self.writer, compressor) {
            disk.tail(self.session, &self.files, entry);
        }
        !self.writer.open_frames().is_empty()
    }

    /// The disk's thread tells when it has come here.
    pub(crate) fn tell_written(&self, disk: &Disk) {
        disk.mark(self.session, &self.files);
    }

    /// Nothing more is written.
    pub(crate) fn close(&self, disk: &Disk) {
        disk.close(self.session, &self.files);
    }

    fn put(&mut self, frame: &Frame<'_>, compressor: &mut Compressor, disk: &Disk) {
        if self.ended {
            return;
        }
        if self.writer.push(frame)
            && let Some(block) = self.writer.close(Some(compressor))
        {
            self.write(block, disk);
        }
    }

    fn end_if_due(&mut self, compressor: &mut Compressor, disk: &Disk) {
        if self.pipe.is_some() || self.ended {
            return;
        }
        if let Some((at, json)) = self.end.take() {
            let block = self.writer.end(Some(compressor), at, &json);
            self.ended = true;
            self.write(block, disk);
        }
    }

    fn write(&self, block: Vec<u8>, disk: &Disk) {
        disk.blocks(
            self.session,
            &self.files,
            block,
            *self.writer.position(),
            self.ended,
        );
    }
}
