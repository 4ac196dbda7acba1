//! Whether a recording is as the node wrote it: the chain of its blocks, its end, and the signatures over them. Each fault is
//! named. It knows no keys: the caller says whose a signature is.

use crate::about::{Begin, End};
use crate::source::{Item, Source};
use fleetgate_policy::text::{hex, printable};
use fleetgate_record::block::{FILE_HEAD, HEAD, Head};
use fleetgate_record::frame::Kind;
use fleetgate_record::reader::ReadError;
use fleetgate_record::{Error, Fault};
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};

pub use fleetgate_record::signature::NAMESPACE;

/// The most faults that are named, and the most keys.
const MAX_NAMED: usize = 16;
/// The most heads that are looked at to say which block is missing.
const MAX_HEADS: usize = 1 << 20;

/// What is wrong with a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSigned {
    /// It is right, and of a key that was not asked for: that key.
    OtherKey(String),
    /// It is wrong: why.
    Wrong(String),
}

/// Says which key made a signature over a text.
pub type Check<'a> = &'a mut dyn FnMut(&str, &[u8]) -> Result<String, NotSigned>;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The file is something else.
    NotARecording,
    /// It is another session's than the file's name says: that session.
    OtherSession(String),
    /// A block was changed, or cannot be read.
    Damaged(Error),
    /// Blocks are missing: the first of them, and the first that is there again.
    Missing(u64, u64),
    /// A block is in the wrong place: its number, and where it is.
    Misplaced(u64, u64),
    /// The file ends in the middle of this block.
    Cut(u64),
    /// There is no end behind so many blocks.
    NoEnd(u64),
    /// The end is there, and no signature covers it: how many blocks are covered, of how many.
    EndNotSigned(u64, u64),
    /// A signature in this block is right, and of another key.
    OtherKey(u64, String),
    /// A signature in this block is wrong.
    BadSignature(u64, String),
    /// The first frame is not the one that says whose session it is.
    NoBegin,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::NotARecording => f.write_str("this is no recording of fleetgate"),
            Problem::OtherSession(id) => {
                write!(
                    f,
                    "it is the recording of the session {id}, under another one's name"
                )
            }
            Problem::Damaged(error) => error.fmt(f),
            Problem::Missing(from, to) if from + 1 == *to => write!(f, "block {from} is missing"),
            Problem::Missing(from, to) => write!(f, "the blocks {from} to {} are missing", to - 1),
            Problem::Misplaced(number, at) => write!(f, "block {number} stands where block {at} belongs"),
            Problem::Cut(block) => write!(f, "the file is cut in the middle of block {block}"),
            Problem::NoEnd(blocks) => write!(
                f,
                "there is no end behind its {blocks} blocks: the file was cut there, or a crash ended it and the node has not \
                 run since"
            ),
            Problem::EndNotSigned(covered, blocks) => {
                write!(
                    f,
                    "no signature covers its end: {covered} of {blocks} blocks are covered"
                )
            }
            Problem::OtherKey(block, key) => {
                write!(
                    f,
                    "the signature in block {block} is of another key, {}",
                    printable(key)
                )
            }
            Problem::BadSignature(block, why) => {
                write!(f, "the signature in block {block}: {}", printable(why))
            }
            Problem::NoBegin => f.write_str("its first frame does not say whose session it is"),
        }
    }
}

/// What a key signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// The key, as the caller calls it.
    pub key: String,
    /// How many signatures.
    pub signatures: u64,
    /// How many blocks the last of them covers: those from the first on.
    pub covers: u64,
    /// When the last was made, as it says.
    pub signed: String,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What it says about itself.
    pub begin: Begin,
    /// How it ended.
    pub end: Option<End>,
    /// Blocks that are as they were written.
    pub blocks: u64,
    /// Frames in them, and in the tail.
    pub frames: u64,
    /// When the last frame was, in microseconds since the start.
    pub last: u64,
    /// How often nothing was recorded for a while, and how often bytes were left out: the recording says so itself.
    pub gaps: u64,
    /// How many blocks are encrypted, entries of the tail too. What the recording says itself of them is not among the rest.
    pub encrypted: u64,
    /// Who signed.
    pub signers: Vec<Signer>,
    /// What is wrong; nothing: it is as the node wrote it.
    pub problems: Vec<Problem>,
}

impl Report {
    /// How many blocks a key that was asked for has signed.
    pub fn covered(&self) -> u64 {
        self.signers.iter().map(|signer| signer.covers).max().unwrap_or(0)
    }

    fn problem(&mut self, problem: Problem) {
        if self.problems.len() < MAX_NAMED {
            self.problems.push(problem);
        }
    }

    fn signed(&mut self, key: String, covers: u64, signed: String) {
        if let Some(signer) = self.signers.iter_mut().find(|signer| signer.key == key) {
            signer.signatures += 1;
            signer.covers = signer.covers.max(covers);
            signer.signed = signed;
        } else if self.signers.len() < MAX_NAMED {
            self.signers.push(Signer {
                key,
                signatures: 1,
                covers,
                signed,
            });
        }
    }
}

/// Verifies the recording of `session`. `tail`: it still runs, so that it has no end. `check` says which key made a signature
/// over a text.
pub fn verify<F: Read + Seek>(
    file: &mut F,
    session: &[u8; 16],
    tail: Option<Vec<u8>>,
    check: Check<'_>,
) -> io::Result<Report> {
    let mut report = Report::default();
    let runs = tail.is_some();
    let mut source = match Source::new(&mut *file, tail) {
        Ok(source) => source,
        Err(ReadError::Fault(_)) => {
            report.problem(Problem::NotARecording);
            return Ok(report);
        }
        Err(ReadError::Io(e)) => return Err(e),
    };
    if source.session() != *session {
        report.problem(Problem::OtherSession(hex(&source.session())));
    }
    // How many blocks there are up to the end.
    let mut end = 0;
    while let Some(item) = source.next_item()? {
        match item {
            Item::Frame(frame) => {
                report.frames += 1;
                match frame.kind {
                    Kind::Begin if report.frames == 1 => report.begin = Begin::read(frame.bytes),
                    _ if report.frames == 1 => report.problem(Problem::NoBegin),
                    Kind::End => report.end = Some(End::read(frame.bytes)),
                    Kind::Gap | Kind::Omitted => report.gaps += 1,
                    _ => {}
                }
            }
            Item::Signature {
                block,
                statement,
                signature,
            } => match check(&statement.text(), signature) {
                Ok(key) => report.signed(key, statement.blocks, statement.signed),
                Err(NotSigned::OtherKey(key)) => report.problem(Problem::OtherKey(block, key)),
                Err(NotSigned::Wrong(why)) => report.problem(Problem::BadSignature(block, why)),
            },
            Item::Encrypted(_) => {}
        }
        if source.has_ended() && end == 0 {
            end = source.blocks();
        }
    }
    report.blocks = source.blocks();
    report.last = source.last();
    report.encrypted = source.passed_over();
    let (fault, has_ended) = (source.fault().copied(), source.has_ended());
    drop(source);
    if let Some(fault) = fault {
        let problem = match fault.fault {
            Fault::Cut => Problem::Cut(fault.block),
            Fault::Number => number(file, &fault)?,
            _ => Problem::Damaged(fault),
        };
        report.problem(problem);
    } else if !has_ended && !runs {
        report.problem(Problem::NoEnd(report.blocks));
    }
    if has_ended && report.covered() < end {
        report.problem(Problem::EndNotSigned(report.covered(), end));
    }
    Ok(report)
}

/// Which block is missing or in the wrong place.
fn number<F: Read + Seek>(file: &mut F, fault: &Error) -> io::Result<Problem> {
    let expected = fault.block;
    // The heads from there on.
    let mut numbers = Vec::new();
    let mut offset = fault.offset.max(FILE_HEAD as u64);
    let mut bytes = [0; HEAD];
    while numbers.len() < MAX_HEADS {
        file.seek(SeekFrom::Start(offset))?;
        match file.read_exact(&mut bytes) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => break,
            other => other?,
        }
        let Ok((head, _)) = Head::decode(&bytes) else {
            break;
        };
        numbers.push(head.number);
        offset += (HEAD + head.stored) as u64;
    }
    let follows = |n: u64| numbers.get(1) == Some(&(n + 1));
    Ok(match numbers.first() {
        // What stands behind the end has the right number, and does not belong there.
        Some(found) if *found == expected => Problem::Damaged(*fault),
        Some(found) if numbers[1..].contains(&expected) => Problem::Misplaced(*found, expected),
        // The number itself was changed: the next block goes on as if it had not been.
        Some(_) if follows(expected) => Problem::Damaged(Error {
            fault: Fault::Changed,
            ..*fault
        }),
        Some(found) if *found > expected => Problem::Missing(expected, *found),
        Some(found) => Problem::Misplaced(*found, expected),
        None => Problem::Damaged(*fault),
    })
}
