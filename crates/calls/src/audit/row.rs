//! What a row says of an audited call: from which level on it is told, with which arguments, and what each argument is. It
//! reads nothing.

use crate::abi::low;

/// How much is told; each level has what those before it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What is executed, connected to and bound, and what changes privileges, mounts, other processes or the kernel.
    Commands,
    /// What is written, removed, renamed, made or changed in its rights.
    Files,
    /// What is opened for reading, and every socket.
    Full,
}

impl Level {
    /// As frames have it, which know numbers alone (`wire::node::watch::LEVELS`).
    pub const fn number(self) -> u8 {
        match self {
            Level::Commands => 1,
            Level::Files => 2,
            Level::Full => 3,
        }
    }

    /// The level with this number; one above them all is the highest.
    pub const fn numbered(number: u8) -> Level {
        match number {
            1 => Level::Commands,
            2 => Level::Files,
            _ => Level::Full,
        }
    }
}

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// A path, relative to the working directory.
    Path,
    /// A path, relative to the descriptor in this argument.
    PathAt(u8),
    /// The same, and with AT_EMPTY_PATH in that argument and nothing in the path, the descriptor itself.
    PathOf(u8, u8),
    /// A list of strings.
    Argv,
    /// A socket address, as long as this argument says.
    Address(u8),
    /// A number.
    Number,
    /// An unsigned number of 32 bits; -1: unchanged.
    Id,
    /// A number that is shown in octal.
    Mode,
    /// What a descriptor is.
    Descriptor,
    /// Flags of open(2).
    Open,
    /// A struct open_how: its flags.
    How,
    /// A string that is no path.
    Text,
    /// A struct msghdr, or the first of several: its address.
    Message,
    /// Several of them, as many as this argument says: the first address that one of them has.
    Messages(u8),
    /// A number of 64 bits that this pointer leads to.
    Pointed,
}

/// One argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its name in docs/audit.md.
    pub name: &'static str,
    /// Which, from 0.
    pub at: u8,
    /// What it is.
    pub sort: Sort,
}

/// With which arguments a call is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Any.
    Any,
    /// One of these bits is set in this argument.
    Bits(u8, u64),
    /// The lower half of this argument is one of these.
    OneOf(u8, &'static [u32]),
    /// One of these bits is set in the 64 bits that this argument points to. A filter cannot see them: each such call
    /// stops, and is told if memory says so.
    Pointed(u8, u64),
    /// The struct msghdr in this argument has an address, or one of several, as many as the other argument says. No filter can
    /// see that either.
    Addressed(u8, Option<u8>),
}

impl Only {
    /// Whether it may hold with these arguments.
    pub(super) fn fits(self, arguments: &[u64; 6]) -> bool {
        let argument = |at: u8| arguments.get(usize::from(at)).copied().unwrap_or(0);
        match self {
            Only::Any | Only::Pointed(..) | Only::Addressed(..) => true,
            Only::Bits(at, bits) => argument(at) & bits != 0,
            Only::OneOf(at, values) => values.contains(&low(argument(at))),
        }
    }
}

/// What is told of a call.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// From which level on.
    pub level: Level,
    /// The event's name in docs/audit.md.
    pub event: &'static str,
    /// Which kind of it; empty: it has no kinds.
    pub operation: &'static str,
    /// Only with these arguments.
    pub when: Only,
    /// What is told.
    pub arguments: &'static [Argument],
}
