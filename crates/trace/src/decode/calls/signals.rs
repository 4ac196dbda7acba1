//! Calls on signals.

use super::{Argument, Res, Row};
use crate::decode::constants as c;
use crate::decode::kind::{FD, INT, Kind, SIZE, Width, bits, named};
use crate::decode::show::{signals as s, time};

const SIGNAL: Kind = Kind::By(s::signal, Width::Four);
const ACTION: Kind = Kind::By(s::action, Width::Word);

pub(super) static ROWS: &[Row] = fleetgate_calls::signals_calls!(rows);

fn waited(r: &mut crate::decode::reader::Reader, result: i64) {
    r.out.returned(crate::decode::Returned::Number(result));
    if let Some(name) = fleetgate_calls::tables::signal::name(result as i32) {
        r.out.open_note();
        r.out.note("signal", false);
        r.out.name(name);
        r.out.close_note();
    }
}
