//! What tests ask of a call's arguments, as conditions on words of 32 bits, which is all that the kernel's programs can
//! look at. What is known without looking is settled here: a test that always or never holds loads nothing.

use super::assemble::{self, Assembler, Label};
use crate::abi::{self, Abi};
use crate::select::{Is, Test};

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Known.
    Constant(bool),
    /// A word is so.
    Word(Word),
    /// It is not so.
    Unless(Word),
    /// All hold.
    All(Vec<Condition>),
    /// One holds.
    Any(Vec<Condition>),
}

/// What is asked of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Where struct seccomp_data has it.
    offset: u32,
    /// Only these bits of it.
    mask: u32,
    /// A jump's code.
    code: u16,
    /// Its operand.
    value: u32,
}

/// Half an argument.
#[derive(Clone, Copy)]
enum Half {
    At(u32),
    /// It does not count, and is taken for 0.
    Zero,
}

impl Condition {
    /// One group of which every test holds.
    pub fn of(groups: &[Vec<Test>], abi: Abi) -> Condition {
        let group = |tests: &Vec<Test>| Condition::all(tests.iter().map(|test| Condition::test(test, abi)));
        Condition::any(groups.iter().map(group))
    }

    fn test(test: &Test, abi: Abi) -> Condition {
        let argument = u32::from(test.argument);
        let at = |half| match argument {
            0..6 => Half::At(assemble::ARGUMENTS + 8 * argument + half),
            _ => Half::Zero,
        };
        let low = at(0);
        // i386 has no upper halves. What a 64-bit program leaves in them when it makes one of its calls is not the call's.
        let high = match abi {
            Abi::I386 => Half::Zero,
            _ => at(4),
        };
        let split = |value: u64| (abi::low(value >> 32), abi::low(value));
        if !test.wide {
            let word = abi::low;
            return match test.is {
                Is::Masked { mask, value } => low.masked(word(mask), word(value)),
                Is::AnyOf(bits) => low.any_of(word(bits)),
                Is::AtLeast(least) => low.at_least(word(least)),
                Is::Not(other) => low.masked(u32::MAX, word(other)).not(),
            };
        }
        match test.is {
            Is::Masked { mask, value } => {
                let ((mask_high, mask_low), (value_high, value_low)) = (split(mask), split(value));
                Condition::all([
                    high.masked(mask_high, value_high),
                    low.masked(mask_low, value_low),
                ])
            }
            Is::AnyOf(bits) => {
                let (bits_high, bits_low) = split(bits);
                Condition::any([high.any_of(bits_high), low.any_of(bits_low)])
            }
            Is::AtLeast(least) => {
                let (least_high, least_low) = split(least);
                match (least_high, least_low) {
                    (_, 0) => high.at_least(least_high),
                    (0, _) => Condition::any([high.more(0), low.at_least(least_low)]),
                    _ => Condition::any([
                        high.more(least_high),
                        Condition::all([high.masked(u32::MAX, least_high), low.at_least(least_low)]),
                    ]),
                }
            }
            Is::Not(other) => {
                let (other_high, other_low) = split(other);
                Condition::any([
                    high.masked(u32::MAX, other_high).not(),
                    low.masked(u32::MAX, other_low).not(),
                ])
            }
        }
    }

    fn all(of: impl IntoIterator<Item = Condition>) -> Condition {
        let open = |c: &Condition| *c != Condition::Constant(true);
        match gather(of, open, &Condition::Constant(false)) {
            Gathered::One(condition) => condition,
            Gathered::None => Condition::Constant(true),
            Gathered::Some(conditions) => Condition::All(conditions),
        }
    }

    fn any(of: impl IntoIterator<Item = Condition>) -> Condition {
        let open = |c: &Condition| *c != Condition::Constant(false);
        match gather(of, open, &Condition::Constant(true)) {
            Gathered::One(condition) => condition,
            Gathered::None => Condition::Constant(false),
            Gathered::Some(conditions) => Condition::Any(conditions),
        }
    }

    fn not(self) -> Condition {
        match self {
            Condition::Constant(known) => Condition::Constant(!known),
            Condition::Word(word) => Condition::Unless(word),
            Condition::Unless(word) => Condition::Word(word),
            Condition::All(of) => Condition::Any(of.into_iter().map(Condition::not).collect()),
            Condition::Any(of) => Condition::All(of.into_iter().map(Condition::not).collect()),
        }
    }

    /// Writes the code that goes to `yes` where it holds and to `no` where not; says where that begins.
    pub fn write(&self, to: &mut Assembler, yes: Label, no: Label) -> Label {
        match self {
            Condition::Constant(true) => yes,
            Condition::Constant(false) => no,
            Condition::Word(word) => word.write(to, yes, no),
            Condition::Unless(word) => word.write(to, no, yes),
            Condition::All(of) => of.iter().rev().fold(yes, |next, c| c.write(to, next, no)),
            Condition::Any(of) => of.iter().rev().fold(no, |next, c| c.write(to, yes, next)),
        }
    }
}

enum Gathered {
    None,
    One(Condition),
    Some(Vec<Condition>),
}

/// Those that are `open`, each once, or the one that settles it.
fn gather(
    of: impl IntoIterator<Item = Condition>,
    open: impl Fn(&Condition) -> bool,
    settles: &Condition,
) -> Gathered {
    let mut conditions: Vec<Condition> = Vec::new();
    for condition in of {
        if condition == *settles {
            return Gathered::One(condition);
        }
        if open(&condition) && !conditions.contains(&condition) {
            conditions.push(condition);
        }
    }
    if conditions.len() > 1 {
        return Gathered::Some(conditions);
    }
    conditions.pop().map_or(Gathered::None, Gathered::One)
}

impl Word {
    fn write(&self, to: &mut Assembler, yes: Label, no: Label) -> Label {
        if yes == no {
            return yes;
        }
        let mut entry = to.jump(self.code, self.value, yes, no);
        if self.mask != u32::MAX {
            entry = to.and(self.mask, entry);
        }
        to.load(self.offset, entry)
    }
}

impl Half {
    fn word(self, mask: u32, code: u16, value: u32, of_zero: bool) -> Condition {
        match self {
            Half::Zero => Condition::Constant(of_zero),
            Half::At(offset) => Condition::Word(Word {
                offset,
                mask,
                code,
                value,
            }),
        }
    }

    fn masked(self, mask: u32, value: u32) -> Condition {
        if value & !mask != 0 || mask == 0 {
            return Condition::Constant(value == 0);
        }
        match (mask, value) {
            (u32::MAX, _) => self.word(mask, assemble::EQUAL, value, value == 0),
            // A jump can look at bits by itself.
            (_, 0) => self.any_of(mask).not(),
            _ if mask == value && mask.is_power_of_two() => self.any_of(mask),
            _ => self.word(mask, assemble::EQUAL, value, false),
        }
    }

    fn any_of(self, bits: u32) -> Condition {
        match bits {
            0 => Condition::Constant(false),
            _ => self.word(u32::MAX, assemble::ANY_BIT, bits, false),
        }
    }

    fn at_least(self, least: u32) -> Condition {
        match least {
            0 => Condition::Constant(true),
            _ => self.word(u32::MAX, assemble::AT_LEAST, least, false),
        }
    }

    fn more(self, than: u32) -> Condition {
        match than {
            u32::MAX => Condition::Constant(false),
            _ => self.word(u32::MAX, assemble::MORE, than, false),
        }
    }
}
