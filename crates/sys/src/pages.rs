//! Giving memory back that was needed to start and is not needed to serve. It changes no byte that anybody sees.

use crate::file::{self, CWD, flags};
use crate::{Errno, Result, syscall};
use alloc::vec::Vec;

/// The longest list of mappings that is read.
const MAX_MAPS: usize = 256 << 10;

/// Where this program and its libraries lie in memory, as far as they hold code and constants.
///
/// Only mappings that were never written: code, and the constants before it. What stands behind the code may have been
/// changed by the loader, and dropping that would bring back the file's bytes.
pub struct Program {
    ranges: Vec<(usize, usize)>,
}

impl Program {
    /// Reads it from `/proc`.
    pub fn find() -> Result<Program> {
        let maps = file::openat(CWD, c"/proc/self/maps", flags::O_RDONLY, 0)?;
        let text = file::read_up_to(&maps, MAX_MAPS)?;
        let ranges = unchanged(&text);
        Ok(Program { ranges })
    }

    /// Unmaps their pages until they are touched again: what runs at the start only, and what is embedded and was
    /// unpacked, does not stay in memory for its sake. Returns how many bytes of address space were looked at.
    pub fn release(&self) -> Result<usize> {
        let mut released = 0;
        for &(from, to) in &self.ranges {
            // SAFETY: the pages are a private, read-only mapping of this program's file or of a library, none of which is
            // ever unloaded, and hold the file's own bytes, so the kernel reads the same bytes again at the next touch.
            unsafe { syscall!(libc::SYS_madvise, from, to - from, libc::MADV_DONTNEED) }?;
            released += to - from;
        }
        Ok(released)
    }
}

/// The mappings of each file with code in it, up to and with that code, none of which may be written.
fn unchanged(maps: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut file: &[u8] = b"";
    // Of `file`, until its code is met; none: it was.
    let mut before: Option<Vec<(usize, usize)>> = None;
    for line in maps.split(|b| *b == b'\n') {
        let mut words = line.split(|b| *b == b' ').filter(|w| !w.is_empty());
        let (Some(range), Some(mode)) = (words.next(), words.next()) else {
            continue;
        };
        // offset, device, inode; then the path, which may hold blanks.
        let Some(at) = line.iter().position(|b| *b == b'/') else {
            continue;
        };
        if line[at..] != *file {
            file = &line[at..];
            before = Some(Vec::new());
        }
        let (Some(ranges), Ok(range)) = (&mut before, range_of(range)) else {
            continue;
        };
        match mode {
            b"r--p" => ranges.push(range),
            b"r-xp" => {
                found.append(ranges);
                found.push(range);
                before = None;
            }
            _ => before = None,
        }
    }
    found
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
            b000-c000 rw-p 00000000 00:00 0    [heap]\n\
            c000-d000 r-xp 00000000 fe:00 43   /lib/libc.so.6\n\
            d000-e000 r--p 00001000 fe:00 43   /lib/libc.so.6\n\
            e000-f000 r--p 00000000 fe:00 44   /usr/lib/locale/archive\n\
            f000-10000 rw-p 00000000 fe:00 45  /lib/odd.so\n\
            10000-11000 r-xp 00000000 fe:00 45 /lib/odd.so\n\
            11000-12000 r-xp 00000000 00:00 0  [vdso]\n";
        assert_eq!(
            unchanged(maps),
            [(0x1000, 0x3000), (0x3000, 0x9000), (0xc000, 0xd000)]
        );
        for nothing in [
            &b"1000-3000 r--p 0 0 0 /x\n"[..],
            b"3000-1000 r-xp 0 0 0 /x\n",
            b"",
            b"x",
        ] {
            assert_eq!(unchanged(nothing), []);
        }
    }

    #[test]
    fn this_program_goes_on_without_its_pages() {
        static CONSTANT: [u64; 4096] = [7; 4096];
        let program = Program::find().expect("found");
        assert!(program.release().expect("released") > 0);
        assert_eq!(CONSTANT.iter().sum::<u64>(), 7 * 4096);
    }
}
