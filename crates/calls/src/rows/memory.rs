//! Calls on memory.

/// The rows, given to the macro `$then`.
#[macro_export]
macro_rules! memory_calls {
    ($then:ident) => { $then! {
        mmap(addr: ADDRESS, length: SIZE, prot: PROT, flags: FLAGS, fd: FD, offset: HEX) -> Hex, in tested desc memory;
        mmap2(addr: ADDRESS, length: SIZE, prot: PROT, flags: FLAGS, fd: FD, pgoffset: Kind::By(pages, Width::Word)) -> Hex,
            in tested desc memory;
        munmap(addr: ADDRESS, length: SIZE) -> Number, in tested memory;
        mprotect(addr: ADDRESS, len: SIZE, prot: PROT) -> Number, in tested memory;
        pkey_mprotect(addr: ADDRESS, len: SIZE, prot: PROT, pkey: INT) -> Number, in tested memory;
        pkey_alloc(flags: HEX, access_rights: HEX) -> Number;
        pkey_free(pkey: INT) -> Number;
        brk(addr: ADDRESS) -> Hex, in tested memory;
        mremap(old_address: ADDRESS, old_size: SIZE, new_size: SIZE, flags as long: bits(&c::MREMAP),
            new_address: Kind::Chosen(memory::new_address)) -> Hex, in tested memory;
        madvise(addr: ADDRESS, length: SIZE, advice: named(&c::MADVISE)) -> Number, in tested memory;
        process_madvise(pidfd: FD, iovec: ADDRESS, vlen: SIZE, advice: named(&c::MADVISE), flags: HEX32) -> Number, in desc;
        process_mrelease(pidfd: FD, flags: HEX32) -> Number, in desc;
        mlock(addr: ADDRESS, len: SIZE) -> Number, in tested memory;
        mlock2(addr: ADDRESS, len: SIZE, flags: bits(&c::MLOCK2)) -> Number, in memory;
        munlock(addr: ADDRESS, len: SIZE) -> Number, in memory;
        mlockall(flags: bits(&c::MLOCKALL)) -> Number, in memory;
        munlockall() -> Number, in memory;
        msync(addr: ADDRESS, length: SIZE, flags: bits(&c::MSYNC)) -> Number, in memory;
        mincore(addr: ADDRESS, length: SIZE, vec: ADDRESS) -> Number, in memory;
        remap_file_pages(addr: ADDRESS, size: SIZE, prot: PROT, pgoff: SIZE, flags: FLAGS) -> Number, in memory;
        mbind(addr: ADDRESS, len: SIZE, mode: named(&c::MPOL), nodemask: ADDRESS, maxnode: SIZE,
            flags: bits(&c::MPOL_MF)) -> Number, in memory;
        set_mempolicy(mode: named(&c::MPOL), nodemask: ADDRESS, maxnode: SIZE) -> Number, in memory;
        get_mempolicy(mode: ADDRESS, nodemask: ADDRESS, maxnode: SIZE, addr: ADDRESS, flags: HEX) -> Number, in memory;
        membarrier(cmd: named(&c::MEMBARRIER), flags: bits(&NO_FLAGS), cpu_id: Kind::Chosen(processor)) -> By(barriers);
        mseal(addr: ADDRESS, len: SIZE, flags: HEX) -> Number, in memory;
        process_ksm_enable() -> Number;
    } };
}
