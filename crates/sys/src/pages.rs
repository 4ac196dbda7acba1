//! Giving memory back that was needed to start and is not needed to serve. It changes no byte that anybody sees.

use crate::file::{self, CWD, flags};
use crate::{Errno, Fd, Result, syscall};
use alloc::vec::Vec;

/// The longest list of mappings that is read.
const MAX_MAPS: usize = 1 << 20;

/// `/proc/self/smaps`, opened where that can be done still, and read when it is needed: the kernel looks at every page for it,
/// some 80 us.
pub struct Mappings(Fd);

impl Mappings {
    /// Opens it.
    pub fn open() -> Result<Mappings> {
        file::openat(CWD, c"/proc/self/smaps", flags::O_RDONLY, 0).map(Mappings)
    }

    /// What it says by now.
    pub fn read(self) -> Result<Program> {
        let mut text = Vec::new();
        let mut chunk = [0; 4096];
        while text.len() < MAX_MAPS {
            match file::read(self.0.raw(), &mut chunk)? {
                0 => break,
                n => text.extend_from_slice(&chunk[..n]),
            }
        }
        Ok(Program {
            ranges: unchanged(&text),
        })
    }
}

/// Where this program and its libraries lie in memory, as far as they hold code and constants.
///
/// Only mappings that were never written and cannot be: what the loader changed before it took the right to write away
/// has pages of its own by now, and dropping those would bring back the file's bytes.
pub struct Program {
    ranges: Vec<(usize, usize)>,
}

impl Program {
    /// Reads it from `/proc`.
    pub fn find() -> Result<Program> {
        Mappings::open()?.read()
    }

    /// Gives kept buffers back, and unmaps these pages until they are touched again: what runs at the start only, and what is embedded and was
    /// unpacked, does not stay in memory for its sake. Returns how many bytes of address space were looked at.
    pub fn release(&self) -> Result<usize> {
        #[cfg(any(feature = "std", test))]
        crate::heap::rest();
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

/// One mapping of a file, as `smaps` tells of it.
struct Mapping<'a> {
    file: &'a [u8],
    range: (usize, usize),
    mode: &'a [u8],
    /// None of its pages is other than the file's: none in memory, and none in the swap.
    own: [bool; 2],
}

/// The mappings of each file with code in it that may not be written and never were.
fn unchanged(smaps: &[u8]) -> Vec<(usize, usize)> {
    let mut mappings: Vec<Mapping<'_>> = Vec::new();
    let mut is_file = false;
    for line in smaps.split(|b| *b == b'\n') {
        let mut words = line.split(|b| *b == b' ').filter(|w| !w.is_empty());
        let (Some(first), Some(second)) = (words.next(), words.next()) else {
            continue;
        };
        match (range_of(first), mappings.last_mut()) {
            // offset, device, inode; then the path, which may hold blanks.
            (Ok(range), _) => {
                let path = line.iter().position(|b| *b == b'/');
                is_file = path.is_some();
                mappings.extend(path.map(|at| Mapping {
                    file: &line[at..],
                    range,
                    mode: second,
                    own: [false; 2],
                }));
            }
            (Err(_), Some(mapping)) if is_file => match first {
                b"Anonymous:" => mapping.own[0] = second == b"0",
                b"Swap:" => mapping.own[1] = second == b"0",
                _ => {}
            },
            _ => {}
        }
    }
    let has_code = |file| mappings.iter().any(|m| m.file == file && m.mode == b"r-xp");
    let found = mappings
        .iter()
        .filter(|m| [&b"r--p"[..], b"r-xp"].contains(&m.mode) && m.own == [true; 2] && has_code(m.file));
    found.map(|m| m.range).collect()
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
    fn constants_and_code_are_found_and_nothing_that_was_written() {
        let clean = "Rss: 8 kB\nAnonymous:             0 kB\nSwap:                  0 kB\nVmFlags: rd mr\n";
        let written = clean.replace("0 kB\nSwap", "4 kB\nSwap");
        let swapped = clean.replace("0 kB\nVm", "4 kB\nVm");
        let short = "Rss: 8 kB\nAnonymous: 0 kB\n";
        let mappings = [
            ("1000-3000 r--p 00000000 fe:00 42   /usr/bin/a b", clean),
            ("3000-9000 r-xp 00002000 fe:00 42   /usr/bin/a b", clean),
            ("9000-a000 r--p 00008000 fe:00 42   /usr/bin/a b", &written),
            ("a000-b000 rw-p 00009000 fe:00 42   /usr/bin/a b", clean),
            ("b000-c000 rw-p 00000000 00:00 0    [heap]", clean),
            ("c000-d000 r-xp 00000000 fe:00 43   /lib/libc.so.6", clean),
            ("d000-e000 r--p 00001000 fe:00 43   /lib/libc.so.6", clean),
            (
                "e000-f000 r--p 00000000 fe:00 44   /usr/lib/locale/archive",
                clean,
            ),
            ("f000-10000 r--p 00000000 fe:00 45  /lib/odd.so", &swapped),
            ("10000-11000 r-xp 00000000 fe:00 45 /lib/odd.so", &written),
            ("11000-12000 r-xp 00000000 00:00 0  [vdso]", clean),
            ("12000-13000 r-xp 00000000 fe:00 46 /lib/short.so", short),
        ];
        let smaps: Vec<std::string::String> = mappings
            .iter()
            .map(|(m, more)| std::format!("{m}\n{more}"))
            .collect();
        assert_eq!(
            unchanged(smaps.concat().as_bytes()),
            [
                (0x1000, 0x3000),
                (0x3000, 0x9000),
                (0xc000, 0xd000),
                (0xd000, 0xe000)
            ]
        );
        for nothing in [
            &b"1000-3000 r--p 0 0 0 /x\n"[..],
            b"3000-1000 r-xp 0 0 0 /x\nAnonymous: 0 kB\nSwap: 0 kB\n",
            b"Anonymous: 0 kB\n",
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
