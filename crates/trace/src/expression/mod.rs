//! The language of `-e`, strace's with tests of arguments. It reads text and nothing else, and knows no command line.
//!
//! ```text
//! EXPRESSION  trace=CALLS  (or CALLS alone)    which calls are shown; t=
//!             status=SET     successful failed unfinished unavailable detached
//!             signal=SET     names with SIG or without, numbers; signals=, s=
//!             raw=CALLS      arguments as numbers; x=
//!             abbrev=CALLS   long structures are cut short; a=
//!             verbose=CALLS  structures are shown at all; v=
//!             decode-fds=SET path socket dev pidfd; decode-fd=
//!             quiet=SET      attach exit path-resolution personality superseded; q=, silent=, silence=
//! SET         WORD,WORD…     or all, none; ! before it: all but these
//! CALLS       ITEM,ITEM…     or all, none; ! before it: all but these
//! ITEM        openat         a call, of every numbering that has one of this name
//!             %file          a class (file, process, network, signal, ipc, desc, memory also without %)
//!             /^(open|stat)  calls whose names match; it ends at the next comma
//!             257            a number of this program's own numbering
//!             all            every call, those without a name too
//!             ?ITEM          no error where no call is meant
//!             ITEM@64 @32 @x32   of one numbering alone
//!             CALL(TEST, …)  only where all these tests hold; groups of the same call are or-ed
//! TEST        ARG = VALUE    ARG is an argument's name, or its position from 0
//!             ARG != VALUE
//!             ARG >= VALUE   without sign
//!             ARG & BITS     any of them is set
//!             ARG & BITS = VALUE   of these bits, just those of VALUE are set
//! VALUE       9, 0x1f, 0644, -1, O_CREAT, SIGKILL; several with | between them
//! ```
//!
//! Calls are chosen in every numbering that the kernel of this architecture serves. What a 32-bit program reaches through
//! `socketcall` or `ipc` is chosen with the call that it stands for. Where a test cannot be made, because an argument is
//! in memory there or in two halves, the call is chosen whatever its arguments are: rather one too many than one unseen.
//!
//! Several expressions: the last of a kind counts, as with strace ([`Expressions::take`]).

mod arguments;
mod calls;
mod classes;
mod constants;
#[cfg(test)]
mod page;
mod sets;
mod signatures;
mod wrong;

use fleetgate_calls::select::Selection;
pub use sets::{Decoded, Member, Quiet, Set, Signals, Status};
use std::ops::Range;
pub use wrong::ExpressionError;

/// The longest expression.
pub const MAX_EXPRESSION: usize = 16 * 1024;

/// What one `-e` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Which calls are shown.
    Trace(Selection),
    /// With which ends they are.
    Status(Set<Status>),
    /// Which signals are shown.
    Signals(Signals),
    /// Of which calls arguments are shown as numbers.
    Raw(Selection),
    /// Of which calls long structures are cut short.
    Abbreviated(Selection),
    /// Of which calls structures are shown at all.
    Verbose(Selection),
    /// What is shown of descriptors.
    Decode(Set<Decoded>),
    /// Which messages are left out.
    Quiet(Set<Quiet>),
}

/// What all `-e` say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expressions {
    /// Which calls are shown: all, unless somebody says otherwise.
    pub trace: Selection,
    /// With which ends they are: all.
    pub status: Set<Status>,
    /// Which signals are shown: all.
    pub signals: Signals,
    /// Of which calls arguments are shown as numbers: none.
    pub raw: Selection,
    /// Of which calls long structures are cut short: all.
    pub abbreviated: Selection,
    /// Of which calls structures are shown: all.
    pub verbose: Selection,
    /// What is shown of descriptors: nothing.
    pub decode: Set<Decoded>,
    /// Which messages are left out: none.
    pub quiet: Set<Quiet>,
}

impl Default for Expressions {
    fn default() -> Expressions {
        Expressions {
            trace: Selection::everything(),
            status: Set::all(),
            signals: Signals::all(),
            raw: Selection::none(),
            abbreviated: Selection::everything(),
            verbose: Selection::everything(),
            decode: Set::none(),
            quiet: Set::none(),
        }
    }
}

impl Expressions {
    /// One more: it counts instead of an earlier one of its kind.
    pub fn take(&mut self, expression: Expression) {
        match expression {
            Expression::Trace(calls) => self.trace = calls,
            Expression::Status(set) => self.status = set,
            Expression::Signals(set) => self.signals = set,
            Expression::Raw(calls) => self.raw = calls,
            Expression::Abbreviated(calls) => self.abbreviated = calls,
            Expression::Verbose(calls) => self.verbose = calls,
            Expression::Decode(set) => self.decode = set,
            Expression::Quiet(set) => self.quiet = set,
        }
    }
}

/// What stands before `=`.
#[derive(Clone, Copy)]
enum Kind {
    Trace,
    Status,
    Signals,
    Raw,
    Abbreviated,
    Verbose,
    Decode,
    Quiet,
    /// strace has it, this tracer has it not, for this reason.
    Refused(&'static str),
}

const TAMPERS: &str =
    "it would change what the program sees, and this tracer only watches: strace itself can inject errors";
const DUMPS: &str =
    "dumps of what is read and written are not made: trace=read,write with -s shows the beginning of it";

#[rustfmt::skip]
const KINDS: &[(&str, Kind)] = &[
    ("trace", Kind::Trace), ("t", Kind::Trace),
    ("status", Kind::Status),
    ("signal", Kind::Signals), ("signals", Kind::Signals), ("s", Kind::Signals),
    ("raw", Kind::Raw), ("x", Kind::Raw),
    ("abbrev", Kind::Abbreviated), ("a", Kind::Abbreviated),
    ("verbose", Kind::Verbose), ("v", Kind::Verbose),
    ("decode-fds", Kind::Decode), ("decode-fd", Kind::Decode),
    ("quiet", Kind::Quiet), ("q", Kind::Quiet), ("silent", Kind::Quiet), ("silence", Kind::Quiet),
    ("fault", Kind::Refused(TAMPERS)), ("inject", Kind::Refused(TAMPERS)),
    ("read", Kind::Refused(DUMPS)), ("reads", Kind::Refused(DUMPS)), ("r", Kind::Refused(DUMPS)),
    ("write", Kind::Refused(DUMPS)), ("writes", Kind::Refused(DUMPS)), ("w", Kind::Refused(DUMPS)),
    ("kvm", Kind::Refused("the exits of a virtual machine are no system calls, and are not shown")),
    ("decode-pids", Kind::Refused("processes are shown by their numbers alone")),
];

/// Reads one expression.
///
/// # Errors
/// It means nothing; see [`ExpressionError`].
pub fn expression(text: &str) -> Result<Expression, ExpressionError> {
    if text.len() > MAX_EXPRESSION {
        let reason = format!("the expression is longer than {MAX_EXPRESSION} bytes");
        return Err(ExpressionError::new("", 0..0, reason));
    }
    let (kind, rest) = match kind(text) {
        None => (Kind::Trace, 0..text.len()),
        Some(name) => {
            let rest = name.end + 1..text.len();
            let found = KINDS.iter().find(|(known, _)| *known == &text[name.clone()]);
            let Some((_, kind)) = found else {
                let reason = format!("there is nothing called {:?} to set", &text[name.clone()]);
                return Err(
                    ExpressionError::new(text, name, reason).or(KINDS.iter().map(|(known, _)| *known))
                );
            };
            if let Kind::Refused(why) = kind {
                return Err(ExpressionError::new(text, name, *why));
            }
            (*kind, rest)
        }
    };
    let calls = |tests| calls::calls(text, rest.clone(), tests);
    Ok(match kind {
        Kind::Trace => Expression::Trace(calls(true)?),
        Kind::Raw => Expression::Raw(calls(false)?),
        Kind::Abbreviated => Expression::Abbreviated(calls(false)?),
        Kind::Verbose => Expression::Verbose(calls(false)?),
        Kind::Status => Expression::Status(sets::words(text, rest)?),
        Kind::Decode => Expression::Decode(sets::words(text, rest)?),
        Kind::Quiet => Expression::Quiet(sets::words(text, rest)?),
        Kind::Signals => Expression::Signals(sets::signals(text, rest)?),
        Kind::Refused(why) => return Err(ExpressionError::new(text, rest, why)),
    })
}

/// The calls that a `trace=` means, without `trace=`: for whoever has an expression of its own.
///
/// # Errors
/// As [`expression`].
pub fn calls(text: &str) -> Result<Selection, ExpressionError> {
    match expression(&format!("trace={text}")) {
        Ok(Expression::Trace(calls)) => Ok(calls),
        Ok(_) => Ok(Selection::none()),
        Err(wrong) => Err(wrong),
    }
}

/// The word before `=`, where one stands at the beginning.
fn kind(text: &str) -> Option<Range<usize>> {
    let end = text.find(|c: char| !c.is_ascii_alphabetic() && c != '-' && c != '_')?;
    (end > 0 && text[end..].starts_with('=')).then_some(0..end)
}

/// The parts of a set between its commas, without the blanks around them. Commas in parentheses separate nothing, unless
/// the part is a pattern, which has parentheses of its own. Parts that are empty are left out.
fn parts(text: &str, range: Range<usize>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut from = range.start;
    let mut depth = 0_usize;
    for (at, byte) in (range.start..).zip(text[range.clone()].bytes()) {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 || is_pattern(&text[from..at]) => {
                parts.push(trimmed(text, from..at));
                (from, depth) = (at + 1, 0);
            }
            _ => {}
        }
    }
    parts.push(trimmed(text, from..range.end));
    parts.retain(|part| !part.is_empty());
    parts
}

fn is_pattern(part: &str) -> bool {
    let part = part.trim_start();
    part.strip_prefix('?').unwrap_or(part).starts_with('/')
}

/// The same without the blanks around it.
fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = &text[range.clone()];
    let start = range.start + (part.len() - part.trim_start().len());
    start..start + part.trim().len()
}

#[cfg(test)]
mod tests;
