//! Bytes of a recording that no signature covers yet. They wait in memory, and beyond a bound in a file without a name, which
//! is gone with the process: whoever sent them sends them again. So they never stand where a recording is, and two streams
//! that bring the same recording do not disturb each other.

use fleetgate_sys::file::flags::{O_RDWR, O_TMPFILE};
use fleetgate_sys::file::{CWD, openat, read_at, write_all_at};
use fleetgate_sys::{Errno, Fd};
use std::ffi::CStr;

/// So many bytes wait in memory.
pub const IN_MEMORY: usize = 128 << 10;
/// What is copied at once.
const CHUNK: usize = 64 << 10;

/// Bytes from a place of a recording on.
#[derive(Debug)]
pub struct Unproven {
    /// Where they begin.
    start: u64,
    length: u64,
    memory: Vec<u8>,
    file: Option<Fd>,
}

impl Unproven {
    /// None, at this place.
    pub fn at(start: u64) -> Unproven {
        Unproven {
            start,
            length: 0,
            memory: Vec::new(),
            file: None,
        }
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// How many of them are in memory.
    pub fn in_memory(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Whether they are in a file.
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Whether they go into a file with so many more.
    pub fn needs_file(&self, more: usize) -> bool {
        self.file.is_none() && self.memory.len() + more > IN_MEMORY
    }

    /// Takes more. `directory` is where the file is made.
    pub fn push(&mut self, bytes: &[u8], directory: &CStr) -> Result<(), Errno> {
        if self.file.is_none() {
            if !self.needs_file(bytes.len()) {
                self.memory.extend_from_slice(bytes);
                self.length += bytes.len() as u64;
                return Ok(());
            }
            let file = openat(CWD, directory, O_RDWR | O_TMPFILE, 0o600)?;
            write_all_at(&file, &self.memory, 0)?;
            self.memory = Vec::new();
            self.file = Some(file);
        }
        if let Some(file) = &self.file {
            write_all_at(file, bytes, self.length)?;
            self.length += bytes.len() as u64;
        }
        Ok(())
    }

    /// Writes those between two places into a file, each at its place.
    pub fn write(&self, from: u64, to: u64, target: &Fd) -> Result<(), Errno> {
        self.each(from, to, |at, bytes| write_all_at(target, bytes, at))
    }

    /// Forgets those before a place.
    pub fn forget(&mut self, before: u64, directory: &CStr) -> Result<(), Errno> {
        let (from, to) = (
            before.clamp(self.start, self.start + self.length),
            self.start + self.length,
        );
        if self.file.is_none() {
            self.memory
                .drain(..usize::try_from(from - self.start).unwrap_or(usize::MAX));
            if self.memory.capacity() > 2 * self.memory.len() + 4096 {
                self.memory.shrink_to_fit();
            }
            self.length = to - from;
            self.start = from;
            return Ok(());
        }
        // What is left is mostly the signature itself.
        let mut rest = Unproven::at(from);
        self.each(from, to, |_, bytes| rest.push(bytes, directory))?;
        *self = rest;
        Ok(())
    }

    fn each(
        &self,
        from: u64,
        to: u64,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (from, to) = (from.max(self.start), to.min(self.start + self.length));
        if from >= to {
            return Ok(());
        }
        let Some(file) = &self.file else {
            let index = |at: u64| usize::try_from(at - self.start).unwrap_or(usize::MAX);
            return take(from, &self.memory[index(from)..index(to)]);
        };
        let mut room = vec![0; CHUNK];
        let mut at = from;
        while at < to {
            let most = usize::try_from(to - at).unwrap_or(CHUNK).min(CHUNK);
            match read_at(file.raw(), &mut room[..most], at - self.start)? {
                0 => return Err(Errno::EIO),
                n => {
                    take(at, &room[..n])?;
                    at += n as u64;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::io::Read;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn bytes_are_the_same_in_memory_and_in_a_file() {
        let directory = CString::new(std::env::temp_dir().as_os_str().as_bytes()).unwrap();
        let bytes: Vec<u8> = (0..400_000_u32).map(|n| (n % 251) as u8).collect();
        for (chunk, spills) in [(10_000, false), (90_000, true)] {
            let mut unproven = Unproven::at(1000);
            for part in bytes[..4 * chunk].chunks(chunk) {
                unproven.push(part, &directory).unwrap();
            }
            assert_eq!(unproven.has_file(), spills);
            let path =
                std::env::temp_dir().join(format!("fleetgate-unproven-{}-{chunk}", std::process::id()));
            let file = std::fs::File::create(&path).unwrap();
            let fd = Fd::from(std::os::fd::OwnedFd::from(file));
            unproven.write(1100, 1000 + 3 * chunk as u64, &fd).unwrap();
            let mut got = Vec::new();
            std::fs::File::open(&path).unwrap().read_to_end(&mut got).unwrap();
            assert_eq!(got[1100..], bytes[100..3 * chunk]);
            std::fs::remove_file(&path).unwrap();
            unproven.forget(1000 + 3 * chunk as u64, &directory).unwrap();
            assert_eq!((unproven.len(), unproven.has_file()), (chunk as u64, false));
            unproven.push(b"more", &directory).unwrap();
            assert_eq!(unproven.len(), chunk as u64 + 4);
            unproven.forget(u64::MAX, &directory).unwrap();
            assert_eq!(unproven.len(), 0);
        }
    }
}
