//! Whether bytes are a recording, as they come: its beginning, the chain of its blocks, and the signatures in it. Bytes in, a
//! proof out. It opens nothing, decompresses nothing and knows no key; it holds one block at most.
//!
//! A signature proves the blocks that it covers. Between those and the signature others may stand (`signature::MAX_LATE`),
//! and anybody can write such blocks, or other words into the head of the signature's own block. So what is proven ends
//! before them.

use crate::entry::name;
use fleetgate_policy::text::printable;
use fleetgate_record::Fault;
use fleetgate_record::block::{self, Chain, FILE_HEAD, HEAD, Head, Holds};
use fleetgate_record::frame::{Frames, Kind};
use fleetgate_record::signature::{self, LastKey, MAX_LATE};
use std::collections::VecDeque;
use std::fmt;

/// The longest first or last frame that is kept in the catalogue.
pub const MAX_JSON: usize = 16 << 10;

/// The most signatures in a row that prove nothing new.
const MAX_REPEATED: u32 = 16;

/// A place between two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// In the file.
    pub offset: u64,
    /// How many blocks are before it.
    pub blocks: u64,
    /// The hash that the last of them ends with.
    pub chain: Chain,
    /// When the last frame before it was, in microseconds since the session's start.
    pub last: u64,
    /// The block with the end is before it.
    pub ended: bool,
}

/// What a signature proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Up to here.
    pub covered: Point,
    /// Where the signature ends.
    pub length: u64,
}

/// Why bytes are not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a signature over a text is right, and of a key that it may be of.
pub type Check<'a> = &'a dyn Fn(&str, &[u8]) -> Result<(), String>;

/// Checks one recording.
#[derive(Debug)]
pub struct Checker {
    session: [u8; 16],
    at: Point,
    /// The places that a signature may be about, the oldest first.
    recent: VecDeque<Point>,
    /// What has come of the next block.
    block: Vec<u8>,
    proof: Option<Proof>,
    /// Signatures since the last one that proved more than those before it.
    repeated: u32,
    begin: Option<String>,
    end: Option<String>,
    /// The key of the last signature.
    last_key: LastKey,
    /// Where that is not known: which it may be.
    may_be: Vec<LastKey>,
}

impl Checker {
    /// Of a recording of which nothing is there.
    pub fn new(session: [u8; 16]) -> Checker {
        let at = Point {
            offset: 0,
            blocks: 0,
            chain: [0; 32],
            last: 0,
            ended: false,
        };
        Checker::at(session, at, VecDeque::new())
    }

    /// Goes on behind what is proven. The last signature there was of one of these keys; a signature of the same one leaves it out.
    pub fn resume(session: [u8; 16], covered: Point, keys: Vec<LastKey>) -> Checker {
        let mut checker = Checker::at(session, covered, VecDeque::from([covered]));
        checker.may_be = keys;
        checker
    }

    fn at(session: [u8; 16], at: Point, recent: VecDeque<Point>) -> Checker {
        Checker {
            session,
            at,
            recent,
            block: Vec::new(),
            proof: None,
            repeated: 0,
            begin: None,
            end: None,
            last_key: LastKey::default(),
            may_be: Vec::new(),
        }
    }

    /// Whose it is.
    pub fn session(&self) -> [u8; 16] {
        self.session
    }

    /// Where the next byte belongs.
    pub fn next(&self) -> u64 {
        self.at.offset + self.block.len() as u64
    }

    /// What the last signature proves.
    pub fn proof(&self) -> Option<&Proof> {
        self.proof.as_ref()
    }

    /// The first frame, where it was among what came.
    pub fn begin(&self) -> Option<&str> {
        self.begin.as_deref()
    }

    /// The last frame, likewise.
    pub fn end(&self) -> Option<&str> {
        self.end.as_deref()
    }

    /// Takes the next bytes. After an error it is of no more use.
    pub fn feed(&mut self, mut bytes: &[u8], check: Check<'_>) -> Result<(), Refusal> {
        while !bytes.is_empty() {
            if self.block.is_empty() {
                let used = self.take(bytes, check)?;
                bytes = &bytes[used..];
                if used > 0 {
                    continue;
                }
            }
            let wanted = self.wanted(&self.block)? - self.block.len();
            let (now, later) = bytes.split_at(wanted.min(bytes.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == self.wanted(&self.block)? {
                let block = std::mem::take(&mut self.block);
                self.take(&block, check)?;
            }
        }
        Ok(())
    }

    /// How long the thing is that begins so: the file's beginning, a block's head, or a block whose head is there.
    fn wanted(&self, begins: &[u8]) -> Result<usize, Refusal> {
        if self.at.offset == 0 {
            return Ok(FILE_HEAD);
        }
        match begins.first_chunk() {
            None => Ok(HEAD),
            Some(head) => Ok(HEAD + self.head(head)?.0.stored),
        }
    }

    /// Takes one whole thing from the beginning of these bytes: how long it was, or 0 where it is not all there.
    fn take(&mut self, bytes: &[u8], check: Check<'_>) -> Result<usize, Refusal> {
        let wanted = self.wanted(bytes)?;
        let Some(whole) = bytes.get(..wanted) else {
            return Ok(0);
        };
        if self.at.offset == 0 {
            self.beginning(whole)?;
            return Ok(wanted);
        }
        let Some((head, stored)) = whole.split_first_chunk() else {
            return Ok(0);
        };
        self.block(head, stored, check)?;
        Ok(wanted)
    }

    fn beginning(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let head = bytes.first_chunk::<FILE_HEAD>();
        let named = head.map(|head| (block::session_of(head), block::first_chain(head)));
        match named {
            Some((Ok(session), chain)) if session == self.session => {
                self.at.offset = FILE_HEAD as u64;
                self.at.chain = chain;
                Ok(())
            }
            Some((Ok(session), _)) => Err(Refusal(format!(
                "it is the recording of the session {}, under another one's id",
                name(&session)
            ))),
            _ => Err(Refusal(Fault::NotARecording.to_string())),
        }
    }

    fn head(&self, bytes: &[u8; HEAD]) -> Result<(Head, Chain), Refusal> {
        let (head, chain) = Head::decode(bytes).map_err(|fault| self.fault(fault))?;
        if head.number != self.at.blocks || self.at.ended && head.holds != Holds::Signature {
            return Err(self.fault(Fault::Number));
        }
        if head.holds == Holds::Signature && head.stored > signature::MAX {
            return Err(self.fault(Fault::TooLarge));
        }
        Ok((head, chain))
    }

    fn block(&mut self, bytes: &[u8; HEAD], stored: &[u8], check: Check<'_>) -> Result<(), Refusal> {
        let (head, chain) = self.head(bytes)?;
        if !head.follows(&self.at.chain, stored, &chain) {
            return Err(self.fault(Fault::Changed));
        }
        let after = Point {
            offset: self.at.offset + (HEAD + stored.len()) as u64,
            blocks: self.at.blocks + 1,
            chain,
            last: head.last,
            ended: self.at.ended || head.holds == Holds::End,
        };
        match head.holds {
            Holds::Signature => self.signature(stored, after.offset, check)?,
            // It says whose the recording is, and has to be readable by whoever has no key and decompresses nothing.
            _ if head.number == 0 => self.begin = Some(self.only(&head, stored, Kind::Begin)?),
            Holds::End => self.end = Some(self.only(&head, stored, Kind::End)?),
            _ => {}
        }
        self.at = after;
        if self.recent.len() == MAX_LATE {
            self.recent.pop_front();
        }
        self.recent.push_back(after);
        Ok(())
    }

    fn signature(&mut self, stored: &[u8], ends: u64, check: Check<'_>) -> Result<(), Refusal> {
        let blocks = signature::covers(stored).ok_or_else(|| self.fault(Fault::Signature))?;
        let covered = self.recent.iter().find(|point| point.blocks == blocks);
        let covered = *covered.ok_or_else(|| self.fault(Fault::OtherChain))?;
        // A signature can be copied as often as somebody likes, and each takes its time to look at.
        let proves_more = self
            .proof
            .is_none_or(|proof| covered.offset > proof.covered.offset);
        self.repeated = if proves_more { 0 } else { self.repeated + 1 };
        if self.repeated > MAX_REPEATED {
            return Err(Refusal(format!(
                "{MAX_REPEATED} signatures in a row prove nothing new"
            )));
        }
        self.last_key = self.signed(stored, &covered, check)?;
        if self
            .proof
            .is_none_or(|proof| covered.offset >= proof.covered.offset)
        {
            self.proof = Some(Proof {
                covered,
                length: ends,
            });
        }
        Ok(())
    }

    /// Whether the signature over these blocks is right; the key that the next one may leave out.
    fn signed(&self, stored: &[u8], covered: &Point, check: Check<'_>) -> Result<LastKey, Refusal> {
        let tries = match self.last_key.is_missing(stored) {
            true => &self.may_be[..],
            false => std::slice::from_ref(&self.last_key),
        };
        let mut refused = Err(self.fault(Fault::Signature));
        for last in tries {
            let mut last = last.clone();
            let (statement, signature) =
                signature::decode(stored, &self.session, |_| Some(covered.chain), &mut last)
                    .map_err(|fault| self.fault(fault))?;
            match check(&statement.text(), &signature) {
                Ok(()) => return Ok(last),
                Err(why) => {
                    refused = Err(Refusal(format!(
                        "the signature in block {}: {}",
                        self.at.blocks,
                        printable(&why)
                    )));
                }
            }
        }
        refused
    }

    /// The block's first frame, which is of this kind; of the end it is the only one.
    fn only(&self, head: &Head, stored: &[u8], kind: Kind) -> Result<String, Refusal> {
        let wrong = |why: &str| {
            Err(Refusal(format!(
                "block {} (at byte {}): {why}",
                self.at.blocks, self.at.offset
            )))
        };
        if !matches!(head.holds, Holds::Frames | Holds::End) {
            return wrong("the first block has to be readable as it is");
        }
        let mut frames = Frames::new(stored, head.first);
        let first = match frames.next() {
            Some(Ok(frame)) if frame.kind == kind => frame.bytes,
            _ => return wrong("it does not begin with the frame that belongs there"),
        };
        if kind == Kind::End && frames.next().is_some() {
            return Err(self.fault(Fault::End));
        }
        match std::str::from_utf8(first) {
            Ok(json) if json.len() <= MAX_JSON => Ok(json.to_owned()),
            _ => wrong("what it says of itself is too long, or no text"),
        }
    }

    fn fault(&self, fault: Fault) -> Refusal {
        Refusal(
            fleetgate_record::Error {
                fault,
                block: self.at.blocks,
                offset: self.at.offset,
            }
            .to_string(),
        )
    }
}
