//! Waiting for descriptors: what is waited for, and what was ready.

use super::time::{TIMESPEC, TIMEVAL};
use crate::decode::constants as c;
use crate::decode::kind::{Kind, Width};
use crate::decode::reader::{ITEM, Reader, number};
use crate::decode::{CallResult, Set};
use fleetgate_calls::abi::{Abi, low_signed};

/// What a descriptor is polled for.
const WAITED: Kind = Kind::Bits(&c::POLL, Width::Two);

/// The descriptors of poll, with what is waited for.
pub(in crate::decode) fn polled(r: &mut Reader, at: u64) {
    let count = r.argument(1) & 0xffff_ffff;
    r.items(at, count, 8, 1 << 16, |r, item| {
        let item = number(item);
        r.out.open();
        r.out.field("fd");
        r.descriptor(item);
        if low_signed(item) >= 0 {
            r.out.field("events");
            r.value(&WAITED, item >> 32 & 0xffff);
        }
        r.out.close(false);
    });
}

/// What poll found.
pub(in crate::decode) fn poll_result(r: &mut Reader, result: i64) {
    found(r, result);
    if result != 0 {
        r.out.close_note();
    }
}

/// What ppoll found, and what was left of the time.
pub(in crate::decode) fn ppoll_result(r: &mut Reader, result: i64) {
    found(r, result);
    if result != 0 {
        time_left(r, 2, false);
        r.out.close_note();
    }
}

fn found(r: &mut Reader, result: i64) {
    r.out.returned(CallResult::Number(result));
    if result == 0 {
        return timeout(r);
    }
    let at = r.argument(0);
    let count = (r.argument(1) & 0xffff_ffff).min(1 << 16);
    let limit = r.limit(1 << 16);
    r.out.open_note();
    r.out.note("ready", false);
    r.out.open_list();
    let mut shown = 0;
    for index in 0..count {
        let here = at.wrapping_add(index * 8);
        let Some(item) = r.read_number(here, Width::Eight) else {
            return r.out.cut_list(here);
        };
        let ready = item >> 48;
        if ready == 0 {
            continue;
        }
        if shown == limit {
            return r.out.close_list(true);
        }
        shown += 1;
        r.out.item();
        r.out.open();
        r.out.field("fd");
        // What it is was said with the arguments.
        r.out.descriptor(low_signed(item), None);
        r.out.field("revents");
        r.value(&WAITED, ready);
        r.out.close(false);
    }
    r.out.close_list(false);
}

fn timeout(r: &mut Reader) {
    r.out.open_note();
    r.out.note("timeout", false);
    r.out.timeout();
    r.out.close_note();
}

/// What was left of the time that argument `index` gave.
fn time_left(r: &mut Reader, index: usize, micro: bool) {
    let at = r.argument(index);
    if at == 0 {
        return;
    }
    r.out.note("left", true);
    r.structure(if micro { &TIMEVAL } else { &TIMESPEC }, at);
}

/// The most descriptors of select that are looked at: its sets have no more, whatever a program says.
const SELECTED: u64 = 1 << 16;

/// A set of select, up to the number that the first argument says.
pub(in crate::decode) fn set(r: &mut Reader, at: u64) {
    let count = (low_signed(r.argument(0))).max(0).cast_unsigned();
    let count = u64::from(count).min(SELECTED);
    let mut bytes = vec![0; (count as usize).div_ceil(64) * 8];
    if at == 0 || !r.read(at, &mut bytes) {
        return r.out.address(at);
    }
    set_of(r, &bytes, count, true);
}

fn set_of(r: &mut Reader, bytes: &[u8], count: u64, described: bool) {
    r.out.open_set(Set::Of);
    for fd in 0..count {
        if is_set(bytes, fd) {
            r.out.element();
            if described {
                r.descriptor(fd);
            } else {
                r.out.descriptor(low_signed(fd), None);
            }
        }
    }
    r.out.close_set(Set::Of);
}

fn is_set(bytes: &[u8], fd: u64) -> bool {
    usize::try_from(fd / 8)
        .ok()
        .and_then(|at| bytes.get(at))
        .is_some_and(|byte| byte >> (fd % 8) & 1 != 0)
}

/// What select and pselect6 found: `1 (in [3], left {…})`. `MICRO`: the time is in microseconds.
pub(in crate::decode) fn selected<const MICRO: bool>(r: &mut Reader, result: i64) {
    r.out.returned(CallResult::Number(result));
    if result == 0 {
        return timeout(r);
    }
    let count = (low_signed(r.argument(0))).max(0).cast_unsigned();
    let count = u64::from(count).min(SELECTED);
    r.out.open_note();
    for (index, name) in [(1, "in"), (2, "out"), (3, "except")] {
        let at = r.argument(index);
        let mut bytes = vec![0; (count as usize).div_ceil(64) * 8];
        if at != 0 && r.read(at, &mut bytes) && bytes.iter().any(|byte| *byte != 0) {
            r.out.note(name, true);
            set_of(r, &bytes, count, false);
        }
    }
    time_left(r, 4, MICRO);
    r.out.close_note();
}

/// pselect6's last argument: a set of signals and its size.
pub(in crate::decode) fn select_signals(r: &mut Reader, at: u64) {
    let word = r.abi.word();
    let mut bytes = [0; 16];
    let bytes = &mut bytes[..2 * word];
    if !r.read(at, bytes) {
        return r.out.address(at);
    }
    let (set, size) = bytes.split_at(word);
    let (set, size) = (number(set), number(size));
    r.out.open();
    r.out.field("sigmask");
    super::signals::set_at(r, set, size);
    r.unsigned_field("sigsetsize", size);
    r.out.close(false);
}

/// struct epoll_event: packed on x86, not elsewhere.
fn epoll_size(abi: Abi) -> usize {
    if abi == Abi::Aarch64 { 16 } else { 12 }
}

fn epoll_item(r: &mut Reader, item: &[u8]) {
    let (events, data) = item.split_at_checked(4).unwrap_or_default();
    let data = number(data.get(data.len().saturating_sub(8)..).unwrap_or_default());
    r.out.open();
    r.out.field("events");
    r.bits(&c::EPOLL_EVENTS, number(events));
    r.out.field("data");
    r.out.open();
    for (name, value) in [("u32", data & 0xffff_ffff), ("u64", data)] {
        r.unsigned_field(name, value);
    }
    r.out.close(false);
    r.out.close(false);
}

/// The event of epoll_ctl.
pub(in crate::decode) fn epoll_event(r: &mut Reader, at: u64) {
    let mut item = [0; 16];
    let item = &mut item[..epoll_size(r.abi)];
    // EPOLL_CTL_DEL takes none.
    if r.argument(1) & 0xffff_ffff != 2 && r.read(at, item) {
        epoll_item(r, item);
    } else {
        r.out.address(at);
    }
}

/// What epoll_wait found.
pub(in crate::decode) fn epoll_events(r: &mut Reader, at: u64) {
    let count = r.success().unwrap_or(0).max(0).cast_unsigned();
    let size = epoll_size(r.abi);
    if at == 0 {
        return r.out.address(at);
    }
    let limit = r.limit(1 << 16);
    r.out.open_list();
    for index in 0..count {
        if index >= limit || !r.spend(ITEM) {
            return r.out.close_list(true);
        }
        let here = at.wrapping_add(index * size as u64);
        let mut item = [0; 16];
        let item = &mut item[..size];
        if !r.read(here, item) {
            return r.out.cut_list(here);
        }
        r.out.item();
        epoll_item(r, item);
    }
    r.out.close_list(false);
}
