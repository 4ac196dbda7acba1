//! The self-test and the version. `true` is what proves this image on the ladder: it takes the arguments that the
//! session helper's takes, and touches what a resolver will need.

use fleetgate_sys::glibc::nss;
use fleetgate_sys::spawn::Strings;
use fleetgate_sys::{Errno, Fd, credentials, exe, poll, socket};
use std::ffi::{CStr, CString, OsString};

/// Where the launching side puts the image that is to be executed once more.
const IMAGE: i32 = 3;
/// The longest that a probe may be told to stay alive.
const MAX_LINGER_MS: u32 = 60_000;

#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    user: Option<(u32, u32)>,
    linger_ms: u32,
}

/// `true [--as UID:GID] [--linger MS]`: 0 when all of it works; 1 and a line on standard error when not.
pub fn run(args: &[OsString]) -> i32 {
    let Some(wanted) = parse(args) else {
        return crate::usage("true takes --as UID:GID and --linger MS");
    };
    let done = check().and_then(|()| match wanted.user {
        Some((uid, gid)) => again_as(uid, gid, wanted.linger_ms),
        None => {
            if wanted.linger_ms > 0 {
                // Nothing to wait for: only the time passes.
                let _ = poll::poll(&mut [], Some(wanted.linger_ms));
            }
            Ok(())
        }
    });
    match done {
        Ok(()) => 0,
        Err((what, errno)) => {
            crate::log(format_args!("{what}: {errno}"));
            1
        }
    }
}

fn parse(args: &[OsString]) -> Option<Wanted> {
    let mut wanted = Wanted::default();
    for pair in args.chunks(2) {
        let [name, value] = pair else { return None };
        let value = value.to_str()?;
        match name.to_str()? {
            "--as" => {
                let (uid, gid) = value.split_once(':')?;
                wanted.user = Some((uid.parse().ok()?, gid.parse().ok()?));
            }
            "--linger" => wanted.linger_ms = value.parse().ok().filter(|ms| *ms <= MAX_LINGER_MS)?,
            _ => return None,
        }
    }
    Some(wanted)
}

type Checked = Result<(), (&'static str, Errno)>;

/// A descriptor over a socket, and the C library's name look-up (of a number: no directory on the network is asked).
fn check() -> Checked {
    let at = |what: &'static str| move |e: Errno| (what, e);
    let (left, right) = socket::pair().map_err(at("making a socket pair"))?;
    socket::send(&left, b"true", &[right.raw()]).map_err(at("sending"))?;
    let mut word = [0u8; 8];
    let got = socket::receive(&right, &mut word, true).map_err(at("receiving"))?;
    if &word[..got.len] != b"true" || got.fds.len() != 1 {
        return Err(("receiving a descriptor", Errno::EPROTO));
    }
    match nss::host(c"127.0.0.1") {
        Ok(found) if found.len() == 1 => Ok(()),
        _ => Err(("looking up 127.0.0.1", Errno::EIO)),
    }
}

/// Becomes the user and executes the image once more, which then does the same checks; comes back only on failure.
fn again_as(uid: u32, gid: u32, linger_ms: u32) -> Checked {
    let at = |what: &'static str| move |e: Errno| (what, e);
    credentials::set_groups(&[]).map_err(at("dropping the supplementary groups"))?;
    credentials::set_group_ids(gid).map_err(at("changing the group id"))?;
    credentials::set_user_ids(uid).map_err(at("changing the user id"))?;
    let image = Fd::from_raw(IMAGE);
    let ms = CString::new(linger_ms.to_string()).unwrap_or_default();
    let argv: [&CStr; 4] = [c"fleetgate-resolver", c"true", c"--linger", &ms];
    let errno = exe::execute(&image, &Strings::new(argv), &Strings::new([]));
    Err(("executing the image as an ordinary user", errno))
}

/// Prints the version.
pub fn version() -> i32 {
    println!("fleetgate-resolver {}", env!("CARGO_PKG_VERSION"));
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_those_of_the_session_helper() {
        let words = |text: &str| parse(&text.split(' ').map(OsString::from).collect::<Vec<_>>());
        let wanted = Wanted {
            user: Some((65534, 65533)),
            linger_ms: 60_000,
        };
        assert_eq!(words("--as 65534:65533 --linger 60000"), Some(wanted));
        for bad in ["--linger", "--linger 60001", "--as 1", "--as x:1", "x y", ""] {
            assert_eq!(words(bad), None, "{bad}");
        }
        assert_eq!(parse(&[]), Some(Wanted::default()));
    }
}
