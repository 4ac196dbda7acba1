//! The tracer: from "which calls" to a filter that stops nothing else, ways to catch what stops, and what a stopped call
//! means. It prints to whoever asks and decides nothing: whether a call goes on is never its business, it always does.
//!
//! The way of a call: [`expression`] reads which are wanted, `fleetgate_calls` compiles that for the kernel, [`catch`] brings what stopped,
//! [`decode`] reads registers and memory and says what they mean to an [`decode::Out`], [`report`] has the lines, sums and
//! pictures that people read.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod catch;
pub mod decode;
mod error;
pub mod expression;
pub mod follow;
pub mod interrupt;
pub mod path_filter;
pub mod relatives;
pub mod report;
pub mod run;

pub use error::TraceError;
