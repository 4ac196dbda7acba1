//! ioctl: what is asked of a device, and the arguments of what is asked most.

use crate::decode::constants as c;
use crate::decode::kind::{HEX, INT, Kind, Layout, SIZE, UINT, USHORT, Width, f};
use crate::decode::names::Names;
use crate::decode::reader::{Reader, Registers, number};
use fleetgate_calls::abi::low;

/// Where names of requests are looked up, in this order.
static REQUESTS: [&Names; 6] = [
    &c::IOCTL_TTY,
    &c::IOCTL_TTY2,
    &c::IOCTL_FS,
    &c::IOCTL_NET,
    &c::IOCTL_SOCK,
    &c::IOCTL_MISC,
];

/// What is asked: a name, or its parts.
pub(in crate::decode) fn request(r: &mut Reader, value: u64) {
    let value = value & 0xffff_ffff;
    if let Some(name) = REQUESTS.iter().find_map(|names| names.find(value, u64::MAX)) {
        return r.out.name(name);
    }
    let way = value >> 30;
    r.out.open_parts("_IOC");
    r.out.item();
    r.out.open_bits();
    match way {
        0 => r.out.bit("_IOC_NONE"),
        _ => {
            // Directions as the program sees them: bit 1 is read.
            if way & 2 != 0 {
                r.out.bit("_IOC_READ");
            }
            if way & 1 != 0 {
                r.out.bit("_IOC_WRITE");
            }
        }
    }
    r.out.close_bits();
    for part in [value >> 8 & 0xff, value & 0xff, value >> 16 & 0x3fff] {
        r.out.item();
        r.out.hex(part);
    }
    r.out.close_parts();
}

static WINDOW: Layout = Layout {
    fields: &[
        f("ws_row", USHORT),
        f("ws_col", USHORT),
        f("ws_xpixel", USHORT),
        f("ws_ypixel", USHORT),
    ],
};

static TO_WINDOW: Kind = Kind::To(&WINDOW);
static ONE_INT: Kind = Kind::One(&INT);
static ONE_UINT: Kind = Kind::One(&UINT);
static ONE_SIZE: Kind = Kind::One(&SIZE);
static SETTINGS: Kind = Kind::By(terminal, Width::Word);
static ATTRIBUTES: Kind = Kind::One(&FILE_ATTRIBUTES);
static FILE_ATTRIBUTES: Kind = HEX;

/// What ioctl is given or gives.
pub(in crate::decode) fn argument(registers: &Registers) -> Option<Kind> {
    Some(match low(registers.argument(1)) {
        // TCGETS; TCSETS, TCSETSW, TCSETSF
        0x5401 => Kind::Late(&SETTINGS),
        0x5402..=0x5404 => SETTINGS,
        // TCSBRK, TCXONC, TCFLSH, TIOCSCTTY, TCSBRKP
        0x5409 | 0x540a | 0x540b | 0x540e | 0x5425 => INT,
        // TIOCEXCL, TIOCNXCL, TIOCNOTTY, TIOCSBRK, TIOCCBRK, FIONCLEX, FIOCLEX
        0x540c | 0x540d | 0x5422 | 0x5427 | 0x5428 | 0x5450 | 0x5451 => return None,
        // TIOCGPGRP, TIOCOUTQ, TIOCMGET, FIONREAD, TIOCGETD, TIOCGSID, SIOCATMARK
        0x540f | 0x5411 | 0x5415 | 0x541b | 0x5424 | 0x5429 | 0x8905 => Kind::Late(&ONE_INT),
        // TIOCSPGRP, FIONBIO, TIOCSETD, TIOCSPTLCK, FIOASYNC, TIOCPKT
        0x5410 | 0x5420 | 0x5421 | 0x5423 | 0x4004_5431 | 0x5452 => ONE_INT,
        // TIOCGWINSZ, TIOCSWINSZ
        0x5413 => Kind::Late(&TO_WINDOW),
        0x5414 => TO_WINDOW,
        // TIOCGPTN
        0x8004_5430 => Kind::Late(&ONE_UINT),
        // FIGETBSZ, BLKSSZGET
        0x0002 | 0x1268 => Kind::Late(&ONE_INT),
        // BLKGETSIZE
        0x1260 => Kind::Late(&ONE_SIZE),
        // FS_IOC_GETFLAGS, FS_IOC_SETFLAGS
        0x8008_6601 => Kind::Late(&ATTRIBUTES),
        0x4008_6602 => ATTRIBUTES,
        // FICLONE
        0x4004_9409 => Kind::Descriptor,
        _ => HEX,
    })
}

/// struct termios as the kernel has it.
fn terminal(r: &mut Reader, at: u64) {
    let mut bytes = [0; 36];
    if !r.read(at, &mut bytes) {
        return r.out.address(at);
    }
    let word = |index: usize| number(bytes.get(index * 4..index * 4 + 4).unwrap_or_default());
    let brief = r.limits.abbreviate;
    r.out.open();
    for (name, names, parts, value) in [
        ("c_iflag", &c::TERMIOS_IFLAG, &[][..], word(0)),
        ("c_oflag", &c::TERMIOS_OFLAG, &OUTPUT[..], word(1)),
        ("c_cflag", &c::TERMIOS_CFLAG, &CONTROL[..], word(2)),
        ("c_lflag", &c::TERMIOS_LFLAG, &[][..], word(3)),
    ] {
        r.out.field(name);
        settings(r, names, parts, value);
    }
    if !brief {
        r.unsigned_field("c_line", u64::from(bytes.get(16).copied().unwrap_or(0)));
        r.out.field("c_cc");
        r.out.raw_bytes(bytes.get(17..36).unwrap_or_default(), false);
    }
    r.out.close(brief);
}

/// Bits that are one of several values: which, and their names.
type Part = (u64, &'static Names);

static OUTPUT: [Part; 6] = [
    (0o400, &c::TERMIOS_NL),
    (0o3000, &c::TERMIOS_CR),
    (0o14_000, &c::TERMIOS_TAB),
    (0o20_000, &c::TERMIOS_BS),
    (0o40_000, &c::TERMIOS_VT),
    (0o100_000, &c::TERMIOS_FF),
];

static CONTROL: [Part; 2] = [(0o10_017, &c::TERMIOS_BAUD), (0o60, &c::TERMIOS_SIZE)];

fn settings(r: &mut Reader, names: &'static Names, parts: &[Part], value: u64) {
    if parts.is_empty() {
        return r.bits(names, value);
    }
    r.out.open_bits();
    let mut left = value;
    for (mask, names) in parts {
        match names.find(value & mask, u64::MAX) {
            Some(name) => r.out.bit(name),
            None => r.out.bit_hex(value & mask),
        }
        left &= !mask;
    }
    r.more_bits(names, left);
    r.out.close_bits();
}
