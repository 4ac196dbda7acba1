//! The self-test of the image, what every session will need; the version, the usage.

use alloc::format;
use alloc::vec::Vec;
use core::fmt::Write as _;
use fleetgate_sys::self_test::{TestResult, at, descriptor_over_a_socket, run as prove};
use fleetgate_sys::{Errno, exe, file};

/// `true [--as UID:GID] [--linger MS]`: 0 when all of it works; 1 and a line on standard error when not.
pub fn run(args: &[&[u8]]) -> i32 {
    match prove(c"fleetgate-session", args, check) {
        Some(Ok(())) => 0,
        Some(Err((what, errno))) => {
            say(2, &format!("{what}: {errno}\n"));
            1
        }
        None => usage(),
    }
}

/// Opens, reads and writes what a session will need.
fn check() -> TestResult {
    descriptor_over_a_socket()?;
    let mut word = [0u8; 8];
    let (reader, writer) = at("making a pipe", file::pipe())?;
    at("writing to a pipe", file::write_all(writer.raw(), b"true"))?;
    if at("reading from a pipe", file::read(reader.raw(), &mut word))? != 4 {
        return Err(("reading from a pipe", Errno::EIO));
    }
    at("opening /", exe::open_read(file::CWD, c"/"))?;
    let null = at("opening /dev/null", exe::open_write(file::CWD, c"/dev/null"))?;
    at("writing to /dev/null", file::write_all(null.raw(), b"true"))
}

/// Prints the version and the build id of the running image, which is what tells two builds apart.
pub fn version() -> i32 {
    match own_start() {
        Ok(start) => {
            let mut text = format!("fleetgate-session {}", crate::VERSION);
            for (i, byte) in build_id(&start).iter().enumerate() {
                let _ = write!(text, "{}{byte:02x}", if i == 0 { " " } else { "" });
            }
            text.push('\n');
            say(1, &text);
            0
        }
        Err(errno) => {
            say(
                2,
                &format!("fleetgate-session {}: /proc/self/exe: {errno}\n", crate::VERSION),
            );
            1
        }
    }
}

/// The first bytes of the running image. The linker's note stands in them, behind the program headers.
fn own_start() -> Result<Vec<u8>, Errno> {
    let image = exe::open_read(file::CWD, c"/proc/self/exe")?;
    let mut start = alloc::vec![0u8; 4 << 10];
    let len = file::read(image.raw(), &mut start)?;
    start.truncate(len);
    Ok(start)
}

/// The build id in the ELF note that the linker made of it: 20 bytes of SHA-1. Empty: there is none.
fn build_id(image: &[u8]) -> &[u8] {
    // The lengths of name and id, the note's type, the name.
    const NOTE: &[u8; 16] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
    let at = image.windows(NOTE.len()).position(|window| window == NOTE);
    at.and_then(|at| image.get(at + NOTE.len()..at + NOTE.len() + 20))
        .unwrap_or_default()
}

/// Says that nobody calls this by hand.
pub fn usage() -> i32 {
    say(
        2,
        "fleetgate-session: started by fleetgate, not by hand. Of use by hand are only\n  \
         fleetgate-session true         test whether a session could run from this image\n  \
         fleetgate-session --version    print its version and build id\n  \
         fleetgate-session sftp         serve SFTP on standard input and output\n",
    );
    2
}

fn say(fd: i32, text: &str) {
    let _ = file::write_all(fd, text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_id_is_found_behind_its_note() {
        let mut image = b"\x7fELF headers \x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0".to_vec();
        image.extend(1..=20);
        let id: Vec<u8> = (1..=20).collect();
        assert_eq!(build_id(&[&image[..], b"more"].concat()), id);
        assert_eq!(build_id(&image[..image.len() - 1]), b"");
        assert_eq!(build_id(b""), b"");
    }
}
