//! Calls of System V's and POSIX's ways between processes, keys.

use super::{Argument, ResultKind, Row};
use crate::decode::constants as c;
use crate::decode::kind::{
    ADDRESS, Count, FD, HEX, INT, Kind, LONG, PATH, SIZE, TEXT, UINT, Width, bits, named,
};
use crate::decode::reader::{Reader, Registers};
use crate::decode::show::{files, signals, time};
use fleetgate_calls::abi::{low, low_signed};

const KEY: Kind = Kind::By(key, Width::Four);

pub(super) static ROWS: &[Row] = fleetgate_calls::ipc_calls!(rows);

const RING: Kind = Kind::By(ring, Width::Four);
static OPERATION: Kind = Kind::Inner(&crate::decode::kind::Layout {
    fields: &[
        crate::decode::kind::f("sem_num", crate::decode::kind::USHORT),
        crate::decode::kind::f("sem_op", crate::decode::kind::SHORT),
        crate::decode::kind::f("sem_flg", Kind::Bits(&c::SEM_FLAGS, Width::Two)),
    ],
});

/// A key that others may know, or none.
fn key(r: &mut Reader, value: u64) {
    match value & 0xffff_ffff {
        0 => r.out.name("IPC_PRIVATE"),
        value => r.out.hex(value),
    }
}

fn shared_flags(r: &mut Reader, value: u64) {
    made_with(r, value, &c::SHM_GET);
}

fn plain_flags(r: &mut Reader, value: u64) {
    made_with(r, value, &c::MSG_GET);
}

/// Bits, and a mode.
fn made_with(r: &mut Reader, value: u64, names: &'static crate::decode::names::Names) {
    let value = value & 0xffff_ffff;
    r.out.open_bits();
    r.more_bits(names, value & !0o777);
    r.out.bit_octal(value & 0o777);
    r.out.close_bits();
}

fn queue(registers: &Registers) -> Option<Kind> {
    files::open_mode::<1>(registers).map(|_| ADDRESS)
}

fn ring(r: &mut Reader, value: u64) {
    match c::KEY_SPEC.find(value, 0xffff_ffff) {
        Some(name) => r.out.name(name),
        None => r.out.number(i64::from(low_signed(value))),
    }
}

fn key_argument(registers: &Registers) -> Option<Kind> {
    Some(match low(registers.argument(0)) {
        // KEYCTL_JOIN_SESSION_KEYRING
        1 => TEXT,
        // GET_KEYRING_ID, and those that take a key first
        0 | 2..=11 => RING,
        _ => HEX,
    })
}

/// How many arguments an operation has behind its name.
fn key_count(registers: &Registers) -> u32 {
    match low(registers.argument(0)) {
        // JOIN_SESSION_KEYRING, REVOKE, CLEAR, ASSUME_AUTHORITY, INVALIDATE, SET_REQKEY_KEYRING
        1 | 3 | 7 | 14 | 16 | 21 => 1,
        // SESSION_TO_PARENT
        18 => 0,
        // GET_KEYRING_ID, SETPERM, LINK, UNLINK, SET_TIMEOUT, GET_PERSISTENT
        0 | 5 | 8 | 9 | 15 | 22 => 2,
        // UPDATE, CHOWN, DESCRIBE, READ, NEGATE, GET_SECURITY
        2 | 4 | 6 | 11 | 13 | 17 => 3,
        _ => 4,
    }
}

fn key_second(registers: &Registers) -> Option<Kind> {
    (key_count(registers) >= 2).then_some(match low(registers.argument(0)) {
        0 => INT,
        8 | 9 => RING,
        _ => HEX,
    })
}

fn key_third(registers: &Registers) -> Option<Kind> {
    (key_count(registers) >= 3).then_some(match low(registers.argument(0)) {
        // DESCRIBE, READ, GET_SECURITY: how many bytes there is room for
        6 | 11 | 17 => SIZE,
        _ => HEX,
    })
}

fn key_fourth(registers: &Registers) -> Option<Kind> {
    (key_count(registers) >= 4).then_some(HEX)
}
