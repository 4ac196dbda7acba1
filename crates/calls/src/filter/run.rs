//! Runs a program as the kernel does, and finds what the kernel finds out about it beforehand. Knows the instructions that
//! [`super::compile`] writes; any other is an error, never a guess.

use super::assemble::{
    AND, ANY_BIT, ARCHITECTURE, ARGUMENTS, AT_LEAST, EQUAL, JUMP, LOAD, MORE, NUMBER, RETURN,
};
use super::{ALLOW, Program};
use crate::abi::low;
use fleetgate_sys::seccomp::Instruction;
use std::fmt;

/// struct seccomp_data: what a program sees of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// The number, x32's with its bit.
    pub nr: u32,
    /// AUDIT_ARCH.
    pub arch: u32,
    /// Where in the program.
    pub instruction: u64,
    /// The arguments.
    pub args: [u64; 6],
}

impl Data {
    fn word(&self, offset: u32) -> Option<u32> {
        let half = |value: u64| low(value >> (offset % 8 * 8));
        match offset {
            _ if !offset.is_multiple_of(4) => None,
            NUMBER => Some(self.nr),
            ARCHITECTURE => Some(self.arch),
            8..ARGUMENTS => Some(half(self.instruction)),
            _ => self
                .args
                .get((offset - ARGUMENTS) as usize / 8)
                .copied()
                .map(half),
        }
    }
}

/// A program that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The instruction at this index is none that is known, or loads what is not there.
    Unknown(usize),
    /// It goes on behind its end.
    Endless,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unknown(at) => write!(f, "instruction {at} of the filter is none that fleetgate writes"),
            Fault::Endless => write!(f, "the filter goes on behind its last instruction"),
        }
    }
}

impl std::error::Error for Fault {}

/// What it answers of a call.
///
/// # Errors
/// The program holds what [`super::compile`] never writes.
pub fn run(program: &Program, data: &Data) -> Result<u32, Fault> {
    match walk(&program.0, |offset| Some(data.word(offset)))? {
        Some(answer) => Ok(answer),
        None => Err(Fault::Endless),
    }
}

/// Whether the kernel lets a call go on without asking the program: with number and architecture alone it comes to
/// "allow". The kernel tries that for the numbers of its own table.
#[must_use]
pub fn constant(program: &Program, arch: u32, nr: u32) -> bool {
    let known = Data {
        nr,
        arch,
        ..Data::default()
    };
    let load = |offset| (offset < 8).then(|| known.word(offset));
    walk(&program.0, load) == Ok(Some(ALLOW))
}

/// Goes through it. `load` says what is at an offset, `Some(None)`: nothing is; `None`: it is not to be looked at, which
/// ends the walk without an answer.
fn walk(program: &[Instruction], load: impl Fn(u32) -> Option<Option<u32>>) -> Result<Option<u32>, Fault> {
    let (mut at, mut value) = (0usize, 0u32);
    loop {
        let Some(&Instruction {
            code,
            yes,
            no,
            value: operand,
        }) = program.get(at)
        else {
            return Err(Fault::Endless);
        };
        let holds = match code {
            EQUAL => value == operand,
            MORE => value > operand,
            AT_LEAST => value >= operand,
            ANY_BIT => value & operand != 0,
            LOAD => {
                match load(operand) {
                    None => return Ok(None),
                    Some(loaded) => value = loaded.ok_or(Fault::Unknown(at))?,
                }
                at += 1;
                continue;
            }
            AND => {
                value &= operand;
                at += 1;
                continue;
            }
            JUMP => {
                at = at.saturating_add(1).saturating_add(operand as usize);
                continue;
            }
            RETURN => return Ok(Some(operand)),
            _ => return Err(Fault::Unknown(at)),
        };
        at += 1 + usize::from(if holds { yes } else { no });
    }
}
