//! The network: addresses, messages, what stands beside them.

use super::files::vectors_of;
use crate::decode::constants as c;
use crate::decode::kind::{FD, INT, Kind, Layout, UINT, Width, f};
use crate::decode::names::Names;
use crate::decode::reader::{ITEM, Reader, number};
use fleetgate_calls::abi::{low, low_signed};
use std::net::{Ipv4Addr, Ipv6Addr};

const AF_UNIX: u64 = 1;
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;
const AF_NETLINK: u64 = 16;
const AF_PACKET: u64 = 17;
const AF_ALG: u64 = 38;
const AF_VSOCK: u64 = 40;
/// The longest address that the kernel takes.
const ADDRESS: usize = 128;

/// What a socket is: a type, and bits.
pub(in crate::decode) fn socket_type(r: &mut Reader, value: u64) {
    let value = value & 0xffff_ffff;
    let Some(name) = c::SOCK.find(value & 0xf, u64::MAX) else {
        return r.bits(&c::SOCK_FLAGS, value);
    };
    r.out.open_bits();
    r.out.bit(name);
    r.more_bits(&c::SOCK_FLAGS, value & !0xf);
    r.out.close_bits();
}

/// A protocol, of the family that the first argument says.
pub(in crate::decode) fn protocol(r: &mut Reader, value: u64) {
    match r.argument(0) & 0xffff_ffff {
        AF_INET | AF_INET6 => r.named(&c::IPPROTO, value, Width::Four),
        AF_NETLINK => r.named(&c::NETLINK_PROTO, value, Width::Four),
        AF_PACKET => {
            r.out.wrap("htons");
            let value = u64::from(low(value << 16).swap_bytes() & 0xffff);
            r.named(&c::ETHER, value, Width::Two);
            r.out.unwrap();
        }
        _ => r.out.unsigned(value & 0xffff_ffff),
    }
}

/// An address that a program gives, whose length is in this argument.
pub(in crate::decode) fn given_address<const LENGTH: usize>(r: &mut Reader, at: u64) {
    let length = r.argument(LENGTH);
    address(r, at, length);
}

/// Keeps the length that a program allows.
pub(in crate::decode) fn keep_length(r: &Reader, at: u64) -> u64 {
    r.read_number(at, Width::Four).unwrap_or(u64::MAX)
}

/// An address that the kernel fills in, whose length is behind this argument.
pub(in crate::decode) fn filled_address<const LENGTH: usize>(r: &mut Reader, at: u64) {
    let length_at = r.argument(LENGTH);
    // What was allowed is not known here, but more than that is never written.
    match (r.success(), r.read_number(length_at, Width::Four)) {
        (Some(_), Some(length)) => address(r, at, length.min(r.saved[0])),
        _ => r.out.address(at),
    }
}

/// A length that the call changes.
pub(in crate::decode) fn changed_length(r: &mut Reader, at: u64) {
    let before = r.saved[0];
    let now = r.read_number(at, Width::Four);
    let Some(now) = now.filter(|_| before != u64::MAX) else {
        return r.out.address(at);
    };
    if r.success().is_none() || now == before {
        r.out.open_list();
        r.out.item();
        r.out.number(i64::from(low_signed(before)));
        return r.out.close_list(false);
    }
    r.out.open_change();
    r.out.number(i64::from(low_signed(before)));
    r.out.became();
    r.out.number(i64::from(low_signed(now)));
    r.out.close_change();
}

/// An address of `length` bytes.
pub(in crate::decode) fn address(r: &mut Reader, at: u64, length: u64) {
    let mut bytes = [0; ADDRESS];
    // The length is an `int`.
    let length = (low(length) as usize).min(ADDRESS);
    let bytes = &mut bytes[..length];
    if at == 0 || length < 2 || !r.read(at, bytes) {
        return r.out.address(at);
    }
    let family = number(bytes.get(..2).unwrap_or_default());
    r.out.open();
    r.out.field("sa_family");
    r.named(&c::AF, family, Width::Two);
    let rest = bytes.get(2..).unwrap_or_default();
    match family {
        AF_UNIX => unix(r, rest),
        AF_INET if length >= 8 => {
            port(r, "sin_port", rest);
            r.out.field("sin_addr");
            r.out.wrap("inet_addr");
            let address = rest.get(2..).and_then(|rest| rest.first_chunk::<4>());
            let text = Ipv4Addr::from(address.copied().unwrap_or_default()).to_string();
            r.out.bytes(text.as_bytes(), false);
            r.out.unwrap();
        }
        AF_INET6 if length >= 24 => inet6(r, rest),
        AF_NETLINK if length >= 12 => {
            r.number_field(
                "nl_pid",
                i64::from(low_signed(number(rest.get(2..6).unwrap_or_default()))),
            );
            r.out.field("nl_groups");
            r.out.mask(low(number(rest.get(6..10).unwrap_or_default())));
        }
        AF_PACKET if length >= 12 => packet(r, rest),
        AF_ALG if length >= 88 => algorithm(r, rest),
        AF_VSOCK if length >= 16 => {
            r.out.field("svm_cid");
            let cid = number(rest.get(6..10).unwrap_or_default());
            match VSOCK.find(cid, u64::MAX) {
                Some(name) => r.out.name(name),
                None => r.out.unsigned(cid),
            }
            r.out.field("svm_port");
            r.out.hex(number(rest.get(2..6).unwrap_or_default()));
            r.out.field("svm_flags");
            r.out.hex(number(rest.get(10..11).unwrap_or_default()));
        }
        _ if !rest.is_empty() => {
            r.out.field("sa_data");
            r.out.bytes(rest, false);
        }
        _ => {}
    }
    r.out.close(false);
}

fn port(r: &mut Reader, name: &'static str, bytes: &[u8]) {
    r.out.field(name);
    r.out.wrap("htons");
    let [high, low] = [bytes.first(), bytes.get(1)].map(|byte| u64::from(byte.copied().unwrap_or(0)));
    r.out.unsigned(high << 8 | low);
    r.out.unwrap();
}

fn unix(r: &mut Reader, path: &[u8]) {
    match path {
        [] => {}
        [0, name @ ..] if !name.is_empty() => {
            r.out.field("sun_path");
            r.out.abstract_name(name);
        }
        _ => {
            let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
            r.out.field("sun_path");
            r.out.bytes(path.get(..end).unwrap_or_default(), false);
        }
    }
}

fn inet6(r: &mut Reader, bytes: &[u8]) {
    port(r, "sin6_port", bytes);
    r.out.field("sin6_flowinfo");
    r.out.wrap("htonl");
    let flow = bytes.get(2..6).unwrap_or_default();
    r.out
        .unsigned(flow.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    r.out.unwrap();
    let address = bytes.get(6..22).unwrap_or_default();
    let address: [u8; 16] = address.try_into().unwrap_or_default();
    // The library's text is that of inet_pton.
    let text = Ipv6Addr::from(address).to_string();
    r.out.inet6("sin6_addr", text.as_bytes());
    if let Some(scope) = bytes.get(22..26) {
        r.unsigned_field("sin6_scope_id", number(scope));
    }
}

fn packet(r: &mut Reader, bytes: &[u8]) {
    r.out.field("sll_protocol");
    r.out.wrap("htons");
    let [high, low] = [bytes.first(), bytes.get(1)].map(|byte| u64::from(byte.copied().unwrap_or(0)));
    r.named(&c::ETHER, high << 8 | low, Width::Two);
    r.out.unwrap();
    let get = |from: usize, until: usize| number(bytes.get(from..until).unwrap_or_default());
    for (name, value) in [
        ("sll_ifindex", get(2, 6)),
        ("sll_hatype", get(6, 8)),
        ("sll_pkttype", get(8, 9)),
        ("sll_halen", get(9, 10)),
    ] {
        r.unsigned_field(name, value);
    }
    let length = get(9, 10).min(8) as usize;
    if let Some(address) = bytes.get(10..10 + length).filter(|address| !address.is_empty()) {
        r.out.field("sll_addr");
        r.out.raw_bytes(address, false);
    }
}

fn algorithm(r: &mut Reader, bytes: &[u8]) {
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        bytes.get(..end).unwrap_or_default().to_vec()
    };
    r.out.field("salg_type");
    r.out.bytes(&text(bytes.get(..14).unwrap_or_default()), false);
    for (name, from) in [("salg_feat", 14), ("salg_mask", 18)] {
        r.out.field(name);
        r.out.hex(number(bytes.get(from..from + 4).unwrap_or_default()));
    }
    r.out.field("salg_name");
    r.out.bytes(&text(bytes.get(22..).unwrap_or_default()), false);
}

/// struct msghdr in its words: name, its length, vectors, their number, control, its length, flags.
fn header(r: &Reader, at: u64) -> Option<[u64; 7]> {
    let word = r.abi.word();
    let mut bytes = [0; 56];
    let bytes = &mut bytes[..7 * word];
    r.read(at, bytes).then(|| {
        let mut words = [0; 7];
        for (index, (to, from)) in words.iter_mut().zip(bytes.chunks(word)).enumerate() {
            // The length of the name and the flags are an `int` and what fills it up.
            *to = number(if matches!(index, 1 | 6) {
                from.get(..4).unwrap_or_default()
            } else {
                from
            });
        }
        words
    })
}

/// What sendmsg is given.
pub(in crate::decode) fn sent_message(r: &mut Reader, at: u64) {
    match header(r, at) {
        Some(words) => message(r, &words, None, u64::MAX),
        None => r.out.address(at),
    }
}

/// Keeps the length of a name that a program allows.
pub(in crate::decode) fn keep_name_length(r: &Reader, at: u64) -> u64 {
    header(r, at).map_or(u64::MAX, |words| words[1])
}

/// What recvmsg brought.
pub(in crate::decode) fn received_message(r: &mut Reader, at: u64) {
    let kept = r.saved[0];
    match (r.success(), header(r, at)) {
        (Some(result), Some(words)) => message(r, &words, Some(kept), result.max(0).cast_unsigned()),
        (None, Some(words)) => unfilled(r, &words),
        _ => r.out.address(at),
    }
}

/// A message that nothing was received into.
fn unfilled(r: &mut Reader, words: &[u64; 7]) {
    r.out.open();
    r.number_field("msg_namelen", i64::from(low_signed(words[1])));
    r.out.close(false);
}

fn message(r: &mut Reader, words: &[u64; 7], before: Option<u64>, bytes: u64) {
    let [name, name_length, vectors, count, control, control_length, flags] = *words;
    r.out.open();
    r.out.field("msg_name");
    address(r, name, name_length.min(before.unwrap_or(u64::MAX)));
    r.out.field("msg_namelen");
    match before.filter(|before| *before != name_length) {
        Some(before) => {
            r.out.open_bare_change();
            r.out.number(i64::from(low_signed(before)));
            r.out.became();
            r.out.number(i64::from(low_signed(name_length)));
            r.out.close_bare_change();
        }
        None => r.out.number(i64::from(low_signed(name_length))),
    }
    r.out.field("msg_iov");
    vectors_of(r, vectors, count, bytes);
    r.unsigned_field("msg_iovlen", count);
    if control_length != 0 {
        r.out.field("msg_control");
        beside(r, control, control_length);
    }
    r.unsigned_field("msg_controllen", control_length);
    r.out.field("msg_flags");
    r.bits(&c::MSG, flags);
    r.out.close(false);
}

/// What stands beside a message: descriptors, credentials, times.
fn beside(r: &mut Reader, at: u64, length: u64) {
    // net.core.optmem_max is far less.
    const MOST: u64 = 1 << 16;
    let word = r.abi.word();
    let head = word + 8;
    let mut bytes = vec![0; length.min(MOST) as usize];
    if bytes.len() < head || !r.read(at, &mut bytes) {
        return r.out.address(at);
    }
    r.out.open_list();
    let mut from = 0;
    while let Some(header) = bytes.get(from..from + head) {
        let (size, kinds) = header.split_at(word);
        let size = number(size);
        let level = number(kinds.get(..4).unwrap_or_default());
        let kind = number(kinds.get(4..).unwrap_or_default());
        r.out.item();
        r.out.open();
        r.unsigned_field("cmsg_len", size);
        r.out.field("cmsg_level");
        r.named(&c::SOL, level, Width::Four);
        r.out.field("cmsg_type");
        let family: &'static Names = match level {
            1 => &c::SCM,
            0 => &c::SO_IP,
            41 => &c::SO_IPV6,
            _ => &OTHER,
        };
        r.named(family, kind, Width::Four);
        let end = usize::try_from(size)
            .unwrap_or(usize::MAX)
            .min(bytes.len() - from);
        let data = bytes.get(from + head..from + end).unwrap_or_default();
        if !data.is_empty() {
            r.out.field("cmsg_data");
            beside_data(r, level, kind, data);
        }
        r.out.close(false);
        if size < head as u64 {
            break;
        }
        let Some(next) = end
            .checked_next_multiple_of(word)
            .filter(|_| size <= (bytes.len() - from) as u64)
        else {
            break;
        };
        from += next;
    }
    r.out.close_list(false);
}

static VSOCK: Names = Names::new(
    "VMADDR_CID_???",
    &[
        (0, "VMADDR_CID_HYPERVISOR"),
        (1, "VMADDR_CID_LOCAL"),
        (2, "VMADDR_CID_HOST"),
        (0xffff_ffff, "VMADDR_CID_ANY"),
    ],
);

static OTHER: Names = Names::new("???", &[]);

fn beside_data(r: &mut Reader, level: u64, kind: u64, data: &[u8]) {
    match (level, kind) {
        // SOL_SOCKET: SCM_RIGHTS, SCM_CREDENTIALS
        (1, 1) => {
            r.out.open_list();
            for fd in data.chunks_exact(4) {
                r.out.item();
                r.descriptor(number(fd));
            }
            r.out.close_list(false);
        }
        (1, 2) if data.len() >= 12 => r.fields(&CREDENTIALS, data),
        _ => {
            let shown = data.len().min(r.limits.string);
            r.out
                .bytes(data.get(..shown).unwrap_or_default(), shown < data.len());
        }
    }
}

/// struct ucred.
pub(in crate::decode) static CREDENTIALS: Layout = Layout {
    fields: &[f("pid", INT), f("uid", UINT), f("gid", UINT)],
};

/// struct mmsghdr of sendmmsg, and of recvmmsg as many as came.
pub(in crate::decode) fn sent_messages(r: &mut Reader, at: u64) {
    let count = r.argument(2) & 0xffff_ffff;
    messages(r, at, count, false);
}

/// See [`sent_messages`].
pub(in crate::decode) fn received_messages(r: &mut Reader, at: u64) {
    let count = r.success().unwrap_or(0).max(0).cast_unsigned();
    messages(r, at, count, true);
}

fn messages(r: &mut Reader, at: u64, count: u64, received: bool) {
    let word = r.abi.word() as u64;
    let size = 8 * word;
    let limit = r.limit(1024);
    if at == 0 {
        return r.out.address(at);
    }
    r.out.open_list();
    for index in 0..count {
        if index >= limit || !r.spend(ITEM) {
            return r.out.close_list(true);
        }
        let here = at.wrapping_add(index * size);
        let Some(words) = header(r, here) else {
            return r.out.cut_list(here);
        };
        let length = r.read_number(here.wrapping_add(7 * word), Width::Four);
        r.out.item();
        r.out.open();
        r.out.field("msg_hdr");
        let most = length.filter(|_| received).unwrap_or(u64::MAX);
        message(r, &words, None, most);
        if received {
            r.unsigned_field("msg_len", length.unwrap_or(0));
        }
        r.out.close(false);
    }
    r.out.close_list(false);
}

/// Two descriptors that pipe and socketpair make.
pub(in crate::decode) fn two_descriptors(r: &mut Reader, at: u64) {
    r.list(&FD, at, 2);
}

/// socketpair's, where it succeeded.
pub(in crate::decode) static PAIR: Kind = Kind::By(two_descriptors, Width::Word);
