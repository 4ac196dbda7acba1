//! From a [`Selection`] to a program for seccomp. The program stops exactly what [`Selection::stops`] says, for every
//! number of every numbering and any arguments; [`run`] is the interpreter that holds it to that. Nothing is installed
//! here.
//!
//! Its shape: the architecture first, and one that nobody here knows is selected; then the number, in a balanced tree of
//! ranges that have the same outcome; then, only for numbers whose arguments are asked for, the arguments. So nothing but
//! number and architecture is loaded on the way to a call that goes on with any arguments. The kernel (from Linux 5.11 on)
//! tries each number of its own table with these two alone when a filter is installed, and calls that are found to go on
//! are never put to the program again; [`constant`] is that trial.
//!
//! x32 has the architecture of x86_64 and a bit in its numbers: its calls are judged by the selection's x32 numbers and by
//! nothing else. A number that no table has a name for is selected with the rest of its numbering or not at all, x32's as
//! any other's: a kernel that is no newer than the tables answers ENOSYS to it. (Before 5.4 x32 could reach calls of
//! x86_64 by x86_64's numbers; fleetgate begins at 5.10.)

mod ask;
pub mod assemble;
mod run;
mod show;
#[cfg(test)]
mod tests;

pub use run::{Data, Fault, constant, run};
pub use show::show;

use crate::abi::{Abi, Call, X32_BIT};
use crate::select::{Selection, When};
use ask::Condition;
use assemble::{Assembler, Label};
use fleetgate_sys::seccomp::Instruction;
use std::collections::BTreeMap;
use std::fmt;

/// BPF_MAXINSNS: what the kernel takes.
pub const MAX_INSTRUCTIONS: usize = 4096;

/// SECCOMP_RET_ALLOW: the call goes on.
pub const ALLOW: u32 = 0x7fff_0000;
/// SECCOMP_RET_TRACE: it stops for a tracer, which finds the lower 16 bits as the event's message.
pub const TRACE: u32 = 0x7ff0_0000;
/// SECCOMP_RET_USER_NOTIF: it waits on the filter's listener.
pub const NOTIFY: u32 = 0x7fc0_0000;

/// What the kernel is told of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Where it is selected.
    pub selected: u32,
    /// Where not.
    pub otherwise: u32,
}

impl Answers {
    /// Selected calls stop for a tracer.
    #[must_use]
    pub const fn trace(message: u16) -> Answers {
        Answers {
            selected: TRACE | message as u32,
            otherwise: ALLOW,
        }
    }

    /// Selected calls wait on the listener.
    #[must_use]
    pub const fn notify() -> Answers {
        Answers {
            selected: NOTIFY,
            otherwise: ALLOW,
        }
    }
}

/// A program that the kernel takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(Vec<Instruction>);

impl Program {
    /// A program that was written with the [`assemble::Assembler`].
    ///
    /// # Errors
    /// It is longer than [`MAX_INSTRUCTIONS`].
    pub fn written(instructions: Vec<Instruction>) -> Result<Program, TooLong> {
        match instructions.len() {
            len if len > MAX_INSTRUCTIONS => Err(TooLong { instructions: len }),
            _ => Ok(Program(instructions)),
        }
    }

    /// What `fleetgate_sys::seccomp::install` wants.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }
}

/// The selection needs a longer program than the kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// So long.
    pub instructions: usize,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a filter for these calls has {} instructions, and the kernel takes {MAX_INSTRUCTIONS}: ask for fewer of their \
             arguments, or for whole classes of calls",
            self.instructions
        )
    }
}

impl std::error::Error for TooLong {}

/// Makes the program.
///
/// # Errors
/// It would be longer than [`MAX_INSTRUCTIONS`].
pub fn compile(selection: &Selection, answers: &Answers) -> Result<Program, TooLong> {
    let mut to = Assembler::default();
    let selected = Label::Return(answers.selected);
    let mut entry = selected;
    // The last in the program is written first.
    for (audit, segments) in NUMBERINGS.into_iter().rev() {
        let ranges = ranges(selection, audit, segments);
        let numbers = numbers(&ranges, answers, &mut to);
        entry = to.jump(assemble::EQUAL, audit, numbers, entry);
    }
    Program::written(to.finish(entry, assemble::ARCHITECTURE))
}

/// Each architecture with its numberings, and where in its numbers they begin: the kernel's own first.
const NUMBERINGS: [(u32, &[(u32, Abi)]); 3] = {
    let x86_64: (u32, &[(u32, Abi)]) = (
        Abi::X86_64.audit(),
        &[
            (0, Abi::X86_64),
            (X32_BIT, Abi::X32),
            (1 << 31, Abi::X86_64),
            (1 << 31 | X32_BIT, Abi::X32),
        ],
    );
    let i386: (u32, &[(u32, Abi)]) = (Abi::I386.audit(), &[(0, Abi::I386)]);
    let aarch64: (u32, &[(u32, Abi)]) = (Abi::Aarch64.audit(), &[(0, Abi::Aarch64)]);
    match Abi::NATIVE {
        Abi::Aarch64 => [aarch64, x86_64, i386],
        _ => [x86_64, i386, aarch64],
    }
};

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Otherwise,
    Selected,
    /// It is selected where its arguments are so.
    Asked(Condition),
}

impl Outcome {
    fn of(when: &When, abi: Abi) -> Outcome {
        let condition = match when {
            When::Always => return Outcome::Selected,
            When::Any(groups) => Condition::of(groups, abi),
        };
        match condition {
            Condition::Constant(true) => Outcome::Selected,
            Condition::Constant(false) => Outcome::Otherwise,
            condition => Outcome::Asked(condition),
        }
    }
}

/// Where a range of numbers begins, and what becomes of them up to the next.
type Range = (u32, Outcome);

/// All numbers of an architecture, in order; neighbours differ.
fn ranges(selection: &Selection, audit: u32, segments: &[(u32, Abi)]) -> Vec<Range> {
    let mut points: BTreeMap<u32, Outcome> = BTreeMap::new();
    for abi in Abi::ALL.into_iter().filter(|abi| abi.audit() == audit) {
        for (number, when) in selection.of(abi) {
            let call = Call { abi, number };
            // One that would be seen as another call is never seen at all.
            if Call::seen(audit, call.register()) == Some(call) {
                points.insert(call.register(), Outcome::of(when, abi));
            }
        }
    }
    points.insert(u32::MAX, Outcome::Otherwise);

    let mut all = Vec::new();
    for (i, &(from, abi)) in segments.iter().enumerate() {
        let to = segments.get(i + 1).map_or(u32::MAX, |next| next.0 - 1);
        let background = if selection.is_all(abi) {
            Outcome::Selected
        } else {
            Outcome::Otherwise
        };
        put(&mut all, from, background.clone());
        for (&number, outcome) in points.range(from..=to) {
            put(&mut all, number, outcome.clone());
            if number < to {
                put(&mut all, number + 1, background.clone());
            }
        }
    }
    all
}

/// Adds a range behind `all`, or in place of the last one where that begins there too; what goes on as before adds none.
pub fn put<T: PartialEq>(all: &mut Vec<(u32, T)>, from: u32, outcome: T) {
    all.pop_if(|last| last.0 == from);
    if all.last().is_none_or(|last| last.1 != outcome) {
        all.push((from, outcome));
    }
}

/// Writes a balanced tree of tests for the number that is loaded; each range leads to what `leaf` writes for it.
pub fn tree<'r, T: PartialEq>(
    ranges: &'r [(u32, T)],
    to: &mut Assembler,
    leaf: &mut impl FnMut(&'r T, &mut Assembler) -> Label,
) -> Label {
    match ranges {
        [(_, outcome)] => leaf(outcome, to),
        [(_, around), (number, outcome), (next, after)] if around == after && number + 1 == *next => {
            let no = leaf(around, to);
            let yes = leaf(outcome, to);
            to.jump(assemble::EQUAL, *number, yes, no)
        }
        [(number, outcome), (next, after)] if number + 1 == *next => {
            let no = leaf(after, to);
            let yes = leaf(outcome, to);
            to.jump(assemble::EQUAL, *number, yes, no)
        }
        _ => {
            // An odd number of ranges on the left: single numbers amid others are told by one instruction.
            let left = (ranges.len() / 2) | 1;
            let upper = tree(&ranges[left..], to, leaf);
            let lower = tree(&ranges[..left], to, leaf);
            to.jump(assemble::AT_LEAST, ranges[left].0, upper, lower)
        }
    }
}

/// The tests of all numbers of an architecture.
fn numbers(ranges: &[Range], answers: &Answers, to: &mut Assembler) -> Label {
    let mut asked: Vec<(&Condition, Label)> = Vec::new();
    let selected = Label::Return(answers.selected);
    let otherwise = Label::Return(answers.otherwise);
    let written = tree(ranges, to, &mut |outcome, to| match outcome {
        Outcome::Selected => selected,
        Outcome::Otherwise => otherwise,
        // Calls with the same tests share them.
        Outcome::Asked(condition) => match asked.iter().find(|(known, _)| *known == condition) {
            Some((_, label)) => *label,
            None => {
                let label = condition.write(to, selected, otherwise);
                asked.push((condition, label));
                label
            }
        },
    });
    match written {
        // Every number has the same outcome: none is loaded.
        same @ Label::Return(_) => same,
        tree => to.load(assemble::NUMBER, tree),
    }
}
