//! Calls on names of files: directories, links, owners, times, file systems.

use super::{Argument, ResultKind, Row};
use crate::decode::constants as c;
use crate::decode::kind::{AT, Count, FD, HEX, INT, Kind, MODE, PATH, SIZE, TEXT, UINT, Width, bits, named};
use crate::decode::reader::Reader;
use crate::decode::show::files::{self, FILE_MODE};
use crate::decode::show::processes::ID;
use crate::decode::show::time;
use fleetgate_calls::abi::low;

const WRITTEN: Kind = Kind::Late(&Kind::Bytes(Count::Result));
const TIMES: Kind = Kind::By(time::file_times, Width::Word);
const VALUE: Kind = Kind::Bytes(Count::Argument(3));

pub(super) static ROWS: &[Row] = fleetgate_calls::directories_calls!(rows);

const ACCESS: Kind = Kind::By(access, Width::Four);
const TEXT_PATH: Kind = PATH;
const MOUNT_FLAGS: Kind = Kind::By(mount_flags, Width::Word);
const XATTR_VALUE: Kind = Kind::Late(&Kind::By(sized::<3>, Width::Word));
const XATTR_LIST: Kind = Kind::Late(&Kind::By(sized::<2>, Width::Word));

fn access(r: &mut Reader, value: u64) {
    match value & 0xffff_ffff {
        0 => r.out.name("F_OK"),
        value => r.bits(&c::ACCESS, value),
    }
}

/// Old programs have a mark in the upper half.
fn mount_flags(r: &mut Reader, value: u64) {
    const MARK: u64 = 0xc0ed_0000;
    if value & 0xffff_0000 == MARK {
        r.out.open_bits();
        r.out.bit("MS_MGC_VAL");
        r.more_bits(&c::MOUNT, value & 0xffff);
        return r.out.close_bits();
    }
    r.bits(&c::MOUNT, value);
}

/// A value that was asked for, and not only its size.
fn sized<const SIZE: usize>(r: &mut Reader, at: u64) {
    if r.argument(SIZE) == 0 {
        return r.out.address(at);
    }
    let length = r.success().unwrap_or(0).max(0).cast_unsigned();
    r.bytes(at, length);
}

fn config_value(registers: &crate::decode::reader::Registers) -> Option<Kind> {
    Some(match low(registers.argument(1)) {
        1 => TEXT,
        2 => Kind::Bytes(Count::Argument(4)),
        3 | 4 => PATH,
        _ => Kind::Address,
    })
}
