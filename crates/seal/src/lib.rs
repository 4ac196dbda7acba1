//! An executable image that nobody can alter: strategies, probing, the ladder.
//!
//! A server opens a [`Ladder`] once and starts its helpers from [`Ladder::image`]; docs/sealing.md says what each
//! rung protects from. This crate never launches anything but its own probes and never reads configuration.
#![forbid(unsafe_code)]

mod elf;
mod embedded;
mod image;
mod ladder;
mod make;
pub mod once;
mod probe;
mod refusal;
mod report;
mod source;
mod strategy;
pub mod verify;

pub use elf::Unfit;
pub use embedded::{Embedded, Packing};
pub use image::Image;
pub use ladder::{Death, Error, Ladder, Options, Verdict};
pub use probe::Probe;
pub use refusal::{Cause, Refusal, Step};
pub use report::{Move, Report, RungReport};
pub use source::Source;
pub use strategy::{Strategy, UnknownStrategy};
