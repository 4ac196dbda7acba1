//! The tables: a row for each call that is decoded, by area, and how many arguments the others take.

mod counts;
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

use super::kind::Kind;
use super::reader::Reader;
use fleetgate_calls::abi::{Abi, Call};
use fleetgate_calls::tables;
use std::collections::HashMap;
use std::sync::OnceLock;

/// A call: its arguments, and what its result is.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) arguments: &'static [(&'static str, Kind)],
    pub(super) result: Res,
}

/// What a result is.
#[derive(Clone, Copy)]
pub(super) enum Res {
    Number,
    /// An address.
    Hex,
    /// A mode.
    Octal,
    Descriptor,
    /// Shown by a function, with what it means.
    By(fn(&mut Reader, i64)),
}

/// A row.
const fn call(name: &'static str, arguments: &'static [(&'static str, Kind)], result: Res) -> Row {
    Row {
        name,
        arguments,
        result,
    }
}

/// Every area. A call stands in one of them.
static AREAS: [&[Row]; 9] = [
    files::ROWS,
    directories::ROWS,
    processes::ROWS,
    memory::ROWS,
    network::ROWS,
    signals::ROWS,
    time::ROWS,
    ipc::ROWS,
    misc::ROWS,
];

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
    for row in counts::rows().iter().chain(AREAS.into_iter().flatten()) {
        by_name.insert(row.name, row);
    }
    if abi == Abi::I386 {
        by_name.extend(i386::ROWS.iter().map(|row| (row.name, row)));
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

    #[test]
    fn every_call_that_has_a_name_has_a_row() {
        let named = Abi::ALL.into_iter().flat_map(tables::calls);
        let missing: Vec<_> = named.filter(|(call, _)| row(Some(*call)).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn no_call_stands_twice() {
        let mut names: Vec<&str> = AREAS.into_iter().flatten().map(|row| row.name).collect();
        names.extend(counts::COUNTS.iter().map(|(name, _)| *name));
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    #[test]
    fn no_call_has_more_registers_than_six() {
        for abi in Abi::ALL {
            for (call, name) in tables::calls(abi) {
                let row = row(Some(call)).expect("a row");
                let registers: usize = row.arguments.iter().map(|(_, kind)| kind.registers(abi)).sum();
                assert!(registers <= 6, "{}: {name}", abi.name());
            }
        }
    }
}
