//! Calls that a 32-bit program makes otherwise than a 64-bit one: other structures behind the same names. What is not
//! decoded is an address.

use super::{Argument, ResultKind, Row};
use crate::decode::constants as c;
use crate::decode::kind::{ADDRESS, AT, FD, INT, Kind, PATH, SIZE, UINT, Width, bits, named};
use crate::decode::show::processes::{self as p};

pub(super) static ROWS: &[Row] = fleetgate_calls::i386_calls!(rows);

const LATE_OFFSET: Kind = Kind::Late(&Kind::One(&Kind::Signed(Width::Eight)));
const SIGNAL: Kind = Kind::By(crate::decode::show::signals::signal, Width::Four);
/// A user or group of 16 bits.
const ID16: Kind = Kind::Signed(Width::Two);
