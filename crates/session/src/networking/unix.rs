//! Unix-domain sockets: connecting, listening at a path, the private directory of a forwarded agent.

use super::refusal;
use alloc::ffi::CString;
use alloc::format;
use alloc::vec::Vec;
use core::ffi::CStr;
use fleetgate_sys::net::{self, MAX_UNIX_PATH, PrivateDirectory, SocketFile};
use fleetgate_sys::{Errno, Fd, process};
use fleetgate_wire::{Failure, Reason};

/// A connect whose listener has a full queue. Nothing tells when there is room, so it is tried again, at growing
/// intervals.
pub struct UnixConnectAttempt {
    path: CString,
    again: i64,
    pause: i64,
    deadline: i64,
}

/// The first pause, doubled up to the longest.
const FIRST_PAUSE: i64 = 5_000_000;
const LONGEST_PAUSE: i64 = 160_000_000;

impl UnixConnectAttempt {
    /// A connect to `path`; call [`UnixConnectAttempt::proceed`] next.
    pub fn new(path: CString, now: i64, deadline: i64) -> Result<UnixConnectAttempt, Failure> {
        Ok(UnixConnectAttempt {
            path: checked(path)?,
            again: now,
            pause: FIRST_PAUSE,
            deadline,
        })
    }

    /// Tries when it is time; `None`: not yet.
    pub fn proceed(&mut self, now: i64) -> Option<Result<Fd, Failure>> {
        if now < self.again {
            return None;
        }
        let result = net::unix().and_then(|socket| net::connect_unix(&socket, &self.path).map(|()| socket));
        match result {
            Err(Errno::EAGAIN) if now < self.deadline => {
                self.again = (now + self.pause).min(self.deadline);
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                None
            }
            Err(Errno::EAGAIN) => Some(Err(self.failed(Errno::ETIMEDOUT))),
            Err(errno) => Some(Err(self.failed(errno))),
            Ok(socket) => Some(Ok(socket)),
        }
    }

    /// When to proceed.
    pub fn wake_at(&self) -> i64 {
        self.again
    }

    fn failed(&self, errno: Errno) -> Failure {
        about(errno, "connecting to", &self.path)
    }
}

/// What a listening socket left in the file system; removed when dropped.
pub struct SocketPath {
    file: SocketFile,
    directory: Option<PrivateDirectory>,
}

impl SocketPath {
    /// Where the socket is.
    pub fn path(&self) -> CString {
        self.file.path().into()
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        // Whatever stands there now that is not ours stays; there is nobody left to tell.
        let _ = self.file.remove();
        if let Some(directory) = &self.directory {
            let _ = directory.remove();
        }
    }
}

/// A directory that is removed when what should stand in it was not made.
struct UnusedDirectory(Option<PrivateDirectory>);

impl Drop for UnusedDirectory {
    fn drop(&mut self) {
        if let Some(directory) = &self.0 {
            let _ = directory.remove();
        }
    }
}

/// Listens at `path`.
pub fn listen(
    path: CString,
    umask: u32,
    unlink_first: bool,
    backlog: i32,
) -> Result<(Fd, SocketPath), Failure> {
    let path = checked(path)?;
    if umask > 0o777 {
        return Err(refusal::bad("the umask has bits beyond 0777"));
    }
    if unlink_first {
        // Only ever a socket: anything else is left, and binding says that the path is taken.
        if let Ok(old) = SocketFile::of(path.clone()) {
            old.remove().map_err(|e| about(e, "removing the old", &path))?;
        }
    }
    at(path, umask, backlog)
}

/// What sshd lets wait on an agent's socket.
const AGENT_BACKLOG: i32 = 128;

/// Listens for agent connections at a path that nobody else can enter or guess: sshd's own naming, which users'
/// scripts know.
pub fn agent() -> Result<(Fd, SocketPath), Failure> {
    let made =
        PrivateDirectory::make(b"/tmp/ssh-").map_err(|e| refusal::system(e, "making a directory in /tmp"))?;
    let path = format!(
        "{}/agent.{}",
        refusal::printable(made.path().to_bytes()),
        process::id()
    );
    let mut directory = UnusedDirectory(Some(made));
    let path = CString::new(path).map_err(|_| refusal::bad("a path with a zero byte"))?;
    let (socket, mut made) = at(path, 0o177, AGENT_BACKLOG)?;
    made.directory = directory.0.take();
    Ok((socket, made))
}

fn at(path: CString, umask: u32, backlog: i32) -> Result<(Fd, SocketPath), Failure> {
    let failed = |e| about(e, "listening at", &path);
    let socket = net::unix().map_err(failed)?;
    // The process is alone with itself: nothing else is made between these two.
    let old = net::umask(umask);
    let bound = net::bind_unix(&socket, &path);
    net::umask(old);
    bound.map_err(failed)?;
    let file = SocketFile::of(path.clone()).map_err(failed)?;
    let made = SocketPath {
        file,
        directory: None,
    };
    net::listen(&socket, backlog).map_err(failed)?;
    Ok((socket, made))
}

/// A path that the kernel can take and that means the same wherever this process stands.
fn checked(path: CString) -> Result<CString, Failure> {
    let bytes = path.as_bytes();
    if bytes.len() > MAX_UNIX_PATH {
        return Err(refusal::name(
            Reason::TooLarge,
            Errno::ENAMETOOLONG,
            "a socket's path is at most 107 bytes long",
            bytes,
        ));
    }
    if bytes.first() != Some(&b'/') {
        return Err(refusal::name(
            Reason::BadRequest,
            Errno::EINVAL,
            "a socket's path is absolute",
            bytes,
        ));
    }
    Ok(path)
}

fn about(errno: Errno, doing: &str, path: &CStr) -> Failure {
    let mut thing: Vec<u8> = Vec::from(doing.as_bytes());
    thing.push(b' ');
    thing.extend_from_slice(path.to_bytes());
    let mut failure = refusal::system(errno, "");
    failure.subject = CString::new(thing).unwrap_or_default();
    failure
}
