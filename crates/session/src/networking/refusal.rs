//! Why a request was not done: the thing, the reason, the kernel's number.

use crate::order;
use alloc::format;
use alloc::string::String;
use core::net::{Ipv4Addr, Ipv6Addr};
use fleetgate_sys::Errno;
use fleetgate_sys::net::Address;
use fleetgate_wire::{Failure, Reason};

/// A value outside its range, said in a sentence.
pub fn bad(sentence: &str) -> Failure {
    order::failure(Reason::BadRequest, Errno(0), sentence)
}

/// A bound that is reached.
pub fn too_many(sentence: &str) -> Failure {
    order::failure(Reason::TooMany, Errno(0), sentence)
}

/// What the kernel refused to do with `thing`.
pub fn system(errno: Errno, thing: &str) -> Failure {
    let reason = match errno {
        Errno::EACCES | Errno::EPERM => Reason::Denied,
        Errno::ENOENT | Errno::ENODEV => Reason::Missing,
        Errno::ENOTDIR | Errno::ENOTSOCK | Errno::EISDIR => Reason::WrongKind,
        Errno::ENAMETOOLONG => Reason::TooLarge,
        Errno::ETIMEDOUT => Reason::TimedOut,
        Errno::ENOMEM | Errno::ENOBUFS => Reason::NoMemory,
        _ => Reason::System,
    };
    order::failure(reason, errno, thing)
}

/// A name that could not be used.
pub fn name(reason: Reason, errno: Errno, sentence: &str, name: &[u8]) -> Failure {
    order::failure(reason, errno, &format!("{sentence}: {}", printable(name)))
}

/// An address as people write it.
pub fn written(address: &Address) -> String {
    let port = address.port;
    if address.is_v4() {
        let [.., a, b, c, d] = address.ip;
        return format!("{}:{port}", Ipv4Addr::new(a, b, c, d));
    }
    let ip = Ipv6Addr::from(address.ip);
    match address.scope {
        0 => format!("[{ip}]:{port}"),
        scope => format!("[{ip}%{scope}]:{port}"),
    }
}

/// Bytes from outside as text for a log: what is not printable ASCII becomes `?`.
pub fn printable(bytes: &[u8]) -> String {
    let shown = |b: &u8| if b.is_ascii_graphic() { *b as char } else { '?' };
    bytes.iter().map(shown).collect()
}
