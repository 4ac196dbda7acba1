//! What is done with recordings once they are there: read, seen, searched, exported, verified. All of it comes from a file
//! that may be hostile, so everything is bounded, and nothing of a recording reaches a terminal but by the terminal model.
//!
//! `source` gives the frames of a recording, `screen` and `text` what they showed; the other modules are made of these.
//! `store` alone knows of files and directories.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]
#![forbid(unsafe_code)]

pub mod about;
mod charsets;
pub mod clock;
pub mod export;
pub mod identity;
pub mod index;
pub mod list;
pub mod live;
mod lossy;
pub mod paint;
pub mod pattern;
mod pipe;
pub mod play;
pub mod screen;
pub mod search;
pub mod source;
pub mod store;
pub mod text;
pub mod verify;

#[cfg(test)]
mod tests;
