//! Calls on the kernel itself: filters, programs in it, modules, rings, random numbers.

use super::{Res, Row, call};
use crate::decode::constants as c;
use crate::decode::kind::{
    ADDRESS, Count, FD, HEX, INT, Kind, Layout, SIZE, TEXT, U64, UINT, Width, bits, f, gap, named,
};
use crate::decode::reader::{Reader, Registers};
use crate::decode::show::processes::PROGRAM;
use crate::decode::show::signals;

const HEX32: Kind = Kind::Hex(Width::Four);

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    call("getrandom", &[("buf", Kind::Late(&Kind::By(random, Width::Word))), ("buflen", SIZE), ("flags", bits(&c::GETRANDOM))],
        Res::Number),
    call("seccomp", &[("operation", named(&c::SECCOMP_OP)), ("flags", Kind::Chosen(seccomp_flags)),
        ("args", Kind::Chosen(seccomp_arguments))], Res::Number),
    call("bpf", &[("cmd", named(&c::BPF)), ("attr", ADDRESS), ("size", UINT)], Res::Number),
    call("io_uring_setup", &[("entries", UINT), ("params", Kind::Changed(ring_before, ring_after))], Res::Descriptor),
    call("io_uring_enter", &[("fd", FD), ("to_submit", UINT), ("min_complete", UINT), ("flags", bits(&c::IO_URING_ENTER)),
        ("sig", Kind::By(signals::set_of_4, Width::Word)), ("sigsz", SIZE)], Res::Number),
    call("io_uring_register", &[("fd", FD), ("opcode", named(&c::IO_URING_REGISTER)), ("arg", ADDRESS), ("nr_args", UINT)],
        Res::Number),
    call("landlock_create_ruleset", &[("attr", Kind::Chosen(rule_attributes)), ("size", SIZE),
        ("flags", bits(&c::LANDLOCK_CREATE))], Res::By(ruleset)),
    call("landlock_add_rule", &[("ruleset_fd", FD), ("rule_type", named(&c::LANDLOCK_RULE)), ("rule_attr", Kind::Chosen(rule)),
        ("flags", HEX32)], Res::Number),
    call("landlock_restrict_self", &[("ruleset_fd", FD), ("flags", HEX32)], Res::Number),
    call("perf_event_open", &[("attr", ADDRESS), ("pid", INT), ("cpu", INT), ("group_fd", FD),
        ("flags", Kind::Bits(&c::PERF_FLAGS, Width::Word))], Res::Descriptor),
    call("init_module", &[("module_image", ADDRESS), ("len", SIZE), ("param_values", TEXT)], Res::Number),
    call("finit_module", &[("fd", FD), ("param_values", TEXT), ("flags", bits(&c::MODULE_INIT))], Res::Number),
    call("delete_module", &[("name", TEXT), ("flags", bits(&c::DELETE_MODULE))], Res::Number),
    call("reboot", &[("magic", named(&c::REBOOT_MAGIC1)), ("magic2", named(&c::REBOOT_MAGIC2)), ("op", named(&c::REBOOT)),
        ("arg", Kind::Chosen(reboot_argument))], Res::Number),
    call("syslog", &[("type", Kind::By(syslog, Width::Four)), ("bufp", Kind::Chosen(syslog_buffer)), ("len", Kind::Chosen(syslog_length))],
        Res::Number),
    call("kexec_load", &[("entry", HEX), ("nr_segments", SIZE), ("segments", ADDRESS), ("flags", HEX)], Res::Number),
    call("kexec_file_load", &[("kernel_fd", FD), ("initrd_fd", FD), ("cmdline_len", SIZE),
        ("cmdline", Kind::Bytes(Count::Argument(2))), ("flags", HEX)], Res::Number),
    call("iopl", &[("level", INT)], Res::Number),
    call("ioperm", &[("from", HEX), ("num", HEX), ("turn_on", INT)], Res::Number),
    call("lookup_dcookie", &[("cookie", Kind::Wide), ("buffer", ADDRESS), ("len", SIZE)], Res::Number),
];

/// What is asked of the kernel's log.
fn syslog(r: &mut Reader, value: u64) {
    r.out.number(i64::from(value as i32));
    let name = c::SYSLOG.find(value, 0xffff_ffff).unwrap_or(c::SYSLOG.others);
    r.out.comment(name.as_bytes());
}

fn syslog_buffer(registers: &Registers) -> Option<Kind> {
    match registers.argument(0) as u32 {
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
    let length = r.success().unwrap_or(0).max(0) as u64;
    let shown = (length.min(r.limits.string as u64) as usize).min(MOST);
    let mut bytes = [0; MOST];
    let bytes = &mut bytes[..shown];
    if at != 0 && (shown == 0 || r.read(at, bytes)) {
        r.out.raw_bytes(bytes, length > shown as u64);
    } else {
        r.out.address(at);
    }
}

fn seccomp_flags(registers: &Registers) -> Option<Kind> {
    Some(match registers.argument(0) as u32 {
        1 => bits(&c::SECCOMP_FLAGS),
        _ => HEX32,
    })
}

fn seccomp_arguments(registers: &Registers) -> Option<Kind> {
    Some(match registers.argument(0) as u32 {
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
    Some(match registers.argument(1) as u32 {
        1 => Kind::To(&BENEATH),
        2 => Kind::To(&PORT),
        _ => ADDRESS,
    })
}

/// A descriptor, or a version where that was asked for.
fn ruleset(r: &mut Reader, result: i64) {
    if r.argument(2) & 1 != 0 {
        r.out.returned(crate::decode::Returned::Number(result));
    } else {
        r.returned_descriptor(result);
    }
}

fn reboot_argument(registers: &Registers) -> Option<Kind> {
    // LINUX_REBOOT_CMD_RESTART2
    (registers.argument(2) as u32 == 0xa1b2_c3d4).then_some(TEXT)
}
