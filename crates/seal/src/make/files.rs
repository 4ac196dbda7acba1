//! Files without a name: O_TMPFILE, and where the filesystem has none, a file unlinked before it is written.
//! Root can reopen both through /proc and write to them, so each launch gets a fresh one, and containers none.

use super::refuse_noexec;
use crate::Source;
use crate::refusal::{Context, Failure, Step};
use crate::source::cstring;
use fleetgate_sys::{Fd, exe, file};
use std::ffi::CString;
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) fn tmpfile(source: &Source, directory: &Path) -> Result<Fd, Failure> {
    let fd = exe::nameless(&cstring(directory)?)
        .step(Step::CreateFile)
        .map_err(|e| e.at(directory))?;
    let finish = || -> Result<Fd, Failure> {
        refuse_noexec(&fd)?;
        fill(source, &fd)?;
        exe::reopen_read(&fd).step(Step::Reopen)
    };
    let reader = finish().map_err(|e| e.at(directory))?;
    drop(fd);
    wait_for_writers(&reader);
    Ok(reader)
}

pub(super) fn unlinked(source: &Source, directory: &Path) -> Result<Fd, Failure> {
    let make = || -> Result<Fd, Failure> {
        let dir = exe::open_place(file::CWD, &cstring(directory)?).step(Step::FindFile)?;
        let (writer, reader) = without_name(&dir)?;
        refuse_noexec(&writer)?;
        fill(source, &writer)?;
        drop(writer);
        Ok(reader)
    };
    let reader = make().map_err(|e| e.at(directory))?;
    wait_for_writers(&reader);
    Ok(reader)
}

/// A writing and a reading descriptor of a new file whose name is already gone when this returns. The second one is
/// opened while there is a name, so that no /proc is needed, and compared, so that nobody can put another in between.
fn without_name(dir: &Fd) -> Result<(Fd, Fd), Failure> {
    let name = random_name();
    let writer = exe::create_new(dir.raw(), &name).step(Step::CreateFile)?;
    let reader = exe::open_read(dir.raw(), &name).step(Step::Reopen);
    exe::unlink(dir.raw(), &name).step(Step::CreateFile)?;
    let reader = reader?;
    let same = exe::identity(&writer).step(Step::Reopen)?;
    let seen = exe::identity(&reader).step(Step::Reopen)?;
    if (same.device, same.inode) != (seen.device, seen.inode) {
        return Err(Failure::because(
            Step::Reopen,
            "another file was put in its place",
        ));
    }
    Ok((writer, reader))
}

/// A name that nobody guesses: 128 random bits.
pub(super) fn random_name() -> CString {
    let bits = fleetgate_sys::exe::random();
    CString::new(format!(".fleetgate-{:016x}{:016x}", bits[0], bits[1])).unwrap_or_default()
}

pub(super) fn fill(source: &Source, to: &Fd) -> Result<(), Failure> {
    match source {
        Source::Embedded(e) => file::write_all_at(to, &e.bytes()?, 0).step(Step::WriteImage)?,
        _ => {
            let (from, path) = source.open()?;
            super::memfd::copy(&from, to).map_err(|e| e.at(path))?;
        }
    }
    exe::change_mode(to, 0o555).step(Step::ChangeMode)
}

/// How long a thread that starts a program may take over it: microseconds, but where everybody waits for a processor.
const STARTING: Duration = Duration::from_secs(5);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_micros(100);

/// Another thread that starts a program at this moment has, until that program runs, a copy of our writing
/// descriptor: executing the file would be ETXTBSY.
fn wait_for_writers(reader: &Fd) {
    let begun = Instant::now();
    while !exe::has_no_writer(reader) && begun.elapsed() < STARTING {
        std::thread::sleep(LOOK);
    }
}
