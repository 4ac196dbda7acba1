//! The sessions of this machine for its administrator: who is in now, by the notes that session reapers make, and the end of one
//! of them by a command. It writes nothing but the command, and closes nothing: the server that the session is of does.

use crate::error::EndError;
use crate::record_files::read_record;
use crate::session_record::{SessionRecord, boot_id, hex, start_time};
use fleetgate_sys::process;
use fleetgate_wire::common::SessionId;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A session that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// Its id, 32 hexadecimal digits.
    pub id: String,
    /// The account.
    pub login: String,
    /// Where from; empty where that is not known.
    pub host: String,
    /// Its terminal; `ssh`: it has none.
    pub line: String,
    /// Its first process.
    pub pid: i32,
    /// Since when, Unix seconds.
    pub since: u64,
}

/// The sessions that run now, the oldest first. `directory`: where the notes are.
pub fn present(directory: &Path) -> std::io::Result<Vec<Present>> {
    let boot = boot_id();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with('.') || !name.ends_with(".json") {
            continue;
        }
        // A note that went meanwhile is of a session that ended.
        let Some(note) = read_record(&path).ok().filter(|note| runs(note, &boot)) else {
            continue;
        };
        let entry = &note.session.entry;
        found.push(Present {
            id: hex(&note.session.id),
            login: entry.user.to_string_lossy().into_owned(),
            host: entry.host.to_string_lossy().into_owned(),
            line: entry.line.to_string_lossy().into_owned(),
            pid: entry.pid,
            since: u64::try_from(entry.at.sec).unwrap_or(0),
        });
    }
    found.sort_by(|a, b| (a.since, &a.id).cmp(&(b.since, &b.id)));
    Ok(found)
}

/// The ids of all notes, which have no order; none: there are more than `most`. It reads the directory alone, so a note whose session has just
/// ended may be among them.
pub fn noted(directory: &Path, most: usize) -> std::io::Result<Option<Vec<String>>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let id = name.to_str().and_then(|name| name.strip_suffix(".json"));
        let Some(id) = id.filter(|id| !id.starts_with('.')) else {
            continue;
        };
        if found.len() == most {
            return Ok(None);
        }
        found.push(id.to_owned());
    }
    Ok(Some(found))
}

/// Where the command to end a session is left for the server that the session is of.
pub fn end_command_path(directory: &Path, id: &SessionId) -> PathBuf {
    directory.join(format!("{}.end", hex(id)))
}

/// Kills a session of this machine. `command` is left for its server, which writes it into the audit log with the end.
pub fn end(directory: &Path, id: &str, command: &str) -> Result<(), EndError> {
    let path = directory.join(format!("{id}.json"));
    let over = || EndError::Over(id.to_owned());
    let note = match path.exists() {
        true => read_record(&path).map_err(|why| EndError::Record(path, why))?,
        false => return Err(over()),
    };
    // The descriptor first, then the start time: so it is the time of the process that the descriptor holds.
    let pid = note.session.entry.pid;
    let pidfd = process::pidfd_open(pid).map_err(|_| over())?;
    if !runs(&note, &boot_id()) {
        return Err(over());
    }
    let left = end_command_path(directory, &note.session.id);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(fleetgate_sys::file::flags::O_NOFOLLOW)
        .open(&left)
        .and_then(|mut file| file.write_all(command.as_bytes()));
    written.map_err(|e| EndError::Command(left, e))?;
    if let Some(cgroup) = &note.session.cgroup {
        // Linux 5.14; before that, the group has to do.
        let _ = std::fs::write(cgroup.join("cgroup.kill"), "1");
    }
    match process::signal_group_as(&pidfd, pid, process::SIGKILL, note.session.entry.uid) {
        Ok(()) | Err(fleetgate_sys::Errno::ESRCH) => Ok(()),
        Err(e) => Err(EndError::Kill(pid, id.to_owned(), e)),
    }
}

/// Whether its process is the one that was noted down, and lives.
fn runs(note: &SessionRecord, boot: &str) -> bool {
    note.boot == boot && start_time(note.session.entry.pid) == Some(note.start)
}
