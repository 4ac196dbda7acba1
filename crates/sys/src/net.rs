//! Internet and unix-domain stream sockets, and the private directories that sockets stand in.
//!
//! Every socket made or accepted here is close-on-exec and non-blocking. Addresses are sixteen bytes, version 4
//! as `::ffff:a.b.c.d`; the family of the socket follows from them. Nothing here waits or looks names up.

use crate::{Errno, Fd, Result, file, syscall};
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Gives this thread a network of its own, in which there is the loopback device and nothing else, down.
pub fn separate() -> Result<()> {
    // SAFETY: a number.
    unsafe { syscall!(libc::SYS_unshare, libc::CLONE_NEWNET) }.map(drop)
}

/// The network that this process sees, as the kernel names it (`net:[4026531840]`); empty where `/proc` is not there. One call.
#[must_use]
pub fn namespace() -> Vec<u8> {
    file::read_link(c"/proc/self/ns/net").unwrap_or_default()
}

/// An internet address with its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address; `::ffff:a.b.c.d` for version 4.
    pub ip: [u8; 16],
    /// The interface of a link-local address, else 0.
    pub scope: u32,
    /// The port.
    pub port: u16,
}

/// What an address of version 4 starts with.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

impl Address {
    /// A version 4 address.
    pub const fn v4(ip: [u8; 4], port: u16) -> Address {
        let mut all = [0; 16];
        all[10] = 0xff;
        all[11] = 0xff;
        let mut i = 0;
        while i < 4 {
            all[12 + i] = ip[i];
            i += 1;
        }
        Address {
            ip: all,
            scope: 0,
            port,
        }
    }

    /// A version 6 address.
    pub const fn v6(ip: [u8; 16], port: u16) -> Address {
        Address { ip, scope: 0, port }
    }

    /// Whether it is of version 4.
    pub fn is_v4(&self) -> bool {
        self.ip[..12] == MAPPED
    }

    /// The same address with another port.
    pub const fn with_port(self, port: u16) -> Address {
        Address { port, ..self }
    }

    fn to_kernel(self) -> (SocketAddress, usize) {
        let mut out = SocketAddress([0; SOCKET_ADDRESS]);
        out.0[2..4].copy_from_slice(&self.port.to_be_bytes());
        if self.is_v4() {
            out.0[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            out.0[4..8].copy_from_slice(&self.ip[12..]);
            (out, size_of::<libc::sockaddr_in>())
        } else {
            out.0[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            out.0[8..24].copy_from_slice(&self.ip);
            out.0[24..28].copy_from_slice(&self.scope.to_ne_bytes());
            (out, size_of::<libc::sockaddr_in6>())
        }
    }

    fn from_kernel(raw: &SocketAddress) -> Result<Address> {
        let family = u16::from_ne_bytes([raw.0[0], raw.0[1]]);
        let port = u16::from_be_bytes([raw.0[2], raw.0[3]]);
        if family == libc::AF_INET as u16 {
            let mut ip = [0; 4];
            ip.copy_from_slice(&raw.0[4..8]);
            Ok(Address::v4(ip, port))
        } else if family == libc::AF_INET6 as u16 {
            let (mut ip, mut scope) = ([0; 16], [0; 4]);
            ip.copy_from_slice(&raw.0[8..24]);
            scope.copy_from_slice(&raw.0[24..28]);
            Ok(Address {
                ip,
                scope: u32::from_ne_bytes(scope),
                port,
            })
        } else {
            Err(Errno::EAFNOSUPPORT)
        }
    }
}

impl From<Address> for SocketAddr {
    fn from(address: Address) -> SocketAddr {
        match Ipv6Addr::from(address.ip).to_canonical() {
            IpAddr::V6(ip) => SocketAddrV6::new(ip, address.port, 0, address.scope).into(),
            v4 => SocketAddr::new(v4, address.port),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        match address {
            SocketAddr::V4(v4) => Address::v4(v4.ip().octets(), v4.port()),
            SocketAddr::V6(v6) => Address {
                scope: v6.scope_id(),
                ..Address::v6(v6.ip().octets(), v6.port())
            },
        }
    }
}

const SOCKET_ADDRESS: usize = size_of::<libc::sockaddr_in6>();

/// Room for either kind of socket address, laid out by hand: family, port, then by family.
#[repr(C, align(8))]
struct SocketAddress([u8; SOCKET_ADDRESS]);

fn stream(family: i32) -> Result<Fd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: numbers only.
    let fd = unsafe { syscall!(libc::SYS_socket, family, kind, 0) }?;
    Ok(Fd::from_raw(fd as i32))
}

/// A TCP socket of the family of `address`; one of version 6 speaks version 6 only.
pub fn tcp(address: &Address) -> Result<Fd> {
    if address.is_v4() {
        return stream(libc::AF_INET);
    }
    stream(libc::AF_INET6)
}

/// Starts connecting. `EINPROGRESS`: wait for room to write, then ask [`outcome`].
pub fn connect(socket: &Fd, address: &Address) -> Result<()> {
    let (raw, len) = address.to_kernel();
    // SAFETY: the kernel reads `len` bytes of `raw`, which is at least that long.
    unsafe { syscall!(libc::SYS_connect, socket.raw(), raw.0.as_ptr(), len) }.map(drop)
}

/// What came of a connect that was in progress; asked once.
pub fn outcome(socket: &Fd) -> Result<()> {
    let (mut value, mut len) = (0i32, size_of::<i32>() as u32);
    // SAFETY: the kernel writes one number and its length.
    unsafe {
        syscall!(
            libc::SYS_getsockopt,
            socket.raw(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            &raw mut value,
            &raw mut len
        )
    }?;
    if value == 0 { Ok(()) } else { Err(Errno(value)) }
}

fn set(socket: &Fd, level: i32, option: i32, value: i32) -> Result<()> {
    // SAFETY: the kernel reads one number.
    unsafe {
        syscall!(
            libc::SYS_setsockopt,
            socket.raw(),
            level,
            option,
            &raw const value,
            size_of::<i32>()
        )
    }
    .map(drop)
}

/// Sends small writes at once.
pub fn set_no_delay(socket: &Fd) -> Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)
}

/// Confirms now what has been received and not yet been confirmed (TCP_QUICKACK), instead of 40 ms later or with the
/// next answer. It lasts for this once.
pub fn confirm_now(socket: &Fd) -> Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1)
}

/// Asks a silent peer now and then whether it is still there (tcp_keepalive_time).
pub fn set_keep_alive(socket: &Fd) -> Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)
}

/// Lets a listening socket take a port whose old connections linger.
pub fn set_reuse_address(socket: &Fd) -> Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)
}

/// Keeps a version 6 socket from taking version 4's connections too.
pub fn set_v6_only(socket: &Fd) -> Result<()> {
    set(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)
}

/// Binds; port 0 is a free one of the kernel's choice.
pub fn bind(socket: &Fd, address: &Address) -> Result<()> {
    let (raw, len) = address.to_kernel();
    // SAFETY: the kernel reads `len` bytes of `raw`, which is at least that long.
    unsafe { syscall!(libc::SYS_bind, socket.raw(), raw.0.as_ptr(), len) }.map(drop)
}

/// Listens.
pub fn listen(socket: &Fd, backlog: i32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_listen, socket.raw(), backlog) }.map(drop)
}

/// The address that `socket` is bound to.
pub fn local(socket: &Fd) -> Result<Address> {
    let mut raw = SocketAddress([0; SOCKET_ADDRESS]);
    let mut len = SOCKET_ADDRESS as u32;
    // SAFETY: the kernel writes at most `len` bytes into `raw`, and the length.
    unsafe {
        syscall!(
            libc::SYS_getsockname,
            socket.raw(),
            raw.0.as_mut_ptr(),
            &raw mut len
        )
    }?;
    Address::from_kernel(&raw)
}

/// Takes one waiting connection; `EAGAIN` when there is none.
pub fn accept(socket: &Fd) -> Result<(Fd, Address)> {
    let (fd, raw) = accept_raw(socket)?;
    Ok((fd, Address::from_kernel(&raw)?))
}

fn accept_raw(socket: &Fd) -> Result<(Fd, SocketAddress)> {
    let mut raw = SocketAddress([0; SOCKET_ADDRESS]);
    let mut len = SOCKET_ADDRESS as u32;
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the kernel writes at most `len` bytes into `raw`, and the length.
    let fd = unsafe {
        syscall!(
            libc::SYS_accept4,
            socket.raw(),
            raw.0.as_mut_ptr(),
            &raw mut len,
            flags
        )
    }?;
    Ok((Fd::from_raw(fd as i32), raw))
}

/// Takes one waiting connection of whatever family; the address where it is an internet one.
pub fn accept_any(socket: &Fd) -> Result<(Fd, Option<Address>)> {
    let (fd, raw) = accept_raw(socket)?;
    Ok((fd, Address::from_kernel(&raw).ok()))
}

/// Says that nothing more is sent on the connection, whoever else has a descriptor of it.
pub fn shut_sending(socket: &Fd) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_shutdown, socket.raw(), libc::SHUT_WR) }.map(drop)
}

/// Ends the connection both ways, whoever else has a descriptor of it.
pub fn shut(socket: &Fd) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_shutdown, socket.raw(), libc::SHUT_RDWR) }.map(drop)
}

/// The number of network interface `name`, for the scope of a link-local address.
pub fn interface_index(name: &[u8]) -> Result<u32> {
    // struct ifreq: a name of 16 bytes, ended by zero, then a union whose first number is the index.
    #[repr(C, align(8))]
    struct Request([u8; 40]);
    let mut request = Request([0; 40]);
    if name.is_empty() || name.len() > 15 {
        return Err(Errno::ENODEV);
    }
    request.0[..name.len()].copy_from_slice(name);
    let socket = stream(libc::AF_INET6)?;
    // SAFETY: the kernel reads and writes one ifreq of 40 bytes.
    unsafe {
        syscall!(
            libc::SYS_ioctl,
            socket.raw(),
            libc::SIOCGIFINDEX,
            request.0.as_mut_ptr()
        )
    }?;
    let mut index = [0; 4];
    index.copy_from_slice(&request.0[16..20]);
    Ok(u32::from_ne_bytes(index))
}

/// The longest path of a unix-domain socket; the kernel's bound is 108 bytes with the final zero.
pub const MAX_UNIX_PATH: usize = 107;

/// A unix-domain stream socket.
pub fn unix() -> Result<Fd> {
    stream(libc::AF_UNIX)
}

/// The kernel's socket address of `path`, and its length.
fn unix_address(path: &CStr) -> Result<([u8; 110], usize)> {
    let bytes = path.to_bytes();
    if bytes.len() > MAX_UNIX_PATH {
        return Err(Errno::ENAMETOOLONG);
    }
    // An empty path would be an unnamed address, and one from the abstract space cannot come out of a CStr.
    if bytes.is_empty() {
        return Err(Errno::ENOENT);
    }
    let mut raw = [0u8; 110];
    raw[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    raw[2..2 + bytes.len()].copy_from_slice(bytes);
    Ok((raw, 2 + bytes.len() + 1))
}

/// Connects to the socket at `path`. Done or failed at once; `EAGAIN`: the listener's queue is full, and nothing
/// tells when it has room again.
pub fn connect_unix(socket: &Fd, path: &CStr) -> Result<()> {
    let (raw, len) = unix_address(path)?;
    // SAFETY: the kernel reads `len` bytes of `raw`, which is at least that long.
    unsafe { syscall!(libc::SYS_connect, socket.raw(), raw.as_ptr(), len) }.map(drop)
}

/// Binds to `path`, which must not exist; its mode is 0777 without the umask's bits.
pub fn bind_unix(socket: &Fd, path: &CStr) -> Result<()> {
    let (raw, len) = unix_address(path)?;
    // SAFETY: the kernel reads `len` bytes of `raw`, which is at least that long.
    unsafe { syscall!(libc::SYS_bind, socket.raw(), raw.as_ptr(), len) }.map(drop)
}

/// Sets this process's umask, returning the old one.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: numbers only; cannot fail.
    unsafe { crate::raw::syscall6(libc::SYS_umask, [mask as usize, 0, 0, 0, 0, 0]) as u32 }
}

/// A socket file that was made: removed only while it is still that very file.
#[derive(Debug)]
pub struct SocketFile {
    path: CString,
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// Remembers which file `path` is now; it must be a socket.
    pub fn of(path: CString) -> Result<SocketFile> {
        let found = status(&path)?;
        if found.st_mode & libc::S_IFMT != libc::S_IFSOCK {
            return Err(Errno::ENOTSOCK);
        }
        Ok(SocketFile {
            device: found.st_dev,
            inode: found.st_ino,
            path,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &CStr {
        &self.path
    }

    /// Removes it, unless another file has taken its place.
    pub fn remove(&self) -> Result<()> {
        let found = status(&self.path)?;
        if (found.st_dev, found.st_ino) != (self.device, self.inode) {
            return Err(Errno::ESTALE);
        }
        unlink(&self.path, 0)
    }
}

/// lstat.
fn status(path: &CStr) -> Result<libc::stat> {
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut out: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel reads one string and writes one struct stat, whose layout libc shares with the kernel on
    // 64-bit machines.
    unsafe {
        syscall!(
            libc::SYS_newfstatat,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw mut out,
            libc::AT_SYMLINK_NOFOLLOW
        )
    }?;
    Ok(out)
}

fn unlink(path: &CStr, flags: i32) -> Result<()> {
    // SAFETY: the kernel reads one string that lives through the call.
    unsafe { syscall!(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), flags) }.map(drop)
}

/// Fills `out` with random bytes.
pub fn random(out: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < out.len() {
        // SAFETY: the kernel writes at most the given length behind `done`.
        match unsafe { syscall!(libc::SYS_getrandom, out[done..].as_mut_ptr(), out.len() - done, 0) } {
            Err(Errno::EINTR) => continue,
            other => done += other?,
        }
    }
    Ok(())
}

/// A directory that only its owner may enter, under a name nobody can guess. Removed, when empty, by
/// [`PrivateDirectory::remove`].
#[derive(Debug)]
pub struct PrivateDirectory {
    path: CString,
}

/// How often a taken name is replaced by another; with 62^10 names one try is enough unless someone plays.
const NAME_TRIES: u32 = 16;

impl PrivateDirectory {
    /// Makes `PREFIXxxxxxxxxxx` with mode 0700. mkdir never follows or reuses what is there, so whatever stands
    /// at the name afterwards in a sticky directory is ours.
    pub fn make(prefix: &[u8]) -> Result<PrivateDirectory> {
        const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let mut tries = 0;
        loop {
            let mut bytes = [0u8; 10];
            random(&mut bytes)?;
            let mut name: Vec<u8> = Vec::with_capacity(prefix.len() + 11);
            name.extend_from_slice(prefix);
            // 256 is no multiple of 62: eight letters come 1.25 times as often, 59 bits of 59.5 are left.
            name.extend(bytes.iter().map(|b| LETTERS[*b as usize % LETTERS.len()]));
            let path = CString::new(name).map_err(|_| Errno::EINVAL)?;
            let old = umask(0o077);
            // SAFETY: the kernel reads one string that lives through the call.
            let made = unsafe { syscall!(libc::SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), 0o700) };
            umask(old);
            match made {
                Err(Errno::EEXIST) if tries < NAME_TRIES => tries += 1,
                other => return other.map(|_| PrivateDirectory { path }),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &CStr {
        &self.path
    }

    /// Removes it; what others put inside keeps it.
    pub fn remove(&self) -> Result<()> {
        unlink(&self.path, libc::AT_REMOVEDIR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK4: Address = Address::v4([127, 0, 0, 1], 0);

    #[test]
    fn addresses_are_those_of_the_standard_library() {
        for text in ["192.0.2.1:22", "[2001:db8::1]:22", "[fe80::1%3]:0", "[::]:1"] {
            let address: SocketAddr = text.parse().expect(text);
            assert_eq!(SocketAddr::from(Address::from(address)), address);
        }
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:22".parse().expect("an address");
        assert_eq!(Address::from(mapped), Address::v4([192, 0, 2, 1], 22));
    }

    #[test]
    fn addresses_survive_the_kernel() {
        let all = [
            Address::v4([192, 0, 2, 7], 513),
            Address::v6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9], 65535),
            Address {
                ip: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                scope: 7,
                port: 1,
            },
        ];
        for address in all {
            assert_eq!(Address::from_kernel(&address.to_kernel().0), Ok(address));
        }
    }

    #[test]
    fn connects_and_accepts() {
        let listener = tcp(&LOOPBACK4).expect("socket");
        bind(&listener, &LOOPBACK4).expect("bind");
        listen(&listener, 4).expect("listen");
        assert_eq!(accept(&listener).err(), Some(Errno::EAGAIN));
        let here = local(&listener).expect("local");
        assert_ne!(here.port, 0);
        let client = tcp(&here).expect("socket");
        if let Err(e) = connect(&client, &here) {
            assert_eq!(e, Errno::EINPROGRESS);
        }
        let mut watch = [crate::poll::Watch::new(client.raw(), crate::poll::WRITE)];
        assert_eq!(crate::poll::poll(&mut watch, Some(10_000)), Ok(1));
        assert_eq!(outcome(&client), Ok(()));
        let (server, peer) = accept(&listener).expect("accept");
        assert_eq!(peer, local(&client).expect("local"));
        for option in [set_no_delay, confirm_now] {
            assert_eq!(option(&server), Ok(()));
            let (pair, _) = crate::socket::pair().expect("a pair");
            assert!(option(&pair).is_err(), "not TCP");
        }
    }

    #[test]
    fn private_directories_and_socket_files() {
        let dir = PrivateDirectory::make(b"/tmp/fleetgate-net-test-").expect("mkdir");
        assert_eq!(status(dir.path()).expect("stat").st_mode & 0o7777, 0o700);
        let mut name = dir.path().to_bytes().to_vec();
        name.extend_from_slice(b"/s");
        let path = CString::new(name).expect("no zero");
        let socket = unix().expect("socket");
        bind_unix(&socket, &path).expect("bind");
        let file = SocketFile::of(path.clone()).expect("socket file");
        assert_eq!(dir.remove(), Err(Errno::ENOTEMPTY));
        // Another file at the same path is not ours to remove.
        std::fs::rename(
            path.to_str().expect("text"),
            std::format!("{}2", path.to_str().expect("text")),
        )
        .expect("rename");
        bind_unix(&unix().expect("socket"), &path).expect("bind");
        assert_eq!(file.remove(), Err(Errno::ESTALE));
        SocketFile::of(path.clone())
            .expect("other")
            .remove()
            .expect("removed");
        std::fs::rename(
            std::format!("{}2", path.to_str().expect("text")),
            path.to_str().expect("text"),
        )
        .expect("rename");
        assert_eq!(file.remove(), Ok(()));
        assert_eq!(dir.remove(), Ok(()));
    }

    #[test]
    fn paths_are_bounded() {
        let long = CString::new(std::vec![b'a'; MAX_UNIX_PATH + 1]).expect("no zero");
        assert_eq!(
            connect_unix(&unix().expect("socket"), &long),
            Err(Errno::ENAMETOOLONG)
        );
        assert_eq!(connect_unix(&unix().expect("socket"), c""), Err(Errno::ENOENT));
    }
}
