//! The self-test of the image, what every session will need; the version, the usage.

use crate::sha256::Sha256;
use alloc::format;
use alloc::string::String;
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

/// Prints the version and the SHA-256 of the running image, which is what tells two builds apart.
pub fn version() -> i32 {
    match own_digest() {
        Ok(digest) => {
            say(1, &format!("fleetgate-session {} {digest}\n", crate::VERSION));
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

fn own_digest() -> Result<String, Errno> {
    let image = exe::open_read(file::CWD, c"/proc/self/exe")?;
    let mut sum = Sha256::new();
    let mut chunk = alloc::vec![0u8; 32 << 10];
    loop {
        match file::read(image.raw(), &mut chunk)? {
            0 => break,
            n => sum.update(&chunk[..n]),
        }
    }
    let mut text = String::with_capacity(64);
    for byte in sum.finish() {
        for digit in [byte >> 4, byte & 15] {
            text.push(b"0123456789abcdef"[digit as usize] as char);
        }
    }
    Ok(text)
}

/// Says that nobody calls this by hand.
pub fn usage() -> i32 {
    say(
        2,
        "fleetgate-session: started by fleetgate, not by hand. Of use by hand are only\n  \
         fleetgate-session true         test whether a session could run from this image\n  \
         fleetgate-session --version    print its version and digest\n  \
         fleetgate-session sftp         serve SFTP on standard input and output\n",
    );
    2
}

fn say(fd: i32, text: &str) {
    let _ = file::write_all(fd, text.as_bytes());
}
