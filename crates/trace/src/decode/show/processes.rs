//! Processes: how they are made, what they run, what they may use, how they end.

use super::time::TIMEVAL;
use crate::decode::constants as c;
use crate::decode::kind::{
    ADDRESS, FD, HEX, INT, Kind, LONG, Layout, SIZE, TEXT, U64, UINT, USHORT, Width, bits, f, gap, named, v,
};
use crate::decode::names::Names;
use crate::decode::reader::{ITEM, Reader, Registers, number};
use fleetgate_calls::abi::{Abi, low};
use fleetgate_calls::tables::signal;

/// What execve is given: strings behind a list of addresses that ends with none.
pub(in crate::decode) fn argument_list(r: &mut Reader, at: u64) {
    strings(r, at);
}

/// The environment: how much of it there is, or all of it.
pub(in crate::decode) fn environment(r: &mut Reader, at: u64) {
    if !r.limits.abbreviate || at == 0 {
        return strings(r, at);
    }
    // The kernel takes no more than a quarter of the stack of it.
    const MOST: usize = 1 << 16;
    let mut count = 0;
    let mut list = Pointers::new(at);
    loop {
        match list.next(r) {
            Some(0) => return r.out.counted(at, Some(count), "vars"),
            Some(_) if count < MOST => count += 1,
            _ if count == 0 => return r.out.address(at),
            _ => return r.out.counted(at, None, "vars"),
        }
    }
}

fn strings(r: &mut Reader, at: u64) {
    if at == 0 {
        return r.out.address(at);
    }
    let limit = r.limit(1 << 16);
    let mut list = Pointers::new(at);
    for index in 0.. {
        let here = list.at;
        match list.next(r) {
            None if index == 0 => return r.out.address(at),
            None => return r.out.cut_list(here),
            Some(pointer) => {
                if index == 0 {
                    r.out.open_list();
                }
                if pointer == 0 || index >= limit || !r.spend(ITEM) {
                    return r.out.close_list(pointer != 0);
                }
                r.out.item();
                r.text(pointer);
            }
        }
    }
}

/// A list of addresses, read many at a time.
struct Pointers {
    at: u64,
    have: [u64; Pointers::READ],
    from: usize,
    until: usize,
}

impl Pointers {
    const READ: usize = 32;

    fn new(at: u64) -> Pointers {
        Pointers {
            at,
            have: [0; Pointers::READ],
            from: 0,
            until: 0,
        }
    }

    fn next(&mut self, r: &Reader) -> Option<u64> {
        let word = r.abi.word();
        if self.from == self.until {
            let mut bytes = [0; Pointers::READ * 8];
            let in_page = 4096 - (self.at % 4096) as usize;
            let wanted = (Pointers::READ * word).min(in_page.max(word));
            let got = r.memory.read(self.at, &mut bytes[..wanted]).min(wanted) / word;
            for (to, from) in self.have.iter_mut().zip(bytes.chunks(word)).take(got) {
                *to = number(from);
            }
            self.from = 0;
            self.until = got;
        }
        let value = *self.have.get(self.from).filter(|_| self.from < self.until)?;
        self.from += 1;
        self.at = self.at.wrapping_add(word as u64);
        Some(value)
    }
}

/// How a child ended; nothing where none did.
pub(in crate::decode) fn wait_status(r: &mut Reader, at: u64) {
    if r.success().is_none_or(|pid| pid == 0) {
        return r.out.address(at);
    }
    match r.read_number(at, Width::Four) {
        Some(status) => r.out.status(low(status)),
        None => r.out.address(at),
    }
}

/// What it used; nothing where none ended.
pub(in crate::decode) fn wait_usage(r: &mut Reader, at: u64) {
    if r.success().is_some_and(|pid| pid > 0) {
        r.structure(&USAGE, at);
    } else {
        r.out.address(at);
    }
}

/// struct rusage.
pub(in crate::decode) static USAGE: Layout = Layout {
    fields: &[
        f("ru_utime", Kind::Inner(&TIMEVAL)),
        f("ru_stime", Kind::Inner(&TIMEVAL)),
        v("ru_maxrss", SIZE),
        v("ru_ixrss", SIZE),
        v("ru_idrss", SIZE),
        v("ru_isrss", SIZE),
        v("ru_minflt", SIZE),
        v("ru_majflt", SIZE),
        v("ru_nswap", SIZE),
        v("ru_inblock", SIZE),
        v("ru_oublock", SIZE),
        v("ru_msgsnd", SIZE),
        v("ru_msgrcv", SIZE),
        v("ru_nsignals", SIZE),
        v("ru_nvcsw", SIZE),
        v("ru_nivcsw", SIZE),
    ],
};

const SETTLS: u64 = 0x8_0000;
const PIDFD: u64 = 0x1000;
const PARENT_SETTID: u64 = 0x10_0000;
const CHILD_CLEARTID: u64 = 0x20_0000;
const CHILD_SETTID: u64 = 0x100_0000;

/// Flags of clone: bits, and the signal of the child's end.
pub(in crate::decode) fn clone_flags(r: &mut Reader, value: u64) {
    let end = value & 0xff;
    r.out.open_bits();
    r.more_bits(&c::CLONE, value & !0xff);
    match signal::name(end as i32) {
        Some(name) => r.out.bit(name),
        None if end != 0 || value == 0 => r.out.bit_number(end),
        None => {}
    }
    r.out.close_bits();
}

static INT_THERE: Kind = Kind::One(&INT);
static LATE_INT: Kind = Kind::Late(&INT_THERE);
static JUST_ADDRESS: Kind = ADDRESS;

/// clone's arguments stand in another order on x86_64 than elsewhere: (stack, parent, child, tls).
pub(in crate::decode) fn clone_parent(registers: &Registers) -> Option<Kind> {
    let flags = registers.argument(0);
    (flags & (PARENT_SETTID | PIDFD) != 0).then_some(Kind::Labelled(&LATE_INT))
}

pub(in crate::decode) fn clone_tls(registers: &Registers) -> Option<Kind> {
    (registers.argument(0) & SETTLS != 0).then_some(Kind::Labelled(&JUST_ADDRESS))
}

pub(in crate::decode) fn clone_child(registers: &Registers) -> Option<Kind> {
    let flags = registers.argument(0);
    (flags & (CHILD_SETTID | CHILD_CLEARTID) != 0).then_some(Kind::Labelled(&JUST_ADDRESS))
}

/// struct clone_args, of which the words behind the first eight came later.
pub(in crate::decode) fn clone_arguments(r: &mut Reader, at: u64) {
    r.out.open_bare_change();
    let size = usize::try_from(r.argument(1)).unwrap_or(88).min(88) / 8 * 8;
    let mut bytes = [0; 88];
    let Some(held) = bytes.get_mut(..size).filter(|held| held.len() >= 64) else {
        return r.out.address(at);
    };
    if !r.read(at, held) {
        return r.out.address(at);
    }
    let word = |index: usize| number(bytes.get(index * 8..index * 8 + 8).unwrap_or_default());
    let flags = word(0);
    r.out.open();
    r.out.field("flags");
    r.bits(&c::CLONE3, flags);
    for (name, index, if_any) in [
        ("pidfd", 1, PIDFD),
        ("child_tid", 2, CHILD_SETTID | CHILD_CLEARTID),
        ("parent_tid", 3, PARENT_SETTID),
    ] {
        if flags & if_any != 0 {
            r.address_field(name, word(index));
        }
    }
    r.out.field("exit_signal");
    super::signals::signal(r, word(4));
    r.address_field("stack", word(5));
    r.out.field("stack_size");
    r.out.hex(word(6));
    if flags & SETTLS != 0 {
        r.address_field("tls", word(7));
    }
    if word(8) != 0 || word(9) != 0 {
        r.out.field("set_tid");
        r.list(&INT, word(8), word(9).min(32));
        r.unsigned_field("set_tid_size", word(9));
    }
    if flags >> 33 & 1 != 0 {
        r.out.field("cgroup");
        r.descriptor(word(10));
    }
    r.out.close(false);
}

/// What clone3 wrote where its structure says.
pub(in crate::decode) fn cloned(r: &mut Reader, at: u64) {
    if r.success().is_some() {
        cloned_numbers(r, at);
    }
    r.out.close_bare_change();
}

fn cloned_numbers(r: &mut Reader, at: u64) {
    let word = |r: &Reader, index: u64| r.read_number(at.wrapping_add(index * 8), Width::Eight);
    let flags = word(r, 0).unwrap_or(0);
    let mut any = false;
    for (name, index, bit) in [("pidfd", 1, PIDFD), ("parent_tid", 3, PARENT_SETTID)] {
        let Some(there) = word(r, index).filter(|there| flags & bit != 0 && *there != 0) else {
            continue;
        };
        if !any {
            r.out.became();
            r.out.open();
            any = true;
        }
        r.out.field(name);
        let kind = if bit == PIDFD { &FD } else { &INT };
        r.list(kind, there, 1);
    }
    if any {
        r.out.close(false);
    }
}

/// A limit of a process: without end, or a number.
pub(in crate::decode) fn limit(r: &mut Reader, value: u64) {
    let endless = if r.abi == Abi::I386 && value == 0xffff_ffff {
        "RLIM_INFINITY"
    } else {
        "RLIM64_INFINITY"
    };
    let value_is_endless = value == u64::MAX || (r.abi == Abi::I386 && value == 0xffff_ffff);
    if value_is_endless {
        r.out.name(endless);
    } else if value > 1024 && value.is_multiple_of(1024) {
        r.out.kibi(value / 1024);
    } else {
        r.out.unsigned(value);
    }
}

/// struct rlimit64.
pub(in crate::decode) static LIMIT64: Layout = Layout {
    fields: &[
        f("rlim_cur", Kind::By(limit, Width::Eight)),
        f("rlim_max", Kind::By(limit, Width::Eight)),
    ],
};

/// struct rlimit.
pub(in crate::decode) static LIMIT: Layout = Layout {
    fields: &[
        f("rlim_cur", Kind::By(limit, Width::Word)),
        f("rlim_max", Kind::By(limit, Width::Word)),
    ],
};

/// struct new_utsname.
pub(in crate::decode) static NAMES: Layout = Layout {
    fields: &[
        f("sysname", Kind::Characters(65)),
        f("nodename", Kind::Characters(65)),
        v("release", Kind::Characters(65)),
        v("version", Kind::Characters(65)),
        v("machine", Kind::Characters(65)),
        v("domainname", Kind::Characters(65)),
    ],
};

/// struct sysinfo.
pub(in crate::decode) static SYSTEM: Layout = Layout {
    fields: &[
        f("uptime", LONG),
        f("loads", Kind::Array(&SIZE, 3)),
        f("totalram", SIZE),
        f("freeram", SIZE),
        f("sharedram", SIZE),
        f("bufferram", SIZE),
        f("totalswap", SIZE),
        f("freeswap", SIZE),
        f("procs", USHORT),
        gap(2),
        f("totalhigh", SIZE),
        f("freehigh", SIZE),
        f("mem_unit", UINT),
    ],
};

/// A user or group: -1 leaves it.
pub(in crate::decode) fn identity(r: &mut Reader, value: u64) {
    let value = value & 0xffff_ffff;
    if value == 0xffff_ffff {
        r.out.number(-1)
    } else {
        r.out.unsigned(value)
    }
}

/// One, as an argument.
pub(in crate::decode) const ID: Kind = Kind::By(identity, Width::Four);
/// One behind an address.
pub(in crate::decode) static ONE_ID: Kind = Kind::One(&ID);

/// struct user_cap_header_struct.
pub(in crate::decode) static CAPABILITY_HEADER: Layout = Layout {
    fields: &[f("version", named(&c::CAPABILITY_VERSION)), f("pid", INT)],
};

/// What a process is capable of: three sets in two halves.
pub(in crate::decode) fn capabilities(r: &mut Reader, at: u64) {
    let mut bytes = [0; 24];
    if !r.read(at, &mut bytes) {
        return r.out.address(at);
    }
    r.out.open();
    for (index, name) in ["effective", "permitted", "inheritable"].into_iter().enumerate() {
        let half = |from: usize| number(bytes.get(from..from + 4).unwrap_or_default());
        let value = half(index * 4) | half(12 + index * 4) << 32;
        r.out.field(name);
        capability_set(r, value);
    }
    r.out.close(false);
}

fn capability_set(r: &mut Reader, value: u64) {
    if value == 0 {
        return r.no_bits();
    }
    r.out.open_bits();
    let mut left = value;
    for (number, name) in c::CAPABILITY.entries {
        if value >> number & 1 != 0 {
            r.out.bit(&format!("1<<{name}"));
            left &= !(1 << number);
        }
    }
    if left != 0 {
        r.out.bit_other(left, c::CAPABILITY.others);
    }
    r.out.close_bits();
}

/// struct sock_fprog: a filter's length and place.
pub(in crate::decode) static PROGRAM: Layout = Layout {
    fields: &[f("len", USHORT), f("filter", ADDRESS)],
};

/// Whether a process may leave its memory in a file.
pub(in crate::decode) static DUMPABLE: Names = Names::new(
    "SUID_DUMP_???",
    &[
        (0, "SUID_DUMP_DISABLE"),
        (1, "SUID_DUMP_USER"),
        (2, "SUID_DUMP_ROOT"),
    ],
);

static LATE_SIGNAL: Kind = Kind::One(&SIGNAL);
static SIGNAL: Kind = Kind::By(super::signals::signal, Width::Four);
static ONE_INT: Kind = Kind::One(&INT);
static PLAIN_TEXT: Kind = TEXT;

/// prctl's arguments behind its first, by what that says.
pub(in crate::decode) fn prctl_1(registers: &Registers) -> Option<Kind> {
    Some(match low(registers.argument(0)) {
        // PR_SET_PDEATHSIG
        1 => SIGNAL,
        // PR_GET_PDEATHSIG
        2 => Kind::Late(&LATE_SIGNAL),
        // PR_GET_DUMPABLE, PR_GET_KEEPCAPS, PR_GET_TIMING, PR_GET_SECCOMP, PR_GET_SECUREBITS, PR_GET_TIMERSLACK,
        // PR_TASK_PERF_EVENTS_*, PR_MCE_KILL_GET
        3 | 7 | 13 | 21 | 27 | 30 | 31 | 32 | 34 => return None,
        // PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_TIMING, PR_SET_TIMERSLACK, PR_SET_CHILD_SUBREAPER
        4 => Kind::Named(&DUMPABLE, Width::Word),
        8 | 14 | 29 | 36 => SIZE,
        // PR_SET_NAME, PR_GET_NAME
        15 => PLAIN_TEXT,
        16 => Kind::Late(&PLAIN_TEXT),
        22 => named(&c::SECCOMP_MODE),
        // PR_CAPBSET_READ, PR_CAPBSET_DROP
        23 | 24 => named(&c::CAPABILITY),
        28 => bits(&c::SECUREBITS),
        35 => named(&c::PRCTL_MM),
        // PR_GET_CHILD_SUBREAPER
        37 => Kind::Late(&ONE_INT),
        // PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS, PR_SET_THP_DISABLE, PR_GET_THP_DISABLE
        38 | 39 | 41 | 42 => SIZE,
        47 => named(&c::PRCTL_AMBIENT),
        52 | 53 => named(&c::PRCTL_SPECULATION),
        _ => HEX,
    })
}

/// See [`prctl_1`].
pub(in crate::decode) fn prctl_2(registers: &Registers) -> Option<Kind> {
    Some(match low(registers.argument(0)) {
        22 if registers.argument(1) == 2 => Kind::To(&PROGRAM),
        1..=4 | 7 | 8 | 13..=16 | 21 | 23 | 24 | 27..=32 | 34 | 36 | 37 => return None,
        22 => return None,
        38 | 39 | 41 | 42 => SIZE,
        // PR_CAP_AMBIENT_CLEAR_ALL has no capability
        47 if registers.argument(1) != 4 => named(&c::CAPABILITY),
        _ => HEX,
    })
}

/// See [`prctl_1`].
pub(in crate::decode) fn prctl_rest(registers: &Registers) -> Option<Kind> {
    Some(match low(registers.argument(0)) {
        1..=4 | 7 | 8 | 13..=16 | 21..=24 | 27..=32 | 34 | 36 | 37 => return None,
        38 | 39 | 41 | 42 => SIZE,
        _ => HEX,
    })
}

static ADDRESS_THERE: Kind = Kind::One(&LONG_HEX);
static LONG_HEX: Kind = HEX;

/// arch_prctl's second argument.
pub(in crate::decode) fn arch_argument(registers: &Registers) -> Option<Kind> {
    Some(match low(registers.argument(0)) {
        // ARCH_GET_FS, ARCH_GET_GS
        0x1003 | 0x1004 => Kind::Late(&ADDRESS_THERE),
        0x1011 => return None,
        _ => HEX,
    })
}

/// struct sched_attr.
pub(in crate::decode) static SCHEDULING: Layout = Layout {
    fields: &[
        f("size", UINT),
        f("sched_policy", named(&c::SCHED)),
        f("sched_flags", Kind::Bits(&c::SCHED_FLAGS, Width::Eight)),
        f("sched_nice", INT),
        f("sched_priority", UINT),
        f("sched_runtime", U64),
        f("sched_deadline", U64),
        f("sched_period", U64),
    ],
};

/// Processors: those of a set.
pub(in crate::decode) fn processors(r: &mut Reader, at: u64) {
    let given = r.argument(1);
    // The kernel says how many bytes it wrote; it has no more processors than 8192.
    let length = r
        .success()
        .filter(|length| *length > 0)
        .map_or(given, i64::cast_unsigned);
    let mut bytes = vec![0; length.min(1024) as usize];
    if length == 0 || !r.read(at, &mut bytes) {
        return r.out.address(at);
    }
    r.out.open_set(crate::decode::Set::Of);
    for (index, byte) in bytes.iter().enumerate() {
        for bit in 0..8 {
            if byte >> bit & 1 != 0 {
                r.out.element();
                r.out.unsigned((index * 8 + bit) as u64);
            }
        }
    }
    r.out.close_set(crate::decode::Set::Of);
}
