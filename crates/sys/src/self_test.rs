//! `true`, the subcommand by which an executable image proves itself: it is run as root and, by executing the image once
//! more, as an ordinary user, and touches what the program will need, so that a security module which lets the image run
//! and then starves it is noticed before a user is. It takes no order and changes nothing. The other side of it is the
//! probe of the fallback chain.

use crate::spawn::Strings;
use crate::{Errno, Fd, Result, credentials, exe, poll, socket};
use alloc::ffi::CString;
use alloc::format;
use core::ffi::CStr;

/// Where the launching side puts the image that is to be executed once more.
pub const IMAGE: i32 = 3;
/// The longest that a probe may be told to stay alive.
const MAX_LINGER_MS: u32 = 60_000;

/// What did not work, and why.
pub type TestResult = core::result::Result<(), (&'static str, Errno)>;

/// Names what `result` is of.
pub fn at<T>(what: &'static str, result: Result<T>) -> core::result::Result<T, (&'static str, Errno)> {
    result.map_err(|e| (what, e))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wanted {
    user: Option<(u32, u32)>,
    linger_ms: u32,
}

/// `true [--as UID:GID] [--linger MS]`, of a program that is called `name` and needs what `check` tries. None: the
/// arguments are others.
pub fn run(name: &CStr, args: &[&[u8]], check: impl FnOnce() -> TestResult) -> Option<TestResult> {
    let wanted = parse(args)?;
    Some(check().and_then(|()| match wanted.user {
        Some(user) => again_as(name, user, wanted.linger_ms),
        None => {
            if wanted.linger_ms > 0 {
                // Nothing to wait for: a watcher is given the time to notice.
                let _ = poll::poll(&mut [], Some(wanted.linger_ms));
            }
            Ok(())
        }
    }))
}

/// A descriptor over a socket: every program of ours lives by those.
pub fn descriptor_over_a_socket() -> TestResult {
    let (left, right) = at("making a socket pair", socket::pair())?;
    at("sending", socket::send(&left, b"true", &[right.raw()]))?;
    let mut word = [0u8; 8];
    let got = at("receiving", socket::receive(&right, &mut word, true))?;
    if &word[..got.len] != b"true" || got.fds.len() != 1 {
        return Err(("receiving a descriptor", Errno::EPROTO));
    }
    Ok(())
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

/// Becomes the user and executes the image once more, which then does the same checks; comes back only on failure.
fn again_as(name: &CStr, (uid, gid): (u32, u32), linger_ms: u32) -> TestResult {
    at("dropping the supplementary groups", credentials::set_groups(&[]))?;
    at("changing the group id", credentials::set_group_ids(gid))?;
    at("changing the user id", credentials::set_user_ids(uid))?;
    let image = Fd::from_raw(IMAGE);
    let ms = CString::new(format!("{linger_ms}")).unwrap_or_default();
    let argv: [&CStr; 4] = [name, c"true", c"--linger", &ms];
    let errno = exe::execute(&image, &Strings::new(argv), &Strings::new([]));
    Err(("executing the image as an ordinary user", errno))
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
        let all = parse(&["--as", "65534:7", "--linger", "60000"]);
        assert_eq!(
            all,
            Some(Wanted {
                user: Some((65534, 7)),
                linger_ms: 60_000
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
            &[""],
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_program_that_works_says_so_and_one_that_does_not_says_why() {
        let name = c"program";
        assert_eq!(run(name, &[], descriptor_over_a_socket), Some(Ok(())));
        let broken = ("trying", Errno::EPERM);
        assert_eq!(run(name, &[], || Err(broken)), Some(Err(broken)));
        assert_eq!(run(name, &[b"x"], || Ok(())), None);
    }
}
