//! Calls on memory.

use super::{Argument, ResultKind, Row};
use crate::decode::constants as c;
use crate::decode::kind::{ADDRESS, FD, HEX, INT, Kind, SIZE, Width, bits, named};
use crate::decode::show::memory;
use fleetgate_calls::abi::low;

const PROT: Kind = Kind::Bits(&c::PROT, Width::Word);
const FLAGS: Kind = Kind::By(memory::map_flags, Width::Word);

pub(super) static ROWS: &[Row] = fleetgate_calls::memory_calls!(rows);

const HEX32: Kind = Kind::Hex(Width::Four);
static NO_FLAGS: crate::decode::names::Names =
    crate::decode::names::Names::new("MEMBARRIER_CMD_FLAG_???", &[(1, "MEMBARRIER_CMD_FLAG_CPU")]);

/// What there is, where that was asked.
fn barriers(r: &mut crate::decode::reader::Reader, result: i64) {
    use crate::decode::CallResult;
    if low(r.argument(0)) != 0 {
        return r.out.returned(CallResult::Number(result));
    }
    r.out.returned(CallResult::Hex(result.cast_unsigned()));
    r.out.open_note();
    r.out.note("commands", false);
    let out = &mut *r.out;
    out.open_bits();
    let left = c::MEMBARRIER.split(result.cast_unsigned(), |name| out.bit(name));
    if left != 0 {
        out.bit_hex(left);
    }
    out.close_bits();
    r.out.close_note();
}

/// The processor counts only where the flag says so.
fn processor(registers: &crate::decode::reader::Registers) -> Option<Kind> {
    (registers.argument(1) & 1 != 0).then_some(INT)
}

/// An offset in pages of 4096 bytes.
fn pages(r: &mut crate::decode::reader::Reader, value: u64) {
    r.out.hex(value.wrapping_mul(4096));
}
