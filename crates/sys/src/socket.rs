//! Message sockets between our own processes: whole frames (SOCK_SEQPACKET) with descriptors beside them.

use crate::{Errno, Fd, Result, syscall};
use alloc::vec::Vec;

/// The most descriptors that travel with one frame. The kernel's own bound is 253.
pub const MAX_FDS: usize = 16;

const CMSG_HEADER: usize = size_of::<libc::cmsghdr>();
const CMSG_SPACE: usize = CMSG_HEADER + MAX_FDS * size_of::<i32>();

/// Ancillary data, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; CMSG_SPACE]);

/// A connected pair of message sockets, both close-on-exec.
pub fn pair() -> Result<(Fd, Fd)> {
    let mut fds = [0i32; 2];
    // SAFETY: the kernel writes two numbers.
    unsafe {
        syscall!(
            libc::SYS_socketpair,
            libc::AF_UNIX,
            libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
            0,
            fds.as_mut_ptr()
        )
    }?;
    Ok((Fd::from_raw(fds[0]), Fd::from_raw(fds[1])))
}

/// A message socket that is neither bound nor connected: for [`crate::net::bind_unix`], [`crate::net::listen`] and
/// [`crate::net::connect_unix`].
pub fn unconnected() -> Result<Fd> {
    const KIND: i32 = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: numbers only.
    let made = unsafe { syscall!(libc::SYS_socket, libc::AF_UNIX, KIND, 0) }?;
    Ok(Fd::from_raw(made as i32))
}

/// The user who connected to a listening socket of ours, as the kernel saw it then.
pub fn peer_user(socket: &Fd) -> Result<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut len = size_of::<libc::ucred>() as u32;
    // SAFETY: the kernel writes at most `len` bytes, which is the structure's size.
    unsafe {
        syscall!(
            libc::SYS_getsockopt,
            socket.raw(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            &raw mut peer,
            &raw mut len
        )
    }?;
    Ok(peer.uid)
}

/// Sends one frame with descriptors; never raises SIGPIPE. `EINTR` is tried again.
pub fn send(socket: &Fd, frame: &[u8], fds: &[i32]) -> Result<()> {
    send_with(socket, frame, fds, libc::MSG_NOSIGNAL, 0)
}

/// As [`send`], with a number in the call's sixth argument: sendmsg(2) has three, so it is for a filter to see.
pub fn send_marked(socket: &Fd, frame: &[u8], fds: &[i32], mark: u64) -> Result<()> {
    send_with(socket, frame, fds, libc::MSG_NOSIGNAL, mark)
}

/// As [`send`], but `EAGAIN` when there is no room.
pub fn send_now(socket: &Fd, frame: &[u8], fds: &[i32]) -> Result<()> {
    send_with(socket, frame, fds, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT, 0)
}

fn send_with(socket: &Fd, frame: &[u8], fds: &[i32], flags: i32, mark: u64) -> Result<()> {
    if fds.len() > MAX_FDS {
        return Err(Errno::EINVAL);
    }
    let mut control = Control([0; CMSG_SPACE]);
    let used = CMSG_HEADER + size_of_val(fds);
    let header = libc_cmsghdr(used);
    control.0[..CMSG_HEADER].copy_from_slice(&header);
    for (i, fd) in fds.iter().enumerate() {
        let at = CMSG_HEADER + i * size_of::<i32>();
        control.0[at..at + 4].copy_from_slice(&fd.to_ne_bytes());
    }
    let mut iov = libc::iovec {
        iov_base: frame.as_ptr() as *mut _,
        iov_len: frame.len(),
    };
    let mut msg = empty_msghdr();
    msg.msg_iov = &raw mut iov;
    msg.msg_iovlen = 1;
    if !fds.is_empty() {
        msg.msg_control = control.0.as_mut_ptr().cast();
        msg.msg_controllen = used as _;
    }
    loop {
        // SAFETY: msg points to one iovec and one control block that live through the call; the kernel only reads.
        let sent = unsafe { syscall!(libc::SYS_sendmsg, socket.raw(), &raw const msg, flags, 0, 0, mark) };
        match sent {
            Err(Errno::EINTR) => continue,
            other => return other.map(drop),
        }
    }
}

/// Waits for a frame and tells its length, leaving it there; 0: the other side closed. `EINTR` is tried again.
pub fn next_length(socket: &Fd) -> Result<usize> {
    let flags = libc::MSG_PEEK | libc::MSG_TRUNC;
    loop {
        // SAFETY: no buffer: with MSG_TRUNC the answer is the frame's own length.
        match unsafe { syscall!(libc::SYS_recvfrom, socket.raw(), 0, 0, flags, 0, 0) } {
            Err(Errno::EINTR) => continue,
            other => return other,
        }
    }
}

/// What [`receive`] got.
#[derive(Debug)]
pub struct ReceivedMessage {
    /// The frame's length in the buffer. 0: the other side closed.
    pub len: usize,
    /// Descriptors that came with it, close-on-exec.
    pub fds: Vec<Fd>,
    /// The frame was longer than the buffer, or more descriptors came than [`MAX_FDS`]: the rest is lost.
    pub truncated: bool,
}

/// Receives one frame. With `block` false: `EAGAIN` when there is none. `EINTR` is tried again.
pub fn receive(socket: &Fd, buf: &mut [u8], block: bool) -> Result<ReceivedMessage> {
    let mut control = Control([0; CMSG_SPACE]);
    let mut iov = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    let mut msg = empty_msghdr();
    msg.msg_iov = &raw mut iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.0.as_mut_ptr().cast();
    msg.msg_controllen = CMSG_SPACE as _;
    let flags = libc::MSG_CMSG_CLOEXEC | if block { 0 } else { libc::MSG_DONTWAIT };
    let len = loop {
        // SAFETY: msg points to one iovec over `buf` and one control block; the kernel writes within both.
        match unsafe { syscall!(libc::SYS_recvmsg, socket.raw(), &raw mut msg, flags) } {
            Err(Errno::EINTR) => continue,
            other => break other?,
        }
    };
    // The field is 32 bits wide in musl's headers only.
    #[allow(clippy::unnecessary_cast)]
    let fds = received_fds(&control.0[..(msg.msg_controllen as usize).min(CMSG_SPACE)]);
    Ok(ReceivedMessage {
        len,
        fds,
        truncated: msg.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
    })
}

/// The most frames that [`receive_many`] takes at once.
pub const MAX_FRAMES: usize = 4;

/// A frame of [`receive_many`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// Its length; 0 is the other side's end, repeated to fill the array.
    pub len: usize,
    /// It was cut.
    pub cut: bool,
    /// Who sent it, where [`tell_senders`] was called: the kernel's word.
    pub sender: Option<i32>,
}

/// Has the kernel say of each message that comes on `socket` from now on who sent it. A sender with CAP_SYS_ADMIN can name
/// another process that it can see, and no others.
pub fn tell_senders(socket: &Fd) -> Result<()> {
    let on = 1i32;
    // SAFETY: the kernel reads one number.
    unsafe {
        syscall!(
            libc::SYS_setsockopt,
            socket.raw(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            &raw const on,
            size_of::<i32>()
        )
    }
    .map(drop)
}

/// Room for a sender: a header of 16 bytes, and process, user and group.
const SENDER_SPACE: usize = 32;

/// Receives the frames that are there, up to [`MAX_FRAMES`], in one call and without waiting. `buf` is divided
/// evenly; descriptors are not accepted (the kernel drops them, the frame counts as cut).
pub fn receive_many(socket: &Fd, buf: &mut [u8]) -> Result<([ReceivedFrame; MAX_FRAMES], usize)> {
    #[repr(C)]
    struct Message {
        header: libc::msghdr,
        len: u32,
    }
    let each = buf.len() / MAX_FRAMES;
    let mut iov: [libc::iovec; MAX_FRAMES] = core::array::from_fn(|i| libc::iovec {
        iov_base: buf[i * each..].as_mut_ptr().cast(),
        iov_len: each,
    });
    let mut senders = [[0u64; SENDER_SPACE / 8]; MAX_FRAMES];
    let mut messages: [Message; MAX_FRAMES] = core::array::from_fn(|i| {
        let mut header = empty_msghdr();
        header.msg_iov = &raw mut iov[i];
        header.msg_iovlen = 1;
        header.msg_control = senders[i].as_mut_ptr().cast();
        header.msg_controllen = SENDER_SPACE as _;
        Message { header, len: 0 }
    });
    let got = loop {
        // SAFETY: each header points to one iovec over its own part of `buf`, and to its own words of `senders`; all live
        // through the call.
        match unsafe {
            syscall!(
                libc::SYS_recvmmsg,
                socket.raw(),
                messages.as_mut_ptr(),
                MAX_FRAMES,
                libc::MSG_DONTWAIT,
                0
            )
        } {
            Err(Errno::EINTR) => continue,
            other => break other?,
        }
    };
    let cut = libc::MSG_TRUNC | libc::MSG_CTRUNC;
    Ok((
        core::array::from_fn(|i| ReceivedFrame {
            len: messages[i].len as usize,
            cut: messages[i].header.msg_flags & cut != 0,
            sender: sender(&senders[i]),
        }),
        got,
    ))
}

/// The process of an ancillary message that says who sent.
fn sender(control: &[u64; SENDER_SPACE / 8]) -> Option<i32> {
    // Length, level and kind; then process, user and group.
    let (length, kind) = (control[0] & 0xffff_ffff, control[1]);
    let wanted = (libc::SCM_CREDENTIALS as u64) << 32 | libc::SOL_SOCKET as u64;
    (length >= 28 && kind == wanted).then_some((control[2] & 0xffff_ffff) as i32)
}

/// Takes ownership of every descriptor in the ancillary data; messages of other kinds carry none.
fn received_fds(mut control: &[u8]) -> Vec<Fd> {
    let mut fds = Vec::new();
    while control.len() >= CMSG_HEADER {
        let len = usize::from_ne_bytes(control[..8].try_into().expect("8 bytes")) & 0xffff_ffff;
        let level = i32::from_ne_bytes(control[8..12].try_into().expect("4 bytes"));
        let kind = i32::from_ne_bytes(control[12..16].try_into().expect("4 bytes"));
        if len < CMSG_HEADER || len > control.len() {
            break;
        }
        if level == libc::SOL_SOCKET && kind == libc::SCM_RIGHTS {
            for raw in control[CMSG_HEADER..len].chunks_exact(4) {
                fds.push(Fd::from_raw(i32::from_ne_bytes(raw.try_into().expect("4 bytes"))));
            }
        }
        control = &control[len.next_multiple_of(8).min(control.len())..];
    }
    fds
}

/// Closes `fd` without waiting for what closing it does: its last reference lies in the queue of a socket whose only
/// reference lies there too, and the kernel's collector of such cycles, a worker of its own since Linux 6.10, finds
/// both. Before that, and wherever this fails, it is an ordinary close. Made for the mount of an overlay: closing that
/// waits for an RCU grace period, which was half of what sealing a short-lived program cost.
pub fn close_in_background(fd: Fd) {
    if let Ok((inner, outer)) = pair() {
        let _ = send(&outer, b"x", &[fd.raw(), inner.raw()]);
        drop(fd);
        drop(inner);
        // The close of this one is what wakes the collector.
        drop(outer);
    }
}

/// The bytes of a header that announces descriptors, `len` bytes with them. The kernel's `cmsg_len` is a size_t
/// on every 64-bit machine; musl's struct splits it into a length and padding, which little-endian makes the same.
fn libc_cmsghdr(len: usize) -> [u8; CMSG_HEADER] {
    let mut out = [0; CMSG_HEADER];
    out[..8].copy_from_slice(&len.to_ne_bytes());
    out[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    out[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
    out
}

pub(crate) fn empty_msghdr() -> libc::msghdr {
    // SAFETY: all fields are numbers and pointers, for which zero is a value; musl's padding must be zero.
    unsafe { core::mem::zeroed() }
}
