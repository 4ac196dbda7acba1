//! Sets of calls.

use super::arguments::{self, ArgumentTest, Group};
use super::classes::Class;
use super::signatures;
use super::{ExpressionError, parts, trimmed};
use fleetgate_calls::abi::{Abi, Call, X32_BIT};
use fleetgate_calls::select::{Is, Selection, When};
use fleetgate_calls::tables;
use regex_lite::RegexBuilder;
use std::collections::BTreeSet;
use std::ops::Range;

/// How many patterns an expression may have: each is held against every name.
pub(super) const MAX_PATTERNS: usize = 8;
/// The longest pattern.
pub(super) const MAX_PATTERN: usize = 128;
/// How much memory a pattern may need: a repetition of repetitions needs much.
const PATTERN_MEMORY: usize = 16 * 1024;

/// A set that is being read.
struct Reading<'a> {
    text: &'a str,
    /// Whether arguments may be tested.
    tests: bool,
    /// Whether the set is what is not wanted: then what cannot be tested stays outside of it.
    negated: bool,
    patterns: usize,
    chosen: Selection,
}

/// Reads a set of calls.
pub(super) fn calls(text: &str, range: Range<usize>, tests: bool) -> Result<Selection, ExpressionError> {
    let range = trimmed(text, range);
    let (negated, range) = match text[range.clone()].strip_prefix('!') {
        Some(_) => (true, range.start + 1..range.end),
        None => (false, range),
    };
    let parts = parts(text, range.clone());
    if parts.is_empty() {
        let reason = "the name of a system call is missing; `all` and `none` are sets too";
        return Err(ExpressionError::new(text, range.start..range.start, reason));
    }
    let mut reading = Reading {
        text,
        tests,
        negated,
        patterns: 0,
        chosen: Selection::none(),
    };
    for part in &parts {
        if &text[part.clone()] == "none" {
            if parts.len() > 1 {
                return Err(ExpressionError::new(text, part.clone(), "`none` stands alone"));
            }
        } else {
            reading.item(part.clone())?;
        }
    }
    if !negated {
        return Ok(reading.chosen);
    }
    reading.chosen.others().ok_or_else(|| {
        let reason = "the opposite of these tests cannot be asked: behind ! there is no >=, and of one call either one group or one test in each";
        ExpressionError::new(text, range, reason)
    })
}

impl Reading<'_> {
    fn item(&mut self, place: Range<usize>) -> Result<(), ExpressionError> {
        let text = self.text;
        let (optional, place) = match text[place.clone()].strip_prefix('?') {
            Some(_) => (true, place.start + 1..place.end),
            None => (false, place),
        };
        if place.is_empty() {
            return Err(ExpressionError::new(
                text,
                place,
                "the name of a system call is missing behind ?",
            ));
        }
        if text[place.clone()].starts_with('/') {
            let (place, abis) = self.numbering(place, true)?;
            return self.pattern(place, abis, optional);
        }
        let (place, asked) = tests_of(text, place)?;
        if let (Some((inside, _)), false) = (&asked, self.tests) {
            let reason = "arguments can be tested in trace= alone";
            return Err(ExpressionError::new(text, inside.clone(), reason));
        }
        let (place, abis) = self.numbering(place, false)?;
        let name = &text[place.clone()];
        if name == "all" || Class::named(name).is_some() {
            if let Some(range) = asked {
                let reason = "only a single call can have its arguments tested";
                return Err(ExpressionError::new(text, range.0, reason));
            }
            return self.many(name, abis);
        }
        let asked = asked.as_ref().map_or(&[][..], |(_, asked)| asked);
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            let abis = if abis.len() == 1 { abis } else { &[Abi::NATIVE] };
            return self.number(place, abis, asked);
        }
        if self.call(name, abis, asked)? || optional {
            return Ok(());
        }
        Err(self.unknown(place, abis))
    }

    /// Splits `@64` and the like off.
    fn numbering(
        &self,
        place: Range<usize>,
        pattern: bool,
    ) -> Result<(Range<usize>, &'static [Abi]), ExpressionError> {
        let text = self.text;
        let Some(at) = text[place.clone()].rfind('@').map(|at| place.start + at) else {
            return Ok((place, Abi::SERVED));
        };
        let named: &'static [Abi] = match (&text[at + 1..place.end], Abi::NATIVE) {
            ("64", Abi::Aarch64) => &[Abi::Aarch64],
            ("64", _) => &[Abi::X86_64],
            ("32", _) => &[Abi::I386],
            ("x32", _) => &[Abi::X32],
            _ if pattern => return Ok((place, Abi::SERVED)),
            _ => {
                let reason = "a numbering is 64, 32 or x32";
                return Err(ExpressionError::new(text, at + 1..place.end, reason));
            }
        };
        if named.iter().any(|abi| !Abi::SERVED.contains(abi)) {
            let reason = "the kernel of this architecture has no such numbering";
            return Err(ExpressionError::new(text, at + 1..place.end, reason));
        }
        Ok((place.start..at, named))
    }

    /// Everything, or a class.
    fn many(&mut self, name: &str, abis: &[Abi]) -> Result<(), ExpressionError> {
        let Some(class) = Class::named(name) else {
            for abi in abis {
                self.chosen.add_all(*abi);
            }
            return Ok(());
        };
        for member in class.members() {
            self.call(member, abis, &[])?;
        }
        for part in parts(class.asked, 0..class.asked.len()) {
            // What the class says stands in its own text.
            let (place, asked) = tests_of(class.asked, part)?;
            let asked = asked.map_or(Vec::new(), |(_, asked)| asked);
            self.choose(class.asked, &class.asked[place], abis, &asked)?;
        }
        Ok(())
    }

    fn pattern(
        &mut self,
        place: Range<usize>,
        abis: &'static [Abi],
        optional: bool,
    ) -> Result<(), ExpressionError> {
        let text = self.text;
        let pattern = &text[place.start + 1..place.end];
        self.patterns += 1;
        if self.patterns > MAX_PATTERNS || pattern.len() > MAX_PATTERN {
            let reason = format!("no more than {MAX_PATTERNS} patterns, of {MAX_PATTERN} bytes each");
            return Err(ExpressionError::new(text, place, reason));
        }
        let pattern = RegexBuilder::new(pattern).size_limit(PATTERN_MEMORY).build();
        let pattern = pattern
            .map_err(|e| ExpressionError::new(text, place.clone(), format!("the pattern is wrong: {e}")))?;
        let names = abis
            .iter()
            .flat_map(|abi| tables::calls(*abi))
            .map(|(_, name)| name);
        let names: BTreeSet<&str> = names.collect();
        let mut any = false;
        for name in names.into_iter().filter(|name| pattern.is_match(name)) {
            any |= self.call(name, abis, &[])?;
        }
        if any || optional {
            return Ok(());
        }
        Err(ExpressionError::new(
            text,
            place,
            "no system call has a name that matches",
        ))
    }

    fn number(
        &mut self,
        place: Range<usize>,
        abis: &[Abi],
        asked: &[ArgumentTest],
    ) -> Result<(), ExpressionError> {
        let text = self.text;
        let number = text[place.clone()]
            .parse()
            .ok()
            .filter(|number| *number < X32_BIT);
        let Some(number) = number else {
            let reason = format!("a number of a system call is less than {X32_BIT}");
            return Err(ExpressionError::new(text, place, reason));
        };
        for abi in abis {
            let call = Call { abi: *abi, number };
            match self.when(text, call, asked)? {
                Some(when) => self.chosen.add(call, when),
                None => {
                    return Err(arguments::unknown(
                        text,
                        asked,
                        call.name().unwrap_or("this call"),
                    ));
                }
            }
        }
        Ok(())
    }

    fn call(&mut self, name: &str, abis: &[Abi], asked: &[ArgumentTest]) -> Result<bool, ExpressionError> {
        self.choose(self.text, name, abis, asked)
    }

    /// Chooses a call by its name, as far as there is one; whether there is.
    fn choose(
        &mut self,
        text: &str,
        name: &str,
        abis: &[Abi],
        asked: &[ArgumentTest],
    ) -> Result<bool, ExpressionError> {
        let (mut known, mut named) = (false, false);
        let mut unnamed = Vec::new();
        for abi in abis {
            if let Some(call) = Call::named(*abi, name) {
                known = true;
                match self.when(text, call, asked)? {
                    Some(when) => {
                        named = true;
                        self.chosen.add(call, when);
                    }
                    None => unnamed.push(call),
                }
            }
            if *abi == Abi::I386 {
                known |= self.choose_through(name, !asked.is_empty());
            }
        }
        if known && !named && !unnamed.is_empty() {
            return Err(arguments::unknown(text, asked, name));
        }
        for call in unnamed.into_iter().filter(|_| !self.negated) {
            self.chosen.add(call, When::Always);
        }
        Ok(known)
    }

    /// What a 32-bit program can do by `socketcall` or `ipc`, whose arguments are in memory.
    fn choose_through(&mut self, name: &str, asked: bool) -> bool {
        let mut known = false;
        for (outer, mut test) in signatures::through(name) {
            known = true;
            if let (Is::Masked { mask, .. }, true) = (&mut test.is, self.negated) {
                // The opposite of a part of the bits cannot be asked; of all, it leaves out less.
                *mask = u64::MAX;
            }
            if let Some(call) = Call::named(Abi::I386, outer).filter(|_| !(asked && self.negated)) {
                self.chosen.add(call, When::Any(vec![vec![test]]));
            }
        }
        known
    }

    /// When a call is chosen; None: it has no argument of such a name.
    fn when(&self, text: &str, call: Call, asked: &[ArgumentTest]) -> Result<Option<When>, ExpressionError> {
        if asked.is_empty() {
            return Ok(Some(When::Always));
        }
        Ok(arguments::group(text, asked, call)?.map(|group| match group {
            Group::Tests(tests) => When::Any(vec![tests]),
            Group::Hidden if self.negated => When::NEVER,
            Group::Hidden => When::Always,
        }))
    }

    fn unknown(&self, place: Range<usize>, abis: &[Abi]) -> ExpressionError {
        let name = &self.text[place.clone()];
        let elsewhere = Abi::ALL
            .into_iter()
            .find(|abi| !abis.contains(abi) && Call::named(*abi, name).is_some());
        let reason = match elsewhere {
            Some(abi) => format!("only {} has this system call; ?{name} is no error", abi.name()),
            None if name.starts_with('!') => {
                "! stands before the whole set, and means all but that".to_owned()
            }
            None if name.starts_with('%') => "there is no such class of system calls".to_owned(),
            None => "there is no system call of this name".to_owned(),
        };
        let names = abis
            .iter()
            .flat_map(|abi| tables::calls(*abi))
            .map(|(_, name)| name);
        let classes = crate::expression::classes::CLASSES.iter().map(|class| class.name);
        ExpressionError::new(self.text, place, reason).or(names.chain(classes))
    }
}

/// A call's tests, and where they stand.
type Tests = (Range<usize>, Vec<ArgumentTest>);

/// Splits the tests off.
fn tests_of(text: &str, place: Range<usize>) -> Result<(Range<usize>, Option<Tests>), ExpressionError> {
    let Some(open) = text[place.clone()].find('(').map(|at| place.start + at) else {
        return Ok((place, None));
    };
    if !text[place.clone()].ends_with(')') {
        let close = text[open..place.end].rfind(')').map(|at| open + at + 1);
        return Err(match close {
            None => ExpressionError::new(text, place.end..place.end, "a ) is missing"),
            Some(at) if text[at..place.end].starts_with('@') => ExpressionError::new(
                text,
                at..place.end,
                "the numbering stands behind the name: openat@64(…)",
            ),
            Some(at) => ExpressionError::new(text, at..place.end, "a comma is expected behind )"),
        });
    }
    let inside = open + 1..place.end - 1;
    let asked = arguments::tests(text, inside.clone())?;
    Ok((trimmed(text, place.start..open), Some((inside, asked))))
}
