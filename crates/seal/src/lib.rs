//! An executable image that nobody can alter: strategies, probing, the ladder.
#![forbid(unsafe_code)]

mod embedded;

pub use embedded::{Embedded, Packing};
