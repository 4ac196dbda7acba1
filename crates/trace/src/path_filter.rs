//! Calls that name a path which fits, or a descriptor of one: what `-P` asks for. No filter can know that, so the calls stop,
//! and those that do not fit go on and are reported to nobody.

use crate::catch::Enter;
use crate::decode::{self, Base, Place};
use crate::follow::fits;
use crate::run::Wanted;
use fleetgate_calls::memory::Memory;
use fleetgate_calls::select::Selection;

/// Of the calls that are wanted, those that name something.
pub struct PathFilter {
    calls: Selection,
    globs: Vec<Vec<u8>>,
}

impl PathFilter {
    /// One of the globs has to fit a whole path; a relative one is for paths as the program has them.
    #[must_use]
    pub fn new(calls: Selection, globs: Vec<Vec<u8>>) -> PathFilter {
        PathFilter { calls, globs }
    }

    fn fits(&self, path: &[u8]) -> bool {
        self.globs.iter().any(|glob| fits(glob, path))
    }
}

impl Wanted for PathFilter {
    fn wants(&mut self, enter: &Enter, memory: &dyn Memory) -> bool {
        if !Wanted::wants(&mut self.calls, enter, memory) {
            return false;
        }
        let descriptor = |fd: i32| memory.descriptor(fd);
        let begins_at = |base: Base| match base {
            Base::Descriptor(fd) => descriptor(fd),
            Base::Here => memory.directory(),
        };
        decode::paths(enter, memory).into_iter().any(|place| match place {
            Place::Descriptor { fd, .. } => descriptor(fd).is_some_and(|path| self.fits(&path)),
            Place::Path { path, .. } if self.fits(&path) => true,
            Place::Path { path, from, .. } if !path.starts_with(b"/") => {
                begins_at(from).is_some_and(|base| self.fits(&joined(&base, &path)))
            }
            Place::Path { .. } => false,
        })
    }
}

/// Where a relative path leads, as far as it can be told without looking at what the names are.
fn joined(base: &[u8], path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in base.split(|b| *b == b'/').chain(path.split(|b| *b == b'/')) {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    let mut whole = Vec::with_capacity(base.len() + path.len() + 1);
    for name in names {
        whole.push(b'/');
        whole.extend_from_slice(name);
    }
    if whole.is_empty() {
        whole.push(b'/');
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_calls::abi::{Abi, Call};

    /// A task in /home/ada whose descriptor 3 is /etc, with a path in its memory.
    struct Task(&'static [u8]);

    impl Memory for Task {
        fn read(&self, at: u64, into: &mut [u8]) -> usize {
            let Some(text) = at.checked_sub(0x1000).and_then(|at| self.0.get(at as usize..)) else {
                return 0;
            };
            let length = text.len().min(into.len());
            into[..length].copy_from_slice(&text[..length]);
            length
        }
        fn descriptor(&self, fd: i32) -> Option<Vec<u8>> {
            (fd == 3).then(|| b"/etc".to_vec())
        }
        fn directory(&self) -> Option<Vec<u8>> {
            Some(b"/home/ada".to_vec())
        }
    }

    #[test]
    fn a_call_is_wanted_where_a_path_fits() {
        let here = -100_i32 as u32;
        for (name, arguments, path, glob, wanted) in [
            (
                "openat",
                [here.into(), 0x1000],
                &b"/etc/hosts\0"[..],
                "/etc/hosts",
                true,
            ),
            ("openat", [here.into(), 0x1000], b"/etc/hosts\0", "/etc/*", true),
            ("openat", [here.into(), 0x1000], b"/etc/hosts\0", "/etc", false),
            (
                "openat",
                [here.into(), 0x1000],
                b"notes\0",
                "/home/ada/notes",
                true,
            ),
            ("openat", [here.into(), 0x1000], b"notes\0", "notes", true),
            (
                "openat",
                [here.into(), 0x1000],
                b"../bea/./notes\0",
                "/home/bea/notes",
                true,
            ),
            ("openat", [3, 0x1000], b"hosts\0", "/etc/hosts", true),
            ("openat", [3, 0x1000], b"hosts\0", "/etc", true),
            ("openat", [4, 0x1000], b"hosts\0", "/etc/hosts", false),
            ("close", [3, 0], b"", "/etc", true),
            ("close", [4, 0], b"", "/etc", false),
            ("getpid", [3, 0], b"", "*", false),
        ] {
            let call = Call::named(Abi::NATIVE, name).expect(name);
            let enter = Enter {
                tid: 1,
                call: Some(call),
                audit: call.abi.audit(),
                number: call.number,
                arguments: [arguments[0], arguments[1], 0, 0, 0, 0],
                instruction: 0,
            };
            let mut named = PathFilter::new(Selection::everything(), vec![glob.as_bytes().to_vec()]);
            assert_eq!(named.wants(&enter, &Task(path)), wanted, "{name} {glob} {path:?}");
        }
    }
}
