//! One file seen through an anonymous overlay: fsopen, fsconfig, fsmount, open inside, nothing attached anywhere.
//!
//! The recipe is here and not with the policy that uses it because an unprivileged caller has it made by a child in a
//! user namespace of its own, which shares the descriptor table and must not allocate.

use crate::{Errno, Fd, exe, file, mount, process, socket, syscall};
use core::ffi::CStr;

/// The file to be seen.
#[derive(Clone, Copy)]
pub enum Lower<'a> {
    /// `name` in the directory `place`.
    File {
        /// The directory, open (as a place is enough).
        place: &'a Fd,
        /// Its absolute path. A child in a mount namespace of its own takes no layer from its parent's mounts, so it
        /// goes there by this path.
        path: &'a CStr,
        /// The file's name in it.
        name: &'a CStr,
    },
    /// `name` with content `bytes`, in a tmpfs made for it and attached nowhere either.
    Bytes {
        /// The file's content.
        bytes: &'a [u8],
        /// The file's name.
        name: &'a CStr,
    },
}

/// Where the recipe stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(i32)]
pub enum Stage {
    Tmpfs = 1,
    Write = 2,
    Open = 3,
    Layers = 4,
    Create = 5,
    Mount = 6,
    Inside = 7,
    Namespace = 8,
}

impl Stage {
    const ALL: [Stage; 8] = [
        Stage::Tmpfs,
        Stage::Write,
        Stage::Open,
        Stage::Layers,
        Stage::Create,
        Stage::Mount,
        Stage::Inside,
        Stage::Namespace,
    ];
}

/// A stage and the kernel's answer.
pub type Failure = (Stage, Errno);

fn at<T>(stage: Stage, result: crate::Result<T>) -> Result<T, Failure> {
    result.map_err(|e| (stage, e))
}

/// Opens the file through a new overlay whose second layer is the directory `second`: one without an upper layer must
/// have two lower ones. `second` is never looked into; it must exist, be no /proc, and neither contain nor be
/// contained in the first. Needs CAP_SYS_ADMIN over the mount namespace. Beside the file it gives the mount's
/// descriptor: closing it costs an RCU grace period, which [`socket::close_in_background`] has somebody else wait for.
pub fn open_keeping_mount(lower: Lower<'_>, second: &CStr) -> Result<(Fd, Fd), Failure> {
    match lower {
        Lower::File { place, name, .. } => over(place, name, second),
        Lower::Bytes { bytes, name } => {
            let tmpfs = at(Stage::Tmpfs, tmpfs())?;
            let writer = at(Stage::Write, exe::create_new(tmpfs.raw(), name))?;
            at(Stage::Write, file::write_all_at(&writer, bytes, 0))?;
            at(Stage::Write, exe::change_mode(&writer, 0o555))?;
            drop(writer);
            over(&tmpfs, name, second)
        }
    }
}

fn tmpfs() -> crate::Result<Fd> {
    let fs = mount::fsopen(c"tmpfs")?;
    mount::set_string(&fs, c"mode", c"0755")?;
    mount::create(&fs)?;
    mount::fsmount(&fs, mount::ATTR_NODEV | mount::ATTR_NOSUID)
}

fn over(place: &Fd, name: &CStr, second: &CStr) -> Result<(Fd, Fd), Failure> {
    let fs = at(Stage::Open, mount::fsopen(c"overlay"))?;
    let mut buffer = [0u8; 96];
    let lower = at(Stage::Layers, layers(&mut buffer, place, second))?;
    at(Stage::Layers, mount::set_string(&fs, c"lowerdir", lower))?;
    // Inode numbers as they are below, so that the file can be recognised.
    at(Stage::Layers, mount::set_string(&fs, c"xino", c"off"))?;
    at(Stage::Create, mount::create(&fs))?;
    let mounted = at(
        Stage::Mount,
        mount::fsmount(&fs, mount::ATTR_RDONLY | mount::ATTR_NODEV),
    )?;
    drop(fs);
    let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NOCTTY;
    let file = at(Stage::Inside, file::openat(mounted.raw(), name, flags, 0))?;
    Ok((file, mounted))
}

/// `/proc/self/fd/N:SECOND`: a name that needs no escaping, whatever the directory is called.
fn layers<'a>(buffer: &'a mut [u8; 96], place: &Fd, second: &CStr) -> crate::Result<&'a CStr> {
    let mut path = [0u8; 32];
    let first = exe::proc_path(&mut path, place.raw()).to_bytes();
    let second = second.to_bytes();
    let len = first.len() + 1 + second.len();
    if len >= buffer.len() {
        return Err(Errno::ENAMETOOLONG);
    }
    buffer[..first.len()].copy_from_slice(first);
    buffer[first.len()] = b':';
    buffer[first.len() + 1..len].copy_from_slice(second);
    buffer[len] = 0;
    CStr::from_bytes_until_nul(buffer).map_err(|_| Errno::EINVAL)
}

/// What the child of [`open_apart`] does.
fn made_apart(lower: Lower<'_>, second: &CStr) -> Result<(Fd, Fd), Failure> {
    match lower {
        Lower::File { path, name, .. } => {
            let place = at(Stage::Layers, exe::open_place(file::CWD, path))?;
            over(&place, name, second)
        }
        bytes => open_keeping_mount(bytes, second),
    }
}

/// As [`open_keeping_mount`], for a caller without privileges: a short-lived child in a user and a mount namespace of its own makes
/// the overlay and leaves the open file in the descriptor table that both share (Linux 5.11).
pub fn open_apart(lower: Lower<'_>, second: &CStr) -> Result<Fd, Failure> {
    let mut answer = [0i32; 2];
    let (reader, writer) = at(Stage::Namespace, file::pipe())?;
    let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_FILES | libc::SIGCHLD;
    let mut pidfd = -1i32;
    // SAFETY: without CLONE_VM this is a fork: the child goes on here, on its own copy of the memory. It makes system
    // calls only (a lock of the allocator may be held by a thread that does not exist in the child) and exits.
    let pid = at(Stage::Namespace, unsafe {
        syscall!(
            libc::SYS_clone,
            flags | libc::CLONE_PIDFD,
            0,
            &raw mut pidfd,
            0,
            0
        )
    })?;
    if pid == 0 {
        let made = made_apart(lower, second).map(|(file, mounted)| {
            socket::close_in_background(mounted);
            file
        });
        let said = match made {
            Ok(file) => [0, file.into_raw()],
            Err((stage, errno)) => [stage as i32, errno.0],
        };
        // SAFETY: two integers are eight bytes.
        let bytes: [u8; 8] = unsafe { core::mem::transmute(said) };
        let _ = file::write_all(writer.raw(), &bytes);
        process::exit(0);
    }
    let child = Fd::from_raw(pidfd);
    // The table is shared: the writing end goes only when the child is gone, or the child could not write.
    let _ = at(Stage::Namespace, process::wait(&child, true))?;
    drop(writer);
    let mut bytes = [0u8; 8];
    if at(Stage::Namespace, file::read(reader.raw(), &mut bytes))? != 8 {
        return Err((Stage::Namespace, Errno::EIO));
    }
    for (word, raw) in answer.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = i32::from_ne_bytes([raw[0], raw[1], raw[2], raw[3]]);
    }
    match Stage::ALL.into_iter().find(|s| *s as i32 == answer[0]) {
        None => Ok(Fd::from_raw(answer[1])),
        Some(stage) => Err((stage, Errno(answer[1]))),
    }
}
