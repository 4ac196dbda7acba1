//! Classes of calls: `%file`, `%network` and so on. The rows say in which a call is: members are those that strace has in
//! them, as it was seen to choose among all calls of x86_64, i386 and x32, and the calls since then by what they take.
//! `%write` is of this tracer alone. A member that a numbering lacks is left out there.

use crate::decode;
use std::collections::BTreeSet;

/// A class of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// As it is written, with its `%`.
    pub name: &'static str,
    /// What is in it.
    pub about: &'static str,
    /// Another name for it.
    pub second: &'static str,
    /// Whether it may be written without `%`, as in former times.
    pub bare: bool,
    /// What rows call it, where that is not its name.
    words: &'static [&'static str],
    /// Those that are in it with some arguments only, as an expression.
    pub(super) asked: &'static str,
}

impl Class {
    /// The class of a name, which has its `%`, or is one of those that need none.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Class> {
        CLASSES.iter().find(|class| {
            let bare = class.bare && class.name.strip_prefix('%') == Some(name);
            class.name == name || bare || (class.second == name && !name.is_empty())
        })
    }

    /// The names of the calls that are in it whatever their arguments are, sorted.
    pub fn members(&self) -> impl Iterator<Item = &'static str> {
        let own = [self.name.trim_start_matches('%')];
        let words = if self.words.is_empty() { &own } else { self.words };
        let members = decode::rows().filter(|row| row.classes.iter().any(|class| words.contains(class)));
        members.map(|row| row.name).collect::<BTreeSet<_>>().into_iter()
    }
}

const fn class(name: &'static str, about: &'static str) -> Class {
    Class {
        name,
        about,
        second: "",
        bare: false,
        words: &[],
        asked: "",
    }
}

const fn bare(class: Class) -> Class {
    Class { bare: true, ..class }
}

/// All classes, in the order in which help shows them.
pub const CLASSES: &[Class] = &[
    bare(class("%file", "take the name of a file")),
    bare(class("%process", "begin, change, signal, await or end processes")),
    Class {
        second: "%net",
        ..bare(class("%network", "work with sockets"))
    },
    bare(class("%signal", "send, catch, block or await signals")),
    bare(class("%ipc", "System V messages, semaphores and shared memory")),
    bare(class("%desc", "take or make descriptors")),
    bare(class("%memory", "map, lock or advise about memory")),
    class("%creds", "read or set users, groups and capabilities"),
    class("%clock", "read or set clocks"),
    class("%stat", "stat"),
    class("%lstat", "lstat"),
    class("%fstat", "fstat, fstatat and statx"),
    Class {
        words: &["stat", "lstat", "fstat"],
        ..class("%%stat", "the three above")
    },
    class("%statfs", "statfs"),
    class("%fstatfs", "fstatfs"),
    Class {
        words: &["statfs", "fstatfs", "ustat"],
        ..class("%%statfs", "the two above and ustat")
    },
    class("%pure", "take nothing and never fail"),
    // What may change files by name, or their attributes. That data is written through a descriptor is not in it: the
    // descriptor was opened for that. The flags of openat2 are in memory, where no filter sees them.
    Class {
        asked: "open(flags&O_WRONLY|O_RDWR|O_CREAT|O_TRUNC),openat(flags&O_WRONLY|O_RDWR|O_CREAT|O_TRUNC),\
                open_by_handle_at(flags&O_WRONLY|O_RDWR|O_TRUNC)",
        ..class(
            "%write",
            "open for writing, create, remove, rename, or change what is known of files (not strace's)",
        )
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_calls::abi::{Abi, Call};

    #[test]
    fn every_member_of_a_class_is_a_call_and_stands_once() {
        for class in CLASSES {
            let members: Vec<_> = class.members().collect();
            assert!(members.is_sorted_by(|a, b| a < b), "{}: {members:?}", class.name);
            for member in members {
                let known = Abi::ALL.iter().any(|abi| Call::named(*abi, member).is_some());
                assert!(known, "{}: {member}", class.name);
            }
        }
    }

    #[test]
    fn a_class_is_found_by_its_names() {
        for (name, class) in [
            ("%file", Some("%file")),
            ("file", Some("%file")),
            ("%net", Some("%network")),
            ("net", None),
            ("network", Some("%network")),
            ("%%stat", Some("%%stat")),
            ("%stat", Some("%stat")),
            ("stat", None),
            ("pure", None),
            ("%", None),
            ("", None),
            ("%FILE", None),
        ] {
            assert_eq!(Class::named(name).map(|c| c.name), class, "{name}");
        }
    }
}
