//! What a request's host says: addresses, everything, loopback, or a name for the resolver.

use super::refusal;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::net::{Ipv4Addr, Ipv6Addr};
use fleetgate_sys::net::{Address, interface_index};
use fleetgate_wire::Failure;
use fleetgate_wire::net::MAX_HOST;

/// A host, understood.
#[derive(Debug, PartialEq, Eq)]
pub enum Host {
    /// These addresses, all of them wanted. `complete` false: those of a version that the machine has not got
    /// may be left out.
    Addresses { list: Vec<Address>, complete: bool },
    /// A name.
    Name,
}

const ANY: [Address; 2] = [Address::v6([0; 16], 0), Address::v4([0; 4], 0)];
const LOOPBACK6: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// Both loopbacks; the newer version first.
pub const LOOPBACK: [Address; 2] = [Address::v6(LOOPBACK6, 0), Address::v4([127, 0, 0, 1], 0)];

/// A host to listen on.
pub fn local(host: &CStr, port: u16) -> Result<Host, Failure> {
    match host.to_bytes() {
        b"" | b"*" => Ok(either(ANY, port)),
        other => parse(other, port),
    }
}

/// A host to connect to.
pub fn remote(host: &CStr, port: u16) -> Result<Host, Failure> {
    match host.to_bytes() {
        b"" => Err(refusal::bad("a connection needs a host; the request's is empty")),
        _ if port == 0 => Err(refusal::bad("a connection needs a port; the request's is 0")),
        other => parse(other, port),
    }
}

/// All addresses of this machine, or both loopbacks.
pub fn display(any_address: bool, port: u16) -> Vec<Address> {
    let pair = if any_address { ANY } else { LOOPBACK };
    pair.map(|a| a.with_port(port)).to_vec()
}

fn either(pair: [Address; 2], port: u16) -> Host {
    Host::Addresses {
        list: pair.map(|a| a.with_port(port)).to_vec(),
        complete: false,
    }
}

fn one(address: Address) -> Result<Host, Failure> {
    Ok(Host::Addresses {
        list: alloc::vec![address],
        complete: true,
    })
}

fn parse(host: &[u8], port: u16) -> Result<Host, Failure> {
    if host.len() > MAX_HOST {
        return Err(refusal::bad("the host is longer than 255 bytes"));
    }
    if host.eq_ignore_ascii_case(b"localhost") || host.eq_ignore_ascii_case(b"localhost.") {
        return Ok(either(LOOPBACK, port));
    }
    let text = match core::str::from_utf8(host) {
        Ok(text) if text.bytes().all(|b| b.is_ascii_graphic()) => text,
        _ => return Err(refusal::bad("the host has bytes that no name or address has")),
    };
    if let Ok(ip) = text.parse::<Ipv4Addr>() {
        return one(Address::v4(ip.octets(), port));
    }
    let (ip, zone) = text.split_once('%').map_or((text, None), |(ip, z)| (ip, Some(z)));
    if let Ok(ip) = ip.parse::<Ipv6Addr>() {
        let scope = match zone {
            None => 0,
            Some(zone) => match zone.parse::<u32>() {
                Ok(number) => number,
                Err(_) => interface_index(zone.as_bytes()).map_err(|e| refusal::system(e, text))?,
            },
        };
        return one(Address {
            ip: ip.octets(),
            scope,
            port,
        });
    }
    if text.contains(':') || text.contains('%') {
        return Err(refusal::bad("the host is neither an address nor a name"));
    }
    Ok(Host::Name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::ffi::CString;

    fn listened(host: &str) -> Result<Host, Failure> {
        local(&CString::new(host).expect("no zero"), 7)
    }

    #[test]
    fn hosts() {
        let single = |a: Address| {
            Ok(Host::Addresses {
                list: alloc::vec![a],
                complete: true,
            })
        };
        assert_eq!(listened("192.0.2.1"), single(Address::v4([192, 0, 2, 1], 7)));
        assert_eq!(listened("::1"), single(Address::v6(LOOPBACK6, 7)));
        assert_eq!(
            listened("::ffff:192.0.2.1"),
            single(Address::v4([192, 0, 2, 1], 7))
        );
        let scoped = Address {
            scope: 3,
            ..Address::v6([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9], 7)
        };
        assert_eq!(listened("fe80::9%3"), single(scoped));
        assert_eq!(listened(""), Ok(either(ANY, 7)));
        assert_eq!(listened("*"), Ok(either(ANY, 7)));
        assert_eq!(listened("LocalHost"), Ok(either(LOOPBACK, 7)));
        assert_eq!(listened("example.org"), Ok(Host::Name));
        // What inet_aton would take for an address is a name here, and the resolver's business.
        assert_eq!(listened("0x7f.1"), Ok(Host::Name));
        for wrong in ["1:2", "a b", "é", "::1%nowhere0", "a%b", &"a".repeat(256)] {
            assert!(listened(wrong).is_err(), "{wrong}");
        }
        assert!(remote(c"", 7).is_err());
        assert!(remote(c"::1", 0).is_err());
    }
}
