//! Programs of a few instructions, written out as bytes: no compiler is needed, and no C library makes calls of its own.

use super::*;
use std::os::unix::fs::PermissionsExt;

/// An executable of `code` alone, for 64-bit or 32-bit x86.
fn image(wide: bool, code: &[u8]) -> Vec<u8> {
    const AT: u64 = 0x40_0000;
    let (head, part) = if wide { (64u64, 56u64) } else { (52, 32) };
    let length = head + part + code.len() as u64;
    let mut out = vec![
        0x7f,
        b'E',
        b'L',
        b'F',
        if wide { 2 } else { 1 },
        1,
        1,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    let mut put = |value: u64, bytes: usize| out.extend(&value.to_le_bytes()[..bytes]);
    let word = if wide { 8 } else { 4 };
    put(2, 2);
    put(if wide { 62 } else { 3 }, 2);
    put(1, 4);
    put(AT + head + part, word);
    put(head, word);
    put(0, word);
    put(0, 4);
    for value in [head, part, 1, 0, 0, 0] {
        put(value, 2);
    }
    // PT_LOAD, readable and executable; where its flags stand depends on the class.
    put(1, 4);
    if wide {
        put(5, 4);
    }
    for value in [0, AT, AT, length, length] {
        put(value, word);
    }
    if !wide {
        put(5, 4);
    }
    put(0x1000, word);
    out.extend(code);
    out
}

/// `mov eax, number; int 0x80`, with ebx.
fn old(number: u32, argument: u32) -> Vec<u8> {
    let mut code = vec![0xbb];
    code.extend(argument.to_le_bytes());
    code.push(0xb8);
    code.extend(number.to_le_bytes());
    code.extend([0xcd, 0x80]);
    code
}

/// `mov rax, number (with its sign); mov edi, argument; syscall`.
fn new(number: i32, argument: u32) -> Vec<u8> {
    let mut code = vec![0x48, 0xc7, 0xc0];
    code.extend(number.to_le_bytes());
    code.push(0xbf);
    code.extend(argument.to_le_bytes());
    code.extend([0x0f, 0x05]);
    code
}

#[test]
fn calls_of_every_numbering_are_told_apart() {
    const X32_GETPID: i32 = 0x4000_0000 | 39;
    // 20 is getpid of i386, writev of x86_64; 64 and 110 are getppid.
    let rows: [(&str, bool, Vec<u8>, &[&str]); 4] = [
        (
            "32-bit",
            false,
            [old(20, 0), old(64, 0), old(1, 7)].concat(),
            &["i386:20", "i386:64", "i386:1"],
        ),
        (
            "both",
            true,
            [old(20, 0), new(39, 0), new(60, 7)].concat(),
            &["i386:20", "x86_64:39", "x86_64:60"],
        ),
        (
            "none",
            true,
            [new(-1, 0), new(60, 7)].concat(),
            &["x86_64:-1", "x86_64:60"],
        ),
        (
            "x32",
            true,
            [new(X32_GETPID, 0), new(60, 7)].concat(),
            &["x32:39", "x86_64:60"],
        ),
    ];
    const ALL: &[i64] = &[20, 64, 1, 39, 60, -1, X32_GETPID as i64];
    let place = Place::new("image");
    for (name, wide, code, calls) in rows {
        let path = place.out(name);
        std::fs::write(&path, image(wide, &code)).expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("its mode");
        let command = [path.to_str().expect("a path")];
        match std::process::Command::new(command[0]).status() {
            Ok(status) => assert_eq!(status.code(), Some(7), "{name}"),
            Err(error) => {
                eprintln!("skipped: {name}: this kernel runs no such program: {error}");
                continue;
            }
        }
        for (filter, then) in [
            (ALL, Then::Free),
            (ALL, Then::Result),
            (&[], Then::Free),
            (&[], Then::Result),
        ] {
            let seen = trace(&command, &place.out("none"), &Way::of(filter, then));
            let called = |line: &String| line.trim_end().strip_prefix("a calls ").map(str::to_owned);
            let mut found: Vec<_> = seen.lines.iter().filter_map(called).collect();
            found.retain(|call| !call.starts_with("execve"));
            assert_eq!(found, calls, "{name} {then:?}: {seen:#?}");
            assert_eq!(seen.end, Some(End::Exited(7)), "{name}");
            let results = if then == Then::Result { calls.len() - 1 } else { 0 };
            let of_exec = usize::from(filter.is_empty() && then == Then::Result);
            assert_eq!(
                seen.lines.iter().filter(|l| l.starts_with("a = ")).count(),
                results + of_exec,
                "{name}: {seen:#?}"
            );
        }
    }
}
