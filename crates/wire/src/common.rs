//! What several frames share.

use crate::record;
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Names one session: in state files, login records and events. Random, chosen by the launching side.
pub type SessionId = [u8; 16];

record! {
    /// Whom a program runs as.
    pub struct Ids {
        /// The user id.
        pub uid: u32,
        /// The primary group id.
        pub gid: u32,
        /// Supplementary groups, the primary one too where the account lists it.
        pub groups: Vec<u32>,
    }
}

record! {
    /// An account as the name service gave it.
    pub struct Account {
        /// Its name.
        pub name: CString,
        /// Its ids.
        pub ids: Ids,
        /// Its home directory.
        pub home: CString,
        /// Its shell; empty stands for /bin/sh.
        pub shell: CString,
        /// Password ageing, where the account has a shadow entry that could be read.
        pub ageing: Option<Ageing>,
    }
}

record! {
    /// What shadow(5) has of an account, in days since 1970; -1 where unset.
    pub struct Ageing {
        /// The last change of the password; 0: it must be changed now.
        pub last_change: i64,
        /// How many days a password lasts.
        pub max_days: i64,
        /// How many days after that the account still works.
        pub inactive_days: i64,
        /// The day from which the account is off.
        pub expires: i64,
        /// The password is locked (it begins with `!`): without PAM nobody comes in, by a key neither.
        pub locked: bool,
    }
}

record! {
    /// One environment variable.
    pub struct Variable {
        /// Its name, without `=`.
        pub name: CString,
        /// Its value.
        pub value: CString,
    }
}

record! {
    /// A moment of the calendar's clock.
    pub struct Moment {
        /// Seconds since 1970.
        pub sec: i64,
        /// Nanoseconds beside them.
        pub nsec: u32,
    }
}

record! {
    /// An internet address as sixteen bytes (v4 mapped) with a port.
    pub struct Endpoint {
        /// The address; `::ffff:a.b.c.d` for version 4.
        pub address: [u8; 16],
        /// The scope of a link-local address, else 0.
        pub scope: u32,
        /// The port.
        pub port: u16,
    }
}

impl Endpoint {
    /// The address without port and scope; of version 4 where it is mapped.
    pub fn ip(&self) -> IpAddr {
        Ipv6Addr::from(self.address).to_canonical()
    }
}

impl From<&Endpoint> for SocketAddr {
    fn from(end: &Endpoint) -> SocketAddr {
        match end.ip() {
            IpAddr::V6(ip) => SocketAddrV6::new(ip, end.port, 0, end.scope).into(),
            v4 => SocketAddr::new(v4, end.port),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Endpoint {
        let (ip, scope) = match address {
            SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
        };
        Endpoint {
            address: ip.octets(),
            scope,
            port: address.port(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_addresses_of_the_standard_library() {
        for text in ["192.0.2.1:22", "[2001:db8::1]:22", "[fe80::1%3]:0"] {
            let address: SocketAddr = text.parse().expect(text);
            let end = Endpoint::from(address);
            assert_eq!((SocketAddr::from(&end), end.ip()), (address, address.ip()));
        }
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:22".parse().expect("an address");
        assert!(Endpoint::from(mapped).ip().is_ipv4());
    }
}
