//! System calls as the node and the tracer both need them: [`tables`] and [`abi`] know numbers and names, `rows` what else is
//! known of each call, [`select`] says which calls are wanted, [`filter`] compiles that for the kernel, [`audit`] tells what watched sessions' calls mean,
//! [`guardian`] answers selected calls when whoever watches is gone. It catches nothing and prints nothing: that is the
//! tracer's (`trace`) and the watcher's (`worker`).
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod abi;
pub mod audit;
pub mod filter;
pub mod guardian;
pub mod memory;
mod rows;
pub mod select;
pub mod tables;
