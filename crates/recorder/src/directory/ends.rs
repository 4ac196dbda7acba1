//! Where a whole recording ends, for a receipt that names its content: by the heads of its blocks alone. Each block's hash covers
//! all that is before it, so the last ones name everything.

use fleetgate_record::block::{Chain, FILE_HEAD, HEAD, Head, Holds};
use fleetgate_sys::file::flags::{O_NOFOLLOW, O_RDONLY};
use fleetgate_sys::{Fd, file};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The most places. Behind the block with the end are signatures alone: two, where the last but one was late, and one of a start
/// after a crash.
pub const MAX_ENDS: usize = 8;

/// Where the block with a recording's end stops, and each signature behind it; with the hash up to there. A signature covers one of
/// these places, if it covers the end. None: the recording is not whole.
pub fn ends(path: &Path) -> io::Result<Vec<(u64, Chain)>> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let blocks = file::openat(file::CWD, &name, O_RDONLY | O_NOFOLLOW, 0)?;
    let (mut ends, mut at) = (Vec::new(), FILE_HEAD as u64);
    while let Some(head) = head(&blocks, at)? {
        let (head, chain) = Head::decode(&head).map_err(|fault| io::Error::other(fault.to_string()))?;
        at += (HEAD + head.stored) as u64;
        if head.holds == Holds::End || !ends.is_empty() {
            ends.push((at, chain));
        }
        if ends.len() == MAX_ENDS {
            break;
        }
    }
    Ok(ends)
}

/// None: the file ends there.
fn head(blocks: &Fd, at: u64) -> io::Result<Option<[u8; HEAD]>> {
    let (mut head, mut done) = ([0; HEAD], 0);
    while done < HEAD {
        match file::read_at(blocks.raw(), &mut head[done..], at + done as u64)? {
            0 => return Ok(None),
            n => done += n,
        }
    }
    Ok(Some(head))
}
