//! Sets of words and of signals.

use super::{ExpressionError, parts, trimmed};
use fleetgate_calls::tables::signal;
use std::marker::PhantomData;
use std::ops::Range;

/// What a [`Set`] is made of.
pub trait Member: Copy + PartialEq + 'static {
    /// Every name, with what it names; the first name of each is the usual one.
    const NAMES: &'static [(&'static str, Self)];
    /// What people call such a set in an error.
    const KIND: &'static str;
}

/// Some of the few that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set<T> {
    bits: u64,
    of: PhantomData<T>,
}

impl<T: Member> Set<T> {
    /// Every one.
    #[must_use]
    pub fn all() -> Set<T> {
        T::NAMES
            .iter()
            .fold(Set::none(), |set, (_, member)| set.with(*member))
    }

    /// None of them.
    #[must_use]
    pub const fn none() -> Set<T> {
        Set {
            bits: 0,
            of: PhantomData,
        }
    }

    /// One more.
    #[must_use]
    pub fn with(self, member: T) -> Set<T> {
        Set {
            bits: self.bits | bit(member),
            ..self
        }
    }

    /// Whether it is in it.
    #[must_use]
    pub fn has(self, member: T) -> bool {
        self.bits & bit(member) != 0
    }
}

/// The place of its first name.
fn bit<T: Member>(member: T) -> u64 {
    let place = T::NAMES.iter().position(|(_, known)| *known == member);
    place.map_or(0, |place| 1 << place)
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Without an error.
    Successful,
    /// With one.
    Failed,
    /// Not at all: its task was gone before.
    Unfinished,
    /// Nobody knows.
    Unavailable,
    /// Its task was left alone before the end.
    Detached,
}

impl Member for Status {
    const NAMES: &'static [(&'static str, Status)] = &[
        ("successful", Status::Successful),
        ("failed", Status::Failed),
        ("unfinished", Status::Unfinished),
        ("unavailable", Status::Unavailable),
        ("detached", Status::Detached),
    ];
    const KIND: &'static str = "status";
}

/// What may be shown of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Its path.
    Path,
    /// The addresses of its socket.
    Socket,
    /// The numbers of its device.
    Device,
    /// The process that it stands for.
    Process,
}

impl Member for Decoded {
    const NAMES: &'static [(&'static str, Decoded)] = &[
        ("path", Decoded::Path),
        ("socket", Decoded::Socket),
        ("dev", Decoded::Device),
        ("pidfd", Decoded::Process),
    ];
    const KIND: &'static str = "part of a descriptor";
}

/// Messages that may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiet {
    /// That a process is traced, or no more.
    Attach,
    /// That a process ended.
    Exit,
    /// What a path was found to be.
    Paths,
    /// That a process makes calls of another numbering.
    Personality,
    /// That a thread is gone because another one executed a program.
    Superseded,
}

impl Member for Quiet {
    const NAMES: &'static [(&'static str, Quiet)] = &[
        ("attach", Quiet::Attach),
        ("exit", Quiet::Exit),
        ("path-resolution", Quiet::Paths),
        ("personality", Quiet::Personality),
        ("superseded", Quiet::Superseded),
        ("exits", Quiet::Exit),
        ("path-resolutions", Quiet::Paths),
        ("thread-execve", Quiet::Superseded),
    ];
    const KIND: &'static str = "message";
}

/// Some signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signals(u64);

impl Signals {
    /// Every one.
    #[must_use]
    pub const fn all() -> Signals {
        Signals(u64::MAX)
    }

    /// None.
    #[must_use]
    pub const fn none() -> Signals {
        Signals(0)
    }

    /// Whether a signal is in it.
    #[must_use]
    pub fn has(self, signal: i32) -> bool {
        self.0 & signal_bit(signal) != 0
    }
}

fn signal_bit(signal: i32) -> u64 {
    match signal {
        1..=signal::LAST => 1 << (signal - 1),
        _ => 0,
    }
}

/// A set of words.
pub(super) fn words<T: Member>(text: &str, range: Range<usize>) -> Result<Set<T>, ExpressionError> {
    let one = |name: &str| {
        let found = T::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, member)| bit(*member))
    };
    let all = Set::<T>::all().bits;
    let bits = bits(
        text,
        range,
        T::KIND,
        all,
        one,
        T::NAMES.iter().map(|(name, _)| *name),
    )?;
    Ok(Set {
        bits,
        of: PhantomData,
    })
}

/// A set of signals.
pub(super) fn signals(text: &str, range: Range<usize>) -> Result<Signals, ExpressionError> {
    let one = |name: &str| {
        let number = name.parse().ok().or_else(|| signal::number(name))?;
        Some(signal_bit(number)).filter(|bit| *bit != 0)
    };
    let names = (1..=signal::LAST).filter_map(signal::name);
    bits(text, range, "signal", u64::MAX, one, names).map(Signals)
}

/// What all sets have in common: `!`, `all`, `none`, commas.
fn bits(
    text: &str,
    range: Range<usize>,
    kind: &str,
    all: u64,
    one: impl Fn(&str) -> Option<u64>,
    names: impl Iterator<Item = &'static str>,
) -> Result<u64, ExpressionError> {
    let range = trimmed(text, range);
    let (negated, range) = match text[range.clone()].strip_prefix('!') {
        Some(_) => (true, range.start + 1..range.end),
        None => (false, range),
    };
    let parts = parts(text, range.clone());
    if parts.is_empty() {
        let reason = format!("the name of a {kind} is missing; `all` and `none` are sets too");
        return Err(ExpressionError::new(text, range.start..range.start, reason));
    }
    let mut bits = 0;
    for part in &parts {
        bits |= match &text[part.clone()] {
            "all" => all,
            "none" if parts.len() == 1 => 0,
            "none" => return Err(ExpressionError::new(text, part.clone(), "`none` stands alone")),
            name => match one(name) {
                Some(bit) => bit,
                None => {
                    let reason = format!("there is no {kind} of this name");
                    return Err(ExpressionError::new(text, part.clone(), reason).or(names));
                }
            },
        };
    }
    Ok(if negated { all & !bits } else { bits })
}
