//! Calls on signals.

use super::{Argument, ResultKind, Row};
use crate::decode::constants as c;
use crate::decode::kind::{FD, INT, Kind, SIZE, Width, bits, named};
use crate::decode::show::{signals as s, time};
use fleetgate_calls::abi::low_signed;

const SIGNAL: Kind = Kind::By(s::signal, Width::Four);
const ACTION: Kind = Kind::By(s::action, Width::Word);

pub(super) static ROWS: &[Row] = fleetgate_calls::signals_calls!(rows);

fn waited(r: &mut crate::decode::reader::Reader, result: i64) {
    r.named_result(
        crate::decode::CallResult::Number(result),
        "signal",
        fleetgate_calls::tables::signal::name(low_signed(result.cast_unsigned())),
    );
}
