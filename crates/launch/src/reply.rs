//! Waiting for the helper's word, with as few wake-ups as can be.
//!
//! `exec`: one ppoll for the control socket's hang-up (POLLRDHUP alone: Ready and Leaving arrive without waking
//! anybody), then one recvmmsg takes Ready, Leaving, Failed and the end together. 1 wake-up, 2 system calls.
//! The hang-up comes from the exec (the socket is close-on-exec) and from death alike, so the pidfd is not
//! watched. Others: one ppoll for the first frame, one recvmsg. 1 wake-up, 2 system calls.

use crate::{LaunchError, Stage};
use fleetgate_sys::poll::{PEER_CLOSED, READ, Watch, poll};
use fleetgate_sys::socket::{self, ReceivedFrame};
use fleetgate_sys::{Errno, Fd};
use fleetgate_wire::reply::{KeyFile, Timing};
use fleetgate_wire::{Failure, Reply};

/// The longest word of an `exec` helper; its Failed names one path.
const MAX_WORD: usize = 16 << 10;
/// One buffer for all words; the answer of `checkhomedir` has it to itself.
pub(crate) const BUFFER: usize = MAX_WORD * socket::MAX_FRAMES;

/// What a helper that did not fail has begun.
#[derive(Debug)]
pub enum Begun {
    /// The user's program was executed; the helper is no more.
    Executed {
        /// What each step cost, when asked for.
        timings: Vec<Timing>,
        /// The first of the login's records that could not be written.
        unrecorded: Option<Failure>,
        /// Why it is not watched, though it should be.
        unwatched: Option<Failure>,
    },
    /// It serves on its control socket.
    Serving,
    /// What `checkhomedir` found.
    Home {
        /// Why the home directory cannot be entered; none: it can.
        home: Option<Failure>,
        /// One answer per file asked for.
        files: Vec<KeyFile>,
        /// Contents too long for the frame, as sealed memfds.
        long: Vec<Fd>,
    },
}

/// Why there is no word.
pub(crate) enum Silence {
    /// The helper is gone, after this stage.
    Gone(Stage),
    /// Time is up, at this stage.
    Late(Stage),
    /// It answered, and the answer ends the launch.
    Final(LaunchError),
}

/// Waits for an `exec` helper to have become the user's program.
pub(crate) fn executed(
    control: &Fd,
    buf: &mut [u8],
    wait_ms: u32,
    (helper, copy): (i32, &mut Option<i32>),
) -> Result<Begun, Silence> {
    let mut watch = [Watch::new(control.raw(), PEER_CLOSED)];
    let late = poll(&mut watch, Some(wait_ms)).map_err(system("waiting for the session helper"))? == 0;
    let (frames, count) = match socket::receive_many(control, buf) {
        Ok(got) => got,
        Err(Errno::EAGAIN) => ([ReceivedFrame::default(); socket::MAX_FRAMES], 0),
        Err(e) => return Err(system("hearing the session helper")(e)),
    };
    let each = buf.len() / socket::MAX_FRAMES;
    let mut stage = Stage::Started;
    let (mut begun, mut refused) = (None, None);
    for (i, &ReceivedFrame { len, cut, sender }) in frames[..count].iter().enumerate() {
        if len == 0 {
            break;
        }
        if cut {
            return Err(bad("it is longer than a reply may be"));
        }
        match reply(&buf[i * each..i * each + len])? {
            Reply::Ready => stage = Stage::Ready,
            Reply::Leaving {
                timings,
                unrecorded,
                unwatched,
            } => {
                stage = Stage::Leaving;
                begun = Some(Begun::Executed {
                    timings,
                    unrecorded,
                    unwatched,
                });
            }
            Reply::Failed { failure } => refused = Some(failure),
            // The helper's own word alone: whoever traces the copy may speak on its socket, too.
            Reply::Entered { pid } if sender == Some(helper) => *copy = Some(pid),
            Reply::Entered { .. } => return Err(bad("the process in the container speaks for the helper")),
            Reply::Home { .. } => return Err(bad("an answer about a home directory to another order")),
        }
    }
    if let Some(failure) = refused {
        return Err(Silence::Final(LaunchError::Refused(failure)));
    }
    match begun {
        _ if late => Err(Silence::Late(stage)),
        Some(begun) => Ok(begun),
        None => Err(Silence::Gone(stage)),
    }
}

/// Waits for the first word of a helper that goes on serving, or of `checkhomedir`.
pub(crate) fn first_word(control: &Fd, buf: &mut [u8], wait_ms: u32) -> Result<Begun, Silence> {
    let mut watch = [Watch::new(control.raw(), READ | PEER_CLOSED)];
    if poll(&mut watch, Some(wait_ms)).map_err(system("waiting for the session helper"))? == 0 {
        return Err(Silence::Late(Stage::Started));
    }
    let message = match socket::receive(control, buf, false) {
        Ok(message) => message,
        // A helper that dies with our order unread resets the connection.
        Err(Errno::ECONNRESET) => return Err(Silence::Gone(Stage::Started)),
        Err(e) => return Err(system("hearing the session helper")(e)),
    };
    if message.len == 0 {
        return Err(Silence::Gone(Stage::Started));
    }
    if message.truncated {
        return Err(bad("it is longer than a reply may be"));
    }
    match reply(&buf[..message.len])? {
        Reply::Ready => Ok(Begun::Serving),
        Reply::Home { home, files } => Ok(Begun::Home {
            home,
            files,
            long: message.fds,
        }),
        Reply::Failed { failure } => Err(Silence::Final(LaunchError::Refused(failure))),
        Reply::Leaving { .. } | Reply::Entered { .. } => Err(bad("it leaves before it is ready")),
    }
}

fn reply(frame: &[u8]) -> Result<Reply, Silence> {
    fleetgate_wire::decode(frame).map_err(|e| bad(&e.to_string()))
}

fn bad(why: &str) -> Silence {
    Silence::Final(LaunchError::BadReply(why.to_owned()))
}

fn system(doing: &'static str) -> impl Fn(Errno) -> Silence {
    move |e| match e {
        Errno::ECONNRESET => Silence::Gone(Stage::Started),
        e => Silence::Final(LaunchError::system(doing)(e)),
    }
}
