//! TUN devices: a network interface whose wire is a descriptor. What the kernel sends out of the interface is read from
//! the descriptor, one packet at a time, and what is written to it arrives there.
//!
//! Without the header of a virtual device (IFF_VNET_HDR) the interface has no offloads, so every packet is at most as
//! long as the interface's MTU and its checksums are complete, as on a real wire. The interface goes with its last
//! descriptor.

use crate::{Errno, Fd, Result, file, syscall};

/// The longest name of an interface; the kernel's bound is 16 bytes with the final zero.
pub const MAX_NAME: usize = 15;

/// Makes the interface `name`, down and without an address, in the network of the calling thread. The descriptor does
/// not wait: reading answers `EAGAIN` when there is no packet.
pub fn open(name: &str) -> Result<Fd> {
    // struct ifreq: a name of 16 bytes, ended by zero, then a union that begins with the flags.
    #[repr(C, align(8))]
    struct Request([u8; 40]);
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Errno::EINVAL);
    }
    let mut request = Request([0; 40]);
    request.0[..name.len()].copy_from_slice(name.as_bytes());
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as u16;
    request.0[16..18].copy_from_slice(&flags.to_ne_bytes());
    let how = file::flags::O_RDWR | file::flags::O_NONBLOCK;
    let device = file::openat(file::CWD, c"/dev/net/tun", how, 0)?;
    // SAFETY: the kernel reads and writes one ifreq of 40 bytes.
    unsafe {
        syscall!(
            libc::SYS_ioctl,
            device.raw(),
            libc::TUNSETIFF,
            request.0.as_mut_ptr()
        )
    }?;
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_the_kernels_request() {
        for name in ["", "sixteen-letters!"] {
            assert_eq!(open(name).err(), Some(Errno::EINVAL), "{name:?}");
        }
    }
}
