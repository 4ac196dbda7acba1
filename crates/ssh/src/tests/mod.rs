//! Two connections against each other, and one against garbage. No network, no clock.

mod answers;
mod frame;
mod garbage;
mod handshake;
mod load;
mod moving;
pub(crate) mod pair;
mod rekey_during_login;
mod tampering;
