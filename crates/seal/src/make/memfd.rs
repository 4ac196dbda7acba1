//! An anonymous file in memory, sealed. Costs a copy, once for a server, every time for a program that runs once.

use crate::Source;
use crate::refusal::{Context, Failure, Step};
use crate::source::MAX_IMAGE;
use fleetgate_sys::memfd::{self, CONTENT_SEALS, Kind};
use fleetgate_sys::{Errno, Fd, exe, file};
use std::ffi::CString;

/// Keeps the executable bits as they are (Linux 6.3), so that nobody can take them away from a cached image.
const SEAL_EXEC: i32 = 0x20;

pub(super) fn make(source: &Source) -> Result<Fd, Failure> {
    let name = CString::new(name(source)).unwrap_or_default();
    let fd = memfd::create(&name, Kind::Executable).step(Step::CreateMemfd)?;
    match source {
        Source::Embedded(e) => file::write_all_at(&fd, &e.bytes()?, 0).step(Step::WriteImage)?,
        _ => {
            let (from, path) = source.open()?;
            copy(&from, &fd).map_err(|e| e.at(path))?;
        }
    }
    seal(&fd)?;
    Ok(fd)
}

/// What `/proc/PID/maps` and `/proc/PID/exe` show after `memfd:`.
fn name(source: &Source) -> &[u8] {
    use std::os::unix::ffi::OsStrExt;
    match source {
        Source::Embedded(e) => e.name.as_bytes(),
        Source::File(path) | Source::Open(_, path) => path.file_name().map_or(b"program", |n| n.as_bytes()),
        Source::Itself => b"fleetgate",
    }
}

/// Content, size and executable bits become final. Which seals that takes depends on the kernel, and the kernel
/// adds some of its own: what counts is that the ones we need are there afterwards.
pub(crate) fn seal(fd: &Fd) -> Result<(), Failure> {
    exe::change_mode(fd, 0o555).step(Step::ChangeMode)?;
    match memfd::add_seals(fd, CONTENT_SEALS | SEAL_EXEC) {
        // Before 6.3 there is no seal on the executable bits.
        Err(Errno::EINVAL) => memfd::add_seals(fd, CONTENT_SEALS).step(Step::AddSeals)?,
        other => other.step(Step::AddSeals)?,
    }
    if !memfd::is_final(fd) {
        return Err(Failure::because(
            Step::AddSeals,
            "the kernel took the seals but does not show them",
        ));
    }
    Ok(())
}

/// Copies a file inside the kernel.
pub(crate) fn copy(from: &Fd, to: &Fd) -> Result<(), Failure> {
    let size = exe::identity(from).step(Step::ReadFile)?.size;
    if size > MAX_IMAGE as u64 {
        return Err(Errno::EFBIG).step(Step::ReadFile);
    }
    let copied = exe::copy(from, to, size).step(Step::WriteImage)?;
    if copied != size {
        return Err(Failure::because(
            Step::ReadFile,
            "it changed its length while it was read",
        ));
    }
    Ok(())
}
