//! The listening sockets: systemd's (socket activation, or kept over a restart), else made here. It accepts nothing.

use crate::StarterError;
use fleetgate_sys::net::{self, Address};
use fleetgate_sys::{Errno, Fd};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Connections that wait to be accepted; the kernel's own bound (somaxconn) applies beside it.
const BACKLOG: i32 = 4096;
/// Where a node without root listens.
pub const USER_MODE: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 3022),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 3022),
];

/// Listening sockets, each with its address.
pub struct ListeningSockets {
    pub sockets: Vec<Fd>,
    pub addresses: Vec<SocketAddr>,
    /// systemd gave them.
    pub given: bool,
}

/// Takes what systemd gave, else listens on `addresses`. A version 6 address on a machine without version 6 is left
/// out, as long as one address is left.
pub fn open(addresses: &[SocketAddr], sockets: Vec<Fd>) -> Result<ListeningSockets, StarterError> {
    if !sockets.is_empty() {
        let addresses = sockets
            .iter()
            .filter_map(|s| net::local(s).ok())
            .map(SocketAddr::from)
            .collect();
        return Ok(ListeningSockets {
            sockets,
            addresses,
            given: true,
        });
    }
    let mut listening = ListeningSockets {
        sockets: Vec::new(),
        addresses: Vec::new(),
        given: false,
    };
    let mut without = None;
    for address in addresses {
        match listen(*address) {
            Ok((socket, address)) => {
                listening.sockets.push(socket);
                listening.addresses.push(address);
            }
            Err(e @ (Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL)) if address.is_ipv6() => {
                tracing::warn!(%address, "not listened on: {e}");
                without = Some((*address, e));
            }
            Err(e) => return Err(StarterError::Listen(*address, e)),
        }
    }
    match without {
        Some((address, e)) if listening.sockets.is_empty() => Err(StarterError::Listen(address, e)),
        _ => Ok(listening),
    }
}

fn listen(address: SocketAddr) -> Result<(Fd, SocketAddr), Errno> {
    let kernels = Address::from(address);
    let socket = net::tcp(&kernels)?;
    net::set_reuse_address(&socket)?;
    if address.is_ipv6() {
        net::set_v6_only(&socket)?;
    }
    net::bind(&socket, &kernels)?;
    net::listen(&socket, BACKLOG)?;
    let bound = net::local(&socket)?;
    Ok((socket, bound.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_an_error_that_names_the_remedy() {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let first = open(&[loopback], Vec::new()).expect("a free port");
        let taken = first.addresses[0];
        assert_ne!(taken.port(), 0);
        let error = open(&[taken], Vec::new()).err().expect("it is taken").to_string();
        assert!(
            error.contains(&taken.to_string()) && error.contains("--listen"),
            "{error}"
        );
    }
}
