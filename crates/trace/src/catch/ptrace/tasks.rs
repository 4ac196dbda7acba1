//! What is known of each traced task, by number. There is one entry for a task that the kernel has, or is about to show: a
//! program that makes processes without end fills this no faster than the kernel's own table.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its process.
    pub pid: i32,
    /// Who made it; 0: unknown.
    pub by: i32,
    /// Generations of processes between it and the first.
    pub level: u32,
    /// Whether anybody is told of it.
    pub watch: Watch,
    /// Where it is, as far as calls go.
    pub inside: Inside,
    /// Why it stands still.
    pub held: Held,
}

/// Whether anybody is told of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Its maker has told of it, and it has not been seen yet.
    Expected,
    /// It has been seen, and its maker has not told of it yet: it stands still.
    Early,
    /// It is watched.
    Yes,
    /// It is not wanted, and no call of it stops.
    Free,
    /// It is not wanted, and the same filter binds it as the others: its stops are answered at once.
    Kept,
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// In no call that matters.
    No,
    /// In one whose end stops it, and nobody wants to know.
    Quietly,
    /// In one whose result was asked for.
    Awaited,
}

/// Why a task stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It does not.
    No,
    /// A call begins: its result can be asked for.
    Entry,
    /// Something that needs no answer.
    Plain,
    /// A signal is to be delivered to it.
    Signal(i32),
    /// Its process is stopped, and to stay so.
    Group,
}

impl Task {
    /// A first one, or one of which nothing is known.
    pub const fn first(pid: i32) -> Task {
        Task {
            pid,
            by: 0,
            level: 0,
            watch: Watch::Yes,
            inside: Inside::No,
            held: Held::No,
        }
    }
}

/// Tasks by number.
pub type Tasks = HashMap<i32, Task, BuildHasherDefault<Spread>>;

/// Numbers of tasks are given out in turn: one multiplication spreads them well, and nobody gains by choosing them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_i32(i32::from(*byte));
        }
    }

    fn write_i32(&mut self, number: i32) {
        // The table takes its place from the low bits and its tag from the high ones: both come from the product's middle.
        let product = (self.0 ^ u64::from(number.cast_unsigned())).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}
