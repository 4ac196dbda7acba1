//! Files: how they are opened, what they are, where they are locked.

use super::time::stamp;
use crate::decode::constants as c;
use crate::decode::kind::{FD, INT, Kind, LONG, Layout, U64, UINT, Width, bits, f, gap, named};
use crate::decode::reader::{Reader, Registers, number};
use crate::decode::{CallResult, names::Names};
use fleetgate_calls::abi::{Abi, low, low_signed};

const O_ACCMODE: u64 = 3;
const O_CREAT: u64 = 0x40;
/// Without O_DIRECTORY, which has another place on ARM.
const O_TMPFILE: u64 = 0x40_0000;

fn open_names(abi: Abi) -> &'static Names {
    if abi == Abi::Aarch64 {
        &c::OPEN_ARM
    } else {
        &c::OPEN
    }
}

/// Flags of open.
pub(in crate::decode) fn open_flags(r: &mut Reader, value: u64) {
    let value = r.cut(value, Width::Eight);
    r.out.open_bits();
    r.out.bit(match value & O_ACCMODE {
        0 => "O_RDONLY",
        1 => "O_WRONLY",
        2 => "O_RDWR",
        _ => "O_ACCMODE",
    });
    r.more_bits(open_names(r.abi), value & !O_ACCMODE);
    r.out.close_bits();
}

/// Flags of open as an argument, of 32 bits.
pub(in crate::decode) fn open_flags32(r: &mut Reader, value: u64) {
    open_flags(r, value & 0xffff_ffff);
}

/// The mode of a file that open may make.
pub(in crate::decode) fn creates(flags: u64) -> Option<Kind> {
    (flags & (O_CREAT | O_TMPFILE) != 0).then_some(Kind::Octal(Width::Four))
}

/// The same, of flags in this argument.
pub(in crate::decode) fn open_mode<const FLAGS: usize>(registers: &Registers) -> Option<Kind> {
    creates(registers.argument(FLAGS))
}

/// struct open_how: its mode only where a file may be made, or there is one.
pub(in crate::decode) fn how(r: &mut Reader, at: u64) {
    let mut bytes = [0; 24];
    if r.argument(3) < 24 || !r.read(at, &mut bytes) {
        return r.out.address(at);
    }
    let word = |index: usize| number(bytes.get(index * 8..index * 8 + 8).unwrap_or_default());
    r.out.open();
    r.out.field("flags");
    open_flags(r, word(0));
    if creates(word(0)).is_some() || word(1) != 0 {
        r.out.field("mode");
        r.out.octal(word(1));
    }
    r.out.field("resolve");
    r.bits(&c::OPEN_RESOLVE, word(2));
    r.out.close(false);
}

/// A file's type and permissions.
pub(in crate::decode) fn file_mode(r: &mut Reader, value: u64) {
    let value = value & 0xffff_ffff;
    let (kind, left) = (value & 0o170_000, value & !0o170_000);
    let name = c::FILE_TYPE.find(kind, u64::MAX).filter(|_| kind != 0);
    if name.is_none() {
        return r.out.octal(value);
    }
    r.out.open_bits();
    if let Some(name) = name {
        r.out.bit(name);
    }
    for (bit, name) in [(0o4000, "S_ISUID"), (0o2000, "S_ISGID"), (0o1000, "S_ISVTX")] {
        if left & bit != 0 {
            r.out.bit(name);
        }
    }
    r.out.bit_octal(left & !0o7000);
    r.out.close_bits();
}

/// Permissions alone, as an argument.
pub(in crate::decode) const FILE_MODE: Kind = Kind::By(file_mode, Width::Four);

/// A device's number, as the kernel packs it in 64 bits.
pub(in crate::decode) fn device(r: &mut Reader, value: u64) {
    let major = (value >> 8 & 0xfff) | (value >> 32 & 0xffff_f000);
    let minor = (value & 0xff) | (value >> 12 & 0xffff_ff00);
    r.out.device(low(major), low(minor));
}

/// The device of mknod: none where the mode, in this argument, is of something else.
pub(in crate::decode) fn node_device<const MODE: usize>(registers: &Registers) -> Option<Kind> {
    let mode = registers.argument(MODE) & 0o170_000;
    matches!(mode, 0o020_000 | 0o060_000).then_some(Kind::By(device, Width::Four))
}

/// Where the parts of struct stat stand: each with its bytes.
struct Stat {
    size: usize,
    dev: usize,
    ino: usize,
    mode: usize,
    nlink: (usize, usize),
    uid: usize,
    gid: usize,
    rdev: usize,
    length: usize,
    blksize: (usize, usize),
    blocks: usize,
    times: usize,
}

const X86_64: Stat = Stat {
    size: 144,
    dev: 0,
    ino: 8,
    nlink: (16, 8),
    mode: 24,
    uid: 28,
    gid: 32,
    rdev: 40,
    length: 48,
    blksize: (56, 8),
    blocks: 64,
    times: 72,
};

const ARM: Stat = Stat {
    size: 128,
    dev: 0,
    ino: 8,
    mode: 16,
    nlink: (20, 4),
    uid: 24,
    gid: 28,
    rdev: 32,
    length: 48,
    blksize: (56, 4),
    blocks: 64,
    times: 72,
};

/// struct stat of 64-bit programs; the one of 32-bit programs has other fields and is left as an address.
pub(in crate::decode) fn stat(r: &mut Reader, at: u64) {
    let layout = match r.abi {
        Abi::Aarch64 => &ARM,
        Abi::X86_64 | Abi::X32 => &X86_64,
        Abi::I386 => return r.out.address(at),
    };
    let mut bytes = [0; 144];
    let bytes = &mut bytes[..layout.size];
    if !r.read(at, bytes) {
        return r.out.address(at);
    }
    let get = |at: usize, width: usize| number(bytes.get(at..at + width).unwrap_or_default());
    let brief = r.limits.abbreviate;
    let mode = get(layout.mode, 4);
    r.out.open();
    if !brief {
        r.out.field("st_dev");
        device(r, get(layout.dev, 8));
        r.unsigned_field("st_ino", get(layout.ino, 8));
    }
    r.out.field("st_mode");
    file_mode(r, mode);
    if !brief {
        for (name, (at, width)) in [
            ("st_nlink", layout.nlink),
            ("st_uid", (layout.uid, 4)),
            ("st_gid", (layout.gid, 4)),
            ("st_blksize", layout.blksize),
            ("st_blocks", (layout.blocks, 8)),
        ] {
            r.unsigned_field(name, get(at, width));
        }
    }
    if matches!(mode & 0o170_000, 0o020_000 | 0o060_000) {
        r.out.field("st_rdev");
        device(r, get(layout.rdev, 8));
    } else {
        r.number_field("st_size", get(layout.length, 8).cast_signed());
    }
    if !brief {
        let names = [
            ("st_atime", "st_atime_nsec"),
            ("st_mtime", "st_mtime_nsec"),
            ("st_ctime", "st_ctime_nsec"),
        ];
        for (index, (seconds, rest)) in names.into_iter().enumerate() {
            let at = layout.times + index * 16;
            let (whole, nanoseconds) = (get(at, 8).cast_signed(), get(at + 8, 8));
            r.number_field(seconds, whole);
            stamp(r, whole, nanoseconds, 9);
            r.unsigned_field(rest, nanoseconds);
        }
    }
    r.out.close(brief);
}

const STATX_TIME: Layout = Layout {
    fields: &[
        f("tv_sec", Kind::Signed(Width::Eight)),
        f("tv_nsec", UINT),
        gap(4),
    ],
};

static STATX_STAMP: Layout = STATX_TIME;

/// struct statx, the same everywhere.
pub(in crate::decode) fn statx(r: &mut Reader, at: u64) {
    let mut bytes = [0; 256];
    if !r.read(at, &mut bytes) {
        return r.out.address(at);
    }
    let get = |at: usize, width: usize| number(bytes.get(at..at + width).unwrap_or_default());
    let brief = r.limits.abbreviate;
    r.out.open();
    r.out.field("stx_mask");
    r.bits(&c::STATX_MASK, get(0, 4));
    if !brief {
        r.unsigned_field("stx_blksize", get(4, 4));
    }
    r.out.field("stx_attributes");
    r.bits(&c::STATX_ATTR, get(8, 8));
    if !brief {
        for (name, at) in [("stx_nlink", 16), ("stx_uid", 20), ("stx_gid", 24)] {
            r.unsigned_field(name, get(at, 4));
        }
    }
    r.out.field("stx_mode");
    file_mode(r, get(28, 2));
    if !brief {
        r.unsigned_field("stx_ino", get(32, 8));
    }
    r.unsigned_field("stx_size", get(40, 8));
    if !brief {
        r.unsigned_field("stx_blocks", get(48, 8));
        r.out.field("stx_attributes_mask");
        r.bits(&c::STATX_ATTR, get(56, 8));
        for (name, at) in [
            ("stx_atime", 64),
            ("stx_btime", 80),
            ("stx_ctime", 96),
            ("stx_mtime", 112),
        ] {
            r.out.field(name);
            r.fields(&STATX_STAMP, bytes.get(at..at + 16).unwrap_or_default());
            stamp(r, get(at, 8).cast_signed(), get(at + 8, 4), 9);
        }
        for (name, at) in [
            ("stx_rdev_major", 128),
            ("stx_rdev_minor", 132),
            ("stx_dev_major", 136),
            ("stx_dev_minor", 140),
        ] {
            r.unsigned_field(name, get(at, 4));
        }
        r.out.field("stx_mnt_id");
        r.out.hex(get(144, 8));
    }
    r.out.close(brief);
}

/// struct statfs of 64-bit programs.
pub(in crate::decode) static STATFS: Layout = Layout {
    fields: &[
        f("f_type", Kind::Named(&c::STATFS_TYPE, Width::Word)),
        f("f_bsize", LONG),
        f("f_blocks", U64),
        f("f_bfree", U64),
        f("f_bavail", U64),
        f("f_files", U64),
        f("f_ffree", U64),
        f("f_fsid", Kind::Inner(&FSID)),
        f("f_namelen", LONG),
        f("f_frsize", LONG),
        f("f_flags", Kind::Bits(&c::STATFS_FLAGS, Width::Word)),
        gap(32),
    ],
};

/// Nothing is worth keeping.
pub(in crate::decode) fn keep_nothing(_: &Reader, _: u64) -> u64 {
    0
}

static FSID: Layout = Layout {
    fields: &[f("val", Kind::Array(&X32, 2))],
};
static X32: Kind = Kind::Hex(Width::Four);

/// Entries of a directory: how many.
pub(in crate::decode) fn entries(r: &mut Reader, at: u64) {
    // Each entry has its length after 16 bytes; 65536 bytes hold more of them than anybody counts by hand.
    const MOST: usize = 1 << 20;
    let length = usize::try_from(r.success().unwrap_or(0)).unwrap_or(0);
    if at == 0 || length > MOST {
        return r.out.address(at);
    }
    let mut bytes = vec![0; length];
    if !r.read(at, &mut bytes) {
        return r.out.address(at);
    }
    let mut count = 0;
    let mut from = 0;
    while let Some(size) = bytes.get(from + 16..from + 18) {
        let size = usize::from(u16::from_le_bytes([size[0], size[1]]));
        if size < 19 || from + size > length {
            break;
        }
        count += 1;
        from += size;
    }
    r.out.counted(at, Some(count), "entries");
}

/// struct flock.
static LOCK: Layout = Layout {
    fields: &[
        f("l_type", Kind::Named(&c::LOCK_TYPE, Width::Two)),
        f("l_whence", Kind::Named(&c::WHENCE, Width::Two)),
        f("l_start", LONG),
        f("l_len", LONG),
    ],
};

static LOCK_FOUND: Layout = Layout {
    fields: &[
        f("l_type", Kind::Named(&c::LOCK_TYPE, Width::Two)),
        f("l_whence", Kind::Named(&c::WHENCE, Width::Two)),
        f("l_start", LONG),
        f("l_len", LONG),
        f("l_pid", INT),
    ],
};

/// struct flock64 of 32-bit programs.
static LOCK64: Layout = Layout {
    fields: &[
        f("l_type", Kind::Named(&c::LOCK_TYPE, Width::Two)),
        f("l_whence", Kind::Named(&c::WHENCE, Width::Two)),
        f("l_start", Kind::Signed(Width::Eight)),
        f("l_len", Kind::Signed(Width::Eight)),
        f("l_pid", INT),
    ],
};

static OWNER: Layout = Layout {
    fields: &[f("type", named(&c::OWNER_TYPE)), f("pid", INT)],
};

static TO_LOCK64: Kind = Kind::To(&LOCK64);
static TO_LOCK_FOUND: Kind = Kind::To(&LOCK_FOUND);
static TO_OWNER: Kind = Kind::To(&OWNER);
static ONE_HINT: Kind = Kind::One(&HINT);
static HINT: Kind = Kind::Named(&c::RW_HINT, Width::Eight);

/// The third argument of fcntl.
pub(in crate::decode) fn fcntl_argument(registers: &Registers) -> Option<Kind> {
    let wide = registers.abi != Abi::I386;
    Some(match low(registers.argument(1)) {
        // F_DUPFD, F_DUPFD_CLOEXEC
        0 | 1030 => FD,
        // F_SETFD
        2 => bits(&c::FD_FLAGS),
        // F_SETFL
        4 => Kind::By(open_flags32, Width::Four),
        // F_GETFD, F_GETFL, F_GETOWN, F_GETSIG, F_GETLEASE, F_GETPIPE_SZ, F_GET_SEALS
        1 | 3 | 9 | 11 | 1025 | 1032 | 1034 => return None,
        // F_SETLK, F_SETLKW
        6 | 7 if wide => Kind::To(&LOCK),
        5 if wide => Kind::Late(&TO_LOCK_FOUND),
        // F_OFD_SETLK, F_OFD_SETLKW and those of 64 bits
        13 | 14 | 37 | 38 => Kind::To(if wide { &LOCK } else { &LOCK64 }),
        12 | 36 => Kind::Late(if wide { &TO_LOCK_FOUND } else { &TO_LOCK64 }),
        // F_SETOWN, F_SETPIPE_SZ
        8 | 1031 => INT,
        // F_SETSIG
        10 => Kind::By(super::signals::signal, Width::Four),
        15 => Kind::To(&OWNER),
        16 => Kind::Late(&TO_OWNER),
        // F_SETLEASE
        1024 => named(&c::LOCK_TYPE),
        // F_NOTIFY
        1026 => bits(&c::NOTIFY),
        // F_ADD_SEALS
        1033 => bits(&c::SEALS),
        // F_GET_RW_HINT and its like
        1035 | 1037 => Kind::Late(&ONE_HINT),
        1036 | 1038 => Kind::One(&HINT),
        _ => Kind::Hex(Width::Word),
    })
}

/// What fcntl returned.
pub(in crate::decode) fn fcntl_result(r: &mut Reader, result: i64) {
    let value = result.cast_unsigned() & 0xffff_ffff;
    match low(r.argument(1)) {
        0 | 1030 => r.returned_descriptor(result),
        1 | 3 | 1034 => {
            r.out.returned(CallResult::Hex(value));
            let command = low(r.argument(1));
            if value == 0 && command != 3 {
                return;
            }
            r.out.open_note();
            r.out.note(if command == 1034 { "seals" } else { "flags" }, true);
            match command {
                1 => r.bits(&c::FD_FLAGS, value),
                3 => open_flags(r, value),
                _ => r.bits(&c::SEALS, value),
            }
            r.out.close_note();
        }
        11 => {
            r.named_result(
                CallResult::Number(result),
                "signal",
                fleetgate_calls::tables::signal::name(low_signed(result.cast_unsigned())),
            );
        }
        1025 => {
            r.named_result(
                CallResult::Hex(value),
                "lease",
                c::LOCK_TYPE.find(value, u64::MAX),
            );
        }
        _ => r.out.returned(CallResult::Number(result)),
    }
}

/// struct iovec with what a program gives.
pub(in crate::decode) fn vectors(r: &mut Reader, at: u64, count: u64) {
    vectors_of(r, at, count, u64::MAX);
}

/// struct iovec with at most so many bytes in it, one after the other.
pub(in crate::decode) fn vectors_of(r: &mut Reader, at: u64, count: u64, bytes: u64) {
    let word = r.abi.word();
    let mut left = bytes;
    r.items(at, count, 2 * word, 1024, |r, item| {
        let (base, length) = item.split_at(word);
        let (base, length) = (number(base), number(length));
        let shown = length.min(left);
        left -= shown;
        r.out.open();
        r.out.field("iov_base");
        r.bytes(base, shown);
        r.unsigned_field("iov_len", length);
        r.out.close(false);
    });
}

/// The vectors of writev and its like.
pub(in crate::decode) fn given_vectors(r: &mut Reader, at: u64) {
    let count = r.argument(2);
    vectors(r, at, count);
}

/// The vectors of readv and its like, with what was read; where nothing was, their addresses.
pub(in crate::decode) fn filled_vectors(r: &mut Reader, at: u64) {
    let count = r.argument(2);
    match r.success() {
        Some(bytes) => vectors_of(r, at, count, bytes.max(0).cast_unsigned()),
        None => r.list(&EMPTY_VECTOR, at, count),
    }
}

static EMPTY_VECTOR: Kind = Kind::Inner(&VECTOR);
static VECTOR: Layout = Layout {
    fields: &[
        f("iov_base", Kind::Address),
        f("iov_len", Kind::Unsigned(Width::Word)),
    ],
};

/// struct mount_attr.
pub(in crate::decode) static MOUNT_ATTRIBUTES: Layout = Layout {
    fields: &[
        f("attr_set", Kind::Bits(&c::MOUNT_ATTR, Width::Eight)),
        f("attr_clr", Kind::Bits(&c::MOUNT_ATTR, Width::Eight)),
        f("propagation", Kind::Named(&c::MOUNT, Width::Eight)),
        f("userns_fd", U64),
    ],
};

/// struct file_handle without the handle.
pub(in crate::decode) static HANDLE: Layout = Layout {
    fields: &[f("handle_bytes", UINT), f("handle_type", INT)],
};
