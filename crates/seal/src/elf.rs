//! What a program file says about itself that decides whether it can run from a sealed image. Reads headers only,
//! within bounds, and trusts no offset.

use fleetgate_sys::{Fd, file};

/// Why a program cannot run from an image of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It begins with `#!`; the interpreter named there.
    Script(String),
    /// It is no ELF program of this machine.
    NotNative,
    /// Its headers point outside of it.
    Damaged,
    /// It looks for libraries or its loader beside itself; the string that says so.
    Origin(String),
}

/// The most that is read of program headers, of the dynamic section, of one string.
const MAX_HEADERS: usize = 64 << 10;
const MAX_DYNAMIC: usize = 1 << 20;
const MAX_STRING: usize = 4096;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;

/// Dynamic entries whose value is a string in which the loader expands `$ORIGIN`: needed, soname-independent paths,
/// run paths, filters and audit libraries.
const STRING_TAGS: [u64; 7] = [1, 15, 29, 0x7fff_fffd, 0x7fff_ffff, 0x6fff_fefb, 0x6fff_fefc];
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;

#[cfg(target_arch = "x86_64")]
const MACHINES: [(u8, u16); 2] = [(2, 62), (1, 3)];
#[cfg(target_arch = "aarch64")]
const MACHINES: [(u8, u16); 2] = [(2, 183), (1, 40)];

struct Elf<'a> {
    fd: &'a Fd,
    wide: bool,
    headers: Vec<Segment>,
}

#[derive(Clone, Copy)]
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

/// Whether the open program may run from an image of itself.
pub(crate) fn check(fd: &Fd) -> Result<(), Unfit> {
    let mut start = [0u8; 4096];
    let len = file::read_at(fd.raw(), &mut start, 0).map_err(|_| Unfit::Damaged)?;
    let start = &start[..len];
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|b| *b == b'\n').next().unwrap_or_default();
        return Err(Unfit::Script(String::from_utf8_lossy(line).trim().to_owned()));
    }
    let elf = Elf::read(fd, start)?;
    for segment in &elf.headers {
        match segment.kind {
            PT_INTERP => no_origin(&elf.string(segment.offset, segment.size)?)?,
            PT_DYNAMIC => elf.check_dynamic(segment)?,
            _ => {}
        }
    }
    Ok(())
}

fn no_origin(text: &[u8]) -> Result<(), Unfit> {
    let found = |needle: &[u8]| text.windows(needle.len()).any(|w| w == needle);
    if found(b"$ORIGIN") || found(b"${ORIGIN}") {
        return Err(Unfit::Origin(String::from_utf8_lossy(text).into_owned()));
    }
    Ok(())
}

fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(width)?)?;
    let mut wide = [0u8; 8];
    wide[..width].copy_from_slice(bytes);
    Some(u64::from_le_bytes(wide))
}

impl<'a> Elf<'a> {
    fn read(fd: &'a Fd, start: &[u8]) -> Result<Elf<'a>, Unfit> {
        // Little-endian, as all our machines are.
        if start.len() < 52 || &start[..4] != b"\x7fELF" || start[5] != 1 {
            return Err(Unfit::NotNative);
        }
        let machine = number(start, 18, 2).and_then(|m| u16::try_from(m).ok());
        if !machine.is_some_and(|machine| MACHINES.contains(&(start[4], machine))) {
            return Err(Unfit::NotNative);
        }
        let wide = start[4] == 2;
        let field = |wide_at: (usize, usize), narrow_at: (usize, usize)| {
            let (at, width) = if wide { wide_at } else { narrow_at };
            number(start, at, width).ok_or(Unfit::Damaged)
        };
        let offset = field((32, 8), (28, 4))?;
        let small =
            |wide_at, narrow_at| usize::try_from(field(wide_at, narrow_at)?).map_err(|_| Unfit::Damaged);
        let entry = small((54, 2), (42, 2))?;
        let count = small((56, 2), (44, 2))?;
        let least = if wide { 56 } else { 32 };
        if entry < least || entry * count > MAX_HEADERS {
            return Err(Unfit::Damaged);
        }
        let mut elf = Elf {
            fd,
            wide,
            headers: Vec::with_capacity(count),
        };
        let here = usize::try_from(offset).ok();
        let table = match here.and_then(|at| start.get(at..at.checked_add(entry * count)?)) {
            Some(table) => table.to_vec(),
            None => elf.bytes(offset, entry * count)?,
        };
        for raw in table.chunks_exact(entry) {
            let get = |wide_at, narrow_at| {
                let (at, width) = if wide { (wide_at, 8) } else { (narrow_at, 4) };
                number(raw, at, width).ok_or(Unfit::Damaged)
            };
            elf.headers.push(Segment {
                kind: number(raw, 0, 4)
                    .and_then(|kind| u32::try_from(kind).ok())
                    .ok_or(Unfit::Damaged)?,
                offset: get(8, 4)?,
                address: get(16, 8)?,
                size: get(32, 16)?,
            });
        }
        Ok(elf)
    }

    fn bytes(&self, offset: u64, len: usize) -> Result<Vec<u8>, Unfit> {
        let mut out = vec![0u8; len];
        let mut at = 0;
        while at < len {
            let from = offset.checked_add(at as u64).ok_or(Unfit::Damaged)?;
            match file::read_at(self.fd.raw(), &mut out[at..], from) {
                Ok(0) | Err(_) => return Err(Unfit::Damaged),
                Ok(n) => at += n,
            }
        }
        Ok(out)
    }

    /// The string at `offset`, of at most `room` bytes; a longer one than [`MAX_STRING`] is cut, which no path is.
    fn string(&self, offset: u64, room: u64) -> Result<Vec<u8>, Unfit> {
        let mut text = self.bytes(
            offset,
            usize::try_from(room).map_or(MAX_STRING, |room| room.min(MAX_STRING)),
        )?;
        if let Some(end) = text.iter().position(|b| *b == 0) {
            text.truncate(end);
        }
        Ok(text)
    }

    fn check_dynamic(&self, segment: &Segment) -> Result<(), Unfit> {
        let len = usize::try_from(segment.size).map_err(|_| Unfit::Damaged)?;
        if len > MAX_DYNAMIC {
            return Err(Unfit::Damaged);
        }
        let raw = self.bytes(segment.offset, len)?;
        let word = if self.wide { 8 } else { 4 };
        let entries = || {
            raw.chunks_exact(2 * word)
                .filter_map(|pair| Some((number(pair, 0, word)?, number(pair, word, word)?)))
                .take_while(|(tag, _)| *tag != 0)
        };
        let value = |wanted| entries().find(|(tag, _)| *tag == wanted).map(|(_, v)| v);
        let (Some(table), Some(size)) = (value(DT_STRTAB), value(DT_STRSZ)) else {
            return Ok(());
        };
        let table = self.offset_of(table).ok_or(Unfit::Damaged)?;
        for (_, index) in entries().filter(|(tag, _)| STRING_TAGS.contains(tag)) {
            if index >= size {
                return Err(Unfit::Damaged);
            }
            let at = table.checked_add(index).ok_or(Unfit::Damaged)?;
            no_origin(&self.string(at, size - index)?)?;
        }
        Ok(())
    }

    /// Where the loaded address lies in the file.
    fn offset_of(&self, address: u64) -> Option<u64> {
        let segment = self
            .headers
            .iter()
            .find(|s| s.kind == PT_LOAD && address >= s.address && address - s.address < s.size)?;
        segment.offset.checked_add(address - segment.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_sys::memfd::{self, Kind};

    fn of(bytes: &[u8]) -> Result<(), Unfit> {
        let fd = memfd::create(c"elf", Kind::Data).expect("memfd");
        file::write_all_at(&fd, bytes, 0).expect("write");
        check(&fd)
    }

    #[test]
    fn what_is_no_program_is_named() {
        assert_eq!(
            of(b"#! /bin/sh -e\nexit"),
            Err(Unfit::Script("/bin/sh -e".to_owned()))
        );
        assert_eq!(of(b""), Err(Unfit::NotNative));
        assert_eq!(of(b"MZ"), Err(Unfit::NotNative));
        assert_eq!(of(&[0x7f, b'E', b'L', b'F', 2, 1]), Err(Unfit::NotNative));
    }

    /// Every cut and every flipped bit of a real program's first page is answered, one way or the other.
    #[test]
    fn damaged_headers_are_survived() {
        let whole = std::fs::read("/proc/self/exe").expect("this test");
        assert_eq!(of(&whole), Ok(()));
        let fd = memfd::create(c"elf", Kind::Data).expect("memfd");
        file::write_all_at(&fd, &whole, 0).expect("write");
        for at in 0..1024 {
            for bit in [0x80, 0x01] {
                file::write_all_at(&fd, &[whole[at] ^ bit], at as u64).expect("write");
                let _ = check(&fd);
                file::write_all_at(&fd, &whole[at..=at], at as u64).expect("write");
            }
        }
        for len in 0..1024 {
            let _ = of(&whole[..len]);
        }
    }
}
