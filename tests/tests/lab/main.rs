//! The lab that benches measure in, and the round trips counted there.
#![forbid(unsafe_code)]

mod links;
mod round_trips;
mod sending_ahead;
