//! Looking at a home directory as its owner, and reading key files in it by sshd's StrictModes rules.
//!
//! Everything is done with the user's privileges and by descriptor: what is checked is what is read, whoever renames
//! things meanwhile. It writes nothing and follows no link without checking where it leads.

use crate::order::{Control, failure};
use crate::privileges;
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::CStr;
use fleetgate_sys::file::{self, flags};
use fleetgate_sys::{Errno, Fd, close_range, exe, exec, memfd, socket};
use fleetgate_wire::home::{CheckHome, MAX_KEY_FILE};
use fleetgate_wire::order::Work;
use fleetgate_wire::reply::KeyFile;
use fleetgate_wire::{Failure, Reason, Reply};

/// The exit code when the order was refused.
const REFUSED: i32 = 70;
/// The most files of one order: each may travel as a descriptor.
const MAX_FILES: usize = socket::MAX_FDS;
/// The most bytes of contents in the answer itself; the rest of the frame is for refusals.
const MAX_CONTENTS: usize = 32 << 10;
/// The most symbolic links that lead to one file. The kernel's own bound is 40.
const MAX_LINKS: usize = 8;
/// The deepest directory: the walk up from a key file ends here whatever the file system says.
const MAX_DEPTH: usize = 256;
/// How much of a path is told back.
const MAX_SUBJECT: usize = 1024;

/// Serves one order on the control socket.
pub fn run() -> i32 {
    let _ = close_range(4, u32::MAX);
    let Ok(control) = Control::inherited() else {
        let text = b"fleetgate-session checkhomedir: no order waits on descriptor 3; fleetgate starts this program\n";
        let _ = file::write_all(2, text);
        return REFUSED;
    };
    match control.receive() {
        Err(_) => REFUSED,
        Ok((Work::CheckHome(order), given)) if given.is_empty() => serve(&control, &order),
        Ok((Work::CheckHome(_), _)) => {
            let why = "a descriptor that checkhomedir has no use for";
            control.fail(failure(Reason::BadDescriptors, Errno(0), why));
            REFUSED
        }
        Ok(_) => {
            let why = "an order of another kind came to checkhomedir";
            control.fail(failure(Reason::BadOrder, Errno(0), why));
            REFUSED
        }
    }
}

fn serve(control: &Control, order: &CheckHome) -> i32 {
    if order.files.len() > MAX_FILES {
        control.fail(failure(Reason::TooLarge, Errno(0), "more than 16 files to read"));
        return REFUSED;
    }
    if let Err(refused) = privileges::become_user(&order.ids) {
        control.fail(failure(Reason::Denied, refused.errno, refused.step));
        return REFUSED;
    }
    let home = enter(&order.home);
    let mut inline = MAX_CONTENTS;
    let (mut files, mut beside) = (Vec::new(), Vec::new());
    for path in &order.files {
        files.push(match read_key_file(order, home.as_ref().ok(), path) {
            Err(failure) => KeyFile {
                failure: Some(failure),
                content: None,
            },
            Ok(content) if content.len() <= inline => {
                inline -= content.len();
                KeyFile {
                    failure: None,
                    content: Some(content),
                }
            }
            Ok(content) => match memfd::sealed(c"key file", &content) {
                Ok(memory) => {
                    beside.push(memory);
                    KeyFile {
                        failure: None,
                        content: None,
                    }
                }
                Err(e) => KeyFile {
                    failure: Some(about(path.to_bytes(), e)),
                    content: None,
                },
            },
        });
    }
    let reply = Reply::Home {
        home: home.err(),
        files,
    };
    let fds: Vec<i32> = beside.iter().map(Fd::raw).collect();
    match socket::send(control.socket(), &fleetgate_wire::encode(&reply), &fds) {
        Ok(()) => 0,
        // Nobody waits for the answer any more.
        Err(_) => REFUSED,
    }
}

/// What went wrong with `path`.
fn about(path: &[u8], errno: Errno) -> Failure {
    let reason = match errno {
        Errno::ENOENT => Reason::Missing,
        Errno::EACCES | Errno::EPERM => Reason::Denied,
        Errno::ENOTDIR | Errno::ELOOP | Errno::ENXIO => Reason::WrongKind,
        Errno::EFBIG => Reason::TooLarge,
        Errno::ENOMEM => Reason::NoMemory,
        _ => Reason::System,
    };
    refusal(reason, errno, path)
}

fn refusal(reason: Reason, errno: Errno, path: &[u8]) -> Failure {
    let mut failure = failure(reason, errno, "");
    let shown = &path[..path.len().min(MAX_SUBJECT)];
    failure.subject = CString::new(shown).unwrap_or_default();
    failure
}

/// Goes there: exists, is a directory, may be entered.
fn enter(home: &CStr) -> Result<Fd, Failure> {
    let open = || {
        exec::change_directory(home)?;
        directory(file::CWD, c".")
    };
    open().map_err(|e| about(home.to_bytes(), e))
}

fn directory(at: i32, path: &CStr) -> Result<Fd, Errno> {
    file::openat(at, path, flags::O_PATH | flags::O_DIRECTORY, 0)
}

/// Reads `path`, absolute or below `home`.
fn read_key_file(order: &CheckHome, home: Option<&Fd>, path: &CStr) -> Result<Vec<u8>, Failure> {
    let tell = |errno| about(path.to_bytes(), errno);
    let start = match (path.to_bytes().first(), home) {
        (Some(b'/'), _) => directory(file::CWD, c"/").map_err(tell)?,
        (_, Some(home)) => home.duplicate(3).map_err(tell)?,
        (_, None) => return Err(tell(Errno::ENOENT)),
    };
    let (file, holder) = open(start, path.to_bytes()).map_err(tell)?;
    let status = exe::identity(&file).map_err(tell)?;
    if !status.is_file() {
        return Err(refusal(Reason::WrongKind, Errno(0), path.to_bytes()));
    }
    if order.strict_modes {
        if is_unsafe(&status, order.ids.uid) {
            return Err(refusal(Reason::Unsafe, Errno(0), path.to_bytes()));
        }
        walk_up(holder, home, order.ids.uid).map_err(|e| e.told(path))?;
    }
    if status.size > MAX_KEY_FILE as u64 {
        return Err(tell(Errno::EFBIG));
    }
    file::read_to_end(&file, MAX_KEY_FILE).map_err(tell)
}

/// Opens the file, and the directory that really holds it. A link in the file's own place is followed by hand, so
/// that the directory is the one of its target.
fn open(start: Fd, path: &[u8]) -> Result<(Fd, Fd), Errno> {
    let own = |bytes: &[u8]| CString::new(bytes).map_err(|_| Errno::EINVAL);
    let (mut holder, mut path) = (start, path.to_vec());
    for _ in 0..=MAX_LINKS {
        let (above, name) = match path.iter().rposition(|b| *b == b'/') {
            Some(at) => (&path[..=at], &path[at + 1..]),
            None => (&path[..0], &path[..]),
        };
        if !above.is_empty() {
            holder = directory(holder.raw(), &own(above)?)?;
        }
        // `x/.` and `x/..` name directories; so does an empty name.
        if matches!(name, b"" | b"." | b"..") {
            return Err(Errno::ENOTDIR);
        }
        let name = own(name)?;
        // Not waiting: a fifo in its place must hold nobody up.
        let how = flags::O_RDONLY | flags::O_NOFOLLOW | flags::O_NONBLOCK | flags::O_NOCTTY;
        match file::openat(holder.raw(), &name, how, 0) {
            Err(Errno::ELOOP) => path = file::read_link_at(holder.raw(), &name)?,
            other => return other.map(|file| (file, holder)),
        }
    }
    Err(Errno::ELOOP)
}

/// Somebody else owns it or may write it.
fn is_unsafe(status: &exe::Identity, uid: u32) -> bool {
    (status.uid != 0 && status.uid != uid) || status.mode & 0o022 != 0
}

enum Unsafe {
    /// This directory.
    Directory(Vec<u8>),
    /// The walk itself failed.
    Walk(Errno),
}

impl Unsafe {
    fn told(self, path: &CStr) -> Failure {
        match self {
            Unsafe::Directory(directory) => refusal(Reason::Unsafe, Errno(0), &directory),
            Unsafe::Walk(errno) => about(path.to_bytes(), errno),
        }
    }
}

/// Checks `holder` and every directory above it, up to the home directory or the root.
fn walk_up(mut holder: Fd, home: Option<&Fd>, uid: u32) -> Result<(), Unsafe> {
    let same = |a: &Fd, b: &Fd| -> Result<bool, Errno> {
        let (a, b) = (exe::identity(a)?, exe::identity(b)?);
        Ok((a.device, a.inode) == (b.device, b.inode))
    };
    for _ in 0..MAX_DEPTH {
        let status = exe::identity(&holder).map_err(Unsafe::Walk)?;
        if is_unsafe(&status, uid) {
            let mut buffer = [0u8; 32];
            let link = exe::proc_path(&mut buffer, holder.raw());
            return Err(Unsafe::Directory(file::read_link(link).unwrap_or_default()));
        }
        if let Some(home) = home
            && same(&holder, home).map_err(Unsafe::Walk)?
        {
            return Ok(());
        }
        let above = directory(holder.raw(), c"..").map_err(Unsafe::Walk)?;
        if same(&above, &holder).map_err(Unsafe::Walk)? {
            return Ok(());
        }
        holder = above;
    }
    Err(Unsafe::Walk(Errno::ELOOP))
}
