//! Calls on the kernel itself: filters, programs in it, modules, rings, random numbers.

use super::{Argument, ResultKind, Row};
use crate::decode::constants as c;
use crate::decode::kind::{
    ADDRESS, Count, FD, HEX, INT, Kind, Layout, SIZE, TEXT, U64, UINT, Width, bits, f, gap, named,
};
use crate::decode::reader::{Reader, Registers};
use crate::decode::show::processes::PROGRAM;
use crate::decode::show::signals;
use fleetgate_calls::abi::{low, low_signed};

const HEX32: Kind = Kind::Hex(Width::Four);

pub(super) static ROWS: &[Row] = fleetgate_calls::misc_calls!(rows);

/// What is asked of the kernel's log.
fn syslog(r: &mut Reader, value: u64) {
    r.out.number(i64::from(low_signed(value)));
    let name = c::SYSLOG.find(value, 0xffff_ffff).unwrap_or(c::SYSLOG.others);
    r.out.comment(name.as_bytes());
}

fn syslog_buffer(registers: &Registers) -> Option<Kind> {
    match low(registers.argument(0)) {
        0 | 1 | 5 | 6 | 7 | 9 | 10 => None,
        8 => Some(Kind::Hex(Width::Word)),
        _ => Some(ADDRESS),
    }
}

fn syslog_length(registers: &Registers) -> Option<Kind> {
    syslog_buffer(registers).map(|_| INT)
}

/// Random bytes, as many as there were.
fn random(r: &mut Reader, at: u64) {
    const MOST: usize = 256;
    let length = r.success().unwrap_or(0).max(0).cast_unsigned();
    let shown = usize::try_from(length)
        .unwrap_or(MOST)
        .min(r.limits.string)
        .min(MOST);
    let mut bytes = [0; MOST];
    let bytes = &mut bytes[..shown];
    if at != 0 && (shown == 0 || r.read(at, bytes)) {
        r.out.raw_bytes(bytes, length > shown as u64);
    } else {
        r.out.address(at);
    }
}

fn seccomp_flags(registers: &Registers) -> Option<Kind> {
    Some(match low(registers.argument(0)) {
        1 => bits(&c::SECCOMP_FLAGS),
        _ => HEX32,
    })
}

fn seccomp_arguments(registers: &Registers) -> Option<Kind> {
    Some(match low(registers.argument(0)) {
        1 => Kind::To(&PROGRAM),
        2 => Kind::One(&ACTION),
        _ => ADDRESS,
    })
}

static ACTION: Kind = named(&c::SECCOMP_RET);

/// struct io_uring_params up to what the kernel fills in.
static RING: Layout = Layout {
    fields: &[
        gap(8),
        f("flags", bits(&c::IO_URING_SETUP)),
        f("sq_thread_cpu", UINT),
        f("sq_thread_idle", UINT),
        gap(100),
    ],
};

/// What the kernel says of a ring.
static RING_MADE: Layout = Layout {
    fields: &[
        f("sq_entries", UINT),
        f("cq_entries", UINT),
        gap(12),
        f("features", bits(&c::IO_URING_FEATURES)),
        gap(96),
    ],
};

fn ring_before(r: &mut Reader, at: u64) {
    r.out.open_bare_change();
    r.structure(&RING, at);
}

fn ring_after(r: &mut Reader, at: u64) {
    if r.success().is_some() {
        r.out.became();
        r.structure(&RING_MADE, at);
    }
    r.out.close_bare_change();
}

static RULESET: Layout = Layout {
    fields: &[f("handled_access_fs", Kind::Bits(&c::LANDLOCK_FS, Width::Eight))],
};

/// The same with what came later: rights on ports.
static RULESET_NETWORK: Layout = Layout {
    fields: &[
        f("handled_access_fs", Kind::Bits(&c::LANDLOCK_FS, Width::Eight)),
        f("handled_access_net", Kind::Hex(Width::Eight)),
    ],
};

static BENEATH: Layout = Layout {
    fields: &[
        f("allowed_access", Kind::Bits(&c::LANDLOCK_FS, Width::Eight)),
        f("parent_fd", FD),
    ],
};

static PORT: Layout = Layout {
    fields: &[f("allowed_access", Kind::Hex(Width::Eight)), f("port", U64)],
};

fn rule_attributes(registers: &Registers) -> Option<Kind> {
    Some(match registers.argument(1) {
        8 => Kind::To(&RULESET),
        16.. => Kind::To(&RULESET_NETWORK),
        _ => ADDRESS,
    })
}

fn rule(registers: &Registers) -> Option<Kind> {
    Some(match low(registers.argument(1)) {
        1 => Kind::To(&BENEATH),
        2 => Kind::To(&PORT),
        _ => ADDRESS,
    })
}

/// A descriptor, or a version where that was asked for.
fn ruleset(r: &mut Reader, result: i64) {
    if r.argument(2) & 1 != 0 {
        r.out.returned(crate::decode::CallResult::Number(result));
    } else {
        r.returned_descriptor(result);
    }
}

fn reboot_argument(registers: &Registers) -> Option<Kind> {
    // LINUX_REBOOT_CMD_RESTART2
    (low(registers.argument(2)) == 0xa1b2_c3d4).then_some(TEXT)
}
