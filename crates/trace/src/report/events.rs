//! A trace as JSON: one object on each line, of a call when it has ended, of signals, new tasks, programs and ends when they
//! happen. docs/trace.md has the schema. It knows no call: [`Words`] does.

use super::Log;
use super::lines::{Statuses, call_name};
use super::output::Output;
use super::signals;
use super::stamp::Moment;
use super::words::{EndingCall, Words};
use crate::catch::{End, Enter, Event};
use fleetgate_calls::memory::Memory;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

/// What is written down.
#[derive(Clone, Debug)]
pub struct EventOptions {
    /// Which signals; none: all.
    pub signals: Option<BTreeSet<i32>>,
    /// Which calls, by how they end.
    pub statuses: Statuses,
    /// Ends of tasks.
    pub ends: bool,
    /// Results are asked for; else a call is written down when it begins.
    pub results: bool,
    /// Where in the program.
    pub instruction: bool,
}

/// The objects.
pub struct Events<W: Words> {
    words: W,
    shown: EventOptions,
    output: Output,
    /// A task's process.
    tasks: BTreeMap<i32, i32>,
    open: BTreeMap<i32, Open<W::CallProgress>>,
}

/// A call that has begun.
struct Open<B> {
    enter: Enter,
    begun: B,
    line: Vec<u8>,
    since: i64,
}

impl<W: Words> Events<W> {
    /// Objects to `output`.
    pub fn new(words: W, shown: EventOptions, output: Output) -> Events<W> {
        Events {
            words,
            shown,
            output,
            tasks: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    fn process(&self, tid: i32) -> i32 {
        self.tasks.get(&tid).copied().unwrap_or(tid)
    }

    /// An object up to what its kind has of its own.
    fn head(&self, kind: &str, tid: i32, now: Moment) -> Vec<u8> {
        let (pid, wall) = (self.process(tid), now.wall);
        let mut line = Vec::with_capacity(256);
        let _ = write!(
            line,
            "{{\"type\":\"{kind}\",\"time\":{}.{:06},\"pid\":{pid},\"tid\":{tid}",
            wall.sec,
            wall.nsec / 1000
        );
        line
    }

    fn enter(&mut self, enter: &Enter, memory: &dyn Memory, now: Moment) {
        self.abandon(enter.tid, Some(memory), false);
        let mut line = self.head("call", enter.tid, now);
        let name = call_name(enter);
        let _ = write!(line, ",\"call\":\"{name}\"");
        if let Some(abi) = enter.call.map(|call| call.abi)
            && abi != fleetgate_calls::abi::Abi::NATIVE
        {
            let _ = write!(line, ",\"abi\":\"{}\"", abi.name());
        }
        if self.shown.instruction {
            let _ = write!(line, ",\"instruction\":\"{:#x}\"", enter.instruction);
        }
        line.push(b',');
        let begun = self.words.begin(enter, memory, &mut line);
        let open = Open {
            enter: *enter,
            begun,
            line,
            since: now.steady,
        };
        self.open.insert(enter.tid, open);
        let never_returns = matches!(name.as_str(), "exit" | "exit_group");
        if !self.shown.results || never_returns {
            self.abandon(enter.tid, Some(memory), never_returns);
        }
    }

    fn leave(&mut self, tid: i32, result: i64, memory: &dyn Memory, now: Moment) {
        let Some(mut open) = self.open.remove(&tid) else {
            return;
        };
        if !self.shown.statuses.has(result) {
            return;
        }
        let ended = EndingCall {
            enter: &open.enter,
            begun: open.begun,
            column: 0,
        };
        self.words.finish(ended, result, memory, &mut open.line);
        let nanos = (now.steady - open.since).max(0);
        let _ = writeln!(open.line, ",\"us\":{}.{:03}}}", nanos / 1000, nanos % 1000);
        self.output.put(tid, &open.line);
    }

    /// A call of which the end will not be seen; without memory, the task is gone.
    fn abandon(&mut self, tid: i32, memory: Option<&dyn Memory>, never_returns: bool) {
        let Some(mut open) = self.open.remove(&tid) else {
            return;
        };
        let gone = memory.is_none() || never_returns;
        let statuses = self.shown.statuses;
        let shown = match gone {
            true => statuses.unfinished,
            false => statuses.unavailable,
        };
        if !shown {
            return;
        }
        let ended = EndingCall {
            enter: &open.enter,
            begun: open.begun,
            column: 0,
        };
        self.words.abandon(ended, memory.unwrap_or(&Gone), &mut open.line);
        open.line.extend_from_slice(match gone {
            true => b",\"unfinished\":true}\n",
            false => b"}\n".as_slice(),
        });
        self.output.put(tid, &open.line);
    }

    fn other(&mut self, kind: &str, tid: i32, now: Moment, more: Value) {
        let mut line = self.head(kind, tid, now);
        let more: Map<String, Value> = match more {
            Value::Object(more) => more,
            _ => Map::new(),
        };
        for (name, value) in more {
            let _ = write!(line, ",\"{name}\":{value}");
        }
        line.extend_from_slice(b"}\n");
        self.output.put(tid, &line);
    }

    fn is_shown(&self, signal: i32) -> bool {
        self.shown
            .signals
            .as_ref()
            .is_none_or(|set| set.contains(&signal))
    }
}

/// A task that is gone has no memory.
struct Gone;

impl Memory for Gone {
    fn read(&self, _: u64, _: &mut [u8]) -> usize {
        0
    }
    fn descriptor(&self, _: i32) -> Option<Vec<u8>> {
        None
    }
    fn directory(&self) -> Option<Vec<u8>> {
        None
    }
}

impl<W: Words> Log for Events<W> {
    fn tell(&mut self, event: &Event, memory: &dyn Memory, now: Moment) {
        match event {
            Event::Enter(enter) => self.enter(enter, memory, now),
            Event::Leave { tid, result } => self.leave(*tid, *result, memory, now),
            Event::Began { tid, pid, by } => {
                self.tasks.insert(*tid, *pid);
                let by = (*by != 0).then_some(*by);
                self.other("began", *tid, now, json!({ "by": by }));
            }
            Event::Executed { pid, former } => {
                if pid != former {
                    self.tasks.remove(former);
                    // What the process's first thread was in is over; the other's call is its own now.
                    self.abandon(*pid, None, false);
                    if let Some(open) = self.open.remove(former) {
                        self.open.insert(*pid, open);
                    }
                }
                let former = (pid != former).then_some(*former);
                self.other("executed", *pid, now, json!({ "former": former }));
            }
            Event::Signal { tid, signal } if self.is_shown(signal.number) => {
                let code = signals::code_name(signal.number, signal.code);
                let sender = signals::has_sender(signal);
                let more = json!({
                    "signal": signals::name(signal.number),
                    "code": code.map_or(Value::from(signal.code), Value::from),
                    "sender": sender.then(|| json!({ "pid": signal.pid, "uid": signal.uid })),
                    "address": signals::has_address(signal).then(|| format!("{:#x}", signal.address)),
                    "status": signals::has_status(signal).then_some(signal.status),
                });
                self.other("signal", *tid, now, more);
            }
            Event::Stopped { tid, signal } if self.is_shown(*signal) => {
                self.other("stopped", *tid, now, json!({ "signal": signals::name(*signal) }));
            }
            Event::Signal { .. } | Event::Stopped { .. } => {}
            Event::Ended { tid, end } => {
                self.abandon(*tid, None, false);
                let (kind, more) = match end {
                    End::Exited(code) => ("exited", json!({ "code": code })),
                    End::Killed(signal, core) => (
                        "killed",
                        json!({ "signal": signals::name(*signal), "core": core }),
                    ),
                    End::Left => ("left", json!({})),
                };
                if self.shown.ends {
                    self.other(kind, *tid, now, more);
                }
                self.tasks.remove(tid);
                self.output.ended(*tid);
            }
        }
    }

    fn needs_time(&self) -> bool {
        true
    }

    fn leave(&mut self, now: Moment) {
        let tasks: Vec<i32> = self.tasks.keys().copied().collect();
        for tid in tasks {
            let end = End::Left;
            self.tell(&Event::Ended { tid, end }, &Gone, now);
        }
    }

    fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    fn into_output(self: Box<Self>) -> Output {
        self.output
    }
}
