//! What a socket is, from the kernel's own lists under `/proc/PID/net`: `TCP:[127.0.0.1:40000->127.0.0.1:80]`. A list is read
//! anew each time: sockets come and go between two calls.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What is read of a list, at most: a machine with more sockets has those behind it shown by their numbers.
pub const MAX_LIST: u64 = 4 << 20;

/// The name of a socket that `/proc/PID/fd` calls `socket:[1234]`. None: it is none, or in no list.
#[must_use]
pub fn named(tid: i32, what: &[u8]) -> Option<Vec<u8>> {
    let inode = what.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    let inode = std::str::from_utf8(inode).ok()?;
    let lists: [(&str, &str, Reader); 7] = [
        ("tcp", "TCP", internet),
        ("tcp6", "TCPv6", internet),
        ("udp", "UDP", internet),
        ("udp6", "UDPv6", internet),
        ("unix", "UNIX", local),
        ("netlink", "NETLINK", netlink),
        ("raw", "RAW", internet),
    ];
    lists.into_iter().find_map(|(list, name, reader)| {
        let text = read(&format!("/proc/{tid}/net/{list}"));
        // The lists are ASCII but for the paths of local sockets.
        let lines = text.split(|b| *b == b'\n').skip(1);
        lines.into_iter().find_map(|line| reader(line, inode, name))
    })
}

/// Says what a line of a list is, if it is of this inode.
type Reader = fn(&[u8], &str, &str) -> Option<Vec<u8>>;

fn read(path: &str) -> Vec<u8> {
    use std::io::Read;
    let mut text = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        // What was read before an error is as good as any.
        let _ = file.take(MAX_LIST).read_to_end(&mut text);
    }
    text
}

fn words(line: &[u8]) -> Vec<&str> {
    let words = line.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
    words.map(|w| std::str::from_utf8(w).unwrap_or("?")).collect()
}

/// `sl local_address rem_address st queues tr tm->when retrnsmt uid timeout inode …`
fn internet(line: &[u8], inode: &str, name: &str) -> Option<Vec<u8>> {
    let words = words(line);
    if *words.get(9)? != inode {
        return None;
    }
    let (local, remote) = (address(words.get(1)?)?, address(words.get(2)?)?);
    let text = match remote.port() == 0 && remote.ip().is_unspecified() {
        true => format!("{name}:[{local}]"),
        false => format!("{name}:[{local}->{remote}]"),
    };
    Some(text.into_bytes())
}

/// `0100007F:1F90`: each 32 bits of the address in this machine's order.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for at in (0..host.len()).step_by(8) {
        let word = u32::from_str_radix(host.get(at..at + 8)?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// `Num RefCount Protocol Flags Type St Inode Path`
fn local(line: &[u8], inode: &str, name: &str) -> Option<Vec<u8>> {
    let words = words(line);
    if *words.get(6)? != inode {
        return None;
    }
    let kind = match *words.get(4)? {
        "0001" => "-STREAM",
        "0002" => "-DGRAM",
        "0005" => "-SEQPACKET",
        _ => "",
    };
    let mut text = format!("{name}{kind}:[{inode}");
    let path = line
        .windows(inode.len() + 2)
        .position(|w| w[0] == b' ' && &w[1..=inode.len()] == inode.as_bytes() && w[inode.len() + 1] == b' ');
    let mut out = match path {
        Some(at) => {
            let _ = write!(text, ",\"");
            let mut out = text.into_bytes();
            out.extend_from_slice(&line[at + inode.len() + 2..]);
            out.push(b'"');
            out
        }
        None => text.into_bytes(),
    };
    out.push(b']');
    Some(out)
}

/// `sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode`
fn netlink(line: &[u8], inode: &str, name: &str) -> Option<Vec<u8>> {
    let words = words(line);
    let family = match *words.get(1)? {
        "0" => "ROUTE",
        "9" => "AUDIT",
        "15" => "KOBJECT_UEVENT",
        other => other,
    };
    (*words.get(9)? == inode).then(|| format!("{name}:[{family}:{}]", words[2]).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_line_of_a_list_is_understood() {
        let tcp = "   1: 0100007F:1F90 0200007F:0050 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0";
        let six = "   1: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 4711 1";
        let unix = "0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/a b";
        for (reader, line, text) in [
            (internet as Reader, tcp, "X:[127.0.0.1:8080->127.0.0.2:80]"),
            (internet, six, "X:[[::1]:8080]"),
            (local, unix, "X-STREAM:[4711,\"/run/a b\"]"),
            (
                local,
                "0: 00000003 00000000 00000000 0002 03 4711",
                "X-DGRAM:[4711]",
            ),
            (netlink, "0000 0 77 00000000 0 0 0 2 0 4711", "X:[ROUTE:77]"),
        ] {
            let read = reader(line.as_bytes(), "4711", "X").expect(line);
            assert_eq!(String::from_utf8(read).expect("text"), text);
            assert_eq!(reader(line.as_bytes(), "471", "X"), None);
            assert_eq!(reader(&line.as_bytes()[..10], "4711", "X"), None);
        }
    }

    #[test]
    fn no_more_is_read_of_a_list_than_its_bound() {
        assert_eq!(read("/dev/zero").len() as u64, MAX_LIST);
        assert!(read("/proc/self/net/no_such_list").is_empty());
    }

    #[test]
    fn sockets_of_this_process_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let here = listener.local_addr().expect("bound");
        let client = TcpStream::connect(here).expect("it listens");
        let from = client.local_addr().expect("connected");
        let name = |fd: i32| {
            let what = std::fs::read_link(format!("/proc/self/fd/{fd}")).expect("open");
            let tid = fleetgate_sys::process::id();
            named(tid, what.to_string_lossy().as_bytes())
                .map(|name| String::from_utf8_lossy(&name).into_owned())
        };
        assert_eq!(name(listener.as_raw_fd()), Some(format!("TCP:[{here}]")));
        assert_eq!(name(client.as_raw_fd()), Some(format!("TCP:[{from}->{here}]")));
        let path = std::env::temp_dir().join(format!("fleetgate-sockets-{}", std::process::id()));
        let unix = UnixListener::bind(&path).expect("a path");
        let shown = name(unix.as_raw_fd()).expect("it is there");
        assert!(shown.starts_with("UNIX-STREAM:[") && shown.ends_with(&format!(",\"{}\"]", path.display())));
        std::fs::remove_file(path).expect("it is there");
    }
}
