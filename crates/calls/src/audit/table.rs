//! Which calls are told at which level, and what their arguments are.

use super::row::{Argument, Level, Only, Row, Sort};
use crate::abi::{Abi, Call};
use crate::filter::Program;
use crate::select::{Is, Selection, Test, When};
use fleetgate_sys::seccomp::Instruction;
use std::collections::BTreeMap;

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
/// MSG_FASTOPEN: the address of what is sent is connected to.
const FAST_OPEN: u64 = 0x2000_0000;
/// CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET.
const NEW_NAMESPACES: u64 = 0x2_0000 | 0x200_0000 | 0x400_0000 | 0x800_0000 | 0x7000_0000;
/// Only clone3 has it: with clone these bits are the signal of the child's end.
const NEW_TIME: u64 = 0x80;
/// What the helper of a watched session says in the sixth argument of the one call that it makes between its filter and the
/// watcher's first look: sendmsg, which brings the listener and has three arguments. The filter of the fullest level lets it
/// pass. In this place each session's filter has a number of its own that nobody else knows ([`with_pass`]).
pub(super) const PASS: u64 = 0x7f4a_7c15_9e37_79b9;
/// Where it is.
const PASS_AT: u8 = 5;
/// The event of a program that has begun: see [`Calls::begins`].
pub(super) const EXECUTED: &str = "executed";
/// The event of a call in a numbering that nobody here knows.
pub const UNKNOWN: &str = "unknown_call";
/// PTRACE_TRACEME, PTRACE_ATTACH, PTRACE_SEIZE.
const TRACING: &[u32] = &[0, 16, 0x4206];
/// `arch_prctl(ARCH_SET_FS)`.
const SET_FS: u64 = 0x1002;

use Level::{Commands, Files, Full};
use Sort::{
    Address, Argv, Descriptor, How, Id, Message, Messages, Mode, Number, Open, Path, PathAt, PathOf, Pointed,
    Text,
};

/// All that is told. The first row of a name whose arguments fit counts.
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
    only(
        Only::Bits(3, FAST_OPEN),
        row(
            Commands,
            "connect",
            "",
            &["sendto"],
            &[arg("address", 4, Address(5))],
        ),
    ),
    only(
        Only::Bits(2, FAST_OPEN),
        row(
            Commands,
            "connect",
            "",
            &["sendmsg"],
            &[arg("address", 1, Message)],
        ),
    ),
    only(
        Only::Bits(3, FAST_OPEN),
        row(
            Commands,
            "connect",
            "",
            &["sendmmsg"],
            &[arg("address", 1, Message)],
        ),
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
    only(
        Only::Bits(0, NEW_NAMESPACES),
        row(
            Commands,
            "namespace",
            "clone",
            &["clone"],
            &[arg("flags", 0, Number)],
        ),
    ),
    only(
        Only::Pointed(0, NEW_NAMESPACES | NEW_TIME),
        row(
            Commands,
            "namespace",
            "clone",
            &["clone3"],
            &[arg("flags", 0, Pointed)],
        ),
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
    only(
        Only::Addressed(1, None),
        row(Full, "send", "", &["sendmsg"], &[arg("address", 1, Message)]),
    ),
    only(
        Only::Addressed(1, Some(2)),
        row(
            Full,
            "send",
            "",
            &["sendmmsg"],
            &[arg("address", 1, Messages(2)), arg("messages", 2, Number)],
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
    rows: BTreeMap<Call, Vec<&'static Row>>,
    beginnings: Vec<Call>,
    socketcall: Option<Call>,
}

/// What the call of this name means with these arguments, in any numbering.
pub(super) fn row_of(name: &str, arguments: &[u64; 6]) -> Option<&'static Row> {
    let mut rows = ROWS.iter().filter(|row| row.calls.contains(&name));
    rows.find(|row| row.when.fits(arguments))
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
            Only::Addressed(..) if Some(call) == Call::named(Abi::NATIVE, "sendmsg") => {
                When::Any(vec![test(PASS_AT, true, Is::Not(PASS))])
            }
            Only::Any | Only::Pointed(..) | Only::Addressed(..) => When::Always,
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
        // SYS_BIND and SYS_CONNECT, and SYS_SENDTO, SYS_SENDMSG and SYS_SENDMMSG, whose flags lie in memory too.
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
                _ => When::Any([2, 3, 11, 16, 20].map(only).to_vec()),
            },
        );
    }
    selection
}

/// The filter of a level with this session's own number in the place of [`PASS`]; None where a half of that one is not to be
/// found in it.
#[must_use]
pub fn with_pass(level: Level, program: &Program, pass: u64) -> Option<Vec<Instruction>> {
    let mut steps = program.instructions().to_vec();
    let halves = |number: u64| [number as u32, (number >> 32) as u32];
    for (from, to) in halves(PASS).into_iter().zip(halves(pass)) {
        let mut found = false;
        for step in steps.iter_mut().filter(|step| step.value == from) {
            step.value = to;
            found = true;
        }
        if level == Level::Full && !found {
            return None;
        }
    }
    Some(steps)
}

impl Calls {
    /// Those of the fullest level: what a filter does not stop is not asked for.
    #[must_use]
    pub fn new() -> Calls {
        let mut rows: BTreeMap<Call, Vec<&'static Row>> = BTreeMap::new();
        for (call, row) in wanted(Level::Full) {
            rows.entry(call).or_default().push(row);
        }
        Calls {
            rows,
            beginnings: beginnings().map(|(call, _)| call).collect(),
            socketcall: socketcall(),
        }
    }

    /// What a call with these arguments means.
    #[must_use]
    pub fn row(&self, call: Call, arguments: &[u64; 6]) -> Option<&'static Row> {
        let mut rows = self.rows.get(&call)?.iter();
        rows.find(|row| row.when.fits(arguments)).copied()
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
