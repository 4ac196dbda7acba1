//! What a watched session did, from the calls that its filter brings: which calls at which level, and what each of them
//! says. Pure: registers, and whatever can be read of the caller, come from outside.
//!
//! A field says where it comes from. What the caller's memory held is *claimed*: another thread of the session may have put
//! something else there before the kernel read it. A register is what the kernel acts on. What /proc says of the caller is
//! the kernel's own.

mod decode;
mod row;
mod table;
#[cfg(test)]
mod tests;

pub use decode::{AuditEvent, Fact, MAX_ARGV, MAX_PATH, MAX_WORDS, Source, Value, tell, tell_socketcall};
pub use row::{Level, Row, Sort};
pub use table::{Calls, UNKNOWN, event, selection, with_pass};

use crate::memory::Memory;

/// Who made a call, as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// The process.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// Its effective user.
    pub uid: u32,
}

/// What a process executes, as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Its path now; ` (deleted)` behind it where it has none any more.
    pub path: Vec<u8>,
    /// The device that it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// Somebody whose call waits.
pub trait Caller: Memory {
    /// Who it is; none: /proc does not say, because it is gone.
    fn who(&self) -> Option<Who>;

    /// What it executes before the call.
    fn image(&self) -> Option<Image>;
}
