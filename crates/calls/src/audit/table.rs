//! Which calls are told at which level, and what their arguments are.

use super::row::{Argument, Level, Only, Row, Sort};
use crate::abi::{Abi, Call, low};
use crate::filter::Program;
use crate::select::{Is, Selection, Test, When};
use fleetgate_sys::seccomp::Instruction;
use std::collections::BTreeMap;

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

/// A call and what is told of it: the first row whose arguments fit counts.
#[derive(Clone, Copy)]
pub(super) struct AuditedCall {
    pub(super) name: &'static str,
    pub(super) rows: &'static [Row],
}

/// The position of an argument.
const fn position(names: &[&str], name: &str) -> u8 {
    let mut at = 0;
    while !is_same(names[at as usize], name) {
        at += 1;
    }
    at
}

const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

macro_rules! condition {
    ($names:ident) => {
        Only::Any
    };
    ($names:ident $when:ident $of:ident $(, $with:expr)?) => {
        Only::$when(position($names, stringify!($of)) $(, $with)?)
    };
}

/// Takes the names and audits of rows; see [`crate::rows`].
macro_rules! audits {
    ($($name:ident($($argument:ident $(as $width:ident)?: $kind:expr),*) -> $result:ident $(($show:expr))?
        $(, in $($class:ident)+)?
        $(, audit $level:ident $event:ident $(. $operation:ident)? $(if $when:ident($of:ident $(, $with:expr)?))?
            ($($field:ident: $from:ident as $sort:ident $(($($other:ident),+))?),*))*;)*) => {
        &[$(AuditedCall {
            name: stringify!($name),
            rows: {
                #[allow(dead_code, reason = "calls that are not audited do not need it")]
                const NAMES: &[&str] = &[$(stringify!($argument)),*];
                const ROWS: &[Row] = &[$(Row {
                    level: Level::$level,
                    event: stringify!($event),
                    operation: concat!($(stringify!($operation))?),
                    when: condition!(NAMES $($when $of $(, $with)?)?),
                    arguments: &[$(Argument {
                        name: stringify!($field),
                        at: position(NAMES, stringify!($from)),
                        sort: Sort::$sort $(($(position(NAMES, stringify!($other))),+))?,
                    }),*],
                }),*];
                ROWS
            },
        }),*]
    };
}

/// Every call, audited or not.
const CALLS: &[&[AuditedCall]] = &[
    crate::files_calls!(audits),
    crate::directories_calls!(audits),
    crate::processes_calls!(audits),
    crate::memory_calls!(audits),
    crate::network_calls!(audits),
    crate::signals_calls!(audits),
    crate::time_calls!(audits),
    crate::ipc_calls!(audits),
    crate::misc_calls!(audits),
];

/// The audited ones among the first `COUNT` of [`CALLS`], and how many those are; chosen by the compiler, so that no program has
/// the others.
const fn audited<const COUNT: usize>() -> ([AuditedCall; COUNT], usize) {
    let mut audited = [AuditedCall { name: "", rows: &[] }; COUNT];
    let mut count = 0;
    let mut area = 0;
    while area < CALLS.len() {
        let mut at = 0;
        while at < CALLS[area].len() {
            if !CALLS[area][at].rows.is_empty() {
                if count < COUNT {
                    audited[count] = CALLS[area][at];
                }
                count += 1;
            }
            at += 1;
        }
        area += 1;
    }
    (audited, count)
}

/// All that is told.
pub(super) static AUDITED: [AuditedCall; audited::<0>().1] = audited().0;

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

/// The rows of the call of this name, in any numbering.
pub(super) fn rows_of(name: &str) -> impl Iterator<Item = &'static Row> {
    let call = AUDITED.iter().find(|call| call.name == name);
    call.into_iter().flat_map(|call| call.rows)
}

/// All that is told at a level, in every numbering that a kernel of this architecture serves.
fn wanted(level: Level) -> impl Iterator<Item = (Call, &'static Row)> {
    AUDITED.iter().flat_map(move |audited| {
        let rows = audited.rows.iter().filter(move |row| row.level <= level);
        rows.flat_map(|row| {
            let calls = Abi::SERVED
                .iter()
                .filter_map(|abi| Call::named(*abi, audited.name));
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
    let halves = |number: u64| [low(number), low(number >> 32)];
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
    let told = AUDITED.iter().flat_map(|call| call.rows).map(|row| row.event);
    told.chain([EXECUTED, UNKNOWN]).find(|event| *event == name)
}

impl Default for Calls {
    fn default() -> Calls {
        Calls::new()
    }
}
