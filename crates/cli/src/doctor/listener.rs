//! Which process listens at an address, as /proc tells it: all of it to root, to others what is theirs.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// In the kernel's tables: a socket that listens.
const LISTENS: &str = "0A";

/// Process id and name; none: nobody listens there, or it cannot be seen who does.
pub(super) fn listener(address: SocketAddr) -> Option<(u32, String)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let sockets: Vec<String> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| inodes(&table, address))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut processes: Vec<u32> = processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    processes.sort_unstable();
    let pid = processes.into_iter().find(|pid| has_one_of(*pid, &sockets))?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some((pid, name.trim().to_owned()))
}

fn has_one_of(pid: u32, sockets: &[String]) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd"));
    open.into_iter().flatten().flatten().any(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|to| sockets.iter().any(|socket| to.as_os_str() == socket.as_str()))
    })
}

/// The sockets of one of the kernel's tables that listen where `address` is taken.
fn inodes(table: &str, address: SocketAddr) -> Vec<u64> {
    let one = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = fields.get(1)?.rsplit_once(':')?;
        let (ip, port) = (parsed(ip)?, u16::from_str_radix(port, 16).ok()?);
        let is_it = ip == address.ip() || ip.is_unspecified() || address.ip().is_unspecified();
        let listens = *fields.get(3)? == LISTENS && port == address.port() && is_it;
        fields.get(9)?.parse().ok().filter(|_| listens)
    };
    table.lines().skip(1).filter_map(one).collect()
}

/// An address as words of 32 bits, each as the processor has it.
fn parsed(hex: &str) -> Option<IpAddr> {
    let mut bytes = Vec::new();
    for word in hex.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    if let Ok(bytes) = <[u8; 4]>::try_from(&bytes[..]) {
        return Some(Ipv4Addr::from(bytes).into());
    }
    let bytes = <[u8; 16]>::try_from(&bytes[..]).ok()?;
    Some(Ipv6Addr::from(bytes).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn who_listens_is_found_by_address_and_port() {
        for place in ["127.0.0.1:0", "[::1]:0"] {
            let socket = TcpListener::bind(place).expect("bound");
            let address = socket.local_addr().expect("bound");
            let found = listener(address).expect("it is this process");
            assert_eq!(found.0, std::process::id(), "{address}");
            assert!(!found.1.is_empty());
            drop(socket);
            assert_eq!(listener(address), None);
        }
    }

    #[test]
    fn lines_that_mean_something_else_are_passed_by() {
        let table = "  sl  local_address rem_address   st\n\
                     0: 0100007F:0899 00000000:0000 0A 0:0 0:0 0 0 0 17 1\n\
                     1: 0200007F:0899 00000000:0000 0A 0:0 0:0 0 0 0 18 1\n\
                     2: 0100007F:0899 0100007F:1F90 01 0:0 0:0 0 0 0 19 1\n\
                     3: 00000000:0899 00000000:0000 0A 0:0 0:0 0 0 0 20 1\n\
                     4: 0100007F:089A 00000000:0000 0A 0:0 0:0 0 0 0 21 1\n\
                     5: short\n";
        let address = "127.0.0.1:2201".parse().expect("an address");
        assert_eq!(inodes(table, address), [17, 20]);
    }
}
