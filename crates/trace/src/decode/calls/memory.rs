//! Calls on memory.

use super::{Res, Row, call};
use crate::decode::constants as c;
use crate::decode::kind::{ADDRESS, FD, HEX, INT, Kind, SIZE, Width, bits, named};
use crate::decode::show::memory;

const PROT: Kind = Kind::Bits(&c::PROT, Width::Word);
const FLAGS: Kind = Kind::By(memory::map_flags, Width::Word);

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    call("mmap", &[("addr", ADDRESS), ("length", SIZE), ("prot", PROT), ("flags", FLAGS), ("fd", FD), ("offset", HEX)], Res::Hex),
    call("mmap2", &[("addr", ADDRESS), ("length", SIZE), ("prot", PROT), ("flags", FLAGS), ("fd", FD),
        ("pgoffset", Kind::By(pages, Width::Word))], Res::Hex),
    call("munmap", &[("addr", ADDRESS), ("length", SIZE)], Res::Number),
    call("mprotect", &[("addr", ADDRESS), ("len", SIZE), ("prot", PROT)], Res::Number),
    call("pkey_mprotect", &[("addr", ADDRESS), ("len", SIZE), ("prot", PROT), ("pkey", INT)], Res::Number),
    call("pkey_alloc", &[("flags", HEX), ("access_rights", HEX)], Res::Number),
    call("pkey_free", &[("pkey", INT)], Res::Number),
    call("brk", &[("addr", ADDRESS)], Res::Hex),
    call("mremap", &[("old_address", ADDRESS), ("old_size", SIZE), ("new_size", SIZE), ("flags", bits(&c::MREMAP)),
        ("new_address", Kind::Chosen(memory::new_address))], Res::Hex),
    call("madvise", &[("addr", ADDRESS), ("length", SIZE), ("advice", named(&c::MADVISE))], Res::Number),
    call("process_madvise", &[("pidfd", FD), ("iovec", ADDRESS), ("vlen", SIZE), ("advice", named(&c::MADVISE)),
        ("flags", HEX32)], Res::Number),
    call("process_mrelease", &[("pidfd", FD), ("flags", HEX32)], Res::Number),
    call("mlock", &[("addr", ADDRESS), ("len", SIZE)], Res::Number),
    call("mlock2", &[("addr", ADDRESS), ("len", SIZE), ("flags", bits(&c::MLOCK2))], Res::Number),
    call("munlock", &[("addr", ADDRESS), ("len", SIZE)], Res::Number),
    call("mlockall", &[("flags", bits(&c::MLOCKALL))], Res::Number),
    call("munlockall", &[], Res::Number),
    call("msync", &[("addr", ADDRESS), ("length", SIZE), ("flags", bits(&c::MSYNC))], Res::Number),
    call("mincore", &[("addr", ADDRESS), ("length", SIZE), ("vec", ADDRESS)], Res::Number),
    call("remap_file_pages", &[("addr", ADDRESS), ("size", SIZE), ("prot", PROT), ("pgoff", SIZE), ("flags", FLAGS)],
        Res::Number),
    call("mbind", &[("addr", ADDRESS), ("len", SIZE), ("mode", named(&c::MPOL)), ("nodemask", ADDRESS), ("maxnode", SIZE),
        ("flags", bits(&c::MPOL_MF))], Res::Number),
    call("set_mempolicy", &[("mode", named(&c::MPOL)), ("nodemask", ADDRESS), ("maxnode", SIZE)], Res::Number),
    call("get_mempolicy", &[("mode", ADDRESS), ("nodemask", ADDRESS), ("maxnode", SIZE), ("addr", ADDRESS), ("flags", HEX)],
        Res::Number),
    call("membarrier", &[("cmd", named(&c::MEMBARRIER)), ("flags", bits(&NO_FLAGS)), ("cpu_id", Kind::Chosen(processor))], Res::By(barriers)),
    call("mseal", &[("addr", ADDRESS), ("len", SIZE), ("flags", HEX)], Res::Number),
    call("process_ksm_enable", &[], Res::Number),
];

const HEX32: Kind = Kind::Hex(Width::Four);
static NO_FLAGS: crate::decode::names::Names =
    crate::decode::names::Names::new("MEMBARRIER_CMD_FLAG_???", &[(1, "MEMBARRIER_CMD_FLAG_CPU")]);

/// What there is, where that was asked.
fn barriers(r: &mut crate::decode::reader::Reader, result: i64) {
    use crate::decode::Returned;
    if r.argument(0) as u32 != 0 {
        return r.out.returned(Returned::Number(result));
    }
    r.out.returned(Returned::Hex(result.cast_unsigned()));
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
