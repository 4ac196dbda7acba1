//! The frames of a recording, one after the other: those of its blocks, then those of its tail where it still runs. A fault
//! ends them and is kept, so that everything before it can be used.

use fleetgate_record::age::Keys;
use fleetgate_record::frame::{Frame, Frames, Kind};
use fleetgate_record::reader::{Content, ReadError, Reader};
use fleetgate_record::signature::Statement;
use fleetgate_record::tail::{self, Sealed};
use fleetgate_record::{Error, Fault};
use std::collections::VecDeque;
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
    /// Frames that are encrypted, and there is no key.
    Encrypted(Encrypted<'a>),
}

/// A block that is encrypted, or an entry of the tail.
#[derive(Debug)]
pub struct Encrypted<'a> {
    /// The block's number; that of the last one where it is in the tail.
    pub block: u64,
    /// When its first and its last frame was.
    pub times: (u64, u64),
    /// How many bytes of frames are in it.
    pub plain: usize,
    /// An age file.
    pub file: &'a [u8],
}

/// Where the next item lies.
enum Place {
    Frame(Kind, u64, Range<usize>),
    Signature(u64, Statement),
    /// The times of its frames, and how many bytes they are.
    Encrypted((u64, u64), usize),
}

/// What a block was.
enum Taken {
    Frames,
    Other(Place),
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
    /// A signature, or an age file.
    kept: Vec<u8>,
    /// Entries of the tail that are encrypted.
    sealed: VecDeque<Sealed>,
    /// So many blocks and entries were passed over because there was no key.
    passed_over: u64,
    /// The block's number and where it begins.
    block: (u64, u64),
    /// So many frames were taken from the tail. They come again, in a block or another tail, and so many are to be passed over.
    of_tail: u64,
    again: u64,
    is_tail: bool,
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
            kept: Vec::new(),
            sealed: VecDeque::new(),
            passed_over: 0,
            block: (0, 0),
            of_tail: 0,
            again: 0,
            is_tail: false,
            last: 0,
            is_over: false,
            fault: None,
        })
    }

    /// Goes on behind what was read of a recording that has grown. `now` is the same one, opened just now. False: this one ended
    /// within a block, or with a fault, and the other is to be read from its beginning.
    pub fn go_on(&mut self, now: &mut Source<R>) -> bool {
        if self.fault.is_some() || self.reader.is_broken() || !self.is_over {
            return false;
        }
        self.tail = now.tail.take();
        self.again = std::mem::take(&mut self.of_tail);
        self.plain.clear();
        self.sealed.clear();
        (self.read, self.is_over, self.is_tail) = (0, false, false);
        true
    }

    /// Opens what is encrypted with these keys.
    #[must_use]
    pub fn with_keys(mut self, keys: Keys) -> Source<R> {
        self.reader = self.reader.with_keys(keys);
        self
    }

    /// How many blocks were passed over up to here because they are encrypted and there was no key; entries of the tail too.
    pub fn passed_over(&self) -> u64 {
        self.passed_over
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
                Some(Place::Signature(..) | Place::Encrypted(..)) => {}
                None => return Ok(None),
            }
        }
    }

    /// The next frame or signature, or what is encrypted.
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
                signature: &self.kept,
            },
            Place::Encrypted(times, plain) => Item::Encrypted(Encrypted {
                block: self.block.0,
                times,
                plain,
                file: &self.kept,
            }),
        }))
    }

    fn place(&mut self) -> io::Result<Option<Place>> {
        loop {
            if self.read < self.plain.len() {
                let place = self.frame();
                self.of_tail += u64::from(self.is_tail);
                if place.is_some() && self.again > 0 {
                    self.again -= 1;
                    continue;
                }
                return Ok(place);
            }
            if let Some(entry) = self.sealed.pop_front() {
                match self.entry(entry) {
                    Taken::Frames => continue,
                    Taken::Other(place) => return Ok(Some(place)),
                }
            }
            if self.is_over {
                return Ok(None);
            }
            if let Taken::Other(place) = self.block()? {
                return Ok(Some(place));
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

    /// Takes the next block.
    fn block(&mut self) -> io::Result<Taken> {
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
                        self.kept = signature;
                        return Ok(Taken::Other(Place::Signature(self.block.0, statement)));
                    }
                    Content::Encrypted(file) => {
                        let (times, plain) = ((block.head.first, block.head.last), block.head.plain);
                        self.kept.clear();
                        self.kept.extend_from_slice(file);
                        return Ok(Taken::Other(self.encrypted(times, plain)));
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
        Ok(Taken::Frames)
    }

    fn encrypted(&mut self, times: (u64, u64), plain: usize) -> Place {
        self.passed_over += 1;
        let at = |time: u64| time.max(self.last);
        let times = (at(times.0), at(times.1));
        self.last = times.1;
        Place::Encrypted(times, plain)
    }

    /// Takes an encrypted entry of the tail.
    fn entry(&mut self, entry: Sealed) -> Taken {
        self.plain.clear();
        self.read = 0;
        match self.reader.open(&entry) {
            Ok(Some(plain)) => {
                self.plain.extend_from_slice(plain);
                self.at = entry.first;
                Taken::Frames
            }
            Ok(None) => {
                let (times, plain) = ((entry.first, entry.last), entry.plain);
                self.kept = entry.stored;
                Taken::Other(self.encrypted(times, plain))
            }
            Err(fault) => {
                self.sealed.clear();
                self.fault = Some(Error {
                    fault,
                    block: self.reader.blocks(),
                    offset: self.block.1,
                });
                Taken::Frames
            }
        }
    }

    fn take_tail(&mut self) {
        self.is_over = true;
        if self.reader.has_ended() {
            return;
        }
        if let Some(bytes) = self.tail.take() {
            let open = tail::read(&bytes, self.reader.anchor());
            self.is_tail = true;
            self.plain = open.plain;
            self.at = open.first;
            self.sealed = open.sealed.into();
        }
    }
}
