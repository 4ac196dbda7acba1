//! Byte streams that this process did not make: a pipe or stream socket somebody handed to it. Sending without
//! waiting, and without changing what others who share the stream see, where that can be had.

use crate::{Errno, Fd, Result, syscall};

/// Sends once on a socket what fits now; `EAGAIN` when nothing does. Never raises SIGPIPE, and leaves the
/// socket's own waiting mode alone. `EINTR` is tried again.
pub fn send_now(socket: i32, bytes: &[u8]) -> Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: the kernel reads at most `bytes.len()` bytes; no address is given.
        match unsafe { syscall!(libc::SYS_sendto, socket, bytes.as_ptr(), bytes.len(), flags, 0, 0) } {
            Err(Errno::EINTR) => continue,
            other => return other,
        }
    }
}

/// Receives once on a socket what has come by now; `EAGAIN` when nothing has, 0 at the end.
pub fn receive_now(socket: i32, room: &mut [u8]) -> Result<usize> {
    let flags = libc::MSG_DONTWAIT;
    loop {
        // SAFETY: the kernel writes at most `room.len()` bytes; no address is asked for.
        match unsafe {
            syscall!(
                libc::SYS_recvfrom,
                socket,
                room.as_mut_ptr(),
                room.len(),
                flags,
                0,
                0
            )
        } {
            Err(Errno::EINTR) => continue,
            other => return other,
        }
    }
}

/// The same into several parts, one after the other; those beyond [`MAX_PARTS`](crate::file::MAX_PARTS) are left alone.
pub fn receive_parts_now(socket: i32, parts: &mut [&mut [u8]]) -> Result<usize> {
    let (mut vectors, count) = crate::file::vectors(parts);
    let mut message = crate::socket::empty_msghdr();
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = count as _;
    loop {
        // SAFETY: the kernel writes to the `count` parts that `vectors` names, which are borrowed for that, and to
        // `message` itself; it has no room for an address or for control data.
        match unsafe { syscall!(libc::SYS_recvmsg, socket, &raw mut message, libc::MSG_DONTWAIT) } {
            Err(Errno::EINTR) => continue,
            other => return other,
        }
    }
}

/// Asks for `bytes` of room in a socket for what was sent and not yet received. The kernel doubles it for its own
/// use and caps it at net.core.wmem_max.
pub fn set_send_buffer(socket: i32, bytes: i32) -> Result<()> {
    // SAFETY: the kernel reads one number.
    unsafe {
        syscall!(
            libc::SYS_setsockopt,
            socket,
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            &raw const bytes,
            size_of::<i32>()
        )
    }
    .map(drop)
}

/// Asks for `bytes` of room in a pipe. The kernel refuses more than fs.pipe-max-size, and any growth to a user who
/// holds very much of it.
pub fn set_pipe_size(pipe: i32, bytes: i32) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_fcntl, pipe, libc::F_SETPIPE_SZ, bytes) }.map(drop)
}

/// Makes reads and writes on our end of a pipe or terminal return instead of waiting, in one call: for an open file
/// that has no other flags, as these have none.
pub fn make_nonblocking(fd: &Fd) -> Result<()> {
    // SAFETY: numbers only.
    unsafe { syscall!(libc::SYS_fcntl, fd.raw(), libc::F_SETFL, libc::O_NONBLOCK) }.map(drop)
}

/// What of fcntl and setsockopt is used here and in [`crate::net`], for a confinement that lets it through.
pub mod requests {
    /// [`super::make_nonblocking`].
    pub const SET_FLAGS: u32 = libc::F_SETFL as u32;
    /// [`super::set_pipe_size`].
    pub const SET_PIPE_SIZE: u32 = libc::F_SETPIPE_SZ as u32;
    /// [`crate::net::set_no_delay`].
    pub const NO_DELAY: u32 = libc::TCP_NODELAY as u32;
    /// [`crate::net::confirm_now`].
    pub const CONFIRM_NOW: u32 = libc::TCP_QUICKACK as u32;
    /// [`crate::net::outcome`].
    pub const OUTCOME: u32 = libc::SO_ERROR as u32;
    /// [`super::is_nonblocking`].
    pub const GET_FLAGS: u32 = libc::F_GETFL as u32;
    /// Whether a descriptor is closed by exec: the standard library's way of asking whether it is one.
    pub const GET_CLOEXEC: u32 = libc::F_GETFD as u32;
    /// Internet sockets of version 4.
    pub const INET: u32 = libc::AF_INET as u32;
    /// Of version 6.
    pub const INET6: u32 = libc::AF_INET6 as u32;
    /// A stream socket that does not wait and is closed by exec, as [`crate::net::tcp`] and tokio make it.
    pub const STREAM: u32 = (libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) as u32;
    /// A mapping or protection with it is code.
    pub const PROT_EXEC: u32 = libc::PROT_EXEC as u32;
}

/// Whether reads and writes on `fd` return instead of waiting.
pub fn is_nonblocking(fd: &Fd) -> Result<bool> {
    // SAFETY: numbers only.
    let flags = unsafe { syscall!(libc::SYS_fcntl, fd.raw(), libc::F_GETFL) }?;
    Ok(flags as i32 & libc::O_NONBLOCK != 0)
}
