//! An executable image that nobody can alter: strategies, probing, the fallback chain.
//!
//! A server opens a [`FallbackChain`] once and starts its helpers from [`FallbackChain::image`]; docs/sealing.md says what each
//! strategy protects from. This crate never launches anything but its own probes and never reads configuration.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]

mod chain;
mod elf;
mod embedded;
mod image;
pub mod late_chain;
mod make;
pub mod once;
mod probe;
mod refusal;
mod report;
mod source;
mod strategy;
pub mod verify;

pub use chain::{Death, Error, FallbackChain, Options, Verdict};
pub use elf::Unfit;
pub use embedded::{Embedded, Packing};
pub use image::Image;
pub use late_chain::LateChain;
pub use probe::Probe;
pub use refusal::{Cause, Refusal, Step};
pub use report::{Move, Report, StrategyReport};
pub use source::Source;
pub use strategy::{Strategy, UnknownStrategy};
