//! A program as people read it: each instruction with its index and where its jumps lead, and beside it which call or
//! architecture it is about. Nothing is run: what is known at an instruction is gathered along all ways that lead there,
//! and jumps only lead forward.

use super::assemble::{
    AND, ANY_BIT, ARCHITECTURE, ARGUMENTS, AT_LEAST, EQUAL, JUMP, LOAD, MORE, NUMBER, RETURN,
};
use super::{ALLOW, NOTIFY, Program, TRACE};
use crate::abi::{Abi, Call};
use fleetgate_sys::seccomp::Instruction;
use std::fmt::Write;

/// The listing, a line for each instruction. `names` has the calls' names.
#[must_use]
pub fn show(program: &Program, names: &dyn Fn(Call) -> Option<&'static str>) -> String {
    let instructions = &program.0;
    let mut known: Vec<Option<Known>> = vec![None; instructions.len()];
    if let Some(first) = known.first_mut() {
        *first = Some(Known::default());
    }
    let width = instructions.len().saturating_sub(1).to_string().len();
    let mut out = String::new();
    for (at, instruction) in instructions.iter().enumerate() {
        let here = known[at].take();
        let mut line = format!("{at:width$}  {}", text(at, instruction));
        if let Some(here) = &here
            && let Some(comment) = here.comment(instruction, names)
        {
            let _ = write!(
                line,
                "{:pad$}  ; {comment}",
                "",
                pad = COMMENTS.saturating_sub(line.len())
            );
        }
        out.push_str(&line);
        out.push('\n');
        for (to, then) in here.iter().flat_map(|here| here.after(at, instruction)) {
            if let Some(there) = known.get_mut(to) {
                *there = Some(match there.take() {
                    None => then,
                    Some(before) => before.or(then),
                });
            }
        }
    }
    out
}

/// The column at which comments begin.
const COMMENTS: usize = 44;
/// How many calls are named beside one instruction.
const MAX_NAMED: usize = 4;

fn text(at: usize, instruction: &Instruction) -> String {
    let &Instruction { code, yes, no, value } = instruction;
    let test = |name: &str, operand: String| {
        let (yes, no) = (at + 1 + usize::from(yes), at + 1 + usize::from(no));
        format!("{name:<4} {operand:<12} goto {yes}, else {no}")
    };
    let number = |value: u32| match value {
        0..0x1_0000 => value.to_string(),
        _ => format!("{value:#x}"),
    };
    match code {
        LOAD => format!("ld   {}", place(value)),
        AND => format!("and  {value:#x}"),
        JUMP => format!("ja   {:<12} goto {}", "", at + 1 + value as usize),
        EQUAL => test("jeq", number(value)),
        MORE => test("jgt", number(value)),
        AT_LEAST => test("jge", number(value)),
        ANY_BIT => test("jset", format!("{value:#x}")),
        RETURN => format!("ret  {}", answer(value)),
        _ => format!("?    {code:#06x} {yes} {no} {value:#x}"),
    }
}

fn place(offset: u32) -> String {
    match offset {
        NUMBER => "nr".to_owned(),
        ARCHITECTURE => "arch".to_owned(),
        _ if offset >= ARGUMENTS && offset.is_multiple_of(4) => {
            let (argument, half) = ((offset - ARGUMENTS) / 8, (offset - ARGUMENTS) % 8);
            format!("arg{argument}{}", if half == 0 { "" } else { " high" })
        }
        _ => format!("[{offset}]"),
    }
}

fn answer(value: u32) -> String {
    let (action, data) = (value & 0xffff_0000, value & 0xffff);
    match action {
        ALLOW => "allow".to_owned(),
        NOTIFY => "notify".to_owned(),
        TRACE => format!("trace {data}"),
        0x0005_0000 => format!("errno {data}"),
        _ => format!("{value:#x}"),
    }
}

/// What is known where an instruction is about to run.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Where what is loaded came from; `None`: several things, or changed meanwhile.
    loaded: Option<u32>,
    arch: Option<u32>,
    /// The numbers that come here, when there are few and a tree of them was gone through.
    numbers: Option<Vec<(u32, u32)>>,
}

impl Known {
    /// Where the way goes on, and what is known there.
    fn after(&self, at: usize, instruction: &Instruction) -> Vec<(usize, Known)> {
        let value = instruction.value;
        let [mut yes, mut no] = [self.clone(), self.clone()];
        match instruction.code {
            RETURN => return Vec::new(),
            JUMP => return vec![((at + 1).saturating_add(value as usize), yes)],
            LOAD => {
                yes.loaded = Some(value);
                return vec![(at + 1, yes)];
            }
            AND => {
                yes.loaded = None;
                return vec![(at + 1, yes)];
            }
            EQUAL if self.loaded == Some(ARCHITECTURE) => yes.arch = Some(value),
            EQUAL if self.loaded == Some(NUMBER) => {
                yes.numbers = Some(vec![(value, value)]);
            }
            AT_LEAST if self.loaded == Some(NUMBER) => {
                let all = self.numbers.clone().unwrap_or_else(|| vec![(0, u32::MAX)]);
                let cut = |from: u32, to: u32| {
                    let cut = all
                        .iter()
                        .map(move |&(first, last)| (first.max(from), last.min(to)));
                    Some(cut.filter(|(first, last)| first <= last).collect())
                };
                yes.numbers = cut(value, u32::MAX);
                no.numbers = cut(0, value.saturating_sub(1));
            }
            _ => {}
        }
        let to = |over: u8| at + 1 + usize::from(over);
        vec![(to(instruction.yes), yes), (to(instruction.no), no)]
    }

    /// What is known of both.
    fn or(self, other: Known) -> Known {
        let same = |a: Option<u32>, b| a.filter(|_| a == b);
        let arch = same(self.arch, other.arch);
        let numbers = self.numbers.zip(other.numbers).map(|(mut a, b)| {
            a.extend(b);
            a
        });
        Known {
            loaded: same(self.loaded, other.loaded),
            arch,
            numbers: numbers.filter(|n| arch.is_some() && n.len() <= MAX_NAMED),
        }
    }

    fn comment(
        &self,
        instruction: &Instruction,
        names: &dyn Fn(Call) -> Option<&'static str>,
    ) -> Option<String> {
        let named = |number: u32| {
            let call = Call::seen(self.arch?, number)?;
            let name = names(call)?;
            Some(match call.abi {
                Abi::X32 => format!("{name} of x32"),
                _ => name.to_owned(),
            })
        };
        match (instruction.code, self.loaded) {
            (EQUAL, Some(ARCHITECTURE)) => {
                let of = Abi::ALL
                    .into_iter()
                    .filter(|abi| abi.audit() == instruction.value);
                let of: Vec<&str> = of.map(Abi::name).collect();
                (!of.is_empty()).then(|| of.join(", "))
            }
            (EQUAL, Some(NUMBER)) => named(instruction.value),
            (AT_LEAST, Some(NUMBER)) => match instruction.value {
                u32::MAX => Some("no call".to_owned()),
                number => Some(format!("from {} on", named(number)?)),
            },
            // The first look at an argument says whose it is.
            (LOAD, Some(NUMBER)) => {
                let calls = self.numbers.as_ref()?.iter();
                let calls = calls.flat_map(|&(first, last)| first..=last.min(first.saturating_add(8)));
                let calls: Option<Vec<String>> = calls.map(named).collect();
                Some(calls?.join(", "))
            }
            _ => None,
        }
    }
}
