//! Names: of system calls by number and back, of errors, of signals. Nothing here reads anything: the tables are
//! committed, made by `cargo xtask tables`.

mod aarch64;
mod errno_names;
mod i386;
mod signal_names;
mod x32;
mod x86_64;

pub mod errno;
pub mod signal;

use crate::abi::{Abi, Call};

/// A numbering's names, and its numbers in the order of their names.
struct Table {
    names: &'static [&'static str],
    by_name: &'static [u16],
}

impl Call {
    /// As the kernel's headers call it; None where they have no such number.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        let names = table(self.abi).names;
        let name = names.get(usize::try_from(self.number).ok()?)?;
        (!name.is_empty()).then_some(name)
    }

    /// The call of this name in a numbering.
    #[must_use]
    pub fn named(abi: Abi, name: &str) -> Option<Call> {
        let table = table(abi);
        let found = table
            .by_name
            .binary_search_by(|number| table.names.get(usize::from(*number)).map_or("", |n| n).cmp(name));
        let number = u32::from(*table.by_name.get(found.ok()?)?);
        Some(Call { abi, number })
    }
}

/// How many calls of a numbering have a name.
#[must_use]
pub fn count(abi: Abi) -> usize {
    table(abi).by_name.len()
}

/// The calls of a numbering that have a name, by number.
pub fn calls(abi: Abi) -> impl Iterator<Item = (Call, &'static str)> {
    let named = (0u32..)
        .zip(table(abi).names)
        .filter(|(_, name)| !name.is_empty());
    named.map(move |(number, name)| (Call { abi, number }, *name))
}

fn table(abi: Abi) -> Table {
    macro_rules! table {
        ($names:expr) => {{
            static BY_NAME: [u16; count_of($names)] = by_name($names);
            let (names, by_name) = ($names, &BY_NAME);
            Table { names, by_name }
        }};
    }
    match abi {
        Abi::X86_64 => table!(x86_64::NAMES),
        Abi::I386 => table!(i386::NAMES),
        Abi::X32 => table!(x32::NAMES),
        Abi::Aarch64 => table!(aarch64::NAMES),
    }
}

const fn count_of(names: &[&str]) -> usize {
    let (mut count, mut number) = (0, 0);
    while number < names.len() {
        count += !names[number].is_empty() as usize;
        number += 1;
    }
    count
}

/// The numbers that have a name, in the order of the names; made by the compiler.
const fn by_name<const COUNT: usize>(names: &[&str]) -> [u16; COUNT] {
    let mut sorted = [0; COUNT];
    let (mut have, mut number) = (0, 0);
    while number < names.len() {
        if !names[number].is_empty() {
            let (mut from, mut until) = (0, have);
            while from < until {
                let middle = usize::midpoint(from, until);
                if is_before(names[sorted[middle] as usize], names[number]) {
                    from = middle + 1;
                } else {
                    until = middle;
                }
            }
            let mut at = have;
            while at > from {
                sorted[at] = sorted[at - 1];
                at -= 1;
            }
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a table has 1,025 rows at most: see xtask"
            )]
            let place = number as u16;
            sorted[from] = place;
            have += 1;
        }
        number += 1;
    }
    sorted
}

const fn is_before(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at < b.len() && (at == a.len() || a[at] < b[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_its_name_and_a_name_its_call() {
        for (abi, number, name) in [
            (Abi::X86_64, 0, Some("read")),
            (Abi::X86_64, 257, Some("openat")),
            (Abi::X86_64, 334, Some("rseq")),
            (Abi::X86_64, 400, None),
            (Abi::X86_64, 452, Some("fchmodat2")),
            (Abi::X86_64, 470, Some("listns")),
            (Abi::X86_64, 471, None),
            (Abi::X86_64, u32::MAX, None),
            (Abi::I386, 5, Some("open")),
            (Abi::I386, 142, Some("_newselect")),
            (Abi::I386, 295, Some("openat")),
            (Abi::I386, 403, Some("clock_gettime64")),
            (Abi::X32, 0, Some("read")),
            (Abi::X32, 59, None),
            (Abi::X32, 520, Some("execve")),
            (Abi::Aarch64, 56, Some("openat")),
            (Abi::Aarch64, 79, Some("newfstatat")),
            (Abi::Aarch64, 244, None),
            (Abi::Aarch64, 435, Some("clone3")),
        ] {
            let call = Call { abi, number };
            assert_eq!(call.name(), name, "{call:?}");
            if let Some(name) = name {
                assert_eq!(Call::named(abi, name), Some(call), "{name}");
            }
        }
    }

    #[test]
    fn every_named_call_is_found_by_its_name() {
        for abi in Abi::ALL {
            assert!(count(abi) > 300, "{abi:?}");
            assert_eq!(calls(abi).count(), count(abi), "{abi:?}");
            for (call, name) in calls(abi) {
                assert_eq!(Call::named(abi, name), Some(call), "{abi:?} {name}");
            }
            for name in ["", "opena", "openatt", "zzz", "OPENAT"] {
                assert_eq!(Call::named(abi, name), None, "{abi:?} {name}");
            }
        }
    }

    #[test]
    fn the_tables_are_those_of_this_programs_kernel() {
        // What the C library was told by the same headers.
        for (name, number) in [
            ("read", libc::SYS_read),
            ("openat", libc::SYS_openat),
            ("ptrace", libc::SYS_ptrace),
            ("execve", libc::SYS_execve),
            ("renameat2", libc::SYS_renameat2),
            ("seccomp", libc::SYS_seccomp),
            ("io_uring_setup", libc::SYS_io_uring_setup),
            ("memfd_secret", libc::SYS_memfd_secret),
        ] {
            let call = Call::named(Abi::NATIVE, name).map(|c| i64::from(c.number));
            assert_eq!(call, Some(number), "{name}");
        }
    }
}
