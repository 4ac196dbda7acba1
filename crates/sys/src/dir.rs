//! Reading directories, many entries per system call.

use crate::{Errno, Fd, Result, syscall};
use alloc::boxed::Box;
use core::ffi::CStr;

/// How many bytes of entries one call brings: about 1,600 names of ten letters. The kernel fills what it is given.
const BUFFER: usize = 64 << 10;

/// Where the name begins in a linux_dirent64: after inode, offset, length and kind.
const NAME: usize = 19;

/// A directory being read, `.` and `..` included, in the file system's order.
pub struct Entries {
    fd: Fd,
    buffer: Box<[u8]>,
    at: usize,
    end: usize,
}

impl Entries {
    /// Reads from an open directory.
    pub fn new(fd: Fd) -> Entries {
        Entries {
            fd,
            buffer: alloc::vec![0; BUFFER].into_boxed_slice(),
            at: 0,
            end: 0,
        }
    }

    /// The directory.
    pub fn directory(&self) -> &Fd {
        &self.fd
    }

    /// The directory, given back to be closed.
    pub fn into_directory(self) -> Fd {
        self.fd
    }

    /// The next name; `None` at the end.
    pub fn next_name(&mut self) -> Result<Option<&CStr>> {
        if self.at == self.end {
            self.at = 0;
            self.end = self.fill()?;
            if self.end == 0 {
                return Ok(None);
            }
        }
        let entry = &self.buffer[self.at..self.end];
        let len = match entry.get(16..18) {
            Some(&[a, b]) => usize::from(u16::from_ne_bytes([a, b])),
            _ => 0,
        };
        let name = entry.get(NAME..len).ok_or(Errno::EIO)?;
        self.at += len;
        CStr::from_bytes_until_nul(name).map(Some).map_err(|_| Errno::EIO)
    }

    fn fill(&mut self) -> Result<usize> {
        // SAFETY: the kernel writes at most the buffer's length.
        unsafe {
            syscall!(
                libc::SYS_getdents64,
                self.fd.raw(),
                self.buffer.as_mut_ptr(),
                self.buffer.len()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{CWD, openat};
    use alloc::string::String;
    use alloc::vec::Vec;

    #[test]
    fn names_are_those_that_the_standard_library_lists() {
        let fd = openat(CWD, c"/etc", libc::O_RDONLY | libc::O_DIRECTORY, 0).unwrap();
        let mut entries = Entries::new(fd);
        let mut ours = Vec::new();
        while let Some(name) = entries.next_name().unwrap() {
            ours.push(String::from(name.to_str().unwrap()));
        }
        assert_eq!(entries.next_name().unwrap(), None, "the end stays the end");
        let mut theirs: Vec<String> = std::fs::read_dir("/etc")
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        theirs.extend([".".into(), "..".into()]);
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs);
    }
}
