//! The kernel's audit: messages of programs, sent over netlink.

use crate::{Errno, Fd, Result, syscall};
use alloc::vec::Vec;

const NETLINK_AUDIT: i32 = 9;
const REQUEST_WITH_ACK: u16 = 1 | 4;
const NLMSG_ERROR: u16 = 2;
const HEADER: usize = 16;

/// The longest text that one message carries. The kernel's own bound is 8970.
pub const MAX_TEXT: usize = 4096;

/// The socket on which messages are told.
pub struct Audit {
    socket: Fd,
    sequence: u32,
}

impl Audit {
    /// A socket. `EPROTONOSUPPORT`, `EAFNOSUPPORT` or `EINVAL`: this kernel has no audit.
    pub fn open() -> Result<Audit> {
        // SAFETY: numbers only.
        let socket = unsafe {
            syscall!(
                libc::SYS_socket,
                libc::AF_NETLINK,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                NETLINK_AUDIT
            )
        }?;
        Ok(Audit {
            socket: Fd::from_raw(socket as i32),
            sequence: 0,
        })
    }

    /// Tells one message of type `kind`. The kernel takes it while `sendto` runs, so its answer is there when
    /// that returns and nothing waits.
    pub fn tell(&mut self, kind: u16, text: &[u8]) -> Result<()> {
        let text = &text[..text.len().min(MAX_TEXT)];
        self.sequence += 1;
        let mut message = Vec::with_capacity(HEADER + text.len());
        message.extend_from_slice(&((HEADER + text.len()) as u32).to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&REQUEST_WITH_ACK.to_ne_bytes());
        message.extend_from_slice(&self.sequence.to_ne_bytes());
        message.extend_from_slice(&[0; 4]);
        message.extend_from_slice(text);
        // sockaddr_nl of the kernel: family, padding, port 0, no groups.
        let mut address = [0u8; 12];
        address[..2].copy_from_slice(&(libc::AF_NETLINK as u16).to_ne_bytes());
        // SAFETY: the kernel reads the message and a sockaddr_nl of 12 bytes.
        unsafe {
            syscall!(
                libc::SYS_sendto,
                self.socket.raw(),
                message.as_ptr(),
                message.len(),
                libc::MSG_NOSIGNAL,
                address.as_ptr(),
                address.len()
            )
        }?;
        self.answer()
    }

    fn answer(&self) -> Result<()> {
        let mut answer = [0u8; 64];
        // SAFETY: the kernel writes at most as many bytes as `answer` has.
        let len = match unsafe {
            syscall!(
                libc::SYS_recvfrom,
                self.socket.raw(),
                answer.as_mut_ptr(),
                answer.len(),
                libc::MSG_DONTWAIT,
                0,
                0
            )
        } {
            // Taken, and the answer is late: nobody is kept waiting for it.
            Err(Errno::EAGAIN) => return Ok(()),
            other => other?,
        };
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        let code = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
        if len >= HEADER + 4 && kind == NLMSG_ERROR && code != 0 {
            return Err(Errno(-code));
        }
        Ok(())
    }
}
