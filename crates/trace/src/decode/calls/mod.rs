//! The rows of calls as the tracer reads them. The table is `fleetgate_calls`'s; the files here have the kinds that its areas
//! name.

/// Takes the names, kinds and results of rows, and what expressions may say of them; see `rows` of `fleetgate_calls`.
macro_rules! rows {
    ($($name:ident($($argument:ident $(as $width:ident)?: $kind:expr),*) -> $result:ident $(($show:expr))?
        $(, in $($class:ident)+)?
        $(, audit $level:ident $event:ident $(. $operation:ident)? $(if $when:ident($of:ident $(, $with:expr)?))?
            ($($field:ident: $from:ident as $sort:ident $(($($other:ident),+))?),*))*;)*) => {
        &[$(Row {
            name: stringify!($name),
            arguments: &[$(Argument {
                name: stringify!($argument),
                kind: $kind,
                width: concat!($(stringify!($width))?),
            }),*],
            result: ResultKind::$result $(($show))?,
            classes: &[$($(stringify!($class)),+)?],
        }),*]
    };
}

mod directories;
mod files;
mod i386;
mod ipc;
mod memory;
mod misc;
mod network;
mod processes;
mod signals;
mod time;

use super::kind::{HEX, Kind, Width};
use super::reader::Reader;
use fleetgate_calls::abi::{Abi, Call};
use fleetgate_calls::tables;
use std::collections::HashMap;
use std::sync::OnceLock;

/// What the tracer takes of a call's row.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static [Argument],
    pub(super) result: ResultKind,
    /// The classes of expressions that it is in, without their `%`.
    pub(crate) classes: &'static [&'static str],
}

/// An argument.
pub(crate) struct Argument {
    pub(crate) name: &'static str,
    pub(super) kind: Kind,
    /// `int` or `long` where that is not the width of its kind.
    width: &'static str,
}

/// What a result is.
#[derive(Clone, Copy)]
pub(super) enum ResultKind {
    Number,
    /// An address.
    Hex,
    /// A mode.
    Octal,
    Descriptor,
    /// Shown by a function, with what it means.
    By(fn(&mut Reader, i64)),
}

impl Row {
    /// Whether expressions may name its arguments.
    pub(crate) fn is_tested(&self) -> bool {
        self.classes.contains(&"tested")
    }
}

impl Argument {
    /// Whether all 64 bits count.
    pub(crate) fn is_wide(&self) -> bool {
        match self.width {
            "" => self.kind.is_wide(),
            width => width == "long",
        }
    }

    /// Whether its value is not all of one register of a 32-bit program, so that no filter can test it.
    pub(crate) fn is_in_parts(&self) -> bool {
        matches!(self.kind, Kind::Wide | Kind::Signed(Width::Two))
    }
}

/// Every area. A call stands in one of them.
static AREAS: [&[Row]; 10] = [
    files::ROWS,
    directories::ROWS,
    processes::ROWS,
    memory::ROWS,
    network::ROWS,
    signals::ROWS,
    time::ROWS,
    ipc::ROWS,
    misc::ROWS,
    fleetgate_calls::undecoded_calls!(rows),
];

/// The rows of all calls, and behind them those of i386's that differ.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    AREAS.into_iter().flatten().chain(i386::ROWS)
}

/// The row of i386's call of this name, where it differs.
pub(crate) fn of_i386(name: &str) -> Option<&'static Row> {
    i386::ROWS.iter().find(|row| row.name == name)
}

/// A numbering's rows by number.
type Numbered = Vec<Option<&'static Row>>;

/// The row of a call; `None`: nobody knows its arguments.
pub(super) fn row(call: Option<Call>) -> Option<&'static Row> {
    let call = call?;
    static BY_NUMBER: OnceLock<[Numbered; 4]> = OnceLock::new();
    let numbered = BY_NUMBER.get_or_init(|| Abi::ALL.map(numbered));
    let place = Abi::ALL.iter().position(|abi| *abi == call.abi)?;
    let number = usize::try_from(call.number).ok()?;
    *numbered.get(place)?.get(number)?
}

fn numbered(abi: Abi) -> Numbered {
    let mut by_name: HashMap<&'static str, &'static Row> = HashMap::new();
    let mut add = |rows: &'static [Row]| by_name.extend(rows.iter().map(|row| (row.name, row)));
    AREAS.into_iter().chain([processes::CLONE]).for_each(&mut add);
    if abi == Abi::I386 {
        add(i386::ROWS);
    }
    let mut rows = Vec::new();
    for (call, name) in tables::calls(abi) {
        let number = call.number as usize;
        if rows.len() <= number {
            rows.resize(number + 1, None);
        }
        if let Some(place) = rows.get_mut(number) {
            *place = by_name.get(name).copied();
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::kind::{Count, Layout};

    #[test]
    fn every_call_that_has_a_name_has_a_row() {
        let named = Abi::ALL.into_iter().flat_map(tables::calls);
        let missing: Vec<_> = named.filter(|(call, _)| row(Some(*call)).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn no_call_stands_twice() {
        let mut names: Vec<&str> = AREAS.into_iter().flatten().map(|row| row.name).collect();
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    #[test]
    fn no_call_has_more_registers_than_six() {
        for abi in Abi::ALL {
            for (call, name) in tables::calls(abi) {
                let row = row(Some(call)).expect("a row");
                let registers: usize = row
                    .arguments
                    .iter()
                    .map(|argument| argument.kind.registers(abi))
                    .sum();
                assert!(registers <= 6, "{}: {name}", abi.name());
            }
        }
    }

    /// What a kind is, but for the functions of it.
    fn kind_text(kind: &Kind) -> String {
        match *kind {
            Kind::Signed(width) => format!("signed {width:?}"),
            Kind::Unsigned(width) => format!("unsigned {width:?}"),
            Kind::Hex(width) => format!("hex {width:?}"),
            Kind::Octal(width) => format!("octal {width:?}"),
            Kind::Named(names, width) => format!("one of {names:?} {width:?}"),
            Kind::Bits(names, width) => format!("bits of {names:?} {width:?}"),
            Kind::Bytes(count) => format!("bytes{}", count_text(count)),
            Kind::To(layout) => format!("to {}", layout_text(layout)),
            Kind::Inner(layout) => layout_text(layout),
            Kind::One(kind) => format!("[{}]", kind_text(kind)),
            Kind::List(kind, count) => format!("[{}]{}", kind_text(kind), count_text(count)),
            Kind::Late(kind) => format!("late {}", kind_text(kind)),
            Kind::Labelled(kind) => format!("labelled {}", kind_text(kind)),
            Kind::Array(kind, count) => format!("[{}; {count}]", kind_text(kind)),
            Kind::Characters(bytes) => format!("characters {bytes}"),
            Kind::Gap(bytes) => format!("gap {bytes}"),
            Kind::By(_, width) => format!("by {width:?}"),
            Kind::Address => "address".to_owned(),
            Kind::Descriptor => "descriptor".to_owned(),
            Kind::Directory => "directory".to_owned(),
            Kind::Path => "path".to_owned(),
            Kind::Text => "text".to_owned(),
            Kind::Wide => "wide".to_owned(),
            Kind::Kept(..) => "kept".to_owned(),
            Kind::Changed(..) => "changed".to_owned(),
            Kind::Chosen(_) => "chosen".to_owned(),
        }
    }

    fn count_text(count: Count) -> String {
        match count {
            Count::Argument(at) => format!(" as argument {at}"),
            Count::Result => " as the result".to_owned(),
        }
    }

    fn layout_text(layout: &Layout) -> String {
        let fields = layout.fields.iter();
        let fields = fields.map(|field| format!("{}:{}:{}", field.name, field.main, kind_text(&field.kind)));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    }

    #[test]
    fn the_rows_decode_what_they_did() {
        let mut text = String::new();
        for abi in Abi::ALL {
            for (call, name) in tables::calls(abi) {
                let row = row(Some(call)).expect("a row");
                let arguments = row.arguments.iter();
                let arguments =
                    arguments.map(|argument| format!("{}: {}", argument.name, kind_text(&argument.kind)));
                let arguments: Vec<_> = arguments.collect();
                let result = match row.result {
                    ResultKind::Number => "number",
                    ResultKind::Hex => "hex",
                    ResultKind::Octal => "octal",
                    ResultKind::Descriptor => "descriptor",
                    ResultKind::By(_) => "by",
                };
                text += &format!("{} {name}({}) {result}\n", abi.name(), arguments.join(", "));
            }
        }
        // The sum of the text (FNV-1a): a row that is meant to be decoded otherwise has another.
        let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        assert_eq!(sum, 0xd569_4f15_1979_57fc, "{sum:#x}");
    }
}
