//! Which recordings of a day the cluster has, or will never take: `DAY/delivered`, a line for each. A node that starts asks
//! about none of them again. It is one file for a day, so that it goes with the day, and a line is appended and nothing ever
//! rewritten. A line that a crash cut short counts as none: that recording is asked about once more.

use fleetgate_sys::file::flags::{O_APPEND, O_CREAT, O_NOFOLLOW, O_WRONLY};
use fleetgate_sys::{Errno, file};
use fleetgate_wire::common::SessionId;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The file's name.
pub const DELIVERED: &str = "delivered";
/// As much of it is read. What would stand behind is asked about again.
const MAX: u64 = 64 << 20;

/// The most reasons that are named.
const MAX_REASONS: usize = 8;

/// What became of a recording that is not to be sent any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The cluster has all of it.
    Kept,
    /// It will never take it.
    Refused,
}

/// Those of a day.
pub fn of(day: &Path) -> BTreeMap<SessionId, Delivery> {
    let mut all = BTreeMap::new();
    let Ok(file) = File::open(day.join(DELIVERED)) else {
        return all;
    };
    let mut file = BufReader::new(file.take(MAX));
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        if let Some((session, delivery)) = parse(&line) {
            all.insert(session, delivery);
        }
        line.clear();
    }
    all
}

/// Why the cluster refuses recordings that are still in `root`: each reason once.
pub fn reasons(root: &Path) -> BTreeSet<String> {
    let mut reasons = BTreeSet::new();
    for day in super::children(root) {
        let Ok(file) = File::open(day.join(DELIVERED)) else {
            continue;
        };
        for line in BufReader::new(file.take(MAX)).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            if let Some((name, why)) = line.split_once(" refused: ")
                && super::session(name).is_some()
                && day.join(name).with_extension(super::RECORDING).exists()
                && reasons.len() < MAX_REASONS
            {
                reasons.insert(why.to_owned());
            }
        }
    }
    reasons
}

fn parse(line: &[u8]) -> Option<(SessionId, Delivery)> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let session = super::session(line.get(..32)?)?;
    match line[32..].split_once(' ') {
        None if line.len() == 32 => Some((session, Delivery::Kept)),
        Some(("", _)) => Some((session, Delivery::Refused)),
        _ => None,
    }
}

/// Notes one, beside its recording; `refused`: why.
pub fn note(recording: &Path, session: &SessionId, refused: Option<&str>) -> Result<(), String> {
    let path = recording.with_file_name(DELIVERED);
    let mut line = super::name(session);
    if let Some(why) = refused {
        line.push_str(" refused: ");
        line.extend(why.chars().map(|c| if c.is_control() { ' ' } else { c }));
    }
    line.push('\n');
    let noted = (|| {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
        let flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW;
        let file = file::openat(file::CWD, &name, flags, super::FILE_MODE)?;
        file::write_all(file.raw(), line.as_bytes())
    })();
    noted.map_err(|e| format!("{}: {e}", path.display()))
}
