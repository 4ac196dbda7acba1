//! Which calls are told at which level, and what their arguments are.

use crate::abi::{Abi, Call};
use crate::select::{Is, Selection, Test, When};
use std::collections::BTreeMap;

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
}

/// Calls that mean the same.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// Their names.
    pub calls: &'static [&'static str],
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

const fn arg(name: &'static str, at: u8, sort: Sort) -> Argument {
    Argument { name, at, sort }
}

const fn row(
    level: Level,
    event: &'static str,
    operation: &'static str,
    calls: &'static [&'static str],
    arguments: &'static [Argument],
) -> Row {
    Row {
        calls,
        level,
        event,
        operation,
        when: Only::Any,
        arguments,
    }
}

const fn only(when: Only, row: Row) -> Row {
    Row { when, ..row }
}

/// O_WRONLY, O_RDWR, O_CREAT, O_TRUNC and the bit of O_TMPFILE that is no other's.
pub(super) const WRITES: u64 = 0o1 | 0o2 | 0o100 | 0o1000 | 0o20_000_000;
/// The event of a program that has begun: see [`Calls::begins`].
pub(super) const EXECUTED: &str = "executed";
/// The event of a call in a numbering that nobody here knows.
pub const UNKNOWN: &str = "unknown_call";
/// PTRACE_TRACEME, PTRACE_ATTACH, PTRACE_SEIZE.
const TRACING: &[u32] = &[0, 16, 0x4206];
/// `arch_prctl(ARCH_SET_FS)`.
const SET_FS: u64 = 0x1002;

use Level::{Commands, Files, Full};
use Sort::{Address, Argv, Descriptor, How, Id, Mode, Number, Open, Path, PathAt, PathOf, Text};

/// All that is told. The first row of a name whose level is reached counts.
pub(super) const ROWS: &[Row] = &[
    row(
        Commands,
        "exec",
        "",
        &["execve"],
        &[arg("path", 0, Path), arg("argv", 1, Argv)],
    ),
    row(
        Commands,
        "exec",
        "",
        &["execveat"],
        &[arg("path", 1, PathOf(0, 4)), arg("argv", 2, Argv)],
    ),
    row(
        Commands,
        "connect",
        "",
        &["connect"],
        &[arg("address", 1, Address(2))],
    ),
    row(Commands, "bind", "", &["bind"], &[arg("address", 1, Address(2))]),
    row(
        Commands,
        "mount",
        "mount",
        &["mount"],
        &[
            arg("source", 0, Text),
            arg("path", 1, Path),
            arg("type", 2, Text),
            arg("flags", 3, Number),
        ],
    ),
    row(
        Commands,
        "mount",
        "umount",
        &["umount", "umount2"],
        &[arg("path", 0, Path)],
    ),
    row(
        Commands,
        "mount",
        "move",
        &["move_mount"],
        &[arg("from", 1, PathAt(0)), arg("path", 3, PathAt(2))],
    ),
    row(
        Commands,
        "mount",
        "attributes",
        &["mount_setattr"],
        &[arg("path", 1, PathAt(0))],
    ),
    row(Commands, "mount", "chroot", &["chroot"], &[arg("path", 0, Path)]),
    row(
        Commands,
        "mount",
        "pivot_root",
        &["pivot_root"],
        &[arg("path", 0, Path), arg("put_old", 1, Path)],
    ),
    row(
        Commands,
        "identity",
        "setuid",
        &["setuid", "setuid32"],
        &[arg("to_uid", 0, Id)],
    ),
    row(
        Commands,
        "identity",
        "setgid",
        &["setgid", "setgid32"],
        &[arg("to_gid", 0, Id)],
    ),
    row(
        Commands,
        "identity",
        "setreuid",
        &["setreuid", "setreuid32"],
        &[arg("real", 0, Id), arg("effective", 1, Id)],
    ),
    row(
        Commands,
        "identity",
        "setregid",
        &["setregid", "setregid32"],
        &[arg("real", 0, Id), arg("effective", 1, Id)],
    ),
    row(
        Commands,
        "identity",
        "setresuid",
        &["setresuid", "setresuid32"],
        &[arg("real", 0, Id), arg("effective", 1, Id), arg("saved", 2, Id)],
    ),
    row(
        Commands,
        "identity",
        "setresgid",
        &["setresgid", "setresgid32"],
        &[arg("real", 0, Id), arg("effective", 1, Id), arg("saved", 2, Id)],
    ),
    row(
        Commands,
        "identity",
        "setfsuid",
        &["setfsuid", "setfsuid32"],
        &[arg("to_uid", 0, Id)],
    ),
    row(
        Commands,
        "identity",
        "setfsgid",
        &["setfsgid", "setfsgid32"],
        &[arg("to_gid", 0, Id)],
    ),
    row(
        Commands,
        "identity",
        "setgroups",
        &["setgroups", "setgroups32"],
        &[arg("count", 0, Number)],
    ),
    row(Commands, "identity", "capset", &["capset"], &[]),
    row(
        Commands,
        "namespace",
        "unshare",
        &["unshare"],
        &[arg("flags", 0, Number)],
    ),
    row(
        Commands,
        "namespace",
        "setns",
        &["setns"],
        &[arg("descriptor", 0, Descriptor), arg("flags", 1, Number)],
    ),
    // Those that make somebody a tracer; what he does then are thousands.
    only(
        Only::OneOf(0, TRACING),
        row(
            Commands,
            "ptrace",
            "ptrace",
            &["ptrace"],
            &[arg("request", 0, Number), arg("target", 1, Number)],
        ),
    ),
    row(
        Full,
        "ptrace",
        "read",
        &["process_vm_readv"],
        &[arg("target", 0, Number)],
    ),
    row(
        Commands,
        "ptrace",
        "write",
        &["process_vm_writev"],
        &[arg("target", 0, Number)],
    ),
    row(
        Commands,
        "ptrace",
        "descriptor",
        &["pidfd_getfd"],
        &[arg("descriptor", 0, Descriptor)],
    ),
    row(
        Commands,
        "module",
        "load",
        &["init_module"],
        &[arg("parameters", 2, Text)],
    ),
    row(
        Commands,
        "module",
        "load",
        &["finit_module"],
        &[arg("descriptor", 0, Descriptor), arg("parameters", 1, Text)],
    ),
    row(
        Commands,
        "module",
        "remove",
        &["delete_module"],
        &[arg("name", 0, Text)],
    ),
    row(
        Commands,
        "module",
        "kexec",
        &["kexec_load", "kexec_file_load"],
        &[],
    ),
    row(Commands, "bpf", "", &["bpf"], &[arg("command", 0, Number)]),
    row(
        Commands,
        "io_uring",
        "",
        &["io_uring_setup"],
        &[arg("entries", 0, Number)],
    ),
    only(
        Only::Bits(1, WRITES),
        row(
            Files,
            "file",
            "open",
            &["open"],
            &[arg("path", 0, Path), arg("flags", 1, Open), arg("mode", 2, Mode)],
        ),
    ),
    only(
        Only::Bits(2, WRITES),
        row(
            Files,
            "file",
            "open",
            &["openat"],
            &[
                arg("path", 1, PathAt(0)),
                arg("flags", 2, Open),
                arg("mode", 3, Mode),
            ],
        ),
    ),
    row(
        Files,
        "file",
        "open",
        &["openat2"],
        &[arg("path", 1, PathAt(0)), arg("flags", 2, How)],
    ),
    only(
        Only::Bits(2, WRITES),
        row(
            Files,
            "file",
            "open",
            &["open_by_handle_at"],
            &[arg("descriptor", 0, Descriptor), arg("flags", 2, Open)],
        ),
    ),
    row(
        Files,
        "file",
        "open",
        &["creat"],
        &[arg("path", 0, Path), arg("mode", 1, Mode)],
    ),
    row(
        Files,
        "file",
        "truncate",
        &["truncate", "truncate64"],
        &[arg("path", 0, Path)],
    ),
    row(Files, "file", "remove", &["unlink"], &[arg("path", 0, Path)]),
    row(
        Files,
        "file",
        "remove",
        &["unlinkat"],
        &[arg("path", 1, PathAt(0)), arg("flags", 2, Number)],
    ),
    row(Files, "file", "rmdir", &["rmdir"], &[arg("path", 0, Path)]),
    row(
        Files,
        "file",
        "rename",
        &["rename"],
        &[arg("path", 0, Path), arg("to", 1, Path)],
    ),
    row(
        Files,
        "file",
        "rename",
        &["renameat", "renameat2"],
        &[arg("path", 1, PathAt(0)), arg("to", 3, PathAt(2))],
    ),
    row(
        Files,
        "file",
        "mkdir",
        &["mkdir"],
        &[arg("path", 0, Path), arg("mode", 1, Mode)],
    ),
    row(
        Files,
        "file",
        "mkdir",
        &["mkdirat"],
        &[arg("path", 1, PathAt(0)), arg("mode", 2, Mode)],
    ),
    row(
        Files,
        "file",
        "mknod",
        &["mknod"],
        &[arg("path", 0, Path), arg("mode", 1, Mode)],
    ),
    row(
        Files,
        "file",
        "mknod",
        &["mknodat"],
        &[arg("path", 1, PathAt(0)), arg("mode", 2, Mode)],
    ),
    row(
        Files,
        "file",
        "link",
        &["link"],
        &[arg("target", 0, Path), arg("path", 1, Path)],
    ),
    row(
        Files,
        "file",
        "link",
        &["linkat"],
        &[arg("target", 1, PathOf(0, 4)), arg("path", 3, PathAt(2))],
    ),
    row(
        Files,
        "file",
        "symlink",
        &["symlink"],
        &[arg("target", 0, Text), arg("path", 1, Path)],
    ),
    row(
        Files,
        "file",
        "symlink",
        &["symlinkat"],
        &[arg("target", 0, Text), arg("path", 2, PathAt(1))],
    ),
    row(
        Files,
        "file",
        "chmod",
        &["chmod"],
        &[arg("path", 0, Path), arg("mode", 1, Mode)],
    ),
    row(
        Files,
        "file",
        "chmod",
        &["fchmodat", "fchmodat2"],
        &[arg("path", 1, PathAt(0)), arg("mode", 2, Mode)],
    ),
    row(
        Files,
        "file",
        "chmod",
        &["fchmod"],
        &[arg("descriptor", 0, Descriptor), arg("mode", 1, Mode)],
    ),
    row(
        Files,
        "file",
        "chown",
        &["chown", "lchown", "chown32", "lchown32"],
        &[arg("path", 0, Path), arg("owner", 1, Id), arg("group", 2, Id)],
    ),
    row(
        Files,
        "file",
        "chown",
        &["fchownat"],
        &[
            arg("path", 1, PathAt(0)),
            arg("owner", 2, Id),
            arg("group", 3, Id),
        ],
    ),
    row(
        Files,
        "file",
        "chown",
        &["fchown", "fchown32"],
        &[
            arg("descriptor", 0, Descriptor),
            arg("owner", 1, Id),
            arg("group", 2, Id),
        ],
    ),
    row(
        Files,
        "file",
        "setxattr",
        &["setxattr", "lsetxattr"],
        &[arg("path", 0, Path), arg("name", 1, Text)],
    ),
    row(
        Files,
        "file",
        "setxattr",
        &["fsetxattr"],
        &[arg("descriptor", 0, Descriptor), arg("name", 1, Text)],
    ),
    row(
        Full,
        "file",
        "open",
        &["open"],
        &[arg("path", 0, Path), arg("flags", 1, Open)],
    ),
    row(
        Full,
        "file",
        "open",
        &["openat"],
        &[arg("path", 1, PathAt(0)), arg("flags", 2, Open)],
    ),
    row(
        Full,
        "file",
        "open",
        &["open_by_handle_at"],
        &[arg("descriptor", 0, Descriptor), arg("flags", 2, Open)],
    ),
    row(
        Full,
        "socket",
        "",
        &["socket"],
        &[
            arg("family", 0, Number),
            arg("type", 1, Number),
            arg("protocol", 2, Number),
        ],
    ),
    row(
        Full,
        "listen",
        "",
        &["listen"],
        &[arg("descriptor", 0, Descriptor)],
    ),
    row(
        Full,
        "accept",
        "",
        &["accept", "accept4"],
        &[arg("descriptor", 0, Descriptor)],
    ),
    only(
        Only::Bits(4, u64::MAX),
        row(
            Full,
            "send",
            "",
            &["sendto"],
            &[arg("address", 4, Address(5)), arg("bytes", 2, Number)],
        ),
    ),
];

/// A call that every program makes while it begins, and the argument that tells it from others: where it comes from a process
/// that was about to execute something, its new image is known. C libraries and Go make it; a program that does not is known
/// by the next thing that it does.
const fn beginning(abi: Abi) -> (&'static str, Option<u64>) {
    match abi {
        Abi::X86_64 | Abi::X32 => ("arch_prctl", Some(SET_FS)),
        Abi::I386 => ("set_thread_area", None),
        Abi::Aarch64 => ("set_tid_address", None),
    }
}

/// The calls of one level, by number.
#[derive(Debug)]
pub struct Calls {
    rows: BTreeMap<Call, &'static Row>,
    beginnings: Vec<Call>,
    socketcall: Option<Call>,
}

/// All that is told at a level, in every numbering that a kernel of this architecture serves.
fn wanted(level: Level) -> impl Iterator<Item = (Call, &'static Row)> {
    let rows = ROWS.iter().filter(move |row| row.level <= level);
    rows.flat_map(|row| {
        row.calls.iter().flat_map(move |name| {
            let calls = Abi::SERVED.iter().filter_map(|abi| Call::named(*abi, name));
            calls.map(move |call| (call, row))
        })
    })
}

fn beginnings() -> impl Iterator<Item = (Call, Option<u64>)> {
    Abi::SERVED.iter().filter_map(|abi| {
        let (name, argument) = beginning(*abi);
        Some((Call::named(*abi, name)?, argument))
    })
}

fn socketcall() -> Option<Call> {
    let served = Abi::SERVED.contains(&Abi::I386);
    Call::named(Abi::I386, "socketcall").filter(|_| served)
}

/// The lower half is this.
const fn equals(value: u64) -> Is {
    Is::Masked {
        mask: u32::MAX as u64,
        value,
    }
}

/// What the filter of a level stops.
#[must_use]
pub fn selection(level: Level) -> Selection {
    let mut selection = Selection::none();
    for (call, row) in wanted(level) {
        let test = |argument, wide, is| vec![Test { argument, wide, is }];
        let when = match row.when {
            Only::Any => When::Always,
            Only::Bits(at, bits) => {
                let wide = bits > u64::from(u32::MAX);
                When::Any(vec![test(at, wide, Is::AnyOf(bits))])
            }
            Only::OneOf(at, values) => When::Any(
                values
                    .iter()
                    .map(|value| test(at, false, equals((*value).into())))
                    .collect(),
            ),
        };
        selection.add(call, when);
    }
    for (call, argument) in beginnings() {
        let when = argument.map_or(When::Always, |value| {
            When::Any(vec![vec![Test {
                argument: 0,
                wide: false,
                is: equals(value),
            }]])
        });
        selection.add(call, when);
    }
    // i386 has a call for all sockets, whose arguments lie in memory.
    if let Some(call) = socketcall() {
        // SYS_BIND and SYS_CONNECT.
        let only = |value| {
            vec![Test {
                argument: 0,
                wide: false,
                is: equals(value),
            }]
        };
        selection.add(
            call,
            match level {
                Level::Full => When::Always,
                _ => When::Any(vec![only(2), only(3)]),
            },
        );
    }
    selection
}

impl Calls {
    /// Those of the fullest level: what a filter does not stop is not asked for.
    #[must_use]
    pub fn new() -> Calls {
        let mut rows = BTreeMap::new();
        for (call, row) in wanted(Level::Full) {
            rows.entry(call).or_insert(row);
        }
        Calls {
            rows,
            beginnings: beginnings().map(|(call, _)| call).collect(),
            socketcall: socketcall(),
        }
    }

    /// What a call means.
    #[must_use]
    pub fn row(&self, call: Call) -> Option<&'static Row> {
        self.rows.get(&call).copied()
    }

    /// Whether it is i386's call for all sockets.
    #[must_use]
    pub fn is_socketcall(&self, call: Call) -> bool {
        self.socketcall == Some(call)
    }

    /// Whether a program makes this call when it begins.
    #[must_use]
    pub fn begins(&self, call: Call) -> bool {
        self.beginnings.contains(&call)
    }
}

/// The event of this name, if a watcher tells such events.
#[must_use]
pub fn event(name: &str) -> Option<&'static str> {
    let told = ROWS.iter().map(|row| row.event);
    told.chain([EXECUTED, UNKNOWN]).find(|event| *event == name)
}

impl Default for Calls {
    fn default() -> Calls {
        Calls::new()
    }
}
