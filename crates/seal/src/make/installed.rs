//! The package's own file: under a versioned path, writable by root alone all the way up, with the digest of the
//! image this program was built with. Held by descriptor: an upgrade or a deletion takes the name, not the file.

use crate::Source;
use crate::refusal::{Context, Failure, Step};
use crate::source::{cstring, digest, read_all};
use fleetgate_sys::exe::{self, Identity};
use fleetgate_sys::{Fd, file};
use std::path::Path;

pub(super) fn open(source: &Source, path: &Path) -> Result<Fd, Failure> {
    let fd = exe::open_read(file::CWD, &cstring(path)?)
        .step(Step::FindFile)
        .map_err(|e| e.at(path))?;
    owned_by_root(&exe::identity(&fd).step(Step::CheckOwner)?, path, true)?;
    for directory in path.ancestors().skip(1) {
        let place = exe::open_place(file::CWD, &cstring(directory)?)
            .step(Step::CheckOwner)
            .map_err(|e| e.at(directory))?;
        owned_by_root(&exe::identity(&place).step(Step::CheckOwner)?, directory, false)?;
    }
    check(source, &fd).map_err(|e| e.at(path))?;
    // The digest has read all of it; what runs needs a part, and reads that again.
    exe::forget_cached(&fd);
    Ok(fd)
}

/// Whether the open file still is the image.
pub(crate) fn check(source: &Source, fd: &Fd) -> Result<(), Failure> {
    if let Source::Embedded(e) = source
        && exe::identity(fd).step(Step::CheckDigest)?.size != e.len as u64
    {
        return Err(Failure::because(Step::CheckDigest, "it has another length"));
    }
    if digest(&read_all(fd)?) != source.digest()? {
        return Err(Failure::because(
            Step::CheckDigest,
            "it is another program than the one built in",
        ));
    }
    Ok(())
}

fn owned_by_root(seen: &Identity, path: &Path, file: bool) -> Result<(), Failure> {
    let wrong = |why: &str| Err(Failure::because(Step::CheckOwner, why).at(path));
    if file && !seen.is_file() {
        return wrong("not a regular file");
    }
    if seen.uid != 0 {
        return wrong("does not belong to root");
    }
    if seen.mode & 0o022 != 0 {
        return wrong("others than its owner may write to it");
    }
    if file && seen.mode & 0o6000 != 0 {
        return wrong("has a set-id bit");
    }
    Ok(())
}
