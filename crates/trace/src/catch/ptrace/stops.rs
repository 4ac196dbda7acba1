//! What a stop means. A stop of which nobody is told goes on at once.

use super::Ptrace;
use super::tasks::{Held, Inside, Task, Watch};
use crate::catch::{End, Enter, Event};
use fleetgate_calls::abi::{Call, low};
use fleetgate_sys::ptrace::{self, AT_CALL, At, Entry, Status, event};

/// A call as it begins.
pub(super) fn enter(tid: i32, entry: &Entry) -> Enter {
    Enter {
        tid,
        call: Call::seen(entry.audit, low(entry.number)),
        audit: entry.audit,
        number: low(entry.number),
        arguments: entry.arguments,
        instruction: entry.instruction,
    }
}

impl Ptrace {
    /// What has become of a task.
    pub(super) fn met(&mut self, tid: i32, status: Status) -> Option<Event> {
        match status {
            Status::Exited(code) => self.ended(tid, End::Exited(code)),
            Status::Killed(signal, core) => self.ended(tid, End::Killed(signal, core)),
            Status::Stopped { signal, event } => {
                self.counts.stops += 1;
                self.stopped(tid, signal, event)
            }
        }
    }

    fn ended(&mut self, tid: i32, end: End) -> Option<Event> {
        if tid == self.first {
            self.end = Some(end);
        }
        let Some(task) = self.tasks.remove(&tid) else {
            self.will_be_told(tid);
            return None;
        };
        self.unborn = match end {
            End::Killed(..) => super::UNBORN,
            _ => 0,
        };
        if task.watch == Watch::Early {
            self.early -= 1;
            self.will_be_told(tid);
        }
        self.changed.retain(|(of, _)| *of != tid);
        (task.watch == Watch::Yes).then_some(Event::Ended { tid, end })
    }

    fn stopped(&mut self, tid: i32, signal: i32, event: u8) -> Option<Event> {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return self.stranger(tid, first_stop(signal, event));
        };
        if self.filtered && task.watch == Watch::Free {
            self.look_again(tid);
        }
        let task = self.tasks.get_mut(&tid)?;
        match (event, signal) {
            _ if task.watch == Watch::Expected => self.arrived(tid, first_stop(signal, event)),
            (event::SECCOMP, _) => {
                let told = task.watch == Watch::Yes;
                match ptrace::call(tid) {
                    Ok(At::Entry(entry)) if self.keep(tid, &entry) && told => Some(self.begins(tid, &entry)),
                    _ => self.quietly(tid),
                }
            }
            (0, AT_CALL) => self.at_call(tid),
            (0, signal) => self.signalled(tid, signal),
            (event::STOP, signal) if signal != libc::SIGTRAP => {
                task.held = Held::Group;
                if task.watch == Watch::Yes {
                    return Some(Event::Stopped { tid, signal });
                }
                self.release(tid);
                None
            }
            (event::FORK | event::VFORK | event::CLONE, _) => self.made(tid),
            (event::EXEC, _) => self.executed(tid),
            // An interruption; the end of a group's stop.
            _ => self.quietly(tid),
        }
    }

    pub(super) fn quietly(&mut self, tid: i32) -> Option<Event> {
        self.resume(tid, 0);
        None
    }

    fn begins(&mut self, tid: i32, entry: &Entry) -> Event {
        self.tasks.entry(tid).and_modify(|task| task.held = Held::Entry);
        self.counts.calls += 1;
        Event::Enter(enter(tid, entry))
    }

    /// Begin and end take turns: an end that nobody awaits is known without asking. A begin is asked for its number anyway,
    /// and the answer says so where it was an end: somebody attached in the midst of a call.
    fn at_call(&mut self, tid: i32) -> Option<Event> {
        let task = self.tasks.get_mut(&tid)?;
        let was = std::mem::replace(&mut task.inside, Inside::No);
        if !self.changed.is_empty() {
            self.put_back(tid);
        }
        let task = self.tasks.get_mut(&tid)?;
        if was == Inside::Quietly {
            return self.quietly(tid);
        }
        match (was, ptrace::call(tid)) {
            (Inside::Awaited, Ok(At::Exit(result))) => {
                task.held = Held::Plain;
                Some(Event::Leave { tid, result })
            }
            (_, Ok(At::Entry(entry))) if !self.filtered && task.watch == Watch::Yes => {
                task.inside = Inside::Quietly;
                Some(self.begins(tid, &entry))
            }
            _ => self.quietly(tid),
        }
    }

    fn signalled(&mut self, tid: i32, signal: i32) -> Option<Event> {
        let task = self.tasks.get_mut(&tid)?;
        task.held = Held::Signal(signal);
        if task.watch != Watch::Yes {
            self.release(tid);
            return None;
        }
        // One that was killed meanwhile has none.
        let unknown = ptrace::Signal {
            number: signal,
            ..ptrace::Signal::default()
        };
        let signal = ptrace::signal(tid).unwrap_or(unknown);
        Some(Event::Signal { tid, signal })
    }

    /// Another program. The task that executed it may have had another number, which is gone.
    fn executed(&mut self, tid: i32) -> Option<Event> {
        let former = ptrace::message(tid).map_or(tid, |former| i32::try_from(former).unwrap_or(tid));
        let mut freed = false;
        if former != tid
            && let Some(it) = self.tasks.remove(&former)
        {
            freed = it.watch == Watch::Free;
            let leader = self.tasks.get(&tid).copied().unwrap_or(it);
            self.tasks.insert(
                tid,
                Task {
                    pid: tid,
                    inside: it.inside,
                    ..leader
                },
            );
        }
        self.tasks.entry(tid).and_modify(|task| task.held = Held::Plain);
        self.decide_again(tid, former, freed)
    }
}

/// How a task stands that is seen for the first time.
fn first_stop(signal: i32, event: u8) -> Held {
    match (event, signal) {
        (event::STOP, signal) if signal != libc::SIGTRAP => Held::Group,
        (0, signal) if signal != AT_CALL => Held::Signal(signal),
        _ => Held::Plain,
    }
}
