//! Calls on open files, and those that open them.

use super::{Argument, ResultKind, Row};
use crate::decode::constants as c;
use crate::decode::kind::{
    ADDRESS, AT, Count, FD, HEX, I64, INT, Kind, LONG, MODE, PATH, SIZE, TEXT, UINT, Width, bits, named,
};
use crate::decode::show::{devices, files, network, polls, signals, time};

const READ: Kind = Kind::Late(&Kind::Bytes(Count::Result));
const OPEN_FLAGS: Kind = Kind::By(files::open_flags32, Width::Four);
const STAT: Kind = Kind::Late(&Kind::By(files::stat, Width::Word));
const GIVEN: Kind = Kind::By(files::given_vectors, Width::Word);
const FILLED: Kind = Kind::Kept(files::keep_nothing, files::filled_vectors);
const WHOLE: Count = Count::Argument(2);
const OFFSET: Kind = Kind::One(&I64);
const PIPE: Kind = Kind::Late(&network::PAIR);
const SET: Kind = Kind::By(polls::set, Width::Word);
const POLLED: Kind = Kind::By(polls::polled, Width::Word);
const EVENT: Kind = Kind::By(polls::epoll_event, Width::Word);
const EVENTS: Kind = Kind::Late(&Kind::By(polls::epoll_events, Width::Word));
const TIMESPEC: Kind = Kind::To(&time::TIMESPEC);

pub(super) static ROWS: &[Row] = fleetgate_calls::files_calls!(rows);

/// Flags of pipe2 and dup3: those of open without a way to open.
const OPEN_EXTRA: Kind = bits(&c::OPEN);
const MARKED: Kind = Kind::Bits(&c::FANOTIFY_EVENT, Width::Eight);

/// A class, and bits.
fn fanotify_flags(r: &mut crate::decode::reader::Reader, value: u64) {
    const CLASS: u64 = 0xc;
    let value = value & 0xffff_ffff;
    r.out.open_bits();
    match c::FANOTIFY_CLASS.find(value & CLASS, u64::MAX) {
        Some(name) => r.out.bit(name),
        None => r.out.bit_other(value & CLASS, c::FANOTIFY_CLASS.others),
    }
    r.more_bits(&c::FANOTIFY_INIT, value & !CLASS);
    r.out.close_bits();
}

/// On 64-bit machines the offset of preadv2 is one register, and the next is not used.
fn low_offset(registers: &crate::decode::reader::Registers) -> Option<Kind> {
    Some(if registers.abi.word() == 8 {
        Kind::Signed(Width::Eight)
    } else {
        UINT
    })
}

fn high_offset(registers: &crate::decode::reader::Registers) -> Option<Kind> {
    (registers.abi.word() == 4).then_some(UINT)
}

fn statx_flags(r: &mut crate::decode::reader::Reader, value: u64) {
    const SYNC: u64 = 0x6000;
    let value = value & 0xffff_ffff;
    if value & SYNC != 0 {
        return r.bits(&c::AT_STATX, value);
    }
    r.out.open_bits();
    r.out.bit("AT_STATX_SYNC_AS_STAT");
    r.more_bits(&c::AT_STATX, value);
    r.out.close_bits();
}

fn offset_before(r: &mut crate::decode::reader::Reader, at: u64) {
    r.out.open_bare_change();
    r.list(&I64, at, 1);
}

fn offset_after(r: &mut crate::decode::reader::Reader, at: u64) {
    if at != 0 && r.success().is_some_and(|result| result > 0) {
        r.out.became();
        r.list(&I64, at, 1);
    }
    r.out.close_bare_change();
}
