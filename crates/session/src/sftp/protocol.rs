//! The words of SFTP version 3 (draft-ietf-secsh-filexfer-02) and of OpenSSH's extensions to it: numbers, limits,
//! what each error of the kernel is called. No I/O.

use fleetgate_sys::Errno;

/// The version this server speaks. Version 3 is what every client speaks; later drafts never became a standard.
pub const VERSION: u32 = 3;

/// The longest packet, its length field not counted; OpenSSH's bound, told by `limits@openssh.com`.
pub const MAX_PACKET: usize = 256 << 10;
/// The most bytes of one READ or WRITE: a packet less its header.
pub const MAX_DATA: usize = MAX_PACKET - 1024;
/// What a READDIR answer may grow to: the draft makes every client accept packets of 34,000 bytes.
pub const MAX_LISTING: usize = 34_000;

/// A length or a number of what is in a packet, or a handle's.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a packet has 256 KB, and there are fewer handles than descriptors"
)]
pub const fn short(n: usize) -> u32 {
    n as u32
}

/// Packet types, both ways.
pub mod kind {
    #![allow(missing_docs)]
    pub const INIT: u8 = 1;
    pub const VERSION: u8 = 2;
    pub const OPEN: u8 = 3;
    pub const CLOSE: u8 = 4;
    pub const READ: u8 = 5;
    pub const WRITE: u8 = 6;
    pub const LSTAT: u8 = 7;
    pub const FSTAT: u8 = 8;
    pub const SETSTAT: u8 = 9;
    pub const FSETSTAT: u8 = 10;
    pub const OPENDIR: u8 = 11;
    pub const READDIR: u8 = 12;
    pub const REMOVE: u8 = 13;
    pub const MKDIR: u8 = 14;
    pub const RMDIR: u8 = 15;
    pub const REALPATH: u8 = 16;
    pub const STAT: u8 = 17;
    pub const RENAME: u8 = 18;
    pub const READLINK: u8 = 19;
    pub const SYMLINK: u8 = 20;
    pub const STATUS: u8 = 101;
    pub const HANDLE: u8 = 102;
    pub const DATA: u8 = 103;
    pub const NAME: u8 = 104;
    pub const ATTRS: u8 = 105;
    pub const EXTENDED: u8 = 200;
    pub const EXTENDED_REPLY: u8 = 201;
}

/// How OPEN wants a file.
pub mod open {
    #![allow(missing_docs)]
    pub const READ: u32 = 0x01;
    pub const WRITE: u32 = 0x02;
    pub const APPEND: u32 = 0x04;
    pub const CREATE: u32 = 0x08;
    pub const TRUNCATE: u32 = 0x10;
    pub const EXCLUSIVE: u32 = 0x20;
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client closed its stream.
    Closed,
    /// A stream broke.
    Broken(Errno),
    /// A packet longer than the bound.
    TooLong {
        /// The length it claims.
        len: usize,
    },
    /// A packet that is no request.
    NoRequest,
    /// A request before the versions were exchanged.
    NotInitialised,
}

/// What a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// Nothing more to read.
    Eof = 1,
    /// There is no such file.
    NoSuchFile = 2,
    /// The user, or this session, may not.
    PermissionDenied = 3,
    /// Anything else.
    Failure = 4,
    /// The request makes no sense.
    BadMessage = 5,
    /// This server does not do that.
    Unsupported = 8,
}

impl Status {
    /// The sentence that travels beside the number.
    pub const fn text(self) -> &'static str {
        match self {
            Status::Ok => "Success",
            Status::Eof => "End of file",
            Status::NoSuchFile => "No such file",
            Status::PermissionDenied => "Permission denied",
            Status::Failure => "Failure",
            Status::BadMessage => "Bad message",
            Status::Unsupported => "Operation unsupported",
        }
    }

    /// For events: 0, or the error number that says the same.
    pub const fn errno(self) -> Errno {
        match self {
            Status::Ok | Status::Eof => Errno(0),
            Status::NoSuchFile => Errno::ENOENT,
            Status::PermissionDenied => Errno::EACCES,
            Status::Failure => Errno::EIO,
            Status::BadMessage => Errno::EINVAL,
            Status::Unsupported => Errno::ENOSYS,
        }
    }
}

/// Clients know these pairs from OpenSSH and act on them.
impl From<Errno> for Status {
    fn from(errno: Errno) -> Status {
        match errno {
            Errno(0) => Status::Ok,
            Errno::ENOENT | Errno::ENOTDIR | Errno::EBADF | Errno::ELOOP => Status::NoSuchFile,
            Errno::EPERM | Errno::EACCES | Errno::EFAULT => Status::PermissionDenied,
            Errno::ENAMETOOLONG | Errno::EINVAL => Status::BadMessage,
            Errno::ENOSYS => Status::Unsupported,
            _ => Status::Failure,
        }
    }
}

/// Every operation that can be refused by name, in the order in which `-Q requests` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // Their names in the protocol say what they are.
pub enum Operation {
    Open,
    Close,
    Read,
    Write,
    Lstat,
    Fstat,
    Setstat,
    Fsetstat,
    Opendir,
    Readdir,
    Remove,
    Mkdir,
    Rmdir,
    Realpath,
    Stat,
    Rename,
    Readlink,
    Symlink,
    PosixRename,
    Statvfs,
    Fstatvfs,
    Hardlink,
    Fsync,
    Lsetstat,
    Limits,
    ExpandPath,
    CopyData,
    HomeDirectory,
    UsersGroupsById,
}

/// One operation's entry.
pub struct OperationEntry {
    /// Which.
    pub operation: Operation,
    /// What an operator calls it (`-p`, `-P`).
    pub name: &'static str,
    /// What a client calls it, for an extension, and the version it is announced with.
    pub extension: Option<(&'static str, &'static str)>,
    /// Whether a read-only session refuses it. Opening is looked at by its flags.
    pub writes: bool,
}

const fn base(operation: Operation, name: &'static str, writes: bool) -> OperationEntry {
    OperationEntry {
        operation,
        name,
        extension: None,
        writes,
    }
}

const fn extension(
    operation: Operation,
    name: &'static str,
    announced: &'static str,
    version: &'static str,
    writes: bool,
) -> OperationEntry {
    OperationEntry {
        operation,
        name,
        extension: Some((announced, version)),
        writes,
    }
}

/// All of them; the place in the list is the operation's number.
pub const OPERATIONS: [OperationEntry; 29] = {
    use Operation::*;
    [
        base(Open, "open", false),
        base(Close, "close", false),
        base(Read, "read", false),
        base(Write, "write", true),
        base(Lstat, "lstat", false),
        base(Fstat, "fstat", false),
        base(Setstat, "setstat", true),
        base(Fsetstat, "fsetstat", true),
        base(Opendir, "opendir", false),
        base(Readdir, "readdir", false),
        base(Remove, "remove", true),
        base(Mkdir, "mkdir", true),
        base(Rmdir, "rmdir", true),
        base(Realpath, "realpath", false),
        base(Stat, "stat", false),
        base(Rename, "rename", true),
        base(Readlink, "readlink", false),
        base(Symlink, "symlink", true),
        extension(PosixRename, "posix-rename", "posix-rename@openssh.com", "1", true),
        extension(Statvfs, "statvfs", "statvfs@openssh.com", "2", false),
        extension(Fstatvfs, "fstatvfs", "fstatvfs@openssh.com", "2", false),
        extension(Hardlink, "hardlink", "hardlink@openssh.com", "1", true),
        extension(Fsync, "fsync", "fsync@openssh.com", "1", true),
        extension(Lsetstat, "lsetstat", "lsetstat@openssh.com", "1", true),
        // Not a change of anything, but OpenSSH counts it as one: see `AllowedOperations::permits`.
        extension(Limits, "limits", "limits@openssh.com", "1", false),
        extension(ExpandPath, "expand-path", "expand-path@openssh.com", "1", false),
        extension(CopyData, "copy-data", "copy-data", "1", true),
        extension(HomeDirectory, "home-directory", "home-directory", "1", false),
        extension(
            UsersGroupsById,
            "users-groups-by-id",
            "users-groups-by-id@openssh.com",
            "1",
            false,
        ),
    ]
};

/// Which operations a session may use, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedOperations(u32);

impl AllowedOperations {
    /// Every operation.
    pub const ALL: AllowedOperations = AllowedOperations((1 << OPERATIONS.len()) - 1);
    /// None.
    pub const NONE: AllowedOperations = AllowedOperations(0);

    /// With `operation` too.
    pub const fn with(self, operation: Operation) -> AllowedOperations {
        AllowedOperations(self.0 | 1 << operation as u8)
    }

    /// Without `operation`.
    pub const fn without(self, operation: Operation) -> AllowedOperations {
        AllowedOperations(self.0 & !(1 << operation as u8))
    }

    /// Without those that change anything.
    pub fn read_only(self) -> AllowedOperations {
        let writing = OPERATIONS.iter().filter(|d| d.writes);
        writing.fold(self, |allowed, d| allowed.without(d.operation))
    }

    /// Whether `operation` may be used.
    pub const fn permits(self, operation: Operation) -> bool {
        self.0 & 1 << operation as u8 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_numbers() {
        for (number, described) in OPERATIONS.iter().enumerate() {
            assert_eq!(described.operation as usize, number, "{}", described.name);
        }
    }

    #[test]
    fn read_only_takes_what_writes_and_nothing_else() {
        let allowed = AllowedOperations::ALL.read_only();
        for described in &OPERATIONS {
            assert_eq!(
                allowed.permits(described.operation),
                !described.writes,
                "{}",
                described.name
            );
        }
    }
}
