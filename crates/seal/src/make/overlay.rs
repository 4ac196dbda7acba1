//! A file seen through an anonymous overlay: two lower layers and no upper one, so the filesystem itself is
//! read-only for good; mounted by fsopen and fsmount and attached nowhere, so no mount table shows it, nobody who
//! watches one wakes up, and there is no path by which to change the mount. Costs the same for any size.
//!
//! What it covers: whoever reaches the file through the running program (`/proc/PID/exe`, a map, a kept descriptor)
//! gets EROFS. What it does not: whoever has a path to the file below, which is where it always was.
//!
//! An embedded image has no file below. It gets one in a tmpfs that is attached nowhere either; where the kernel does
//! not take such a layer, in a private directory that is removed again while the overlay goes on holding the file.

use super::files;
use crate::Source;
use crate::refusal::{Cause, Context, Failure, Step};
use crate::source::cstring;
use fleetgate_sys::exe::Identity;
use fleetgate_sys::overlay::{Lower, Stage};
use fleetgate_sys::{Errno, Fd, exe, file, overlay, socket};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Directories that exist everywhere and may be the second layer. None has a mount below it: in a user namespace
/// such a directory is refused.
const SECOND: [(&str, &CStr); 3] = [
    ("/sys/class", c"/sys/class"),
    ("/usr/share", c"/usr/share"),
    ("/etc", c"/etc"),
];

pub(super) fn make(source: &Source, place: Option<&Path>) -> Result<Fd, Failure> {
    match (source, place) {
        (Source::Embedded(e), None) => {
            let bytes = e.bytes()?;
            let name = CString::new(e.name).unwrap_or_default();
            open(
                Lower::Bytes {
                    bytes: &bytes,
                    name: &name,
                },
                SECOND[0].1,
            )
        }
        (Source::Embedded(_), Some(directory)) => {
            from_private_directory(source, directory).map_err(|e| e.at(directory))
        }
        _ => {
            let (fd, path) = source.open()?;
            from_file(&fd).map_err(|e| e.at(path))
        }
    }
}

/// The same file, of which the caller already has the identity, open through an overlay of the directory it is in.
pub(crate) fn for_exec(fd: &Fd, seen: &Identity) -> Result<Fd, Failure> {
    let (place, path, name, second) = below(fd)?;
    let sealed = open(
        Lower::File {
            place: &place,
            path: &path,
            name: &name,
        },
        second,
    )?;
    same_file(seen, &sealed)?;
    Ok(sealed)
}

/// The same file, open through an overlay of the directory it is in.
pub(crate) fn from_file(fd: &Fd) -> Result<Fd, Failure> {
    for_exec(fd, &exe::identity(fd).step(Step::FindFile)?)
}

/// The directory an open file is in, its name there, and a second layer that goes with that directory. The path is
/// the kernel's own for this file, links resolved: a link inside the overlay would lead out of it.
fn below(fd: &Fd) -> Result<(Fd, CString, CString, &'static CStr), Failure> {
    let mut buffer = [0u8; 32];
    let link = exe::proc_path(&mut buffer, fd.raw());
    let link = Path::new(std::ffi::OsStr::from_bytes(link.to_bytes()));
    let path = std::fs::read_link(link).step(Step::FindFile)?;
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Failure::because(Step::FindFile, "it is in no directory"));
    };
    let name = CString::new(name.as_bytes())
        .map_err(|_| Errno::EINVAL)
        .step(Step::FindFile)?;
    let there = cstring(directory)?;
    let place = exe::open_place(file::CWD, &there)
        .step(Step::FindFile)
        .map_err(|e| e.at(directory))?;
    let second = SECOND
        .iter()
        .find(|(p, _)| !directory.starts_with(p) && !Path::new(p).starts_with(directory))
        .map(|(_, c)| *c);
    match second {
        Some(second) => Ok((place, there, name, second)),
        None => Err(Failure::because(
            Step::SetLayers,
            "a file in the root directory has no place beside it for the second layer",
        )),
    }
}

/// The directory may have changed between the look and the mount.
fn same_file(below: &Identity, sealed: &Fd) -> Result<(), Failure> {
    let seen = exe::identity(sealed).step(Step::OpenInside)?;
    if (below.inode, below.size, below.changed_ns) != (seen.inode, seen.size, seen.changed_ns) {
        return Err(Failure::because(
            Step::OpenInside,
            "another file has this name now, or the program was removed",
        ));
    }
    Ok(())
}

/// For kernels that take no layer from a mount that is attached nowhere.
fn from_private_directory(source: &Source, directory: &Path) -> Result<Fd, Failure> {
    let private = directory.join(std::ffi::OsStr::from_bytes(files::random_name().to_bytes()));
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&private)
        .step(Step::CreateFile)?;
    let name = c"image";
    let make = || -> Result<Fd, Failure> {
        let path = cstring(&private)?;
        let place = exe::open_place(file::CWD, &path).step(Step::CreateFile)?;
        let writer = exe::create_new(place.raw(), name).step(Step::CreateFile)?;
        super::refuse_noexec(&writer)?;
        files::fill(source, &writer)?;
        drop(writer);
        open(
            Lower::File {
                place: &place,
                path: &path,
                name,
            },
            SECOND[0].1,
        )
    };
    let made = make();
    let _ = std::fs::remove_file(private.join("image"));
    let _ = std::fs::remove_dir(&private);
    made
}

/// As whoever we are, and when that is told no (an ordinary user; root inside a container), in a user namespace. The
/// mount is let go of in the background.
fn open(lower: Lower<'_>, second: &CStr) -> Result<Fd, Failure> {
    match overlay::open_keeping_mount(lower, second) {
        Ok((sealed, mounted)) => {
            socket::close_in_background(mounted);
            Ok(sealed)
        }
        Err((_, Errno::EPERM)) => overlay::open_apart(lower, second).map_err(named),
        Err(failure) => Err(named(failure)),
    }
}

fn named((stage, errno): overlay::Failure) -> Failure {
    let step = match stage {
        Stage::Tmpfs => Step::MakeTmpfs,
        Stage::Write => Step::WriteImage,
        Stage::Open => Step::OpenOverlay,
        Stage::Layers => Step::SetLayers,
        Stage::Create => Step::CreateOverlay,
        Stage::Mount => Step::MountOverlay,
        Stage::Inside => Step::OpenInside,
        Stage::Namespace => Step::UserNamespace,
    };
    Failure {
        step,
        cause: Cause::Errno(errno),
        path: None,
    }
}
