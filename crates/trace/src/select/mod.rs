//! Which calls are wanted: numbers of each numbering, where asked for with tests of arguments, which the kernel can make
//! itself. What a filter cannot know (results, paths) is not here.

use crate::abi::{Abi, Call};
use std::collections::BTreeMap;

/// The wanted calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    wanted: BTreeMap<Call, When>,
    /// Every call of a numbering, named or not; [`Selection::wanted`] beside it has only the tests.
    all: Vec<Abi>,
}

/// With which arguments a call is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// With any.
    Always,
    /// Where every test of one of these groups holds.
    Any(Vec<Vec<Test>>),
}

/// A test of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Which, from 0.
    pub argument: u8,
    /// The kernel looks at 32 bits of it (an `int`) or at 64.
    pub wide: bool,
    /// What is asked.
    pub is: Is,
}

/// What is asked of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Is {
    /// The bits of the mask are these.
    Masked {
        /// Which bits.
        mask: u64,
        /// And what they are.
        value: u64,
    },
    /// One of these bits is set, at least.
    AnyOf(u64),
    /// It is this or more, without sign.
    AtLeast(u64),
    /// Not this one.
    Not(u64),
}

impl Test {
    /// What a filter is to answer, in plain words: the definition.
    #[must_use]
    pub fn holds(&self, arguments: &[u64; 6]) -> bool {
        let value = arguments.get(usize::from(self.argument)).copied().unwrap_or(0);
        let cut = |v: u64| if self.wide { v } else { v & u64::from(u32::MAX) };
        let value = cut(value);
        match self.is {
            Is::Masked { mask, value: wanted } => value & cut(mask) == cut(wanted),
            Is::AnyOf(bits) => value & cut(bits) != 0,
            Is::AtLeast(least) => value >= cut(least),
            Is::Not(other) => value != cut(other),
        }
    }
}

impl Selection {
    /// Nothing.
    #[must_use]
    pub fn none() -> Selection {
        Selection::default()
    }

    /// Wants a call beside what is wanted already.
    pub fn add(&mut self, call: Call, when: When) {
        match (self.wanted.get_mut(&call), when) {
            (Some(When::Any(groups)), When::Any(more)) => groups.extend(more),
            (Some(When::Always), _) => {}
            (_, when) => {
                self.wanted.insert(call, when);
            }
        }
    }

    /// Wants it no more.
    pub fn remove(&mut self, call: Call) {
        self.wanted.remove(&call);
    }

    /// Wants every call of a numbering, those included that have no name here.
    pub fn add_all(&mut self, abi: Abi) {
        if !self.all.contains(&abi) {
            self.all.push(abi);
        }
    }

    /// Whether every call of a numbering is wanted.
    #[must_use]
    pub fn is_all(&self, abi: Abi) -> bool {
        self.all.contains(&abi)
    }

    /// The wanted calls of a numbering by number; where all are, these are none of interest.
    pub fn of(&self, abi: Abi) -> impl Iterator<Item = (u32, &When)> {
        self.wanted
            .iter()
            .filter(move |(call, _)| call.abi == abi)
            .map(|(call, when)| (call.number, when))
    }

    /// Whether a call is to stop, as it comes from a filter, a listener or ptrace: [`Selection::wants`], with what has no
    /// name. An architecture that nobody here knows always stops. The number -1 never does: it is no call, but what is
    /// left of one that a tracer had left out.
    #[must_use]
    pub fn stops(&self, audit: u32, number: u32, arguments: &[u64; 6]) -> bool {
        Call::seen(audit, number).is_none_or(|call| number != u32::MAX && self.wants(call, arguments))
    }

    /// Whether a call is wanted: the definition that a filter is held against. Of i386's arguments only the lower 32 bits
    /// count, whatever a test asks for: a 64-bit program can make its calls with anything above them, which a filter sees
    /// and the call itself does not.
    #[must_use]
    pub fn wants(&self, call: Call, arguments: &[u64; 6]) -> bool {
        let cut = match call.abi {
            Abi::I386 => u64::from(u32::MAX),
            _ => u64::MAX,
        };
        let arguments = &arguments.map(|argument| argument & cut);
        self.is_all(call.abi)
            || match self.wanted.get(&call) {
                None => false,
                Some(When::Always) => true,
                Some(When::Any(groups)) => groups
                    .iter()
                    .any(|group| group.iter().all(|test| test.holds(arguments))),
            }
    }
}
