//! Options of sockets.

use super::network::CREDENTIALS;
use super::time::TIMEVAL;
use crate::decode::constants as c;
use crate::decode::kind::{INT, Kind, Layout, Width, f};
use crate::decode::reader::Reader;

/// The name of an option, of the level that the argument before it says.
pub(in crate::decode) fn name(r: &mut Reader, value: u64) {
    let family = match r.argument(1) & 0xffff_ffff {
        0 => &c::SO_IP,
        1 => &c::SO,
        6 => &c::SO_TCP,
        17 => &c::SO_UDP,
        41 => &c::SO_IPV6,
        263 => &c::SO_PACKET,
        270 => &c::SO_NETLINK,
        279 => &c::SO_ALG,
        _ => return r.out.unsigned(value & 0xffff_ffff),
    };
    r.named(family, value, Width::Four);
}

static LINGER: Layout = Layout {
    fields: &[f("l_onoff", INT), f("l_linger", INT)],
};

/// What setsockopt sets.
pub(in crate::decode) fn given(r: &mut Reader, at: u64) {
    let length = r.argument(4) & 0xffff_ffff;
    value(r, at, length);
}

/// What getsockopt got.
pub(in crate::decode) fn got(r: &mut Reader, at: u64) {
    let length_at = r.argument(4);
    match (r.success(), r.read_number(length_at, Width::Four)) {
        (Some(_), Some(length)) => value(r, at, length),
        _ => r.out.address(at),
    }
}

fn value(r: &mut Reader, at: u64, length: u64) {
    let level = r.argument(1) & 0xffff_ffff;
    let option = r.argument(2) & 0xffff_ffff;
    match (level, option) {
        // SOL_SOCKET: SO_LINGER, SO_PEERCRED, SO_RCVTIMEO, SO_SNDTIMEO
        (1, 13) if length >= 8 => r.structure(&LINGER, at),
        (1, 17) if length >= 12 => r.structure(&CREDENTIALS, at),
        (1, 20 | 21) if length >= r.abi.word() as u64 * 2 => r.structure(&TIMEVAL, at),
        // SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF
        (1, 26 | 51) => r.structure(&super::processes::PROGRAM, at),
        // SO_BINDTODEVICE, TCP_CONGESTION, TCP_ULP
        (1, 25) | (6, 13 | 31) => {
            let name_length = length.min(64);
            name_bytes(r, at, name_length);
        }
        _ if length == 4 => r.value(&Kind::One(&INT), at),
        _ => r.bytes(at, length),
    }
}

/// A name in so many bytes.
fn name_bytes(r: &mut Reader, at: u64, length: u64) {
    let mut bytes = [0; 64];
    let bytes = &mut bytes[..usize::try_from(length).unwrap_or(0)];
    if at == 0 || !r.read(at, bytes) {
        return r.out.address(at);
    }
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    r.out.bytes(&bytes[..end], false);
}
