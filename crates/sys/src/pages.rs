//! Giving memory back that was needed to start and is not needed to serve. It changes no byte that anybody sees.

use crate::file::{self, CWD, flags};
use crate::{Errno, Result, syscall};
use alloc::vec::Vec;

/// The longest list of mappings that is read.
const MAX_MAPS: usize = 256 << 10;

/// Where this program's own file lies in memory, as far as it holds code and constants.
///
/// Only mappings that were never written: code, and the constants before it. What stands behind the code may have been
/// changed by the loader, and dropping that would bring back the file's bytes.
pub struct Program {
    ranges: Vec<(usize, usize)>,
}

impl Program {
    /// Reads it from `/proc`.
    pub fn find() -> Result<Program> {
        let own = file::read_link(c"/proc/self/exe")?;
        let maps = file::openat(CWD, c"/proc/self/maps", flags::O_RDONLY, 0)?;
        let text = file::read_up_to(&maps, MAX_MAPS)?;
        let ranges = unchanged(&text, &own);
        Ok(Program { ranges })
    }

    /// Unmaps its pages until they are touched again: what runs at the start only, and what is embedded and was
    /// unpacked, does not stay in memory for its sake. Returns how many bytes of address space were looked at.
    pub fn release(&self) -> Result<usize> {
        let mut released = 0;
        for &(from, to) in &self.ranges {
            // SAFETY: the pages are a private, read-only mapping of this program's file, which stays mapped for as long
            // as the program runs, and hold the file's own bytes, so the kernel reads the same bytes again at the next
            // touch; nothing points at anything else.
            unsafe { syscall!(libc::SYS_madvise, from, to - from, libc::MADV_DONTNEED) }?;
            released += to - from;
        }
        Ok(released)
    }
}

/// The mappings of `program` up to and with its code, none of which may be written.
fn unchanged(maps: &[u8], program: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for line in maps.split(|b| *b == b'\n') {
        let mut words = line.split(|b| *b == b' ').filter(|w| !w.is_empty());
        let (Some(range), Some(mode)) = (words.next(), words.next()) else {
            continue;
        };
        // offset, device, inode; then the path, which may hold blanks.
        let Some(at) = line.iter().position(|b| *b == b'/') else {
            continue;
        };
        if line[at..] != *program || !matches!(mode, b"r--p" | b"r-xp") {
            continue;
        }
        match range_of(range) {
            Ok(range) => found.push(range),
            Err(_) => return Vec::new(),
        }
        if mode == b"r-xp" {
            return found;
        }
    }
    // Code was not among them: then nothing is known about what these are.
    Vec::new()
}

fn range_of(text: &[u8]) -> Result<(usize, usize)> {
    let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    let (from, to) = text.split_once('-').ok_or(Errno::EINVAL)?;
    let number = |hex| usize::from_str_radix(hex, 16).map_err(|_| Errno::EINVAL);
    let (from, to) = (number(from)?, number(to)?);
    if from < to {
        Ok((from, to))
    } else {
        Err(Errno::EINVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_and_code_are_found_and_nothing_behind_them() {
        let maps = b"1000-3000 r--p 00000000 fe:00 42   /usr/bin/a b\n\
            3000-9000 r-xp 00002000 fe:00 42   /usr/bin/a b\n\
            9000-a000 r--p 00008000 fe:00 42   /usr/bin/a b\n\
            a000-b000 rw-p 00009000 fe:00 42   /usr/bin/a b\n\
            c000-d000 r-xp 00000000 fe:00 43   /lib/libc.so.6\n";
        assert_eq!(
            unchanged(maps, b"/usr/bin/a b"),
            [(0x1000, 0x3000), (0x3000, 0x9000)]
        );
        assert_eq!(unchanged(maps, b"/usr/bin/other"), []);
        assert_eq!(unchanged(b"1000-3000 r--p 0 0 0 /x\n", b"/x"), []);
        assert_eq!(unchanged(b"3000-1000 r-xp 0 0 0 /x\n", b"/x"), []);
    }

    #[test]
    fn this_program_goes_on_without_its_pages() {
        static CONSTANT: [u64; 4096] = [7; 4096];
        let program = Program::find().expect("found");
        assert!(program.release().expect("released") > 0);
        assert_eq!(CONSTANT.iter().sum::<u64>(), 7 * 4096);
    }
}
