//! Reads a recording from its beginning, and checks the chain as it goes. A fault ends the reading and says where it is; all
//! that came before it is good.

use crate::age::Keys;
use crate::block::{self, Chain, FILE_HEAD, HEAD, Head, Holds};
use crate::frame::{Frames, Kind};
use crate::signature::{self, LastKey, Statement};
use crate::tail::Sealed;
use crate::unpack::Unpacker;
use crate::{Error, Fault};
use std::collections::VecDeque;
use std::io::{self, Read};

/// Why reading ended.
#[derive(Debug)]
pub enum ReadError {
    /// The recording has a fault.
    Fault(Error),
    /// The file could not be read.
    Io(io::Error),
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReadError::Fault(e) => e.fmt(f),
            ReadError::Io(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

/// A block as it was read.
#[derive(Debug)]
pub struct Block<'a> {
    /// Its head.
    pub head: Head,
    /// Where it begins.
    pub offset: u64,
    /// What is in it.
    pub content: Content<'a>,
}

/// What a block holds.
#[derive(Debug)]
pub enum Content<'a> {
    /// Frames; `end`: it is the last block.
    Frames {
        /// Encoded frames ([`Block::frames`]).
        plain: &'a [u8],
        /// Nothing but signatures follows.
        end: bool,
    },
    /// Frames that are encrypted, and the reader has no keys: an age file.
    Encrypted(&'a [u8]),
    /// A signature over everything before. What it says is about this chain; whether it is right is not checked.
    Signature {
        /// What it says.
        statement: Statement,
        /// The signature over [`Statement::text`].
        signature: Vec<u8>,
    },
}

impl<'a> Block<'a> {
    /// Its frames.
    pub fn frames(&self) -> Frames<'a> {
        match self.content {
            Content::Frames { plain, .. } => Frames::new(plain, self.head.first),
            Content::Encrypted(_) | Content::Signature { .. } => Frames::new(&[], 0),
        }
    }
}

/// Reads blocks.
pub struct Reader<R> {
    file: R,
    session: [u8; 16],
    chain: Chain,
    anchor: Chain,
    /// The chain behind each of the last blocks: a signature may come a little after what it covers.
    recent: VecDeque<(u64, Chain)>,
    blocks: u64,
    offset: u64,
    stored: Vec<u8>,
    plain: Vec<u8>,
    unpacker: Unpacker,
    last_key: LastKey,
    /// Of the block that was read last.
    signature: Option<(Statement, Vec<u8>)>,
    ended: bool,
    broken: bool,
}

impl<R: Read> Reader<R> {
    /// Reads a file's beginning.
    pub fn new(mut file: R) -> Result<Reader<R>, ReadError> {
        let mut head = [0; FILE_HEAD];
        let not_one = || {
            ReadError::Fault(Error {
                fault: Fault::NotARecording,
                block: 0,
                offset: 0,
            })
        };
        match read_full(&mut file, &mut head).map_err(ReadError::Io)? {
            FILE_HEAD => {}
            _ => return Err(not_one()),
        }
        let session = block::session_of(&head).map_err(|_| not_one())?;
        Ok(Reader {
            file,
            session,
            chain: block::first_chain(&head),
            anchor: block::first_chain(&head),
            recent: VecDeque::with_capacity(signature::MAX_LATE),
            blocks: 0,
            offset: FILE_HEAD as u64,
            stored: Vec::new(),
            plain: Vec::new(),
            unpacker: Unpacker::new().ok_or_else(|| ReadError::Io(io::ErrorKind::OutOfMemory.into()))?,
            last_key: LastKey::default(),
            signature: None,
            ended: false,
            broken: false,
        })
    }

    /// Opens what is encrypted with these keys. A block that none of them opens is a fault then.
    #[must_use]
    pub fn with_keys(mut self, keys: Keys) -> Reader<R> {
        self.unpacker.set_keys(keys);
        self
    }

    /// The frames of an entry of the tail that is encrypted; nothing without keys.
    pub fn open(&mut self, entry: &Sealed) -> Result<Option<&[u8]>, Fault> {
        let is_open = self
            .unpacker
            .unpack(&entry.head(), &entry.stored, &mut self.plain)?;
        Ok(is_open.then_some(&self.plain))
    }

    /// Whose recording it says it is.
    pub fn session(&self) -> [u8; 16] {
        self.session
    }

    /// How many blocks were read.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// What the last of them ended with.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// What the last of them ended with that holds frames: what a tail belongs to.
    pub fn anchor(&self) -> &Chain {
        &self.anchor
    }

    /// Whether an error ended it. Else there may be more blocks once the file has grown.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether the block with the end was read.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The next block; nothing where the file ends behind a whole one. After an error there is nothing more.
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, ReadError> {
        if self.broken {
            return Ok(None);
        }
        match self.step() {
            Ok(Some((head, offset))) => self.content(head, offset).map(Some),
            Ok(None) => Ok(None),
            Err(e) => {
                self.broken = true;
                Err(e)
            }
        }
    }

    fn step(&mut self) -> Result<Option<(Head, u64)>, ReadError> {
        let (block, offset) = (self.blocks, self.offset);
        let at = |fault: Fault| ReadError::Fault(Error { fault, block, offset });
        let mut bytes = [0; HEAD];
        match read_full(&mut self.file, &mut bytes).map_err(ReadError::Io)? {
            0 => return Ok(None),
            HEAD => {}
            _ => return Err(at(Fault::Cut)),
        }
        let (head, chain) = Head::decode(&bytes).map_err(at)?;
        self.stored.resize(head.stored, 0);
        if read_full(&mut self.file, &mut self.stored).map_err(ReadError::Io)? < head.stored {
            return Err(at(Fault::Cut));
        }
        if head.number != self.blocks || self.ended && head.holds != Holds::Signature {
            return Err(at(Fault::Number));
        }
        if !head.follows(&self.chain, &self.stored, &chain) {
            return Err(at(Fault::Changed));
        }
        if head.holds == Holds::Signature {
            self.signature = Some(self.statement().map_err(at)?);
        }
        self.chain = chain;
        if head.holds != Holds::Signature {
            self.anchor = chain;
        }
        self.blocks += 1;
        if self.recent.len() == signature::MAX_LATE {
            self.recent.pop_front();
        }
        self.recent.push_back((self.blocks, chain));
        self.offset += (HEAD + head.stored) as u64;
        self.ended |= head.holds == Holds::End;
        Ok(Some((head, offset)))
    }

    /// What a signature block says. It is about blocks before it, and not about any.
    fn statement(&mut self) -> Result<(Statement, Vec<u8>), Fault> {
        let chain_of = |blocks| {
            let found = self.recent.iter().rev().find(|(count, _)| *count == blocks);
            found.map(|(_, chain)| *chain)
        };
        signature::decode(&self.stored, &self.session, chain_of, &mut self.last_key)
    }

    fn content(&mut self, head: Head, offset: u64) -> Result<Block<'_>, ReadError> {
        let at = |fault: Fault| {
            ReadError::Fault(Error {
                fault,
                block: head.number,
                offset,
            })
        };
        let content = match head.holds {
            Holds::End => Content::Frames {
                plain: &self.stored,
                end: true,
            },
            Holds::Signature => {
                let (statement, signature) = self.signature.take().ok_or(at(Fault::Signature))?;
                Content::Signature { statement, signature }
            }
            Holds::Frames | Holds::Compressed | Holds::Encrypted => {
                match self.unpacker.unpack(&head, &self.stored, &mut self.plain) {
                    Ok(true) => Content::Frames {
                        plain: &self.plain,
                        end: false,
                    },
                    Ok(false) => Content::Encrypted(&self.stored),
                    Err(fault) => {
                        self.broken = true;
                        return Err(at(fault));
                    }
                }
            }
        };
        let is_end = head.holds == Holds::End;
        if let Content::Frames { plain, .. } = content
            && ends(plain) != (is_end, is_end)
        {
            self.broken = true;
            return Err(at(Fault::End));
        }
        Ok(Block {
            head,
            offset,
            content,
        })
    }
}

/// Whether the frame that says how it ended is among these, and whether it is the only one. A block of the end holds it and
/// nothing else, and no other block holds one: else a file that was cut could be given an end that nobody signed.
fn ends(frames: &[u8]) -> (bool, bool) {
    let mut count = 0;
    let mut ends = 0;
    for frame in Frames::new(frames, 0) {
        count += 1;
        // What is no frame is for the reader of frames to find.
        ends += u64::from(frame.is_ok_and(|frame| frame.kind == Kind::End));
    }
    (ends > 0, ends == 1 && count == 1)
}

/// Reads until the room is full or the file ends; how much that was.
pub(crate) fn read_full(file: &mut impl Read, room: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < room.len() {
        match file.read(&mut room[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}
