//! The one table of system calls: a row for each call, by area. Numbers are in [`crate::tables`]; all else that is known of a
//! call stands here. A row reads
//!
//! ```text
//! open(pathname: PATH, flags: OPEN_FLAGS, mode as int: OPEN_MODE) -> Descriptor, in tested file desc,
//!     audit Files file.open if Bits(flags, WRITES) (path: pathname as Path, mode: mode as Mode);
//! ```
//!
//! - The arguments stand in the order of the registers, each with its name in the manual and its kind. `as int` and `as long`
//!   say how many bits count where the kind does not.
//! - `-> Descriptor` is the kind of the result.
//! - `in tested file desc`: the classes of expressions that the call is in (`%file`). In `tested` are the calls whose arguments
//!   expressions may name (`-e open(flags&O_CREAT)`).
//! - `audit`: the level of session audit from which on the call is told, its event and operation, the arguments with which it
//!   is told, and the fields: name, argument, and its sort. The first audit whose condition holds counts.
//!
//! A row is tokens, and the macro that reads it chooses what it needs: the audit table here takes names and audits. The
//! decoder takes the rest, so kinds are expressions in its words, and a program without the decoder has none of them.

mod directories;
mod files;
mod i386;
mod ipc;
mod memory;
mod misc;
mod network;
mod processes;
mod signals;
mod time;
mod undecoded;
