//! Listing directories: names, attributes, and the line that `ls -l` would print.
//!
//! Entries come 64 KB per system call, each is looked at relative to the open directory, and an answer is filled
//! up to the 34,000 bytes that every client must take: 170 entries or so, where OpenSSH sends 100.

use super::handles::{Directory, OpenHandle};
use super::operations::{Outcome, Session};
use super::people::{People, number};
use super::protocol::{MAX_LISTING, Status, kind};
use super::request::HandleName;
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::CStr;
use fleetgate_sys::clock;
use fleetgate_sys::dir::Entries;
use fleetgate_sys::file::{self, flags};
use fleetgate_sys::tree::{self, Stat};

/// What one entry takes at most: twice its name (255 bytes), attributes, and a line with two long names.
const MOST_ENTRY: usize = 2 * 255 + 8 + 32 + 600;
/// So many entries are looked at together, so that unknown owners are asked for in one question.
const AT_ONCE: usize = 200;
/// The hour of a file younger than this (half a year) is printed, and the year of an older one or of one from the
/// future.
const RECENT: i64 = 365 * 24 * 60 * 60 / 2;

const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

impl Session {
    pub(super) fn open_directory(&mut self, id: u32, path: &CStr) -> Outcome {
        if !self.handles.has_room() {
            return Err(Status::Failure);
        }
        let how = flags::O_RDONLY | flags::O_DIRECTORY | flags::O_NONBLOCK;
        let fd = file::openat(file::CWD, path, how, 0)?;
        let name = self.handles.insert(OpenHandle::Directory(Directory {
            entries: Entries::new(fd),
            pending: Vec::new(),
        }));
        self.handle(id, &name)
    }

    pub(super) fn read_directory(&mut self, id: u32, handle: HandleName<'_>) -> Outcome {
        let directory = self.handles.directory(handle).ok_or(Status::Failure)?;
        let mut count = 0;
        let now = clock::wall().sec;
        let mut answer = self.output.answer(kind::NAME, id);
        answer.u32(0);
        let mut line = Vec::with_capacity(256);
        'answer: loop {
            if directory.pending.is_empty() {
                look(directory);
                if directory.pending.is_empty() {
                    break;
                }
                self.people
                    .learn(directory.pending.iter().map(|(_, s)| (s.uid, s.gid)));
            }
            while let Some((name, stat)) = directory.pending.last() {
                if answer.len() + MOST_ENTRY > MAX_LISTING {
                    break 'answer;
                }
                line.clear();
                long_name(&mut line, name.to_bytes(), stat, &self.people, now);
                answer.string(name.to_bytes());
                answer.string(&line);
                answer.attributes(stat);
                count += 1;
                directory.pending.pop();
            }
        }
        if count == 0 {
            answer.abandon();
            return Err(Status::Eof);
        }
        answer.amend(5, count);
        answer.finish();
        Ok(())
    }
}

/// Looks at the next entries; they stand in reverse, the next one last. One that vanished meanwhile, or may not
/// be looked at, is left out, as OpenSSH does; an error of the directory itself ends the list.
fn look(directory: &mut Directory) {
    let fd = directory.entries.directory().raw();
    for _ in 0..AT_ONCE {
        let Ok(Some(name)) = directory.entries.next_name() else {
            break;
        };
        if let Ok(stat) = tree::stat(fd, name, false) {
            directory.pending.push((CString::from(name), stat));
        }
    }
    directory.pending.reverse();
}

/// The line: mode, links, owner, group, size, date, name, in the columns that OpenSSH's `ls_file` has.
fn long_name(line: &mut Vec<u8>, name: &[u8], stat: &Stat, people: &People, now: i64) {
    mode_letters(line, stat.mode);
    line.extend_from_slice(b"  ");
    number(line, stat.links, 3, b' ');
    line.push(b' ');
    left(line, 8, |line| people.user(line, stat.uid));
    line.push(b' ');
    left(line, 8, |line| people.group(line, stat.gid));
    line.push(b' ');
    number(line, stat.size, 8, b' ');
    line.push(b' ');
    date(line, stat.modified, now);
    line.push(b' ');
    line.extend_from_slice(name);
}

fn mode_letters(line: &mut Vec<u8>, mode: u32) {
    line.push(match mode & 0o170_000 {
        0o140_000 => b's',
        0o120_000 => b'l',
        0o100_000 => b'-',
        0o060_000 => b'b',
        0o040_000 => b'd',
        0o020_000 => b'c',
        0o010_000 => b'p',
        _ => b'?',
    });
    for (shift, special, letter) in [(6, 0o4000, b's'), (3, 0o2000, b's'), (0, 0o1000, b't')] {
        let bits = mode >> shift;
        line.push(if bits & 4 != 0 { b'r' } else { b'-' });
        line.push(if bits & 2 != 0 { b'w' } else { b'-' });
        line.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => b'x',
            (false, false) => b'-',
        });
    }
}

fn date(line: &mut Vec<u8>, modified: i64, now: i64) {
    let Some(at) = clock::local(modified) else {
        return;
    };
    let month = MONTHS.get(usize::from(at.month).wrapping_sub(1)).copied();
    line.extend_from_slice(month.unwrap_or(b"???"));
    line.push(b' ');
    number(line, at.day.into(), 2, b' ');
    line.push(b' ');
    if (0..RECENT).contains(&now.saturating_sub(modified)) {
        number(line, at.hour.into(), 2, b'0');
        line.push(b':');
        number(line, at.minute.into(), 2, b'0');
    } else {
        line.push(b' ');
        if at.year < 0 {
            line.push(b'-');
        }
        number(line, at.year.unsigned_abs(), 4, b' ');
    }
}

/// What `write` writes, filled up on its right to `width` places.
fn left(line: &mut Vec<u8>, width: usize, write: impl FnOnce(&mut Vec<u8>)) {
    let start = line.len();
    write(line);
    let end = line.len().max(start + width);
    line.resize(end, b' ');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(mode: u32, size: u64, modified: i64, now: i64) -> std::string::String {
        let stat = Stat {
            mode,
            uid: 3_999_999_991,
            gid: 7,
            links: 1,
            size,
            accessed: 0,
            modified,
        };
        let mut out = Vec::new();
        long_name(&mut out, b"name", &stat, &People::nobody(), now);
        std::string::String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_have_opensshs_columns() {
        // The zone of the machine shifts the hours, so the date is compared by its shape.
        let recent = line(0o100_644, 12, 1_700_000_000, 1_700_000_100);
        assert!(
            recent.starts_with("-rw-r--r--    1 3999999991 7              12 Nov 1"),
            "{recent}"
        );
        assert!(recent.ends_with(" name") && recent.contains(':'), "{recent}");
        let old = line(0o041_777, 12_345_678_901, 1_500_000_000, 1_700_000_000);
        assert!(
            old.starts_with("drwxrwxrwt    1 3999999991 7        12345678901 Jul 1"),
            "{old}"
        );
        assert!(old.ends_with("  2017 name"), "{old}");
    }

    #[test]
    fn every_kind_and_bit_has_its_letter() {
        let letters = |mode| {
            let mut out = Vec::new();
            mode_letters(&mut out, mode);
            std::string::String::from_utf8(out).unwrap()
        };
        assert_eq!(letters(0o104_755), "-rwsr-xr-x");
        assert_eq!(letters(0o106_644), "-rwSr-Sr--");
        assert_eq!(letters(0o041_000), "d--------T");
        assert_eq!(letters(0o120_777), "lrwxrwxrwx");
        for (mode, letter) in [
            (0o140_000, 's'),
            (0o060_000, 'b'),
            (0o020_000, 'c'),
            (0o010_000, 'p'),
        ] {
            assert_eq!(letters(mode).chars().next(), Some(letter));
        }
    }
}
