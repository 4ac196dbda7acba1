//! The recorder: a sandboxed worker that has the frames of all recorded sessions of a node, and puts them on the disk.
//!
//! ```text
//! front ─ pipe ─► recording (frames → blocks) ─ jobs, bounded ─► disk (its own thread) ─► files
//! monitor ─ events, signatures ─┘                                   └─ closed blocks ─► monitor
//! ```
//!
//! It opens nothing: the monitor hands it the files of each session. A stream that is not what a front may write ends its
//! own recording and no other. A slow disk holds up the thread that writes, then the main loop, then the pipes, and at last
//! the sessions; nothing is thrown away, and the monitor decides when that has lasted too long.
//!
//! Calls, for a terminal's output: one read for up to 64 KB, one write of the tail a second, and one write for each 64 KB.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap
    )
)]
#![forbid(unsafe_code)]

pub mod directory;
mod disk;
mod event_loop;
mod program;
mod recording;
pub mod recordings;
pub mod shares;
pub mod upload;

pub use program::run;
