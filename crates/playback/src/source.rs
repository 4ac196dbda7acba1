//! The frames of a recording, one after the other: those of its blocks, then those of its tail where it still runs. A fault
//! ends them and is kept, so that everything before it can be used.

use fleetgate_record::frame::{Frame, Frames, Kind};
use fleetgate_record::reader::{Content, ReadError, Reader};
use fleetgate_record::signature::Statement;
use fleetgate_record::tail;
use fleetgate_record::{Error, Fault};
use std::io::{self, Read};
use std::ops::Range;

/// The most bytes of a tail that are read.
pub const MAX_TAIL: u64 = 4 << 20;

/// What a recording holds.
#[derive(Debug)]
pub enum Item<'a> {
    /// Something that happened.
    Frame(Frame<'a>),
    /// A signature over the blocks before it. Whether it is right is not checked.
    Signature {
        /// The block that it stands in.
        block: u64,
        /// What it says.
        statement: Statement,
        /// The signature.
        signature: &'a [u8],
    },
}

/// Where the next item lies.
enum Place {
    Frame(Kind, u64, Range<usize>),
    Signature(u64, Statement),
}

/// Reads a recording.
pub struct Source<R> {
    reader: Reader<R>,
    tail: Option<Vec<u8>>,
    /// The frames of a block.
    plain: Vec<u8>,
    /// How much of them was read.
    read: usize,
    /// When the last of them was, as the block counts.
    at: u64,
    signature: Vec<u8>,
    /// The block's number and where it begins.
    block: (u64, u64),
    /// When the last frame of all was: time does not go back.
    last: u64,
    is_over: bool,
    fault: Option<Error>,
}

impl<R: Read> Source<R> {
    /// Reads `file`, and behind its blocks the frames of `tail`, where it still runs.
    pub fn new(file: R, tail: Option<Vec<u8>>) -> Result<Source<R>, ReadError> {
        Ok(Source {
            reader: Reader::new(file)?,
            tail,
            plain: Vec::new(),
            read: 0,
            at: 0,
            signature: Vec::new(),
            block: (0, 0),
            last: 0,
            is_over: false,
            fault: None,
        })
    }

    /// Whose recording it says it is.
    pub fn session(&self) -> [u8; 16] {
        self.reader.session()
    }

    /// What ended the reading, where that was a fault.
    pub fn fault(&self) -> Option<&Error> {
        self.fault.as_ref()
    }

    /// Whether the frame with the end was in it.
    pub fn has_ended(&self) -> bool {
        self.reader.has_ended()
    }

    /// How many blocks were read.
    pub fn blocks(&self) -> u64 {
        self.reader.blocks()
    }

    /// How many bytes of the file were read, up to the last block.
    pub fn offset(&self) -> u64 {
        self.block.1
    }

    /// When the last frame was.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The next frame.
    pub fn next_frame(&mut self) -> io::Result<Option<Frame<'_>>> {
        loop {
            match self.place()? {
                Some(Place::Frame(kind, at, range)) => {
                    return Ok(Some(Frame {
                        kind,
                        at,
                        bytes: &self.plain[range],
                    }));
                }
                Some(Place::Signature(..)) => {}
                None => return Ok(None),
            }
        }
    }

    /// The next frame or signature.
    pub fn next_item(&mut self) -> io::Result<Option<Item<'_>>> {
        Ok(self.place()?.map(|place| match place {
            Place::Frame(kind, at, range) => Item::Frame(Frame {
                kind,
                at,
                bytes: &self.plain[range],
            }),
            Place::Signature(block, statement) => Item::Signature {
                block,
                statement,
                signature: &self.signature,
            },
        }))
    }

    fn place(&mut self) -> io::Result<Option<Place>> {
        loop {
            if self.read < self.plain.len() {
                return Ok(self.frame());
            }
            if self.is_over {
                return Ok(None);
            }
            if let Some(statement) = self.block()? {
                return Ok(Some(Place::Signature(self.block.0, statement)));
            }
        }
    }

    fn frame(&mut self) -> Option<Place> {
        let mut frames = Frames::new(&self.plain[self.read..], self.at);
        let Some(Ok(frame)) = frames.next() else {
            self.fault = Some(Error {
                fault: Fault::Frames,
                block: self.block.0,
                offset: self.block.1,
            });
            self.is_over = true;
            self.plain.clear();
            self.read = 0;
            return None;
        };
        // A frame's bytes are the last that it has.
        let end = self.plain.len() - frames.left();
        let range = end - frame.bytes.len()..end;
        self.at = frame.at;
        self.last = self.last.max(frame.at);
        self.read = end;
        Some(Place::Frame(frame.kind, self.last, range))
    }

    /// Takes the next block; what it says where it is a signature.
    fn block(&mut self) -> io::Result<Option<Statement>> {
        self.plain.clear();
        self.read = 0;
        match self.reader.next_block() {
            Ok(Some(block)) => {
                self.block = (block.head.number, block.offset);
                match block.content {
                    Content::Frames { plain, .. } => {
                        self.at = block.head.first;
                        self.plain.extend_from_slice(plain);
                    }
                    Content::Signature { statement, signature } => {
                        self.signature.clear();
                        self.signature.extend_from_slice(signature);
                        return Ok(Some(statement));
                    }
                }
            }
            Ok(None) => self.take_tail(),
            // Of one that still runs the last block may be on its way to the file.
            Err(ReadError::Fault(e)) if e.fault == Fault::Cut && self.tail.is_some() => self.take_tail(),
            Err(ReadError::Fault(e)) => {
                self.fault = Some(e);
                self.is_over = true;
            }
            Err(ReadError::Io(e)) => return Err(e),
        }
        Ok(None)
    }

    fn take_tail(&mut self) {
        self.is_over = true;
        if self.reader.has_ended() {
            return;
        }
        if let Some(bytes) = self.tail.take() {
            let open = tail::read(&bytes, self.reader.anchor());
            self.plain = open.plain;
            self.at = open.first;
        }
    }
}
