//! Operations on open files.
//!
//! READ is one pread into the answer's place, WRITE one pwrite from the place where the data was received: one
//! system call each, where OpenSSH makes two (lseek, read) and copies twice. Offsets are the kernel's 64 bits; a
//! WRITE beyond the end leaves a hole.

use super::handles::{self, File, OpenHandle};
use super::operations::{Outcome, Session, opens_for_change, tell_closed};
use super::protocol::{MAX_DATA, MAX_PACKET, Status, kind, open};
use super::request::{Attributes, HandleName};
use core::ffi::CStr;
use fleetgate_sys::file::flags as kernel;
use fleetgate_sys::{Errno, Fd, file, tree};

/// A file's mode where OPEN names none; the umask takes its part.
const DEFAULT_MODE: u32 = 0o666;
/// The most bytes that copy-data moves by one call, so that a signal ends it soon.
const COPY_STEP: usize = 64 << 20;
/// The pieces in which OpenSSH copies.
const PIECE: u64 = 64 << 10;

fn kernel_flags(flags: u32) -> i32 {
    let access = match (flags & open::READ != 0, flags & open::WRITE != 0) {
        (true, true) => kernel::O_RDWR,
        (false, true) => kernel::O_WRONLY,
        _ => kernel::O_RDONLY,
    };
    let pairs = [
        (open::APPEND, kernel::O_APPEND),
        (open::CREATE, kernel::O_CREAT),
        (open::TRUNCATE, kernel::O_TRUNC),
        (open::EXCLUSIVE, kernel::O_EXCL),
    ];
    let given = pairs.iter().filter(|(theirs, _)| flags & theirs != 0);
    given.fold(access | kernel::O_NOCTTY, |all, (_, ours)| all | ours)
}

impl Session {
    pub(super) fn open(&mut self, id: u32, path: &CStr, flags: u32, attributes: &Attributes) -> Outcome {
        if self.read_only && opens_for_change(flags) {
            return Err(Status::PermissionDenied);
        }
        if !self.handles.has_room() {
            return Err(Status::Failure);
        }
        let mode = attributes.mode.unwrap_or(DEFAULT_MODE) & 0o7777;
        let fd = file::openat(file::CWD, path, kernel_flags(flags), mode)?;
        let name = self.handles.insert(OpenHandle::File(File {
            fd,
            path: path.into(),
            flags,
            append: flags & open::APPEND != 0,
            read: 0,
            written: 0,
        }));
        self.handle(id, &name)
    }

    /// Answers with a handle.
    pub(super) fn handle(&mut self, id: u32, name: &[u8]) -> Outcome {
        let mut answer = self.output.answer(kind::HANDLE, id);
        answer.string(name);
        answer.finish();
        Ok(())
    }

    pub(super) fn close(&mut self, id: u32, handle: HandleName<'_>) -> Outcome {
        // OpenSSH's word for a handle that is not open, here and only here.
        let open = self.handles.remove(handle).ok_or(Status::NoSuchFile)?;
        tell_closed(&mut self.events, &open);
        let fd = match open {
            OpenHandle::File(file) => file.fd,
            OpenHandle::Directory(directory) => directory.entries.into_directory(),
        };
        // A file system over the network may only now say that a write failed.
        fd.close()?;
        self.done(id)
    }

    pub(super) fn read(&mut self, id: u32, handle: HandleName<'_>, offset: u64, len: u32) -> Outcome {
        let file = self.handles.file(handle).ok_or(Status::Failure)?;
        let len = (len as usize).min(MAX_DATA);
        let fd = file.fd.raw();
        let n = self.output.data(id, len, |place| match len {
            // Even of a directory, which cannot be read; only an offset that cannot be is refused.
            0 => i64::try_from(offset).map(|_| 0).map_err(|_| Errno::EINVAL),
            _ => file::read_at(fd, place, offset),
        })?;
        file.read += n as u64;
        if n == 0 && len > 0 {
            Err(Status::Eof)
        } else {
            Ok(())
        }
    }

    pub(super) fn write(&mut self, id: u32, handle: HandleName<'_>, offset: u64, data: &[u8]) -> Outcome {
        let file = self.handles.file(handle).ok_or(Status::Failure)?;
        let n = if file.append {
            file::write(file.fd.raw(), data)?
        } else {
            file::write_at(file.fd.raw(), data, offset)?
        };
        file.written += n as u64;
        if n < data.len() {
            // The disk is full, or a limit reached: the next byte would have said so.
            return Err(Status::Failure);
        }
        self.done(id)
    }

    pub(super) fn stat_open(&mut self, id: u32, handle: HandleName<'_>) -> Outcome {
        let file = self.handles.file(handle).ok_or(Status::Failure)?;
        let stat = tree::stat_open(file.fd.raw())?;
        self.output.attributes(id, &stat);
        Ok(())
    }

    /// Every part is tried, whatever came of the one before; the last refusal is the answer, as in OpenSSH.
    pub(super) fn set_open(&mut self, id: u32, handle: HandleName<'_>, attributes: &Attributes) -> Outcome {
        let fd = self.handles.file(handle).ok_or(Status::Failure)?.fd.raw();
        let mut last = Ok(());
        let mut note = |result: Result<(), Errno>| {
            if result.is_err() {
                last = result;
            }
        };
        if let Some(size) = attributes.size {
            note(tree::truncate_open(fd, size));
        }
        if let Some(mode) = attributes.mode {
            note(tree::set_mode_open(fd, mode & 0o7777));
        }
        if let Some((accessed, modified)) = attributes.times {
            note(tree::set_times_open(fd, accessed.into(), modified.into()));
        }
        if let Some((uid, gid)) = attributes.owner {
            note(tree::set_owner_open(fd, uid, gid));
        }
        last?;
        self.done(id)
    }

    pub(super) fn sync(&mut self, id: u32, handle: HandleName<'_>) -> Outcome {
        let file = self.handles.file(handle).ok_or(Status::NoSuchFile)?;
        tree::sync(&file.fd)?;
        self.done(id)
    }

    pub(super) fn file_system_open(&mut self, id: u32, handle: HandleName<'_>) -> Outcome {
        let file = self.handles.file(handle).ok_or(Status::Failure)?;
        let told = tree::file_system_open(file.fd.raw())?;
        self.answer_file_system(id, &told);
        Ok(())
    }

    pub(super) fn limits(&mut self, id: u32) -> Outcome {
        let mut answer = self.output.answer(kind::EXTENDED_REPLY, id);
        answer.u64(MAX_PACKET as u64);
        answer.u64(MAX_DATA as u64);
        answer.u64(MAX_DATA as u64);
        answer.u64(handles::limit());
        answer.finish();
        Ok(())
    }

    /// Copies inside the machine. `len` 0: to the end. Not within one file: what was copied would be copied again.
    pub(super) fn copy_data(
        &mut self,
        id: u32,
        (from, from_offset): (HandleName<'_>, u64),
        len: u64,
        (to, to_offset): (HandleName<'_>, u64),
    ) -> Outcome {
        let source = self.handles.file(from).ok_or(Status::Failure)?;
        // Two descriptors of one table cannot be borrowed at once; the second number stays valid meanwhile.
        let (source_fd, source_path) = (source.fd.duplicate(3)?, source.path.clone());
        let target = self.handles.file(to).ok_or(Status::Failure)?;
        if from == to || source_path == target.path {
            return Err(Status::Failure);
        }
        let mut copy = Copy {
            from: &source_fd,
            from_offset,
            to: &target.fd,
            to_offset: (!target.append).then_some(to_offset),
            copied: 0,
        };
        let result = copy.run(len);
        let copied = copy.copied;
        target.written += copied;
        if let Some(source) = self.handles.file(from) {
            source.read += copied;
        }
        result?;
        self.done(id)
    }
}

/// One copy-data under way.
struct Copy<'a> {
    from: &'a Fd,
    from_offset: u64,
    to: &'a Fd,
    /// `None`: at the end, always.
    to_offset: Option<u64>,
    copied: u64,
}

impl Copy<'_> {
    fn run(&mut self, len: u64) -> Outcome {
        let mut in_kernel = self.to_offset.is_some();
        while len == 0 || self.copied < len {
            let left = if len == 0 { u64::MAX } else { len - self.copied };
            let step = usize::try_from(left).map_or(COPY_STEP, |left| left.min(COPY_STEP));
            let n = if in_kernel {
                match self.in_kernel(step) {
                    Ok(n) => n,
                    Err(Errno::EINTR) => continue,
                    // Between these two files the kernel cannot, or from a file like those of /proc would copy
                    // nothing; asked once, by hand from here on.
                    Err(_) => {
                        in_kernel = false;
                        continue;
                    }
                }
            } else {
                self.by_hand(step)?
            };
            if n == 0 && in_kernel && self.copied == 0 {
                in_kernel = false;
            } else if n == 0 {
                // OpenSSH copies in pieces of 64 KB, and says Eof only when it never came to the last of them.
                let last_piece = len.saturating_sub(1) / PIECE * PIECE;
                let enough = len == 0 || self.copied >= last_piece;
                return if enough { Ok(()) } else { Err(Status::Eof) };
            }
            self.copied += n as u64;
        }
        Ok(())
    }

    fn in_kernel(&self, step: usize) -> Result<usize, Errno> {
        let to = self.to_offset.ok_or(Errno::EINVAL)?.saturating_add(self.copied);
        let from = self.from_offset.checked_add(self.copied).ok_or(Errno::EINVAL)?;
        tree::copy_range(self.from, from, self.to, to, step)
    }

    fn by_hand(&self, step: usize) -> Result<usize, Errno> {
        let mut buffer = alloc::vec![0u8; step.min(64 << 10)];
        let offset = self.from_offset.checked_add(self.copied).ok_or(Errno::EINVAL)?;
        let n = file::read_at(self.from.raw(), &mut buffer, offset)?;
        match self.to_offset {
            None => file::write_all(self.to.raw(), &buffer[..n])?,
            Some(to) => file::write_all_at(self.to, &buffer[..n], to.saturating_add(self.copied))?,
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_the_kernels() {
        let cases = [
            (0, kernel::O_RDONLY),
            (open::READ, kernel::O_RDONLY),
            (open::WRITE, kernel::O_WRONLY),
            (
                open::READ | open::WRITE | open::APPEND,
                kernel::O_RDWR | kernel::O_APPEND,
            ),
            (
                open::WRITE | open::CREATE | open::EXCLUSIVE | open::TRUNCATE,
                kernel::O_WRONLY | kernel::O_CREAT | kernel::O_EXCL | kernel::O_TRUNC,
            ),
        ];
        for (theirs, ours) in cases {
            assert_eq!(kernel_flags(theirs), ours | kernel::O_NOCTTY, "{theirs:#x}");
        }
    }
}
