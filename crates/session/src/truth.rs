//! The self-test, the version, the usage.
//!
//! `true` is what proves an image: it is run as root and, by executing the image once more, as an ordinary user. It
//! touches what every session will need, so that a security module which lets the image run and then starves it is
//! noticed before a user is. It takes no order and changes nothing.

use crate::sha256::Sha256;
use alloc::ffi::CString;
use alloc::format;
use alloc::string::String;
use core::ffi::CStr;
use fleetgate_sys::{Errno, Fd, credentials, exe, file, poll, socket, spawn::Strings};

/// Where the launching side puts the image that is to be executed once more.
const IMAGE: i32 = 3;

/// The longest that a probe may be told to stay alive.
const MAX_LINGER_MS: u32 = 60_000;

/// `true [--as UID:GID] [--linger MS]`: 0 when all of it works; 1 and a line on standard error when not.
pub fn run(args: &[&[u8]]) -> i32 {
    let Some(wanted) = parse(args) else {
        return usage();
    };
    let result = check().and_then(|()| match wanted.user {
        Some((uid, gid)) => again_as(uid, gid, wanted.linger_ms),
        None => {
            linger(wanted.linger_ms);
            Ok(())
        }
    });
    match result {
        Ok(()) => 0,
        Err((what, errno)) => {
            say(2, &format!("{what}: {errno}\n"));
            1
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wanted {
    user: Option<(u32, u32)>,
    linger_ms: u32,
}

fn parse(mut args: &[&[u8]]) -> Option<Wanted> {
    let mut wanted = Wanted::default();
    while let [name, value, rest @ ..] = args {
        let value = core::str::from_utf8(value).ok()?;
        match *name {
            b"--as" => {
                let (uid, gid) = value.split_once(':')?;
                wanted.user = Some((uid.parse().ok()?, gid.parse().ok()?));
            }
            b"--linger" => wanted.linger_ms = value.parse().ok().filter(|ms| *ms <= MAX_LINGER_MS)?,
            _ => return None,
        }
        args = rest;
    }
    args.is_empty().then_some(wanted)
}

type Checked = Result<(), (&'static str, Errno)>;

fn at<T>(what: &'static str, result: Result<T, Errno>) -> Result<T, (&'static str, Errno)> {
    result.map_err(|e| (what, e))
}

/// Opens, reads and writes what a session will need.
fn check() -> Checked {
    let (left, right) = at("making a socket pair", socket::pair())?;
    at("sending", socket::send(&left, b"true", &[right.raw()]))?;
    let mut word = [0u8; 8];
    let got = at("receiving", socket::receive(&right, &mut word, true))?;
    if &word[..got.len] != b"true" || got.fds.len() != 1 {
        return Err(("receiving a descriptor", Errno::EPROTO));
    }
    let (reader, writer) = at("making a pipe", file::pipe())?;
    at("writing to a pipe", file::write_all(writer.raw(), b"true"))?;
    if at("reading from a pipe", file::read(reader.raw(), &mut word))? != 4 {
        return Err(("reading from a pipe", Errno::EIO));
    }
    at("opening /", exe::open_read(file::CWD, c"/"))?;
    let null = at("opening /dev/null", exe::open_write(file::CWD, c"/dev/null"))?;
    at("writing to /dev/null", file::write_all(null.raw(), b"true"))
}

/// Becomes the user and executes the image once more, which then does the same checks; comes back only on failure.
fn again_as(uid: u32, gid: u32, linger_ms: u32) -> Checked {
    at("dropping the supplementary groups", credentials::set_groups(&[]))?;
    at("changing the group id", credentials::set_group_ids(gid))?;
    at("changing the user id", credentials::set_user_ids(uid))?;
    let image = Fd::from_raw(IMAGE);
    let ms = CString::new(format!("{linger_ms}")).unwrap_or_default();
    let argv: [&CStr; 4] = [c"fleetgate-session", c"true", c"--linger", &ms];
    let errno = exe::execute(&image, &Strings::new(argv), &Strings::new([]));
    Err(("executing the image as an ordinary user", errno))
}

/// Stays alive for a watcher to notice.
fn linger(ms: u32) {
    if ms > 0 {
        let _ = poll::poll(&mut [], Some(ms));
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn what_the_probe_may_be_told() {
        let parse = |words: &[&str]| {
            let words: Vec<&[u8]> = words.iter().map(|w| w.as_bytes()).collect();
            super::parse(&words)
        };
        assert_eq!(parse(&[]), Some(Wanted::default()));
        let all = parse(&["--as", "65534:7", "--linger", "20"]);
        assert_eq!(
            all,
            Some(Wanted {
                user: Some((65534, 7)),
                linger_ms: 20
            })
        );
        for bad in [
            &["--as"][..],
            &["--as", "1"],
            &["--as", "x:1"],
            &["--as", "-1:1"],
            &["--linger", "60001"],
            &["--linger", ""],
            &["--what", "1"],
            &["x"],
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
