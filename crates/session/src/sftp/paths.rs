//! Operations on names. Each gives the kernel the client's own path: nothing is checked first and used later.

use super::operations::{Outcome, Session};
use super::protocol::{Status, kind};
use super::realpath;
use super::request::Attributes;
use core::ffi::CStr;
use fleetgate_sys::Errno;
use fleetgate_sys::file::CWD;
use fleetgate_sys::tree::{self, FileSystem};

/// A directory's mode where MKDIR names none; the umask takes its part.
const DEFAULT_MODE: u32 = 0o777;

impl Session {
    pub(super) fn stat(&mut self, id: u32, path: &CStr, follow: bool) -> Outcome {
        let stat = tree::stat(CWD, path, follow)?;
        self.output.attributes(id, &stat);
        Ok(())
    }

    /// Every part is tried, whatever came of the one before; the last refusal is the answer, as in OpenSSH.
    pub(super) fn set(&mut self, id: u32, path: &CStr, attributes: &Attributes) -> Outcome {
        let mut last = Ok(());
        let mut note = |result: Result<(), Errno>| {
            if result.is_err() {
                last = result;
            }
        };
        if let Some(size) = attributes.size {
            note(tree::truncate(path, size));
        }
        if let Some(mode) = attributes.mode {
            note(tree::set_mode(CWD, path, mode & 0o7777));
        }
        if let Some((accessed, modified)) = attributes.times {
            note(tree::set_times(path, accessed.into(), modified.into(), true));
        }
        if let Some((uid, gid)) = attributes.owner {
            note(tree::set_owner(path, uid, gid, true));
        }
        last?;
        self.done(id)
    }

    pub(super) fn set_no_follow(&mut self, id: u32, path: &CStr, attributes: &Attributes) -> Outcome {
        if attributes.size.is_some() {
            // A link has no length to set.
            return Err(Status::BadMessage);
        }
        let mut last = Ok(());
        let mut note = |result: Result<(), Errno>| {
            if result.is_err() {
                last = result;
            }
        };
        if let Some(mode) = attributes.mode {
            note(tree::set_mode_no_follow(path, mode & 0o7777));
        }
        if let Some((accessed, modified)) = attributes.times {
            note(tree::set_times(path, accessed.into(), modified.into(), false));
        }
        if let Some((uid, gid)) = attributes.owner {
            note(tree::set_owner(path, uid, gid, false));
        }
        last?;
        self.done(id)
    }

    pub(super) fn remove(&mut self, id: u32, path: &CStr, directory: bool) -> Outcome {
        tree::remove(CWD, path, directory)?;
        self.done(id)
    }

    pub(super) fn make_directory(&mut self, id: u32, path: &CStr, attributes: &Attributes) -> Outcome {
        tree::make_directory(CWD, path, attributes.mode.unwrap_or(DEFAULT_MODE) & 0o7777)?;
        self.done(id)
    }

    pub(super) fn real_path(&mut self, id: u32, path: &CStr) -> Outcome {
        let path = realpath::resolve(path.to_bytes())?;
        self.output.name(id, &path);
        Ok(())
    }

    /// RENAME never replaces anything (the draft, 6.5). One call does both where the file system can; where it
    /// cannot, a second name for a file is made first, which fails if there is one, and a directory is looked for
    /// before, which is a race that OpenSSH has too.
    pub(super) fn rename(&mut self, id: u32, from: &CStr, to: &CStr) -> Outcome {
        match tree::rename(from, to, true) {
            Ok(()) => {}
            Err(Errno::EINVAL | Errno::ENOSYS) => rename_in_steps(from, to)?,
            Err(errno) => return Err(errno.into()),
        }
        self.done(id)
    }

    pub(super) fn replace(&mut self, id: u32, from: &CStr, to: &CStr) -> Outcome {
        tree::rename(from, to, false)?;
        self.done(id)
    }

    pub(super) fn read_link(&mut self, id: u32, path: &CStr) -> Outcome {
        let says = tree::read_link(CWD, path)?;
        self.output.name(id, &says);
        Ok(())
    }

    pub(super) fn symlink(&mut self, id: u32, target: &CStr, path: &CStr) -> Outcome {
        tree::symlink(target, path)?;
        self.done(id)
    }

    pub(super) fn hard_link(&mut self, id: u32, from: &CStr, to: &CStr) -> Outcome {
        tree::link(from, to)?;
        self.done(id)
    }

    pub(super) fn file_system(&mut self, id: u32, path: &CStr) -> Outcome {
        let told = tree::file_system(path)?;
        self.answer_file_system(id, &told);
        Ok(())
    }

    pub(super) fn answer_file_system(&mut self, id: u32, told: &FileSystem) {
        let mut answer = self.output.answer(kind::EXTENDED_REPLY, id);
        for number in [
            told.block,
            told.fragment,
            told.blocks,
            told.free,
            told.available,
            told.files,
            told.files_free,
            // Linux keeps no inodes back for root.
            told.files_free,
            told.id,
            told.read_only as u64 | (told.no_setuid as u64) << 1,
            told.name_max,
        ] {
            answer.u64(number);
        }
        answer.finish();
    }
}

fn rename_in_steps(from: &CStr, to: &CStr) -> Result<(), Errno> {
    if tree::stat(CWD, from, false)?.is_file() {
        match tree::link(from, to) {
            Ok(()) => {
                return tree::remove(CWD, from, false).inspect_err(|_| {
                    // The old name stays, so the new one goes.
                    let _ = tree::remove(CWD, to, false);
                });
            }
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EPERM | Errno::EMLINK) => {}
            Err(errno) => return Err(errno),
        }
    }
    match tree::stat(CWD, to, false) {
        Ok(_) => Err(Errno::EEXIST),
        Err(Errno::ENOENT) => tree::rename(from, to, false),
        Err(errno) => Err(errno),
    }
}
