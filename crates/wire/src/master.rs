//! Between a command of the user's and his master: the process that keeps connections for the commands to come.
//!
//! ```text
//! Lend → Lent (+ a socket that speaks HTTP/2 to the proxy) | Failed | Other
//! Run (+ descriptors 0, 1, 2) → Say* → (Began → (Window | Resume)*, (Say | Suspend)* → Ended) | Cold | Refused | Failed | Other
//! Stay → Status, and nothing until the master ends | Cold | Other
//! Status → Status, Retire, Stop → nothing
//! ```
//!
//! Both are the same user's, and each looks at the other's user id. They need not be of one version: words that do not
//! decode are answered with [`FromMaster::Other`], or taken as that.

use crate::{choice, record};
use alloc::ffi::CString;
use alloc::vec::Vec;

/// The longest frame either way: a command that is longer has a connection of its own.
pub const MAX_FRAME: usize = crate::MAX_INLINE;
/// The longest reason or line that the master says.
pub const MAX_WORDS: usize = 2048;
/// Of seconds for which a connection is kept: for as long as the login lasts, and it is made anew when it breaks.
pub const ALWAYS: u32 = u32::MAX;

/// Where the `+` of `NODE+CONTAINER` is. No node's name has one; labels, which choose among nodes, may have.
pub fn container_at(host: &[u8]) -> Option<usize> {
    let plus = host.iter().position(|b| *b == b'+');
    plus.filter(|_| !is_selector(host))
}

/// Whether this chooses among nodes and is no node's name. That needs the proxy's list.
pub fn is_selector(host: &[u8]) -> bool {
    host.iter().any(|b| b"=,*?".contains(b))
}

choice! {
    /// The way to a node.
    pub enum Way("way to a node") {
        /// By a proxy at this address; empty: the login's.
        0 => Proxy { address: CString },
        /// By the node's own port: `HOST[:PORT]`. It is known by the cluster's authorities, and takes the login's certificate.
        1 => Port { address: CString },
        /// An SSH server that need not belong to a cluster.
        2 => Server { server: Server },
    }
}

record! {
    /// An SSH server that is known by files of known hosts, and lets the user in with keys of files. Paths are absolute.
    pub struct Server {
        /// The port.
        pub port: u32,
        /// HostKeyAlias: the name in the files of known hosts.
        pub alias: Option<CString>,
        /// Files of known hosts.
        pub known_hosts: Vec<CString>,
        /// Files of keys, in the order in which they are tried.
        pub keys: Vec<CString>,
    }
}

record! {
    /// For what a connection is.
    pub struct Target {
        /// The version of the command's program: a master of another one makes room.
        pub version: CString,
        /// The network that the command sees, as `/proc/self/ns/net` names it: a master in another one would reach other
        /// machines by the same addresses.
        pub network: Vec<u8>,
        /// By which way.
        pub way: Way,
        /// For how many seconds connections are kept after their last use; [`ALWAYS`].
        pub keep: u32,
        /// How many seconds a connection may take to be made.
        pub connect: u32,
    }
}

record! {
    /// A terminal's size, in characters.
    pub struct Size {
        /// Columns.
        pub columns: u32,
        /// Rows.
        pub rows: u32,
    }
}

record! {
    /// The command's terminal.
    pub struct Terminal {
        /// TERM.
        pub term: Vec<u8>,
        /// Its size.
        pub size: Size,
        /// Encoded modes (RFC 4254 §8).
        pub modes: Vec<u8>,
        /// What begins an escape.
        pub escape: Option<u8>,
    }
}

record! {
    /// A variable for the session.
    pub struct Variable {
        /// Its name.
        pub name: Vec<u8>,
        /// Its value.
        pub value: Vec<u8>,
    }
}

choice! {
    /// What a session does.
    pub enum Work("work of a session") {
        /// The account's shell.
        0 => Shell,
        /// A command line.
        1 => Exec { command: Vec<u8> },
        /// A subsystem.
        2 => Subsystem { name: Vec<u8> },
    }
}

record! {
    /// A session on a node.
    pub struct SessionOrder {
        /// The node, or the server's name or address.
        pub node: CString,
        /// The account, or `ACCOUNT+CONTAINER`; empty, or `+CONTAINER`: with the account that the login takes.
        pub login: CString,
        /// What it does.
        pub work: Work,
        /// With a terminal.
        pub terminal: Option<Terminal>,
        /// Variables.
        pub environment: Vec<Variable>,
        /// Standard input is read; else the far side is told its end at once.
        pub input: bool,
    }
}

choice! {
    /// Messages of a command.
    pub enum ToMaster("message to the master") {
        /// The connection to the proxy, which is the target's way.
        0 => Lend { target: Target },
        /// A session; three descriptors, the command's standard streams.
        1 => Run { target: Target, order: SessionOrder },
        /// The terminal has another size.
        2 => Window { size: Size },
        /// The command's terminal is ready: after [`FromMaster::Suspend`], and after [`FromMaster::Began`] with a terminal, before
        /// which nothing is read from it or written to it.
        3 => Resume,
        /// Begin nothing more; end with the last session.
        4 => Retire,
        /// End now, with all sessions.
        5 => Stop,
        /// What there is.
        6 => Status,
        /// The master does not end for want of commands while the sender's end is open. The way says which master is meant.
        7 => Stay { target: Target },
    }
}

record! {
    /// A step of making a connection, for whom it was made.
    pub struct Step {
        /// 0: TCP; 1: TLS.
        pub kind: u8,
        /// When it began, in nanoseconds since 1970.
        pub start: u64,
        /// When it ended.
        pub end: u64,
    }
}

record! {
    /// A connection that is kept.
    pub struct ConnectionStatus {
        /// `proxy gate:443`, or `root@web1`.
        pub name: Vec<u8>,
        /// Sessions on it, or commands that use it.
        pub uses: u32,
        /// For how many seconds it has been there.
        pub age: u64,
        /// For how many seconds nobody has used it; 0: it is in use.
        pub idle: u64,
        /// For how many seconds it is kept after its last use; [`ALWAYS`].
        pub keep: u32,
    }
}

choice! {
    /// Messages of the master.
    pub enum FromMaster("message of the master") {
        /// The connection; one descriptor, a stream socket on which HTTP/2 begins. The steps of making it, for whom it was
        /// made.
        0 => Lent { steps: Vec<Step>, was_there: bool },
        /// Nothing was begun, for this reason, which is told to the user.
        1 => Failed { why: CString },
        /// It is of another login or version and makes room: start another one.
        2 => Other,
        /// A line for standard error; with `raw`, bytes as they stand.
        3 => Say { words: CString, raw: bool },
        /// The far side does it; with the terminal that was asked for, if it was given one.
        4 => Began { terminal: bool },
        /// Nothing was begun. The command makes a connection of its own, which asks the user what has to be asked.
        5 => Cold,
        /// The user asked by an escape that the command stops, as Ctrl-Z stops it.
        6 => Suspend,
        /// The session is over. Words for the user, if there are any.
        7 => Ended { code: i32, words: Option<CString> },
        /// The process, its version, its connections, how many more there are than the frame holds, and why the login was not
        /// renewed.
        8 => Status { pid: u32, version: CString, age: u64, connections: Vec<ConnectionStatus>, more: u32, trouble: Option<CString> },
        /// As [`FromMaster::Cold`]: the far side does not begin it on a connection that is kept. It may on another one, and the
        /// master is not asked again.
        9 => Refused,
    }
}
