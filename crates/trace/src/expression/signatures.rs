//! Names of arguments, so that a test can say `flags` where it means the third. Rows say of which calls people test them; any
//! other can be asked by position. The names are those of the manual, as JSON has them.

use crate::decode::{self, constants};
use fleetgate_calls::abi::{Abi, Call};
use fleetgate_calls::select::{Is, Test};

/// An argument of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Argument {
    /// From 0.
    pub position: u8,
    /// All 64 bits count.
    pub wide: bool,
}

/// What is known of a call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// It is this one.
    At(Argument),
    /// The call has it, but a filter cannot see it there: it is behind a pointer, or in two halves.
    Hidden,
    /// The call has none of this name, as far as is known here.
    Missing,
}

/// Looks for an argument of a call by its name.
pub(super) fn argument(call: Call, name: &str) -> Lookup {
    let Some(of) = call.name() else {
        return Lookup::Missing;
    };
    let signature = usual(of);
    let usual = find(&signature, name);
    let Some(other) = different(call.abi, of, &signature) else {
        return usual.map_or(Lookup::Missing, Lookup::At);
    };
    match (find(&other, name), usual) {
        (Some(argument), _) => Lookup::At(argument),
        (None, Some(_)) => Lookup::Hidden,
        (None, None) => Lookup::Missing,
    }
}

/// A name and whether all 64 bits count, by position.
type Signature = Vec<(&'static str, bool)>;

fn find(signature: &Signature, name: &str) -> Option<Argument> {
    let all = || (0u8..).zip(signature);
    let second = |of: &'static str| SECOND_NAMES.contains(&(name, of));
    let (position, (_, wide)) = all()
        .find(|(_, (of, _))| *of == name)
        .or_else(|| all().find(|(_, (of, _))| second(of)))?;
    let wide = *wide;
    Some(Argument { position, wide })
}

/// The argument at a position. What is not known is taken for 64 bits.
pub(super) fn at(call: Call, position: u8) -> Argument {
    let known = call.name().map(usual).unwrap_or_default();
    let wide = known.get(usize::from(position)).is_none_or(|(_, wide)| *wide);
    Argument { position, wide }
}

/// The names of a call's arguments, as errors show them. Empty: nobody knows them.
pub(super) fn names(call: &str) -> Vec<&'static str> {
    usual(call).into_iter().map(|(name, _)| name).collect()
}

/// The arguments of a call but where its numbering has others.
fn usual(call: &str) -> Signature {
    let row = decode::rows().find(|row| row.name == call && row.is_tested());
    let arguments = row.map_or(&[][..], |row| row.arguments);
    arguments.iter().map(|of| (of.name, of.is_wide())).collect()
}

/// The arguments of a call whose numbering has others. i386's values of 64 bits are in two registers, and those behind them
/// have other positions; its users and groups of 16 bits are a part of theirs.
fn different(abi: Abi, call: &str, usual: &Signature) -> Option<Signature> {
    let listed = DIFFERENT
        .iter()
        .find(|(abis, known, _)| *known == call && abis.contains(&abi));
    if let Some((.., arguments)) = listed {
        let plain = |of: &'static str| (of.trim_end_matches('*'), of.ends_with('*'));
        return Some(arguments.split_ascii_whitespace().map(plain).collect());
    }
    if abi != Abi::I386 || usual.is_empty() {
        return None;
    }
    let row = decode::of_i386(call).or_else(|| decode::rows().find(|row| row.name == call))?;
    if !row.arguments.iter().any(decode::Argument::is_in_parts) {
        return None;
    }
    let whole = row.arguments.iter().take_while(|of| !of.is_in_parts());
    Some(whole.map(|of| (of.name, of.is_wide())).collect())
}

/// The calls through which a 32-bit program can make another, whose first argument says which: they, and the test.
pub(super) fn through(name: &str) -> impl Iterator<Item = (&'static str, Test)> {
    // The upper half of ipc's has a version.
    let tables = [
        ("socketcall", u64::from(u32::MAX), &constants::SOCKET_CALL),
        ("ipc", 0xffff, &constants::IPC_CALL),
    ];
    tables.into_iter().flat_map(move |(call, mask, table)| {
        let numbers = table
            .entries
            .iter()
            .filter(move |(_, known)| call_of(known) == name);
        numbers.map(move |(value, _)| {
            let is = Is::Masked { mask, value: *value };
            let (argument, wide) = (0, false);
            (call, Test { argument, wide, is })
        })
    })
}

/// The call that a number of `linux/net.h` or `linux/ipc.h` stands for. send and recv are no calls elsewhere.
fn call_of(constant: &str) -> String {
    match constant.trim_start_matches("SYS_") {
        "SEND" => "sendto".to_owned(),
        "RECV" => "recvfrom".to_owned(),
        name => name.to_ascii_lowercase(),
    }
}

/// What else an argument is called: this, for that. The name itself is looked for first.
#[rustfmt::skip]
const SECOND_NAMES: &[(&str, &str)] = &[
    ("fd", "sockfd"), ("fd", "dirfd"), ("dfd", "dirfd"),
    ("path", "pathname"), ("pathname", "path"),
    ("family", "domain"),
    ("sig", "signum"), ("signal", "signum"), ("signal", "sig"),
    ("pid", "tgid"), ("uid", "fsuid"), ("gid", "fsgid"),
    ("op", "request"), ("op", "cmd"), ("op", "option"), ("op", "operation"), ("op", "opcode"),
    ("cmd", "request"), ("cmd", "op"), ("request", "cmd"),
    ("len", "length"), ("length", "len"), ("size", "len"), ("count", "buflen"),
    ("addr", "src_addr"), ("addr", "dest_addr"),
    ("child_stack", "stack"), ("child_tidptr", "child_tid"),
    ("fstype", "filesystemtype"), ("flags", "mountflags"), ("flags", "swapflags"),
];

const X86: &[Abi] = &[Abi::I386];
const NOT_X86_64: &[Abi] = &[Abi::I386, Abi::Aarch64];

/// Where a numbering has other arguments than the rows say. A name that is missing here, and not among the usual ones, is
/// hidden: i386's calls with 16-bit users and groups, and with a block of arguments in memory.
const DIFFERENT: &[(&[Abi], &str, &str)] = &[
    (NOT_X86_64, "clone", "flags* stack* parent_tid* tls* child_tid*"),
    (X86, "mmap", "block*"),
    (X86, "select", "block*"),
    (X86, "setreuid", ""),
    (X86, "setregid", ""),
    (X86, "setresuid", ""),
    (X86, "setresgid", ""),
    (X86, "setfsuid", ""),
    (X86, "setfsgid", ""),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::classes::CLASSES;
    use std::collections::BTreeSet;

    #[test]
    fn every_signature_is_of_a_call_and_stands_once() {
        let tested = decode::rows().filter(|row| row.is_tested()).map(|row| row.name);
        let different = DIFFERENT.iter().map(|(_, name, _)| *name);
        for name in tested.chain(different) {
            assert!(
                Abi::ALL.iter().any(|abi| Call::named(*abi, name).is_some()),
                "{name}"
            );
            let mut names = names(name);
            let count = names.len();
            assert!(count <= 6, "{name}");
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{name}");
        }
        let inner = constants::SOCKET_CALL
            .entries
            .iter()
            .chain(constants::IPC_CALL.entries);
        for name in inner.map(|(_, constant)| call_of(constant)) {
            assert!(
                Abi::ALL.iter().any(|abi| Call::named(*abi, &name).is_some()),
                "{name}"
            );
        }
    }

    #[test]
    fn an_argument_is_found_by_its_name() {
        let at = |position, wide| Lookup::At(Argument { position, wide });
        for (abi, call, name, found) in [
            (Abi::X86_64, "openat", "flags", at(2, false)),
            (Abi::X86_64, "open", "flags", at(1, false)),
            (Abi::X86_64, "open", "path", at(0, true)),
            (Abi::X86_64, "open", "fd", Lookup::Missing),
            (Abi::X86_64, "mmap", "prot", at(2, true)),
            (Abi::I386, "mmap", "prot", Lookup::Hidden),
            (Abi::I386, "mmap", "block", at(0, true)),
            (Abi::I386, "mmap2", "prot", at(2, true)),
            (Abi::I386, "setuid", "uid", Lookup::Hidden),
            (Abi::X86_64, "clone", "tls", at(4, true)),
            (Abi::Aarch64, "clone", "tls", at(3, true)),
            (Abi::X86_64, "getpid", "pid", Lookup::Missing),
            (Abi::X86_64, "ptrace", "op", at(0, true)),
            (Abi::X86_64, "connect", "fd", at(0, false)),
            (Abi::X86_64, "epoll_ctl", "fd", at(2, false)),
            (Abi::X86_64, "mount", "flags", at(3, true)),
        ] {
            let call = Call::named(abi, call).expect("a call");
            assert_eq!(argument(call, name), found, "{call:?} {name}");
        }
        let kill = Call::named(Abi::X86_64, "kill").expect("a call");
        assert!(!super::at(kill, 1).wide && super::at(kill, 2).wide);
    }

    #[test]
    fn expressions_find_the_arguments_that_they_did() {
        let mut words: BTreeSet<&str> = SECOND_NAMES.iter().map(|(name, _)| *name).collect();
        words.extend(decode::rows().flat_map(|row| row.arguments).map(|of| of.name));
        words.extend(DIFFERENT.iter().flat_map(|(.., names)| names.split([' ', '*'])));
        let mut text = String::new();
        for (call, name) in Abi::ALL.into_iter().flat_map(fleetgate_calls::tables::calls) {
            text += &format!("{} {name} {:?}\n", call.abi.name(), names(name));
            for position in 0..6 {
                text += &format!("  {:?}\n", at(call, position));
            }
            for word in &words {
                match argument(call, word) {
                    Lookup::Missing => {}
                    found => text += &format!("  {word} {found:?}\n"),
                }
            }
        }
        for class in CLASSES {
            let members: Vec<_> = class.members().collect();
            text += &format!("{} {} {} {members:?}\n", class.name, class.second, class.bare);
        }
        // The sum of the text (FNV-1a): a change of rows that is meant to change expressions has another.
        let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        assert_eq!(sum, 0x5e54_7591_23ec_2cb5, "{sum:#x}");
    }
}
