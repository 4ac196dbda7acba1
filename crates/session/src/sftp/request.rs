//! From the bytes of one packet to a request. Pure: no I/O, no state; a fuzz target calls nothing else.
//!
//! Data of a WRITE stays where it was received. Paths become C strings here, so a zero byte inside one never
//! gets further.

use super::protocol::{MAX_PACKET, OPERATIONS, Operation, kind};
use alloc::ffi::CString;
use alloc::vec::Vec;

/// Why a packet is not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// It is too short to name a request. Nobody to answer to: the session ends.
    NoRequest,
    /// The request that `id` names ends early, or has a zero byte in a path.
    Fields {
        /// Whom to answer.
        id: u32,
    },
}

/// The names by which a client holds an open file or directory: eight bytes, ours.
pub type HandleName<'a> = &'a [u8];

/// Attributes as they travel; what is absent stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Length.
    pub size: Option<u64>,
    /// Owner and group.
    pub owner: Option<(u32, u32)>,
    /// Kind and permission bits.
    pub mode: Option<u32>,
    /// Last access and modification, in seconds since 1970.
    pub times: Option<(u32, u32)>,
}

impl Attributes {
    /// `SSH_FILEXFER_ATTR_…`.
    pub const SIZE: u32 = 0x1;
    /// Owner and group.
    pub const OWNER: u32 = 0x2;
    /// Permissions.
    pub const MODE: u32 = 0x4;
    /// Times.
    pub const TIMES: u32 = 0x8;
    /// Pairs of strings that nobody defined; read over.
    pub const EXTENDED: u32 = 0x8000_0000;
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The draft and OpenSSH's PROTOCOL say what each field is.
pub enum Request<'a> {
    Open {
        path: CString,
        flags: u32,
        attributes: Attributes,
    },
    Close {
        handle: HandleName<'a>,
    },
    Read {
        handle: HandleName<'a>,
        offset: u64,
        len: u32,
    },
    Write {
        handle: HandleName<'a>,
        offset: u64,
        data: &'a [u8],
    },
    Lstat {
        path: CString,
    },
    Fstat {
        handle: HandleName<'a>,
    },
    Setstat {
        path: CString,
        attributes: Attributes,
    },
    Fsetstat {
        handle: HandleName<'a>,
        attributes: Attributes,
    },
    Opendir {
        path: CString,
    },
    Readdir {
        handle: HandleName<'a>,
    },
    Remove {
        path: CString,
    },
    Mkdir {
        path: CString,
        attributes: Attributes,
    },
    Rmdir {
        path: CString,
    },
    Realpath {
        path: CString,
    },
    Stat {
        path: CString,
    },
    Rename {
        from: CString,
        to: CString,
    },
    Readlink {
        path: CString,
    },
    /// In OpenSSH's order, which every client follows: the target first. The draft has it the other way.
    Symlink {
        target: CString,
        path: CString,
    },
    PosixRename {
        from: CString,
        to: CString,
    },
    Statvfs {
        path: CString,
    },
    Fstatvfs {
        handle: HandleName<'a>,
    },
    Hardlink {
        from: CString,
        to: CString,
    },
    Fsync {
        handle: HandleName<'a>,
    },
    Lsetstat {
        path: CString,
        attributes: Attributes,
    },
    Limits,
    ExpandPath {
        path: CString,
    },
    CopyData {
        from: HandleName<'a>,
        from_offset: u64,
        len: u64,
        to: HandleName<'a>,
        to_offset: u64,
    },
    HomeDirectory {
        user: CString,
    },
    UsersGroupsById {
        uids: &'a [u8],
        gids: &'a [u8],
    },
}

/// What a packet asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// The first: which version the client speaks.
    Init {
        /// That version.
        version: u32,
    },
    /// A request, to be answered under `id`.
    Request {
        /// The number its answer carries.
        id: u32,
        /// Which operation it is.
        operation: Operation,
        /// The request.
        request: Request<'a>,
    },
    /// A request, or an extension, that this server does not know.
    Unknown {
        /// The number its answer carries.
        id: u32,
    },
}

/// Where in `input` the first whole packet lies, behind its length field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// From 4 to this end.
    Whole {
        /// One past its last byte.
        end: usize,
    },
    /// It has not all come.
    Partial,
    /// Longer than [`MAX_PACKET`]: where the next one would begin is not to be believed.
    TooLong {
        /// The length it claims.
        len: usize,
    },
}

/// Looks for the first packet.
pub fn frame(input: &[u8]) -> Framing {
    let Some(len) = input.first_chunk::<4>().map(|b| u32::from_be_bytes(*b) as usize) else {
        return Framing::Partial;
    };
    match 4 + len {
        _ if len > MAX_PACKET => Framing::TooLong { len },
        end if end > input.len() => Framing::Partial,
        end => Framing::Whole { end },
    }
}

/// Reads one packet, its length field taken off. Bytes after the last field are read over, as OpenSSH does.
pub fn parse(packet: &[u8]) -> Result<Packet<'_>, RequestError> {
    let mut fields = Fields(packet);
    let kind = fields.u8().ok_or(RequestError::NoRequest)?;
    let number = fields.u32().ok_or(RequestError::NoRequest)?;
    if kind == kind::INIT {
        return Ok(Packet::Init { version: number });
    }
    let id = number;
    let Some(operation) = operation(kind, &mut fields).ok_or(RequestError::Fields { id })? else {
        return Ok(Packet::Unknown { id });
    };
    let request = request(operation, &mut fields).ok_or(RequestError::Fields { id })?;
    Ok(Packet::Request {
        id,
        operation,
        request,
    })
}

/// `None`: malformed. `Some(None)`: unknown.
fn operation(kind: u8, f: &mut Fields<'_>) -> Option<Option<Operation>> {
    let known = match kind {
        // The table has the requests of the draft first, in the order of their numbers.
        kind::OPEN..=kind::SYMLINK => OPERATIONS.get(usize::from(kind - kind::OPEN)),
        kind::EXTENDED => {
            let name = f.string()?;
            OPERATIONS
                .iter()
                .find(|d| d.extension.is_some_and(|(n, _)| n.as_bytes() == name))
        }
        _ => None,
    };
    Some(known.map(|known| known.operation))
}

/// The fields of a request. `None`: malformed.
fn request<'a>(operation: Operation, f: &mut Fields<'a>) -> Option<Request<'a>> {
    use Request::*;
    // Fields are read in the order in which they are written here.
    Some(match operation {
        Operation::Open => Open {
            path: f.path()?,
            flags: f.u32()?,
            attributes: f.attributes()?,
        },
        Operation::Close => Close { handle: f.string()? },
        Operation::Read => Read {
            handle: f.string()?,
            offset: f.u64()?,
            len: f.u32()?,
        },
        Operation::Write => Write {
            handle: f.string()?,
            offset: f.u64()?,
            data: f.string()?,
        },
        Operation::Lstat => Lstat { path: f.path()? },
        Operation::Fstat => Fstat { handle: f.string()? },
        Operation::Setstat => Setstat {
            path: f.path()?,
            attributes: f.attributes()?,
        },
        Operation::Fsetstat => Fsetstat {
            handle: f.string()?,
            attributes: f.attributes()?,
        },
        Operation::Opendir => Opendir { path: f.path()? },
        Operation::Readdir => Readdir { handle: f.string()? },
        Operation::Remove => Remove { path: f.path()? },
        Operation::Mkdir => Mkdir {
            path: f.path()?,
            attributes: f.attributes()?,
        },
        Operation::Rmdir => Rmdir { path: f.path()? },
        Operation::Realpath => Realpath { path: f.path()? },
        Operation::Stat => Stat { path: f.path()? },
        Operation::Rename => Rename {
            from: f.path()?,
            to: f.path()?,
        },
        Operation::Readlink => Readlink { path: f.path()? },
        Operation::Symlink => Symlink {
            target: f.path()?,
            path: f.path()?,
        },
        Operation::PosixRename => PosixRename {
            from: f.path()?,
            to: f.path()?,
        },
        Operation::Statvfs => Statvfs { path: f.path()? },
        Operation::Fstatvfs => Fstatvfs { handle: f.string()? },
        Operation::Hardlink => Hardlink {
            from: f.path()?,
            to: f.path()?,
        },
        Operation::Fsync => Fsync { handle: f.string()? },
        Operation::Lsetstat => Lsetstat {
            path: f.path()?,
            attributes: f.attributes()?,
        },
        Operation::Limits => Limits,
        Operation::ExpandPath => ExpandPath { path: f.path()? },
        Operation::CopyData => CopyData {
            from: f.string()?,
            from_offset: f.u64()?,
            len: f.u64()?,
            to: f.string()?,
            to_offset: f.u64()?,
        },
        Operation::HomeDirectory => HomeDirectory { user: f.path()? },
        Operation::UsersGroupsById => UsersGroupsById {
            uids: f.string()?,
            gids: f.string()?,
        },
    })
}

/// Fields still to be read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }
    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|b| u32::from_be_bytes(*b))
    }
    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.first_chunk().map(|b| u64::from_be_bytes(*b))
    }
    fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
    }
    fn path(&mut self) -> Option<CString> {
        CString::new(self.string()?).ok()
    }
    fn attributes(&mut self) -> Option<Attributes> {
        let flags = self.u32()?;
        let mut out = Attributes::default();
        if flags & Attributes::SIZE != 0 {
            out.size = Some(self.u64()?);
        }
        if flags & Attributes::OWNER != 0 {
            out.owner = Some((self.u32()?, self.u32()?));
        }
        if flags & Attributes::MODE != 0 {
            out.mode = Some(self.u32()?);
        }
        if flags & Attributes::TIMES != 0 {
            out.times = Some((self.u32()?, self.u32()?));
        }
        if flags & Attributes::EXTENDED != 0 {
            // A count that lies ends with the packet: every pair takes eight bytes or more.
            for _ in 0..self.u32()? {
                self.string()?;
                self.string()?;
            }
        }
        Some(out)
    }
}

/// The ids in a field of `users-groups-by-id@openssh.com`: 4 bytes each; `None` where the length does not fit.
pub fn ids(field: &[u8]) -> Option<Vec<u32>> {
    let (words, rest) = field.as_chunks::<4>();
    rest.is_empty()
        .then(|| words.iter().map(|w| u32::from_be_bytes(*w)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
    }

    fn packet(kind: u8, fields: &[Vec<u8>]) -> Vec<u8> {
        [&[kind, 0, 0, 0, 7], fields.concat().as_slice()].concat()
    }

    #[test]
    fn requests_are_read_field_by_field() {
        let attributes = [0x8000_000fu32.to_be_bytes().to_vec(), 9u64.to_be_bytes().to_vec()];
        let numbers: Vec<u8> = [1u32, 2, 0o644, 3, 4, 1]
            .iter()
            .flat_map(|n| n.to_be_bytes())
            .collect();
        let pair = [string(b"name"), string(b"value")].concat();
        let all = [
            string(b"a"),
            26u32.to_be_bytes().to_vec(),
            attributes.concat(),
            numbers,
            pair,
        ];
        let bytes = packet(kind::OPEN, &all);
        let expected = Request::Open {
            path: c"a".into(),
            flags: 26,
            attributes: Attributes {
                size: Some(9),
                owner: Some((1, 2)),
                mode: Some(0o644),
                times: Some((3, 4)),
            },
        };
        assert_eq!(
            parse(&bytes),
            Ok(Packet::Request {
                id: 7,
                operation: Operation::Open,
                request: expected
            })
        );
        for end in 5..bytes.len() {
            assert_eq!(
                parse(&bytes[..end]),
                Err(RequestError::Fields { id: 7 }),
                "cut at {end}"
            );
        }
        for end in 0..5 {
            assert_eq!(parse(&bytes[..end]), Err(RequestError::NoRequest), "cut at {end}");
        }
    }

    #[test]
    fn what_is_no_path_or_unknown_is_told_apart() {
        assert_eq!(
            parse(&packet(kind::STAT, &[string(b"a\0b")])),
            Err(RequestError::Fields { id: 7 })
        );
        assert_eq!(parse(&packet(99, &[])), Ok(Packet::Unknown { id: 7 }));
        assert_eq!(
            parse(&packet(kind::EXTENDED, &[string(b"nobody@example.com")])),
            Ok(Packet::Unknown { id: 7 })
        );
        for (kind, wanted) in [
            (kind::OPEN, Operation::Open),
            (kind::READDIR, Operation::Readdir),
            (kind::STAT, Operation::Stat),
            (kind::SYMLINK, Operation::Symlink),
        ] {
            assert_eq!(operation(kind, &mut Fields(&[])), Some(Some(wanted)));
        }
        let lie = packet(
            kind::MKDIR,
            &[string(b"d"), alloc::vec![0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]],
        );
        assert_eq!(
            parse(&lie),
            Err(RequestError::Fields { id: 7 }),
            "four billion attributes"
        );
    }

    #[test]
    fn packets_are_found_and_long_ones_refused() {
        assert_eq!(frame(&[0, 0, 0]), Framing::Partial);
        assert_eq!(frame(&[0, 0, 0, 2, 9]), Framing::Partial);
        assert_eq!(frame(&[0, 0, 0, 2, 9, 9, 9]), Framing::Whole { end: 6 });
        assert_eq!(frame(&[0, 0, 0, 0]), Framing::Whole { end: 4 });
        assert_eq!(frame(&[0, 4, 0, 0]), Framing::Partial);
        assert_eq!(frame(&[0, 4, 0, 1]), Framing::TooLong { len: 262_145 });
        assert_eq!(frame(&[0xff; 4]), Framing::TooLong { len: 0xffff_ffff });
    }

    /// Every byte string: parsed or refused, never a panic. Half of them begin as a request does.
    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..200_000 {
            let len = (next() % 96) as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| next() as u8).collect();
            if round % 2 == 0 && len > 9 {
                bytes[0] = [3, 4, 5, 6, 9, 14, 18, 200][(next() % 8) as usize];
                bytes[5..8].fill(0);
                bytes[8] %= 32;
            }
            let _ = (parse(&bytes), frame(&bytes), ids(&bytes));
        }
    }
}
