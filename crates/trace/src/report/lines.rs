//! Lines as strace has them: a call is written when it begins and its result when it ends, and where another task's line
//! comes between, it is `<unfinished ...>` and later `<... resumed>`. It knows no call: [`Words`] does.

use super::Log;
use super::output::Output;
use super::signals;
use super::stamp::{Moment, Stamp};
use super::words::{EndingCall, Words, align};
use crate::catch::{End, Enter, Event};
use fleetgate_calls::memory::Memory;
use fleetgate_sys::ptrace::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

/// Which task a line is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefix {
    /// Never said.
    Never,
    /// `[pid 1234] ` while there is more than one.
    #[default]
    Several,
    /// `1234  ` always: what a file has.
    Always,
}

/// Which calls are shown once their result is known: strace's `-e status=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statuses {
    /// No error.
    pub successful: bool,
    /// An error.
    pub failed: bool,
    /// It never ended.
    pub unfinished: bool,
    /// It ended, and nobody saw how.
    pub unavailable: bool,
    /// It was left alone before it ended.
    pub detached: bool,
}

impl Statuses {
    /// All of them: a call can be shown when it begins.
    pub const ALL: Statuses = Statuses {
        successful: true,
        failed: true,
        unfinished: true,
        unavailable: true,
        detached: true,
    };

    /// None of them.
    pub const NONE: Statuses = Statuses {
        successful: false,
        failed: false,
        unfinished: false,
        unavailable: false,
        detached: false,
    };

    /// Whether a call with this result is shown.
    #[must_use]
    pub fn has(self, result: i64) -> bool {
        match fleetgate_calls::tables::errno::of_result(result) {
            Some(_) => self.failed,
            None => self.successful,
        }
    }
}

/// How lines look.
#[derive(Clone, Debug)]
pub struct Style {
    /// The column of ` = `.
    pub column: usize,
    /// What stands before a line.
    pub stamp: Stamp,
    /// `-T`: how long a call took.
    pub spent: bool,
    /// `-i`: where in the program.
    pub instruction: bool,
    /// Which task a line is of.
    pub prefix: Prefix,
    /// Say which tasks are followed or left, and where to: with the lines, or beside them on standard error.
    pub announce: Announce,
    /// And which were there before, and are attached to.
    pub attaches: bool,
    /// Say how tasks end.
    pub ends: bool,
    /// Which signals are shown; none: all.
    pub signals: Option<BTreeSet<i32>>,
    /// Which calls, by how they end.
    pub statuses: Statuses,
    /// Results are asked for; else a line is whole when its call begins.
    pub results: bool,
}

/// Where it is said that a task is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announce {
    /// Nowhere.
    No,
    /// Among the lines.
    Among,
    /// On standard error.
    Beside,
}

/// The lines.
pub struct Lines<W: Words> {
    words: W,
    style: Style,
    output: Output,
    tasks: BTreeMap<i32, Task<W::CallProgress>>,
    /// Whose line waits for its end.
    open: Option<i32>,
    line: Vec<u8>,
}

struct Task<B> {
    call: Option<InCall<B>>,
    /// How far its line has come.
    column: usize,
}

struct InCall<B> {
    enter: Enter,
    begun: B,
    name: String,
    since: i64,
    /// It is written when it ends, if it is to be.
    held: Option<Vec<u8>>,
}

impl<B> Task<B> {
    fn new() -> Task<B> {
        Task {
            call: None,
            column: 0,
        }
    }
}

/// A call's name, or its number where it has none: `syscall_0x1d6`.
#[must_use]
pub fn call_name(enter: &Enter) -> String {
    match enter.call.and_then(fleetgate_calls::abi::Call::name) {
        Some(name) => name.to_owned(),
        None => format!("syscall_{:#x}", enter.number),
    }
}

impl<W: Words> Lines<W> {
    /// Lines to `output`.
    pub fn new(words: W, style: Style, output: Output) -> Lines<W> {
        Lines {
            words,
            style,
            output,
            tasks: BTreeMap::new(),
            open: None,
            line: Vec::new(),
        }
    }

    fn enter(&mut self, enter: &Enter, memory: &dyn Memory, now: Moment) {
        let tid = enter.tid;
        // A call whose end was not seen.
        self.end_call(tid, now, Some(memory));
        let name = call_name(enter);
        let never_returns = matches!(name.as_str(), "exit" | "exit_group");
        let held = self.style.statuses != Statuses::ALL;
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        if !held {
            self.interrupt(tid);
            self.begin_line(tid, now, Some(enter.instruction), &mut line);
        }
        line.extend_from_slice(name.as_bytes());
        let begun = self.words.begin(enter, memory, &mut line);
        let whole = !self.style.results || never_returns;
        if whole {
            let start = if held { self.held_width(tid) } else { 0 };
            let ended = EndingCall {
                enter,
                begun,
                column: self.style.column.saturating_sub(start),
            };
            self.words.abandon(ended, memory, &mut line);
            line.push(b'\n');
            let shown = match never_returns {
                true => self.style.statuses.unfinished,
                false => self.style.statuses.unavailable,
            };
            if !held {
                self.put(tid, &line);
            } else if shown {
                self.alone_at(tid, now, Some(enter.instruction), &line);
            }
        } else {
            let call = InCall {
                enter: *enter,
                begun,
                name,
                since: now.steady,
                held: held.then(|| line.clone()),
            };
            if !held {
                self.put(tid, &line);
                self.open = Some(tid);
            }
            let task = self.tasks.entry(tid).or_insert_with(Task::new);
            task.column = line.len();
            task.call = Some(call);
        }
        self.line = line;
    }

    fn left(&mut self, tid: i32, result: i64, memory: &dyn Memory, now: Moment) {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        let Some((call, column)) = self.take_call(tid, now, &mut line) else {
            self.line = line;
            return;
        };
        let ended = EndingCall {
            enter: &call.enter,
            begun: call.begun,
            column,
        };
        self.words.finish(ended, result, memory, &mut line);
        if self.style.spent {
            let micros = (now.steady - call.since).max(0) / 1000;
            let _ = write!(line, " <{}.{:06}>", micros / 1_000_000, micros % 1_000_000);
        }
        let shown = self.style.statuses.has(result);
        self.put_call(tid, now, &call, shown, &mut line);
        self.line = line;
    }

    /// The call that a task is in, which ends: begins or goes on with its line, up to which column for the result.
    fn take_call(
        &mut self,
        tid: i32,
        now: Moment,
        line: &mut Vec<u8>,
    ) -> Option<(InCall<W::CallProgress>, usize)> {
        let call = self.tasks.get_mut(&tid).and_then(|t| t.call.take())?;
        let start = match &call.held {
            Some(held) => {
                line.extend_from_slice(held);
                self.held_width(tid)
            }
            None => self.resume(tid, &call.name, now, line),
        };
        let column = self.style.column.saturating_sub(start);
        Some((call, column))
    }

    /// Puts the line of a call that has ended. One that was held is put only if it is shown.
    fn put_call(
        &mut self,
        tid: i32,
        now: Moment,
        call: &InCall<W::CallProgress>,
        shown: bool,
        line: &mut Vec<u8>,
    ) {
        line.push(b'\n');
        if call.held.is_none() {
            self.put(tid, line);
            self.close(tid);
        } else if shown {
            self.alone(tid, now, line);
        }
    }

    /// A call of this task, if it is in one, ends and nobody saw how: its task is gone, or goes on.
    fn end_call(&mut self, tid: i32, now: Moment, memory: Option<&dyn Memory>) {
        let mut line = Vec::new();
        let Some((call, column)) = self.take_call(tid, now, &mut line) else {
            return;
        };
        if let Some(memory) = memory {
            let ended = EndingCall {
                enter: &call.enter,
                begun: call.begun,
                column,
            };
            self.words.abandon(ended, memory, &mut line);
        } else {
            if !self.words.is_whole(call.begun) {
                line.extend_from_slice(b" <unfinished ...>");
            }
            align(column, &mut line);
            line.extend_from_slice(b"= ?");
        }
        let shown = self.style.statuses.unfinished;
        self.put_call(tid, now, &call, shown, &mut line);
    }

    fn executed(&mut self, pid: i32, former: i32, now: Moment) {
        if pid == former {
            return;
        }
        // The thread goes on under its process's number; what the process's first thread was in is over.
        let thread = self.tasks.remove(&former).unwrap_or_else(Task::new);
        if self.open == Some(former) || (self.output.is_each() && thread.call.is_some()) {
            let text = format!(" <pid changed to {pid} ...>\n");
            self.put(former, text.as_bytes());
            self.open = self.open.filter(|open| *open != former);
        }
        self.output.ended(former);
        if let Some(first) = self.tasks.get_mut(&pid) {
            first.call = None;
        }
        self.alone(
            pid,
            now,
            format!("+++ superseded by execve in pid {former} +++\n").as_bytes(),
        );
        let column = 0;
        self.tasks.insert(pid, Task { column, ..thread });
    }

    fn signal(&mut self, tid: i32, signal: &Signal, now: Moment) {
        if self.shows(signal.number) {
            let text = format!(
                "--- {} {} ---\n",
                signals::name(signal.number),
                signals::describe(signal)
            );
            self.alone(tid, now, text.as_bytes());
        }
    }

    fn ended(&mut self, tid: i32, end: End, now: Moment) {
        match end {
            End::Left => {
                let shown = self.style.statuses.detached;
                let call = self.tasks.get_mut(&tid).and_then(|t| t.call.take());
                match call {
                    Some(InCall {
                        held: Some(mut held), ..
                    }) if shown => {
                        held.extend_from_slice(b" <detached ...>\n");
                        self.alone(tid, now, &held);
                    }
                    Some(InCall { held: None, .. }) if self.open == Some(tid) || self.output.is_each() => {
                        self.put(tid, b" <detached ...>\n");
                        self.close(tid);
                    }
                    _ => {}
                }
                self.announce(tid, "detached");
            }
            End::Exited(code) => {
                self.end_call(tid, now, None);
                if self.style.ends {
                    self.alone(tid, now, format!("+++ exited with {code} +++\n").as_bytes());
                }
            }
            End::Killed(signal, core) => {
                self.end_call(tid, now, None);
                if self.style.ends {
                    let core = if core { " (core dumped)" } else { "" };
                    let text = format!("+++ killed by {}{core} +++\n", signals::name(signal));
                    self.alone(tid, now, text.as_bytes());
                }
            }
        }
        self.tasks.remove(&tid);
        self.output.ended(tid);
    }

    fn shows(&self, signal: i32) -> bool {
        self.style
            .signals
            .as_ref()
            .is_none_or(|set| set.contains(&signal))
    }

    fn announce(&mut self, tid: i32, what: &str) {
        let text = format!("fleetgate: process {tid} {what}\n");
        match self.style.announce {
            Announce::No => {}
            Announce::Among => {
                self.interrupt(0);
                self.put(tid, text.as_bytes());
            }
            Announce::Beside => eprint!("{text}"),
        }
    }

    /// A line of its own.
    fn alone(&mut self, tid: i32, now: Moment, text: &[u8]) {
        self.alone_at(tid, now, None, text);
    }

    fn alone_at(&mut self, tid: i32, now: Moment, at: Option<u64>, text: &[u8]) {
        self.interrupt(0);
        let mut line = Vec::new();
        self.begin_line(tid, now, at, &mut line);
        line.extend_from_slice(text);
        self.put(tid, &line);
    }

    /// The line that waits for its end makes room, unless it is this task's own.
    fn interrupt(&mut self, tid: i32) {
        if self.output.is_each() {
            return;
        }
        if let Some(open) = self.open.filter(|open| *open != tid) {
            self.put(open, b" <unfinished ...>\n");
            self.open = None;
        }
    }

    /// Goes on with a call's line: how far it had come.
    fn resume(&mut self, tid: i32, name: &str, now: Moment, line: &mut Vec<u8>) -> usize {
        let column = self.tasks.get(&tid).map_or(0, |t| t.column);
        let goes_on = match self.output.is_each() {
            true => column > 0,
            false => self.open == Some(tid),
        };
        if goes_on {
            return column;
        }
        self.interrupt(tid);
        self.begin_line(tid, now, None, line);
        let _ = write!(line, "<... {name} resumed>");
        0
    }

    /// The line that waited has its end.
    fn close(&mut self, tid: i32) {
        self.open = self.open.filter(|open| *open != tid);
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.column = 0;
        }
    }

    /// What stands before a held line, in characters: its own column is counted with it.
    fn held_width(&mut self, tid: i32) -> usize {
        let mut before = Vec::new();
        let mut stamp = self.style.stamp.clone();
        self.prefix(tid, &mut before);
        stamp.put(Moment::NONE, &mut before);
        if self.style.instruction {
            before.extend_from_slice(&[b' '; 19]);
        }
        before.len()
    }

    fn begin_line(&mut self, tid: i32, now: Moment, at: Option<u64>, line: &mut Vec<u8>) {
        self.prefix(tid, line);
        self.style.stamp.put(now, line);
        if self.style.instruction {
            let _ = match at {
                Some(at) => write!(line, "[{at:016x}] "),
                None => write!(line, "[????????????????] "),
            };
        }
    }

    fn prefix(&self, tid: i32, line: &mut Vec<u8>) {
        if self.output.is_each() {
            return;
        }
        let _ = match self.style.prefix {
            Prefix::Always => write!(line, "{tid:<5} "),
            Prefix::Several if self.tasks.len() > 1 => write!(line, "[pid {tid:5}] "),
            _ => Ok(()),
        };
    }

    fn put(&mut self, tid: i32, bytes: &[u8]) {
        self.output.put(tid, bytes);
    }
}

impl<W: Words> Log for Lines<W> {
    fn tell(&mut self, event: &Event, memory: &dyn Memory, now: Moment) {
        match event {
            Event::Enter(enter) => self.enter(enter, memory, now),
            Event::Leave { tid, result } => self.left(*tid, *result, memory, now),
            Event::Began { tid, by, .. } => {
                self.tasks.entry(*tid).or_insert_with(Task::new);
                if *by != 0 || self.style.attaches {
                    self.announce(*tid, "attached");
                }
            }
            Event::Executed { pid, former } => self.executed(*pid, *former, now),
            Event::Signal { tid, signal } => self.signal(*tid, signal, now),
            Event::Stopped { tid, signal } => {
                if self.shows(*signal) {
                    let text = format!("--- stopped by {} ---\n", signals::name(*signal));
                    self.alone(*tid, now, text.as_bytes());
                }
            }
            Event::Ended { tid, end } => self.ended(*tid, *end, now),
        }
    }

    fn needs_time(&self) -> bool {
        self.style.spent || self.style.stamp.is_shown()
    }

    fn leave(&mut self, now: Moment) {
        let tasks: Vec<i32> = self.tasks.keys().copied().collect();
        for tid in tasks {
            self.ended(tid, End::Left, now);
        }
    }

    fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    fn into_output(self: Box<Self>) -> Output {
        self.output
    }
}

#[cfg(test)]
mod tests;
