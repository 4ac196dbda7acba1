//! Frames: one thing that happened, and when. In a block a frame is its kind, the hundredths of a second since the frame before
//! it, its length, and its bytes; both numbers in groups of seven bits, the lowest first (LEB128).

use crate::Fault;

/// The most bytes of one frame. What is longer is several.
pub const MAX_BYTES: usize = 32 << 10;
/// Frames are told apart in time by so many microseconds. People see no difference, and a key that is typed takes a byte less.
pub const TICK: u64 = 10_000;
/// The most that a frame takes in a block: kind, two numbers of ten bytes, its bytes.
pub const MAX_ENCODED: usize = 1 + 10 + 10 + MAX_BYTES;

/// What a frame is about. The numbers are in files and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// The first: who, where and what, as JSON.
    Begin = 0,
    /// A terminal's output.
    Output = 1,
    /// What was typed at a terminal.
    Input = 2,
    /// The terminal's new size: columns and rows, two bytes each, the lowest first.
    Resize = 3,
    /// Standard output of a program without a terminal.
    Stdout = 4,
    /// Its standard error.
    Stderr = 5,
    /// Its standard input.
    Stdin = 6,
    /// Bytes that were not recorded because the stream had come to its limit: the kind of the stream, and how many in all
    /// (eight bytes, the lowest first).
    Omitted = 7,
    /// So many bytes were typed while the terminal showed nothing of them: a password. Eight bytes, the lowest first.
    Hidden = 8,
    /// An event of the audit log that belongs to the session, as JSON.
    Event = 9,
    /// Nothing was recorded for a while: why and for how long, as JSON.
    Gap = 10,
    /// The last: how it ended, as JSON.
    End = 11,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Kind; 12] = [
        Kind::Begin,
        Kind::Output,
        Kind::Input,
        Kind::Resize,
        Kind::Stdout,
        Kind::Stderr,
        Kind::Stdin,
        Kind::Omitted,
        Kind::Hidden,
        Kind::Event,
        Kind::Gap,
        Kind::End,
    ];

    /// By its number.
    pub fn of(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }

    /// As a text.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Begin => "begin",
            Kind::Output => "output",
            Kind::Input => "input",
            Kind::Resize => "resize",
            Kind::Stdout => "stdout",
            Kind::Stderr => "stderr",
            Kind::Stdin => "stdin",
            Kind::Omitted => "omitted",
            Kind::Hidden => "hidden",
            Kind::Event => "event",
            Kind::Gap => "gap",
            Kind::End => "end",
        }
    }

    /// Whether it is a piece of a stream, which may as well be in one frame with the next piece.
    pub const fn is_stream(self) -> bool {
        matches!(
            self,
            Kind::Output | Kind::Input | Kind::Stdout | Kind::Stderr | Kind::Stdin
        )
    }

    /// Whether the process that carries a session's bytes may write it. It is not trusted: the others are the monitor's.
    pub const fn is_of_the_front(self) -> bool {
        matches!(
            self,
            Kind::Output
                | Kind::Input
                | Kind::Resize
                | Kind::Stdout
                | Kind::Stderr
                | Kind::Stdin
                | Kind::Omitted
                | Kind::Hidden
        )
    }
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it is about.
    pub kind: Kind,
    /// Microseconds since the session's start; what is written counts in [`TICK`]s.
    pub at: u64,
    /// At most [`MAX_BYTES`].
    pub bytes: &'a [u8],
}

impl Frame<'_> {
    /// Appends it to a block whose last frame was at `before`.
    pub(crate) fn encode(&self, before: u64, out: &mut Vec<u8>) {
        self.encode_head(before, self.bytes.len(), out);
        out.extend_from_slice(self.bytes);
    }

    /// Appends what stands before so many bytes.
    pub(crate) fn encode_head(&self, before: u64, len: usize, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        put_number((self.at / TICK).saturating_sub(before / TICK), out);
        put_number(len as u64, out);
    }

    /// A resize's columns and rows; nothing where one of them is 0, which clients say that do not know it.
    pub fn size(&self) -> Option<(u16, u16)> {
        match (self.kind, self.bytes) {
            (Kind::Resize, &[a, b, c, d]) => Some((u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))),
            _ => None,
        }
        .filter(|(columns, rows)| *columns > 0 && *rows > 0)
    }

    /// What was omitted: the stream, and how many bytes of it in all.
    pub fn omitted(&self) -> Option<(Kind, u64)> {
        let (Kind::Omitted, [stream, count @ ..]) = (self.kind, self.bytes) else {
            return None;
        };
        Some((Kind::of(*stream)?, u64::from_le_bytes(count.try_into().ok()?)))
    }

    /// How many bytes were typed unseen.
    pub fn hidden(&self) -> Option<u64> {
        match self.kind {
            Kind::Hidden => Some(u64::from_le_bytes(self.bytes.try_into().ok()?)),
            _ => None,
        }
    }
}

/// The bytes of a resize.
pub fn resize(columns: u16, rows: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (columns.to_le_bytes(), rows.to_le_bytes());
    [a, b, c, d]
}

/// The bytes of an omission.
pub fn omission(stream: Kind, count: u64) -> [u8; 9] {
    let mut bytes = [stream as u8; 9];
    bytes[1..].copy_from_slice(&count.to_le_bytes());
    bytes
}

/// The frames of a block that begins at `start`.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
    at: u64,
}

impl<'a> Frames<'a> {
    /// Of a block's plain bytes; the first frame's time counts from `start`.
    pub fn new(plain: &'a [u8], start: u64) -> Frames<'a> {
        Frames {
            rest: plain,
            at: start,
        }
    }

    /// How many bytes are not read yet.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self) -> Option<Frame<'a>> {
        let (&kind, rest) = self.rest.split_first()?;
        let kind = Kind::of(kind)?;
        let (passed, rest) = number(rest)?;
        let (len, rest) = number(rest)?;
        let len = usize::try_from(len).ok().filter(|len| *len <= MAX_BYTES)?;
        let bytes = rest.get(..len)?;
        self.at = self.at.checked_add(passed.checked_mul(TICK)?)?;
        self.rest = &rest[len..];
        Some(Frame {
            kind,
            at: self.at,
            bytes,
        })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let frame = self.take();
        if frame.is_none() {
            self.rest = &[];
        }
        Some(frame.ok_or(Fault::Frames))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "seven bits of it are left")]
pub(crate) fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    for (place, byte) in bytes.iter().enumerate().take(10) {
        let low = u64::from(byte & 0x7f);
        let shift = 7 * u32::try_from(place).ok()?;
        if low << shift >> shift != low {
            return None;
        }
        number |= low << shift;
        if byte & 0x80 == 0 {
            return Some((number, &bytes[place + 1..]));
        }
    }
    None
}
