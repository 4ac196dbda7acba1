//! Calls on sockets.

use super::{Argument, ResultKind, Row};
use crate::decode::constants as c;
use crate::decode::kind::{Count, FD, INT, Kind, SIZE, UINT, Width, bits, named};
use crate::decode::show::{network as n, options, time};

const TYPE: Kind = Kind::By(n::socket_type, Width::Four);
const PROTOCOL: Kind = Kind::By(n::protocol, Width::Four);
const GIVEN: Kind = Kind::By(n::given_address::<2>, Width::Word);
const FILLED: Kind = Kind::Late(&Kind::By(n::filled_address::<2>, Width::Word));
const LENGTH: Kind = Kind::Kept(n::keep_length, n::changed_length);
const DATA: Kind = Kind::Bytes(Count::Argument(2));
const FLAGS: Kind = bits(&c::MSG);
const LEVEL: Kind = named(&c::SOL);
const OPTION: Kind = Kind::By(options::name, Width::Four);

pub(super) static ROWS: &[Row] = fleetgate_calls::network_calls!(rows);
