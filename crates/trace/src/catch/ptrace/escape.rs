//! Tasks that would escape. A program can say with `CLONE_UNTRACED` that what it makes is not to be traced. The filter binds
//! the new one all the same, nobody would answer for it, and its calls would fail with ENOSYS. So a filter stops these calls
//! too ([`needs`]), the bit is taken away until the call has ended, and whoever was made is traced as everybody else.
//!
//! clone3 has its flags in memory, where a filter cannot look: each of its calls stops. What makes a task is stopped by that
//! anyway. A task that is free of the filter is not stopped here: what it makes with this bit fails as said.

use super::Ptrace;
use super::tasks::Inside;
use fleetgate_calls::abi::{Abi, Call, low};
use fleetgate_calls::select::{Is, Test, When};
use fleetgate_sys::memory;
use fleetgate_sys::ptrace::{self, Entry};

const CLONE_UNTRACED: u64 = 0x0080_0000;
/// The same in every numbering.
const CLONE3: u32 = 435;

const fn clone(abi: Abi) -> u32 {
    match abi {
        Abi::X86_64 | Abi::X32 => 56,
        Abi::I386 => 120,
        Abi::Aarch64 => 220,
    }
}

/// What was changed for the time of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// The first argument of this architecture was this.
    Argument(u32, u64),
    /// The word at this address was this.
    Memory(u64, u64),
}

/// What a filter has to stop beside what is wanted.
#[must_use]
pub fn needs() -> Vec<(Call, When)> {
    let is_set = Test {
        argument: 0,
        wide: false,
        is: Is::AnyOf(CLONE_UNTRACED),
    };
    let each = |abi: &Abi| {
        let call = |number| Call { abi: *abi, number };
        [
            (call(clone(*abi)), When::Any(vec![vec![is_set]])),
            (call(CLONE3), When::Always),
        ]
    };
    Abi::SERVED.iter().flat_map(each).collect()
}

impl Ptrace {
    /// Keeps a call from making a task that nobody traces. Whether the call is one to tell of.
    pub(super) fn keep(&mut self, tid: i32, entry: &Entry) -> bool {
        let Some(call) = Call::seen(entry.audit, low(entry.number)) else {
            return true;
        };
        let first = entry.arguments[0];
        let changed = if call.number == CLONE3 {
            let mut flags = [0; 8];
            match memory::read(tid, first, &mut flags) {
                Ok(8) => Some(Changed::Memory(first, u64::from_ne_bytes(flags))),
                _ => None,
            }
        } else if call.number == clone(call.abi) {
            Some(Changed::Argument(entry.audit, first))
        } else {
            return true;
        };
        if let Some(changed) = changed
            && changed.value() & CLONE_UNTRACED != 0
            && changed.set(tid, changed.value() & !CLONE_UNTRACED)
        {
            self.changed.push((tid, changed));
            // To its end, where that is put back.
            self.tasks
                .entry(tid)
                .and_modify(|task| task.inside = Inside::Quietly);
        }
        let wanted = self.wanted.as_ref();
        wanted.is_none_or(|wanted| wanted.wants(call, &entry.arguments))
    }

    /// What a task has made stands in the same call.
    pub(super) fn inherit(&mut self, by: i32, tid: i32) {
        if let Some((_, changed)) = self.changed.iter().find(|(of, _)| *of == by) {
            self.changed.push((tid, *changed));
        }
    }

    /// A call of a stopped task has ended.
    pub(super) fn put_back(&mut self, tid: i32) {
        self.changed.retain(|(of, changed)| {
            if *of == tid {
                changed.set(tid, changed.value());
            }
            *of != tid
        });
    }
}

impl Changed {
    fn value(self) -> u64 {
        match self {
            Changed::Argument(_, value) | Changed::Memory(_, value) => value,
        }
    }

    fn set(self, tid: i32, value: u64) -> bool {
        match self {
            Changed::Argument(audit, _) => ptrace::set_first_argument(tid, audit, value).is_ok(),
            Changed::Memory(at, _) => ptrace::poke(tid, at, value).is_ok(),
        }
    }
}
