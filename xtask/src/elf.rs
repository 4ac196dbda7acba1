//! A static program without its section headers, their names and the compiler's comment. The kernel reads program headers
//! alone, so these bytes are never mapped; they lie in the file all the same, and in every copy of it in memory.
//!
//! It changes nothing that a program header covers, and refuses a program of which it would cut something off.

use crate::shell::Result;

/// Sizes of ELF's 64-bit headers.
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;

const PT_NULL: u64 = 0;
const PT_LOAD: u64 = 1;

/// Where the fields of the ELF header are: the program headers' offset, size of each, and count; the section headers'
/// offset, count, and the index of their names.
const E_PHOFF: usize = 32;
const E_PHENTSIZE: usize = 54;
const E_PHNUM: usize = 56;
const E_SHOFF: usize = 40;
const E_SHNUM: usize = 60;
const E_SHSTRNDX: usize = 62;

/// A copy of `program` that ends with the last byte that is loaded, and has no section headers.
pub fn without_sections(program: &[u8]) -> Result<Vec<u8>> {
    if program.len() < HEADER || program[..4] != *b"\x7fELF" {
        return Err("it is no ELF program".to_owned());
    }
    // Class and byte order.
    if program[4..6] != [2, 1] {
        return Err("it is no 64-bit little-endian program".to_owned());
    }
    let headers = program_headers(program)?;
    let loaded = headers.iter().filter(|h| h.kind == PT_LOAD).map(|h| h.end);
    let end = loaded.max().ok_or("it has no segment that is loaded")?;
    if end > program.len() as u64 {
        return Err(format!(
            "a loaded segment ends at byte {end}, the file at {}",
            program.len()
        ));
    }
    // The kernel reads the ELF header and the program headers from the file too.
    let table = number(program, E_PHOFF, 8) + (headers.len() * PROGRAM_HEADER) as u64;
    let others = headers.iter().filter(|h| h.kind != PT_NULL).map(|h| h.end);
    if let Some(beyond) = others.chain([table, HEADER as u64]).find(|other| *other > end) {
        return Err(format!(
            "its headers need byte {}, which lies behind all that is loaded ({end})",
            beyond - 1
        ));
    }
    let mut out = program[..end as usize].to_vec();
    for (at, width) in [(E_SHOFF, 8), (E_SHNUM, 2), (E_SHSTRNDX, 2)] {
        out[at..at + width].fill(0);
    }
    Ok(out)
}

/// What is needed of a program header: its kind, and where its bytes in the file end.
struct ProgramHeader {
    kind: u64,
    end: u64,
}

fn program_headers(program: &[u8]) -> Result<Vec<ProgramHeader>> {
    let (offset, size, count) = (
        number(program, E_PHOFF, 8),
        number(program, E_PHENTSIZE, 2),
        number(program, E_PHNUM, 2) as usize,
    );
    if size != PROGRAM_HEADER as u64 {
        return Err(format!(
            "its program headers have {size} bytes each, not {PROGRAM_HEADER}"
        ));
    }
    let start = usize::try_from(offset).ok();
    let table = start.and_then(|start| program.get(start..start.checked_add(count * PROGRAM_HEADER)?));
    let table = table.ok_or("its program headers lie outside of the file")?;
    table
        .chunks_exact(PROGRAM_HEADER)
        .map(|raw| {
            let end = number(raw, 8, 8).checked_add(number(raw, 32, 8));
            Ok(ProgramHeader {
                kind: number(raw, 0, 4),
                end: end.ok_or("a program header's end is no 64-bit number")?,
            })
        })
        .collect()
}

/// The little-endian number of `width` bytes at `at`, which the caller knows to be there.
fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    let mut wide = [0u8; 8];
    wide[..width].copy_from_slice(&bytes[at..at + width]);
    u64::from_le_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// Bytes at which a program header's fields lie, when the headers begin behind the ELF header.
    const FIRST: usize = HEADER;
    const SECOND: usize = HEADER + PROGRAM_HEADER;

    /// Two headers: one loads bytes 0 to 0x200, one (a note) covers bytes 0x100 to 0x120. 0x80 bytes follow.
    fn small() -> Vec<u8> {
        let mut program = vec![0x55; 0x280];
        program[..HEADER + 2 * PROGRAM_HEADER].fill(0);
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut set = |at: usize, width: usize, value: u64| {
            program[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        };
        set(E_PHOFF, 8, HEADER as u64);
        set(E_PHENTSIZE, 2, PROGRAM_HEADER as u64);
        set(E_PHNUM, 2, 2);
        set(E_SHOFF, 8, 0x240);
        set(E_SHNUM, 2, 1);
        set(E_SHSTRNDX, 2, 1);
        set(FIRST, 4, PT_LOAD);
        set(FIRST + 32, 8, 0x200);
        set(SECOND, 4, 4);
        set(SECOND + 8, 8, 0x100);
        set(SECOND + 32, 8, 0x20);
        program
    }

    #[test]
    fn the_section_headers_and_all_behind_what_is_loaded_are_cut_off_and_nothing_else() {
        let before = small();
        let after = without_sections(&before).expect("a good program");
        assert_eq!(after.len(), 0x200);
        for (at, byte) in after.iter().enumerate() {
            let cleared = (E_SHOFF..E_SHOFF + 8).contains(&at) || (E_SHNUM..HEADER).contains(&at);
            let expected = if cleared { 0 } else { before[at] };
            assert_eq!(*byte, expected, "byte {at}");
        }
        assert_eq!(without_sections(&after), Ok(after.clone()), "twice is once");
    }

    #[test]
    fn a_program_that_would_lose_something_is_refused_with_words() {
        let with = |changes: &[(usize, usize, u64)]| {
            let mut program = small();
            for (at, width, value) in changes {
                program[*at..at + width].copy_from_slice(&value.to_le_bytes()[..*width]);
            }
            program
        };
        // Program headers that lie within the ELF header.
        let tiny = with(&[
            (E_PHOFF, 8, 6),
            (E_PHNUM, 2, 1),
            (6, 8, PT_LOAD),
            (6 + 8, 8, 62),
            (6 + 32, 8, 0),
        ]);
        for (program, words) in [
            (Vec::new(), "no ELF program"),
            (b"#!/bin/sh\n".repeat(20), "no ELF program"),
            (small()[..HEADER - 1].to_vec(), "no ELF program"),
            (with(&[(4, 1, 1)]), "no 64-bit"),
            (with(&[(5, 1, 2)]), "no 64-bit"),
            (with(&[(E_PHENTSIZE, 2, 32)]), "have 32 bytes each"),
            (with(&[(E_PHOFF, 8, 0x270)]), "outside of the file"),
            (with(&[(E_PHOFF, 8, u64::MAX)]), "outside of the file"),
            (with(&[(E_PHNUM, 2, 0xffff)]), "outside of the file"),
            (with(&[(E_PHNUM, 2, 0)]), "no segment that is loaded"),
            (with(&[(FIRST, 4, 4)]), "no segment that is loaded"),
            (
                with(&[(FIRST + 32, 8, 0x281)]),
                "ends at byte 641, the file at 640",
            ),
            (with(&[(FIRST + 8, 8, u64::MAX)]), "no 64-bit number"),
            (with(&[(SECOND + 8, 8, 0x1f0)]), "need byte 527"),
            (with(&[(SECOND + 8, 8, u64::MAX)]), "no 64-bit number"),
            (with(&[(FIRST + 32, 8, 0x40)]), "need byte 287"),
            // The program headers themselves, and the ELF header.
            (
                with(&[(FIRST + 32, 8, 0x60), (SECOND, 4, PT_NULL)]),
                "need byte 175",
            ),
            (tiny, "need byte 63"),
        ] {
            let why = without_sections(&program).expect_err(words);
            assert!(why.contains(words), "{why:?} says nothing of {words:?}");
        }
    }

    /// Every cut and every flipped bit of the headers is answered, one way or the other.
    #[test]
    fn damaged_programs_are_survived() {
        let whole = small();
        for len in 0..whole.len() {
            let _ = without_sections(&whole[..len]);
        }
        for at in 0..HEADER + 2 * PROGRAM_HEADER {
            for bit in 0..8 {
                let mut program = whole.clone();
                program[at] ^= 1 << bit;
                let _ = without_sections(&program);
            }
        }
    }

    #[test]
    fn a_real_program_runs_without_its_sections() {
        let whole = std::fs::read("/proc/self/exe").expect("this test");
        let short = without_sections(&whole).expect("a good program");
        assert!(short.len() < whole.len());
        let directory = std::env::temp_dir().join(format!("fleetgate-elf-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("made");
        // A shell writes it: no other test's child holds the file open for writing when it is executed.
        let mut shell = Command::new("sh")
            .args([
                "-c",
                "cat > program && chmod 700 program && exec ./program --list",
            ])
            .current_dir(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let mut to = shell.stdin.take().expect("piped");
        to.write_all(&short).expect("it reads");
        drop(to);
        let out = shell.wait_with_output().expect("it ends");
        std::fs::remove_dir_all(&directory).expect("removed");
        assert!(out.status.success(), "{:?}", out.status);
        let listed = String::from_utf8_lossy(&out.stdout);
        assert!(
            listed.contains("a_real_program_runs_without_its_sections: test"),
            "{listed}"
        );
    }
}
