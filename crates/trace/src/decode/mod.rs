//! What a call means: registers and memory in, typed values out. It reads through [`Memory`] alone and prints nothing:
//! whoever wants text or JSON is an [`Out`].
//!
//! A call is a row of a table: names and kinds of its arguments, by area in the files of `calls`. [`kind`] says what kinds
//! there are, [`reader`] shows a value of a kind. Nothing is kept of a call between its begin and its end but [`CallProgress`].
//!
//! Whatever is read was written by the traced program, and another of its threads may change it meanwhile: nothing here
//! trusts a length or an address, and every list has an end.

mod calls;
#[rustfmt::skip]
#[allow(missing_docs, reason = "names of the kernel, which say it themselves")]
pub mod constants;
mod kind;
pub mod names;
mod out;
mod places;
mod reader;
mod show;
#[cfg(test)]
mod tests;
mod value;
mod width;

pub(crate) use calls::{Argument, Row, of_i386, rows};
pub use out::{CallResult, Out, Set};
pub use places::{Base, Place, paths};

use crate::catch::Enter;
use calls::ResultKind;
use fleetgate_calls::abi::{Abi, low};
use fleetgate_calls::memory::Memory;
use fleetgate_calls::tables::errno;
use kind::Kind;
use reader::{Reader, Stage};

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a string that is no path.
    pub string: usize,
    /// Structures have their main fields alone.
    pub abbreviate: bool,
    /// Items of a list.
    pub list: usize,
    /// Arguments are shown as the registers have them.
    pub raw: bool,
    /// It is said what descriptors are: how much of it, [`Memory::descriptor`] decides.
    pub descriptors: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            string: 32,
            abbreviate: true,
            list: 32,
            raw: false,
            descriptors: false,
        }
    }
}

impl Limits {
    /// The most that is ever shown of one string or list, whoever asks.
    pub const MOST: usize = 1 << 20;

    /// The most bytes that are shown of the strings of one half of a call together, each item of a list counted as some:
    /// lists of lists of strings may all be the same few bytes, of which a program needs only the addresses.
    pub const ALTOGETHER: usize = 4 << 20;

    fn bounded(&self) -> Limits {
        Limits {
            string: self.string.min(Limits::MOST),
            list: self.list.clamp(1, Limits::MOST),
            ..*self
        }
    }
}

/// What is remembered of a call from its begin to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallProgress {
    shown: u8,
    /// Arguments follow at the end.
    more: bool,
    saved: [u64; 2],
}

impl CallProgress {
    /// Whether all arguments are shown.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.more
    }

    /// Whether what is shown at the end begins with another argument.
    #[must_use]
    pub fn awaits_argument(&self) -> bool {
        self.more && self.shown & HALF == 0 && self.shown > 0
    }
}

/// Of an argument that the call changes, what it was is shown, and what it became is not.
const HALF: u8 = 0x80;

/// How many arguments a call has; of one that nobody knows, as many as there are registers.
#[must_use]
pub fn arity(call: Option<fleetgate_calls::abi::Call>) -> usize {
    calls::row(call).map_or(6, |row| row.arguments.len().min(6))
}

/// Shows the arguments that are known when a call begins, up to the first that only the kernel fills in.
pub fn begin(enter: &Enter, memory: &dyn Memory, limits: &Limits, out: &mut dyn Out) -> CallProgress {
    let mut begun = CallProgress::default();
    let limits = limits.bounded();
    out.arguments();
    let mut reader = Reader::new(enter, memory, &limits, out, Stage::Begins, &mut begun.saved);
    (begun.shown, begun.more) = match calls::row(enter.call) {
        Some(row) if limits.raw => (raw(&mut reader, row.arguments.len()), false),
        Some(row) => arguments(&mut reader, row, 0),
        None => (raw(&mut reader, 6), false),
    };
    begun
}

/// Shows the other arguments and what came of the call.
pub fn finish(
    enter: &Enter,
    mut begun: CallProgress,
    result: i64,
    memory: &dyn Memory,
    limits: &Limits,
    out: &mut dyn Out,
) {
    let limits = limits.bounded();
    let stage = Stage::Ended(result);
    let mut reader = Reader::new(enter, memory, &limits, out, stage, &mut begun.saved);
    let row = calls::row(enter.call);
    if let Some(row) = row.filter(|_| !limits.raw) {
        arguments(&mut reader, row, begun.shown);
    }
    show_result(&mut reader, row, result);
}

/// Shows the rest of a call of which the result will never be known.
pub fn abandon(
    enter: &Enter,
    mut begun: CallProgress,
    memory: &dyn Memory,
    limits: &Limits,
    out: &mut dyn Out,
) {
    let limits = limits.bounded();
    let mut reader = Reader::new(enter, memory, &limits, out, Stage::Never, &mut begun.saved);
    if let Some(row) = calls::row(enter.call).filter(|_| !limits.raw) {
        arguments(&mut reader, row, begun.shown);
    }
    reader.out.returned(CallResult::Unknown);
}

/// Shows arguments from the one numbered `from` on, as far as they are known by now; how many are shown then, and
/// whether there are more.
fn arguments(reader: &mut Reader, row: &'static Row, from: u8) -> (u8, bool) {
    let begins = reader.stage == Stage::Begins;
    let half = from & HALF != 0;
    let from = from & !HALF;
    let mut register = 0;
    let mut index = 0u8;
    let mut stopped = None;
    for argument in row.arguments {
        let at = register;
        register += argument.kind.registers(reader.abi);
        let Some((kind, shown)) = argument.kind.chosen(&reader.registers) else {
            continue;
        };
        let value = reader.registers.wide(at, &kind);
        if stopped.is_some() || (begins && kind.is_late()) {
            stopped = stopped.or(Some(index));
            if let Kind::Kept(keep, _) = kind {
                reader.saved[0] = keep(reader, value);
            }
        } else if index >= from {
            if let (0, true, Kind::Changed(_, show)) = (index - from, half, kind) {
                show(reader, value);
            } else {
                reader.out.argument(usize::from(index), argument.name, shown);
                reader.value(&kind, value);
                if let (true, Kind::Changed(..)) = (begins, kind) {
                    stopped = Some(index | HALF);
                }
            }
        }
        index += 1;
    }
    (stopped.unwrap_or(index), stopped.is_some())
}

/// So many registers as they are: of a call that has no row, all that may hold an argument.
fn raw(reader: &mut Reader, count: usize) -> u8 {
    let names = ["arg1", "arg2", "arg3", "arg4", "arg5", "arg6"];
    for (index, name) in names.into_iter().take(count).enumerate() {
        reader.out.argument(index, name, false);
        let value = reader.argument(index);
        reader.out.hex(value);
    }
    6
}

/// The result of a call that ended.
fn show_result(reader: &mut Reader, row: Option<&'static Row>, result: i64) {
    if let Some(number) = errno::of_result(result) {
        let (name, text) = (errno::name(number), errno::text(number));
        let (name, text) = (name.unwrap_or_default(), text.unwrap_or_default());
        // Numbers from 512 on are the kernel's word to itself; of these the call is made again.
        reader.out.returned(if matches!(number, 512..=516) {
            CallResult::Again(name, text)
        } else {
            CallResult::Error(number, name, text)
        });
        // What a wait that was interrupted had left is told even then.
        return;
    }
    let whole = match reader.abi {
        Abi::I386 => i64::from(low(result.cast_unsigned())),
        _ => result,
    };
    match row.map_or(ResultKind::Number, |row| row.result) {
        _ if reader.limits.raw => reader.out.returned(CallResult::Hex(whole.cast_unsigned())),
        ResultKind::Number => reader.out.returned(CallResult::Number(whole)),
        ResultKind::Hex => reader.out.returned(CallResult::Hex(result.cast_unsigned())),
        ResultKind::Octal => reader.out.returned(CallResult::Octal(result.cast_unsigned())),
        ResultKind::Descriptor => reader.returned_descriptor(result),
        ResultKind::By(show) => show(reader, result),
    }
}
