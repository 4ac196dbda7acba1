//! Calls on time, and on words that threads wait for.

use super::{Argument, ResultKind, Row};
use crate::decode::constants as c;
use crate::decode::kind::{ADDRESS, FD, HEX, INT, Kind, LONG, Layout, UINT, Width, bits, f, named};
use crate::decode::reader::{Reader, Registers};
use crate::decode::show::{files, signals, time as t};

const SPEC: Kind = Kind::To(&t::TIMESPEC);
const LATE_SPEC: Kind = Kind::Late(&SPEC);
const SPEC64: Kind = Kind::To(&t::TIMESPEC64);
const LATE_SPEC64: Kind = Kind::Late(&SPEC64);
const LEFT: Kind = Kind::Kept(files::keep_nothing, t::left);
const TIMER: Kind = Kind::To(&t::ITIMERSPEC);
const TIMER64: Kind = Kind::To(&t::ITIMERSPEC64);
const VAL: Kind = Kind::To(&t::TIMEVAL);
const ABSOLUTE: Kind = bits(&c::CLOCK_FLAGS);

pub(super) static ROWS: &[Row] = fleetgate_calls::time_calls!(rows);

const HEX32: Kind = Kind::Hex(Width::Four);
const ADJUSTMENT: Kind = Kind::To(&TIMEX);

/// struct timex.
static TIMEX: Layout = Layout {
    fields: &[
        f("modes", bits(&c::ADJTIME)),
        f("offset", LONG),
        f("freq", LONG),
        f("maxerror", LONG),
        f("esterror", LONG),
        f("status", bits(&c::TIME_STATUS)),
        f("constant", LONG),
        f("precision", LONG),
        f("tolerance", LONG),
        f("time", Kind::Inner(&t::TIMEVAL)),
        f("tick", LONG),
        f("ppsfreq", LONG),
        f("jitter", LONG),
        f("shift", INT),
        f("stabil", LONG),
        f("jitcnt", LONG),
        f("calcnt", LONG),
        f("errcnt", LONG),
        f("stbcnt", LONG),
        f("tai", INT),
    ],
};

fn clock_state(r: &mut Reader, result: i64) {
    r.named_result(
        crate::decode::CallResult::Number(result),
        "state",
        c::TIME_STATE.find(result.cast_unsigned(), u64::MAX),
    );
}

const FUTEX_PRIVATE: u64 = 0x80;
const FUTEX_REALTIME: u64 = 0x100;

fn futex(r: &mut Reader, value: u64) {
    let value = value & 0xffff_ffff;
    let private = if value & FUTEX_PRIVATE != 0 {
        "_PRIVATE"
    } else {
        ""
    };
    let name = c::FUTEX.find(value & 0x7f, u64::MAX).filter(|_| value >> 9 == 0);
    match name.map(|name| format!("{name}{private}")) {
        Some(name) if value & FUTEX_REALTIME != 0 => {
            r.out.open_bits();
            r.out.bit(&name);
            r.out.bit("FUTEX_CLOCK_REALTIME");
            r.out.close_bits();
        }
        Some(name) => r.out.name(&name),
        None => r.out.other(value, c::FUTEX.others),
    }
}

fn operation(registers: &Registers) -> u64 {
    registers.argument(1) & 0x7f
}

fn futex_value(registers: &Registers) -> Option<Kind> {
    match operation(registers) {
        // LOCK_PI, UNLOCK_PI, TRYLOCK_PI, LOCK_PI2
        6 | 7 | 8 | 13 => None,
        _ => Some(UINT),
    }
}

fn futex_timeout(registers: &Registers) -> Option<Kind> {
    match operation(registers) {
        // WAIT, WAIT_BITSET, LOCK_PI, WAIT_REQUEUE_PI, LOCK_PI2
        0 | 9 | 6 | 11 | 13 => Some(SPEC),
        // REQUEUE, CMP_REQUEUE, WAKE_OP, CMP_REQUEUE_PI: how many are moved
        3 | 4 | 5 | 12 => Some(UINT),
        1 | 7 | 8 | 10 => None,
        _ => Some(HEX),
    }
}

fn futex_second(registers: &Registers) -> Option<Kind> {
    match operation(registers) {
        3 | 4 | 5 | 11 | 12 => Some(ADDRESS),
        0 | 1 | 6 | 7 | 8 | 9 | 10 | 13 => None,
        _ => Some(ADDRESS),
    }
}

fn futex_third(registers: &Registers) -> Option<Kind> {
    match operation(registers) {
        4 | 12 => Some(UINT),
        5 => Some(HEX32),
        9 | 10 => Some(Kind::By(bitset, Width::Four)),
        0 | 1 | 3 | 6 | 7 | 8 | 11 | 13 => None,
        _ => Some(HEX32),
    }
}

fn bitset(r: &mut Reader, value: u64) {
    match value & 0xffff_ffff {
        0xffff_ffff => r.out.name("FUTEX_BITSET_MATCH_ANY"),
        value => r.out.hex(value),
    }
}
