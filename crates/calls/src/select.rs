//! Which calls are wanted: numbers of each numbering, where asked for with tests of arguments, which the kernel can make
//! itself. What a filter cannot know (results, paths) is not here. The language in which
//! people say it is the tracer's (`fleetgate_trace::expression`).

use crate::abi::{Abi, Call};
use std::collections::{BTreeMap, BTreeSet};

/// The wanted calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    wanted: BTreeMap<Call, When>,
    /// Every call of a numbering, named or not, but for those in [`Selection::wanted`].
    all: BTreeSet<Abi>,
}

/// With which arguments a call is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// With any.
    Always,
    /// Where every test of one of these groups holds. Without a group: never.
    Any(Vec<Vec<Test>>),
}

impl When {
    /// Never: a call that is left out where all others are wanted.
    pub const NEVER: When = When::Any(Vec::new());

    /// Where either holds.
    #[must_use]
    pub fn or(self, other: When) -> When {
        match (self, other) {
            (When::Any(mut groups), When::Any(more)) => {
                for group in more {
                    if !groups.contains(&group) {
                        groups.push(group);
                    }
                }
                When::Any(groups)
            }
            _ => When::Always,
        }
    }

    /// Whether a call with these arguments is wanted.
    #[must_use]
    pub fn holds(&self, arguments: &[u64; 6]) -> bool {
        match self {
            When::Always => true,
            When::Any(groups) => groups
                .iter()
                .any(|group| group.iter().all(|test| test.holds(arguments))),
        }
    }
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

    /// Every call of every numbering that this architecture's kernel serves.
    #[must_use]
    pub fn everything() -> Selection {
        let mut all = Selection::none();
        for abi in Abi::SERVED {
            all.add_all(*abi);
        }
        all
    }

    /// Wants a call beside what is wanted already.
    pub fn add(&mut self, call: Call, when: When) {
        self.set(call, self.when(call).clone().or(when));
    }

    /// Wants it no more.
    pub fn remove(&mut self, call: Call) {
        self.set(call, When::NEVER);
    }

    /// Wants every call of a numbering, those included that have no name here.
    pub fn add_all(&mut self, abi: Abi) {
        self.wanted.retain(|call, _| call.abi != abi);
        self.all.insert(abi);
    }

    /// Wants what another selection wants beside what is wanted already.
    pub fn join(&mut self, other: &Selection) {
        let named: Vec<Call> = self.wanted.keys().chain(other.wanted.keys()).copied().collect();
        let joined: Vec<(Call, When)> = named
            .into_iter()
            .map(|call| (call, self.when(call).clone().or(other.when(call).clone())))
            .collect();
        self.all.extend(&other.all);
        for (call, when) in joined {
            self.set(call, when);
        }
    }

    /// Whether every call of a numbering is wanted that [`Selection::of`] does not name.
    #[must_use]
    pub fn is_all(&self, abi: Abi) -> bool {
        self.all.contains(&abi)
    }

    /// Whether nothing at all is wanted.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.all.is_empty() && self.wanted.is_empty()
    }

    /// The calls of a numbering that are not as all others are, by number: the others are all wanted
    /// ([`Selection::is_all`]), or none is.
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
        self.when(call).holds(&arguments.map(|argument| argument & cut))
    }

    /// When a call is wanted.
    #[must_use]
    pub fn when(&self, call: Call) -> &When {
        self.wanted.get(&call).unwrap_or(self.background(call.abi))
    }

    /// When those calls of a numbering are wanted that nobody named.
    fn background(&self, abi: Abi) -> &'static When {
        static NEVER: When = When::NEVER;
        if self.is_all(abi) { &When::Always } else { &NEVER }
    }

    /// What is as the background is has no entry: equal selections are the same selection.
    fn set(&mut self, call: Call, when: When) {
        if when == *self.background(call.abi) {
            self.wanted.remove(&call);
        } else {
            self.wanted.insert(call, when);
        }
    }
}

impl Selection {
    /// All other calls of the numberings that are served here. None: a test has no opposite that a filter can ask.
    pub fn others(&self) -> Option<Selection> {
        let mut others = Selection::none();
        for abi in Abi::SERVED.iter().filter(|abi| !self.is_all(**abi)) {
            others.add_all(*abi);
        }
        for abi in Abi::SERVED {
            for (number, when) in self.of(*abi) {
                others.set(Call { abi: *abi, number }, when.opposite()?);
            }
        }
        Some(others)
    }
}

impl When {
    /// Where it does not hold: of every group, some test fails. None for several groups of several tests, too: the opposite
    /// of those is as many groups as their product.
    fn opposite(&self) -> Option<When> {
        let groups = match self {
            When::Always => return Some(When::NEVER),
            When::Any(groups) if groups.is_empty() => return Some(When::Always),
            When::Any(groups) => groups,
        };
        if let [group] = groups.as_slice() {
            let tests = group.iter().map(|test| Some(vec![test.opposite()?]));
            return tests.collect::<Option<_>>().map(When::Any);
        }
        let tests = groups.iter().map(|group| match group.as_slice() {
            [test] => test.opposite(),
            _ => None,
        });
        Some(When::Any(vec![tests.collect::<Option<_>>()?]))
    }
}

impl Test {
    fn opposite(&self) -> Option<Test> {
        let whole = if self.wide { u64::MAX } else { u64::from(u32::MAX) };
        let is = match self.is {
            Is::Masked { mask, value } if mask & whole == whole => Is::Not(value),
            Is::Masked { mask, value } if mask.is_power_of_two() => match value & mask {
                0 => Is::AnyOf(mask),
                _ => Is::Masked { mask, value: 0 },
            },
            Is::Masked { mask, value: 0 } => Is::AnyOf(mask),
            Is::AnyOf(bits) => Is::Masked { mask: bits, value: 0 },
            Is::Not(value) => Is::Masked {
                mask: u64::MAX,
                value,
            },
            Is::Masked { .. } | Is::AtLeast(_) => return None,
        };
        Some(Test { is, ..*self })
    }
}
