//! Memory: what is mapped, and how.

use crate::decode::constants as c;
use crate::decode::kind::Kind;
use crate::decode::reader::{Reader, Registers};

/// Where the size of a huge page stands among the flags of mmap.
const HUGE_SHIFT: u32 = 26;
const HUGE_MASK: u64 = 0x3f;

/// Flags of mmap: of a type, and bits.
pub(in crate::decode) fn map_flags(r: &mut Reader, value: u64) {
    let value = value & 0xffff_ffff;
    r.out.open_bits();
    match c::MAP_TYPE.find(value & 0xf, u64::MAX) {
        Some(name) => r.out.bit(name),
        None => r.out.bit_other(value & 0xf, "MAP_???"),
    }
    r.more_bits(&c::MAP, value & !0xf & !(HUGE_MASK << HUGE_SHIFT));
    let huge = value >> HUGE_SHIFT & HUGE_MASK;
    if huge != 0 {
        // At most 63<<MAP_HUGE_SHIFT.
        let mut text = Vec::with_capacity(20);
        if huge >= 10 {
            text.push(b'0' + (huge / 10) as u8);
        }
        text.push(b'0' + (huge % 10) as u8);
        text.extend_from_slice(b"<<MAP_HUGE_SHIFT");
        r.out.bit(std::str::from_utf8(&text).unwrap_or_default());
    }
    r.out.close_bits();
}

/// The fifth argument of mremap, if it has one.
pub(in crate::decode) fn new_address(registers: &Registers) -> Option<Kind> {
    // MREMAP_FIXED, MREMAP_DONTUNMAP
    (registers.argument(3) & 6 != 0).then_some(Kind::Address)
}
