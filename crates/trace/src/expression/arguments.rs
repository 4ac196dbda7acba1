//! Tests of arguments: `flags&O_WRONLY|O_RDWR, 1=3`.

use super::constants;
use super::signatures::{self, Argument, Lookup};
use super::{ExpressionError, parts, trimmed};
use fleetgate_calls::abi::{Abi, Call};
use fleetgate_calls::select::{Is, Test};
use std::ops::Range;

/// A test as it was written: what it means depends on the call.
pub(super) struct ArgumentTest {
    /// Where the argument's name stands.
    place: Range<usize>,
    argument: Which,
    is: Is,
    /// Where the value stands.
    value: Range<usize>,
}

enum Which {
    At(u8),
    Named(String),
}

/// A group of tests for one call.
pub(super) enum Group {
    /// These.
    Tests(Vec<Test>),
    /// A filter cannot ask, here.
    Hidden,
}

/// Reads the tests between parentheses.
pub(super) fn tests(text: &str, range: Range<usize>) -> Result<Vec<ArgumentTest>, ExpressionError> {
    let parts = parts(text, range.clone());
    if parts.is_empty() {
        let reason = "a test is missing: an argument, = or != or >= or &, and a value";
        return Err(ExpressionError::new(text, range, reason));
    }
    parts.into_iter().map(|part| test(text, part)).collect()
}

/// What the tests are for a call. `Ok(None)`: the call has no argument of such a name.
pub(super) fn group(
    text: &str,
    asked: &[ArgumentTest],
    call: Call,
) -> Result<Option<Group>, ExpressionError> {
    let mut tests = Vec::new();
    let mut hidden = false;
    for one in asked {
        let argument = match &one.argument {
            Which::At(position) => signatures::at(call, *position),
            Which::Named(name) => match signatures::argument(call, name) {
                Lookup::At(argument) => argument,
                Lookup::Hidden => {
                    hidden = true;
                    continue;
                }
                Lookup::Missing => return Ok(None),
            },
        };
        tests.push(one.test(text, call.abi, argument)?);
    }
    Ok(Some(if hidden {
        Group::Hidden
    } else {
        Group::Tests(tests)
    }))
}

/// Says that a call has no argument of a name, or which of several.
pub(super) fn unknown(text: &str, asked: &[ArgumentTest], call: &str) -> ExpressionError {
    let names = signatures::names(call);
    let known = |one: &ArgumentTest| match &one.argument {
        Which::At(_) => true,
        Which::Named(name) => Abi::SERVED.iter().any(|abi| {
            let call = Call::named(*abi, call);
            call.is_some_and(|call| signatures::argument(call, name) != Lookup::Missing)
        }),
    };
    let place = asked
        .iter()
        .find(|one| !known(one))
        .map_or(0..0, |one| one.place.clone());
    let reason = if names.is_empty() {
        format!("the arguments of {call} have no names here: say the position, from 0")
    } else {
        format!("{call} has no argument of this name; it has {}", names.join(", "))
    };
    ExpressionError::new(text, place, reason).or(names.into_iter())
}

impl ArgumentTest {
    fn test(&self, text: &str, abi: Abi, argument: Argument) -> Result<Test, ExpressionError> {
        let largest = match self.is {
            Is::Masked { mask, value } if mask == u64::MAX => value,
            Is::Masked { mask, .. } => mask,
            Is::AnyOf(value) | Is::AtLeast(value) | Is::Not(value) => value,
        };
        let fits = u32::try_from(largest).is_ok() || i32::try_from(largest.cast_signed()).is_ok();
        if !argument.wide && !fits {
            let reason = "the argument has 32 bits, and this needs more";
            return Err(ExpressionError::new(text, self.value.clone(), reason));
        }
        Ok(Test {
            argument: argument.position,
            // A register of a 32-bit program has 32 bits, and -1 is no more than these; what needs more never holds.
            wide: argument.wide && (abi != Abi::I386 || !fits),
            is: self.is,
        })
    }
}

fn test(text: &str, range: Range<usize>) -> Result<ArgumentTest, ExpressionError> {
    let part = &text[range.clone()];
    let end = part
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(part.len());
    let place = range.start..range.start + end;
    let name = &text[place.clone()];
    if name.is_empty() {
        return Err(ExpressionError::new(
            text,
            place,
            "the name or position of an argument is missing",
        ));
    }
    let argument = match name.parse::<u8>() {
        Ok(position @ 0..=5) => Which::At(position),
        _ if name.starts_with(|c: char| c.is_ascii_digit()) => {
            return Err(ExpressionError::new(
                text,
                place,
                "arguments are counted from 0 to 5",
            ));
        }
        _ => Which::Named(name.to_owned()),
    };
    let rest = trimmed(text, place.end..range.end);
    let operators = ["!=", ">=", "==", "=", "&"];
    let Some(operator) = operators.into_iter().find(|o| text[rest.clone()].starts_with(o)) else {
        let at = rest.start..rest.start + text[rest].chars().next().map_or(0, char::len_utf8);
        return Err(ExpressionError::new(
            text,
            at,
            "=, !=, >= or & is expected here, and then a value",
        ));
    };
    let value = trimmed(text, rest.start + operator.len()..rest.end);
    let is = match operator {
        "&" => bits(text, value.clone())?,
        "!=" => Is::Not(number(text, value.clone())?),
        ">=" => Is::AtLeast(number(text, value.clone())?),
        _ => Is::Masked {
            mask: u64::MAX,
            value: number(text, value.clone())?,
        },
    };
    Ok(ArgumentTest {
        place,
        argument,
        is,
        value,
    })
}

/// `BITS` or `BITS = VALUE`.
fn bits(text: &str, range: Range<usize>) -> Result<Is, ExpressionError> {
    let (mask, value) = match text[range.clone()].find('=') {
        None => (range.clone(), None),
        Some(at) => {
            let at = range.start + at;
            let behind = at
                + text[at..range.end]
                    .bytes()
                    .take(2)
                    .take_while(|b| *b == b'=')
                    .count();
            let mask = trimmed(text, range.start..at);
            (mask, Some(trimmed(text, behind..range.end)))
        }
    };
    let bits = number(text, mask.clone())?;
    if bits == 0 {
        let reason = "this has no bits, and would never hold: ask for one value of several bits, as in flags&O_ACCMODE=O_RDONLY";
        return Err(ExpressionError::new(text, mask, reason));
    }
    let Some(place) = value else {
        return Ok(Is::AnyOf(bits));
    };
    let value = number(text, place.clone())?;
    if value & !bits != 0 {
        return Err(ExpressionError::new(
            text,
            place,
            "this has bits that are not asked for, and would never hold",
        ));
    }
    Ok(Is::Masked { mask: bits, value })
}

/// Numbers and names, `|` between them.
fn number(text: &str, range: Range<usize>) -> Result<u64, ExpressionError> {
    let mut all = 0;
    let mut from = range.start;
    for word in text[range.clone()].split('|') {
        let place = trimmed(text, from..from + word.len());
        from += word.len() + 1;
        let word = &text[place.clone()];
        if word.is_empty() {
            return Err(ExpressionError::new(
                text,
                place,
                "a value is missing: a number, or a name as O_CREAT",
            ));
        }
        let Some(value) = constants::value(word).or_else(|| digits(word)) else {
            let reason = if word.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
                "this is no number of 64 bits"
            } else {
                "this name has no number here; say the number itself"
            };
            return Err(ExpressionError::new(text, place, reason).or(constants::names()));
        };
        all |= value;
    }
    Ok(all)
}

/// A number as C writes it.
fn digits(word: &str) -> Option<u64> {
    // Not what `parse` would take besides: a plus sign.
    let plain = |word: &str, base| {
        let only = word.bytes().all(|b| b.is_ascii_hexdigit());
        (only && !word.is_empty()).then(|| u64::from_str_radix(word, base).ok())?
    };
    if let Some(positive) = word.strip_prefix('-') {
        let value = i64::try_from(plain(positive, 10)?).ok()?;
        return Some((-value).cast_unsigned());
    }
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(hex) => plain(hex, 16),
        None if word.len() > 1 && word.starts_with('0') => plain(word, 8),
        None => plain(word, 10),
    }
}
