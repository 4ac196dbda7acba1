//! A container's seccomp profile (`linux.seccomp` of its configuration) as a program for the kernel, with the meaning that
//! runc and libseccomp give it:
//! - what no rule names is answered by `defaultAction`, and a rule that says the same is none;
//! - of a call's rules without conditions the first counts, and takes all others away, those with conditions too;
//! - without one, the first whose conditions hold counts;
//! - on i386 a call that may be asked for by `socketcall` or `ipc`, too, is answered the same there;
//! - a numbering that the profile does not name (`architectures`) ends the thread, as libseccomp has it;
//! - a call that is newer than every one that the profile names answers ENOSYS where the profile refuses what it does not
//!   name, as runc has it: C libraries try new calls and go on with old ones only at that answer.
//!
//! The program has the shape of the tracer's (`calls::filter`): a balanced tree of numbers, so that installing it, for which
//! the kernel runs it once for each call there is, is cheap, and calls that are always allowed never reach it.

use crate::settings::list;
use fleetgate_calls::abi::{Abi, Call, X32_BIT};
use fleetgate_calls::filter::assemble::{self, Assembler, Label};
use fleetgate_calls::filter::{ALLOW, MAX_INSTRUCTIONS, Program, TooLong, put, tree};
use fleetgate_sys::seccomp::{Instruction, flag};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

const KILL_THREAD: u32 = 0;
const KILL_PROCESS: u32 = 0x8000_0000;
const TRAP: u32 = 0x0003_0000;
const ERRNO: u32 = 0x0005_0000;
const TRACE: u32 = 0x7ff0_0000;
const LOG: u32 = 0x7ffc_0000;
const EPERM: u64 = 1;
const ENOSYS: u32 = 38;
/// SECCOMP_FILTER_FLAG_LOG.
const FLAG_LOG: u32 = 2;
/// The most conditions of one rule: a call has six arguments.
const MAX_CONDITIONS: usize = 6;

/// Why a profile cannot be kept. It is never kept in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileError {
    /// A field is missing, or is not what it should be.
    Field(&'static str),
    /// A word that this build does not know.
    Unknown(&'static str, String),
    /// Its calls are for somebody else to decide, who is not here.
    Notifies,
    /// It needs a longer program than the kernel takes.
    TooLong(TooLong),
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileError::Field(name) => write!(f, "`{name}` is missing or has a wrong value"),
            ProfileError::Unknown(what, word) => write!(f, "{word:?} is no {what} that is known here"),
            ProfileError::Notifies => f.write_str(
                "it has calls decided by another process (SCMP_ACT_NOTIFY), which only its runtime can reach",
            ),
            ProfileError::TooLong(TooLong { instructions }) => {
                write!(
                    f,
                    "it takes {instructions} instructions, and the kernel takes {MAX_INSTRUCTIONS}"
                )
            }
        }
    }
}

impl std::error::Error for ProfileError {}

/// A test of one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    index: u32,
    operation: Operation,
    value: u64,
    second: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    NotEqual,
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
    MaskedEqual,
}

/// What becomes of a call: of the rules the first whose conditions all hold, else the last answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    rules: Vec<(Vec<Condition>, u32)>,
    otherwise: u32,
    /// A rule without conditions was there: nothing comes after it.
    settled: bool,
}

/// The program, and the flags to install it with.
pub fn compile(profile: &Value) -> Result<(Program, u32), ProfileError> {
    if profile["listenerPath"]
        .as_str()
        .is_some_and(|path| !path.is_empty())
    {
        return Err(ProfileError::Notifies);
    }
    let otherwise = action(&profile["defaultAction"], &profile["defaultErrnoRet"])?;
    let abis = architectures(&profile["architectures"])?;
    let mut entry = Label::Return(KILL_THREAD);
    let mut to = Assembler::default();
    let mut audits: Vec<u32> = abis.iter().map(|abi| abi.audit()).collect();
    audits.dedup();
    for audit in audits.into_iter().rev() {
        let mut ranges: Vec<(u32, Outcome)> = Vec::new();
        for abi in Abi::ALL.into_iter().filter(|abi| abi.audit() == audit) {
            let first = if abi == Abi::X32 { X32_BIT } else { 0 };
            match abis.contains(&abi) {
                true => numbers(&mut ranges, profile, abi, first, otherwise)?,
                false => put(&mut ranges, first, always(KILL_THREAD)),
            }
        }
        let mut known: Vec<(Outcome, Label)> = Vec::new();
        let numbers = tree(&ranges, &mut to, &mut |outcome: &Outcome, to| match known
            .iter()
            .find(|(known, _)| known == outcome)
        {
            Some((_, label)) => *label,
            None => {
                let label = outcome.write(to);
                known.push((outcome.clone(), label));
                label
            }
        });
        let numbers = match numbers {
            same @ Label::Return(_) => same,
            numbers => to.load(assemble::NUMBER, numbers),
        };
        entry = to.jump(assemble::EQUAL, audit, numbers, entry);
    }
    let program =
        Program::written(to.finish(entry, assemble::ARCHITECTURE)).map_err(ProfileError::TooLong)?;
    Ok((program, flags(profile)?))
}

/// Instructions as an order has them.
pub fn bytes(program: &Program) -> Vec<u8> {
    let one = |step: &Instruction| {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&step.code.to_ne_bytes());
        bytes[2..4].copy_from_slice(&[step.yes, step.no]);
        bytes[4..].copy_from_slice(&step.value.to_ne_bytes());
        bytes
    };
    program.instructions().iter().flat_map(one).collect()
}

fn always(answer: u32) -> Outcome {
    Outcome {
        rules: Vec::new(),
        otherwise: answer,
        settled: false,
    }
}

/// The ranges of one numbering, whose numbers begin at `first`.
fn numbers(
    ranges: &mut Vec<(u32, Outcome)>,
    profile: &Value,
    abi: Abi,
    first: u32,
    otherwise: u32,
) -> Result<(), ProfileError> {
    let mut calls: BTreeMap<u32, Outcome> = BTreeMap::new();
    let mut written = 0;
    for rule in list(&profile["syscalls"]) {
        let answer = action(&rule["action"], &rule["errnoRet"])?;
        if answer == otherwise {
            continue;
        }
        let alternatives = conditions(&rule["args"])?;
        // Of a call that this numbering does not have, nothing is to be said.
        for name in list(&rule["names"]).filter_map(Value::as_str) {
            let direct = Call::named(abi, name).map(|call| (call, alternatives.clone()));
            for (call, alternatives) in
                direct
                    .into_iter()
                    .chain(multiplexed(abi, name, &alternatives, answer))
            {
                written += alternatives.len() + 1;
                if written > MAX_INSTRUCTIONS {
                    return Err(ProfileError::TooLong(TooLong {
                        instructions: written,
                    }));
                }
                let outcome = calls.entry(call.register()).or_insert_with(|| always(otherwise));
                outcome.add(alternatives, answer);
            }
        }
    }
    put(ranges, first, always(otherwise));
    let newest = calls.last_key_value().map(|(number, _)| *number);
    for (number, outcome) in calls {
        put(ranges, number, outcome);
        put(ranges, number + 1, always(otherwise));
    }
    let refuses = ![ALLOW, LOG].contains(&otherwise) && otherwise & 0xffff_0000 != TRACE;
    if let (Some(newest), true) = (newest, refuses) {
        put(ranges, newest + 1, always(ERRNO | ENOSYS));
    }
    Ok(())
}

/// The same call by the one that stands for many, whose first argument says which. Its conditions are of arguments that a filter
/// cannot see there: a refusal is then one without them, and an allowance none.
fn multiplexed(
    abi: Abi,
    name: &str,
    alternatives: &[Vec<Condition>],
    answer: u32,
) -> Option<(Call, Vec<Vec<Condition>>)> {
    let by = |table: &[(&str, u64)]| {
        table
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, number)| *number)
    };
    let (door, number) = match (by(&SOCKETCALL), by(&IPC)) {
        (Some(number), _) => ("socketcall", number),
        (None, Some(number)) => ("ipc", number),
        (None, None) => return None,
    };
    if abi != Abi::I386 || !alternatives.is_empty() && [ALLOW, LOG].contains(&answer) {
        return None;
    }
    let asked = Condition {
        index: 0,
        operation: Operation::Equal,
        value: number,
        second: 0,
    };
    Some((Call::named(abi, door)?, vec![vec![asked]]))
}

/// The numbers of `socketcall` (linux/net.h).
const SOCKETCALL: [(&str, u64); 20] = [
    ("socket", 1),
    ("bind", 2),
    ("connect", 3),
    ("listen", 4),
    ("accept", 5),
    ("getsockname", 6),
    ("getpeername", 7),
    ("socketpair", 8),
    ("send", 9),
    ("recv", 10),
    ("sendto", 11),
    ("recvfrom", 12),
    ("shutdown", 13),
    ("setsockopt", 14),
    ("getsockopt", 15),
    ("sendmsg", 16),
    ("recvmsg", 17),
    ("accept4", 18),
    ("recvmmsg", 19),
    ("sendmmsg", 20),
];

/// The numbers of `ipc` (linux/ipc.h).
const IPC: [(&str, u64); 12] = [
    ("semop", 1),
    ("semget", 2),
    ("semctl", 3),
    ("semtimedop", 4),
    ("msgsnd", 11),
    ("msgrcv", 12),
    ("msgget", 13),
    ("msgctl", 14),
    ("shmat", 21),
    ("shmdt", 22),
    ("shmget", 23),
    ("shmctl", 24),
];

/// A rule's conditions as alternatives, in each of which all must hold; none: always. As runc has it, several conditions of
/// one argument are alternatives.
fn conditions(args: &Value) -> Result<Vec<Vec<Condition>>, ProfileError> {
    let all: Vec<Condition> = list(args)
        .map(|arg| {
            let index = arg["index"].as_u64().filter(|index| *index < 6);
            let operation = arg["op"].as_str().ok_or(ProfileError::Field("op"))?;
            Ok(Condition {
                index: index.ok_or(ProfileError::Field("index"))? as u32,
                operation: match operation {
                    "SCMP_CMP_NE" => Operation::NotEqual,
                    "SCMP_CMP_LT" => Operation::Less,
                    "SCMP_CMP_LE" => Operation::LessOrEqual,
                    "SCMP_CMP_EQ" => Operation::Equal,
                    "SCMP_CMP_GE" => Operation::GreaterOrEqual,
                    "SCMP_CMP_GT" => Operation::Greater,
                    "SCMP_CMP_MASKED_EQ" => Operation::MaskedEqual,
                    other => return Err(ProfileError::Unknown("comparison", other.to_owned())),
                },
                value: arg["value"].as_u64().ok_or(ProfileError::Field("value"))?,
                second: arg["valueTwo"].as_u64().unwrap_or(0),
            })
        })
        .collect::<Result<_, _>>()?;
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let twice = |one: &Condition| all.iter().filter(|other| other.index == one.index).count() > 1;
    if all.len() > MAX_CONDITIONS || all.iter().any(twice) {
        return Ok(all.into_iter().map(|one| vec![one]).collect());
    }
    Ok(vec![all])
}

fn action(word: &Value, errno: &Value) -> Result<u32, ProfileError> {
    let number = || {
        let number = errno.as_u64().unwrap_or(EPERM);
        u16::try_from(number)
            .map(u32::from)
            .map_err(|_| ProfileError::Field("errnoRet"))
    };
    Ok(match word.as_str().ok_or(ProfileError::Field("action"))? {
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => KILL_THREAD,
        "SCMP_ACT_KILL_PROCESS" => KILL_PROCESS,
        "SCMP_ACT_TRAP" => TRAP,
        "SCMP_ACT_ERRNO" => ERRNO | number()?,
        "SCMP_ACT_TRACE" => TRACE | number()?,
        "SCMP_ACT_ALLOW" => ALLOW,
        "SCMP_ACT_LOG" => LOG,
        "SCMP_ACT_NOTIFY" => return Err(ProfileError::Notifies),
        other => return Err(ProfileError::Unknown("action", other.to_owned())),
    })
}

/// The numberings that the profile is for, of those that a kernel of this machine serves: its own always.
fn architectures(names: &Value) -> Result<Vec<Abi>, ProfileError> {
    let mut all = vec![Abi::NATIVE];
    for name in list(names).filter_map(Value::as_str) {
        let abi = match name {
            "SCMP_ARCH_X86_64" => Abi::X86_64,
            "SCMP_ARCH_X86" => Abi::I386,
            "SCMP_ARCH_X32" => Abi::X32,
            "SCMP_ARCH_AARCH64" => Abi::Aarch64,
            // Of another machine: its calls come to none here.
            _ => continue,
        };
        if Abi::SERVED.contains(&abi) && !all.contains(&abi) {
            all.push(abi);
        }
    }
    // Numberings of one architecture side by side.
    all.sort_by_key(|abi| (abi.audit() != Abi::NATIVE.audit(), abi.audit()));
    Ok(all)
}

fn flags(profile: &Value) -> Result<u32, ProfileError> {
    let Value::Array(words) = &profile["flags"] else {
        return Ok(flag::NO_MITIGATION);
    };
    words.iter().try_fold(0, |flags, word| {
        Ok(flags
            | match word.as_str().unwrap_or_default() {
                "SECCOMP_FILTER_FLAG_LOG" => FLAG_LOG,
                "SECCOMP_FILTER_FLAG_SPEC_ALLOW" => flag::NO_MITIGATION,
                // One thread has nobody to share it with, and without a listener nobody waits.
                "SECCOMP_FILTER_FLAG_TSYNC" | "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV" => 0,
                other => return Err(ProfileError::Unknown("flag", other.to_owned())),
            })
    })
}

impl Outcome {
    fn add(&mut self, alternatives: Vec<Vec<Condition>>, answer: u32) {
        if self.settled {
            return;
        }
        if alternatives.is_empty() {
            *self = Outcome {
                settled: true,
                ..always(answer)
            };
        }
        self.rules
            .extend(alternatives.into_iter().map(|all| (all, answer)));
    }

    fn write(&self, to: &mut Assembler) -> Label {
        let mut next = Label::Return(self.otherwise);
        for (conditions, answer) in self.rules.iter().rev() {
            let mut holds = Label::Return(*answer);
            for condition in conditions.iter().rev() {
                holds = condition.write(to, holds, next);
            }
            next = holds;
        }
        next
    }
}

impl Condition {
    /// A test of 64 bits, in halves.
    fn write(&self, to: &mut Assembler, yes: Label, no: Label) -> Label {
        let low = assemble::ARGUMENTS + 8 * self.index;
        let high = low + 4;
        let halves = |value: u64| ((value >> 32) as u32, (value & 0xffff_ffff) as u32);
        let value = halves(self.value);
        match self.operation {
            Operation::Equal => jump_if_equal(to, (high, low), value, yes, no),
            Operation::NotEqual => jump_if_equal(to, (high, low), value, no, yes),
            Operation::Greater => jump_if_greater(to, (high, low), value, assemble::MORE, yes, no),
            Operation::GreaterOrEqual => jump_if_greater(to, (high, low), value, assemble::AT_LEAST, yes, no),
            Operation::Less => jump_if_greater(to, (high, low), value, assemble::AT_LEAST, no, yes),
            Operation::LessOrEqual => jump_if_greater(to, (high, low), value, assemble::MORE, no, yes),
            Operation::MaskedEqual => {
                let wanted = halves(self.second & self.value);
                let test = to.jump(assemble::EQUAL, wanted.1, yes, no);
                let test = to.and(value.1, test);
                let lower = to.load(low, test);
                let test = to.jump(assemble::EQUAL, wanted.0, lower, no);
                let test = to.and(value.0, test);
                to.load(high, test)
            }
        }
    }
}

fn jump_if_equal(
    to: &mut Assembler,
    (high, low): (u32, u32),
    value: (u32, u32),
    yes: Label,
    no: Label,
) -> Label {
    let test = to.jump(assemble::EQUAL, value.1, yes, no);
    let lower = to.load(low, test);
    let test = to.jump(assemble::EQUAL, value.0, lower, no);
    to.load(high, test)
}

/// `code` compares the lower halves where the upper ones are equal.
fn jump_if_greater(
    to: &mut Assembler,
    (high, low): (u32, u32),
    value: (u32, u32),
    code: u16,
    yes: Label,
    no: Label,
) -> Label {
    let test = to.jump(code, value.1, yes, no);
    let lower = to.load(low, test);
    let equal = to.jump(assemble::EQUAL, value.0, lower, no);
    let test = to.jump(assemble::MORE, value.0, yes, equal);
    to.load(high, test)
}

#[cfg(test)]
mod tests;
