//! Which files and descriptors a call names, without showing anything.

use super::calls;
use super::kind::Kind;
use super::reader::{PATH_MAX, Reader, Registers};
use crate::catch::Enter;
use fleetgate_calls::abi::low_signed;
use fleetgate_calls::memory::Memory;

/// A file or a descriptor that a call names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A path.
    Path {
        /// The argument's name.
        argument: &'static str,
        /// As the program has it.
        path: Vec<u8>,
        /// What it begins at, unless it begins with `/`.
        from: Base,
    },
    /// An open descriptor.
    Descriptor {
        /// The argument's name.
        argument: &'static str,
        /// It.
        fd: i32,
    },
}

/// What a relative path begins at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The working directory.
    Here,
    /// What this descriptor is.
    Descriptor(i32),
}

/// The files and descriptors that a call names, in the order in which they stand. A path that cannot be read is left out.
#[must_use]
pub fn paths(enter: &Enter, memory: &dyn Memory) -> Vec<Place> {
    let Some(row) = calls::row(enter.call) else {
        return Vec::new();
    };
    let registers = Registers::new(enter);
    const AT_FDCWD: i32 = -100;
    let mut places = Vec::new();
    let mut base = Base::Here;
    let mut register = 0;
    for of in row.arguments {
        let (argument, value) = (of.name, registers.argument(register));
        register += of.kind.registers(registers.abi);
        match of.kind.chosen(&registers) {
            Some((Kind::Descriptor, _)) => places.push(Place::Descriptor {
                argument,
                fd: low_signed(value),
            }),
            Some((Kind::Directory, _)) => match low_signed(value) {
                AT_FDCWD => base = Base::Here,
                fd => {
                    base = Base::Descriptor(fd);
                    places.push(Place::Descriptor { argument, fd });
                }
            },
            Some((Kind::Path, _)) => {
                let path = Reader::with_string(memory, value, PATH_MAX, |found, _| {
                    found.map(|(bytes, _)| bytes.to_vec())
                });
                let from = std::mem::replace(&mut base, Base::Here);
                places.extend(path.map(|path| Place::Path { argument, path, from }));
            }
            _ => {}
        }
    }
    places
}
