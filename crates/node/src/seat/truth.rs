//! The self-test of the image: `true` is what proves it on the ladder. It takes the arguments that the session helper's
//! takes, and touches what a seat will need.

use fleetgate_sys::spawn::Strings;
use fleetgate_sys::{Errno, Fd, credentials, epoll, exe, poll, socket};
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
pub(super) fn run(args: &[OsString]) -> i32 {
    let Some(wanted) = parse(args) else {
        return super::usage("true takes --as UID:GID and --linger MS");
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
            eprintln!("fleetgate-front: {what}: {errno}");
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

/// A descriptor over a socket, and an epoll that sees it come.
fn check() -> Checked {
    let at = |what: &'static str| move |e: Errno| (what, e);
    let (left, right) = socket::pair().map_err(at("making a socket pair"))?;
    let epoll = epoll::Epoll::new().map_err(at("making an epoll"))?;
    epoll.add_edges(&right, 1).map_err(at("adding to it"))?;
    socket::send(&left, b"true", &[right.raw()]).map_err(at("sending"))?;
    let mut events = [epoll::Event::EMPTY];
    if epoll.wait(&mut events, Some(0)) != Ok(1) || !events[0].readable() {
        return Err(("seeing a frame arrive", Errno::EIO));
    }
    let mut word = [0u8; 8];
    let got = socket::receive(&right, &mut word, true).map_err(at("receiving"))?;
    if &word[..got.len] != b"true" || got.fds.len() != 1 {
        return Err(("receiving a descriptor", Errno::EPROTO));
    }
    Ok(())
}

/// Becomes the user and executes the image once more, which then does the same checks; comes back only on failure.
fn again_as(uid: u32, gid: u32, linger_ms: u32) -> Checked {
    let at = |what: &'static str| move |e: Errno| (what, e);
    credentials::set_groups(&[]).map_err(at("dropping the supplementary groups"))?;
    credentials::set_group_ids(gid).map_err(at("changing the group id"))?;
    credentials::set_user_ids(uid).map_err(at("changing the user id"))?;
    let image = Fd::from_raw(IMAGE);
    let ms = CString::new(linger_ms.to_string()).unwrap_or_default();
    let argv: [&CStr; 4] = [c"fleetgate-front", c"true", c"--linger", &ms];
    let errno = exe::execute(&image, &Strings::new(argv), &Strings::new([]));
    Err(("executing the image as an ordinary user", errno))
}
