//! The loop of a tracer: what a way to catch calls brings is told to the reports, and the task goes on. It decides nothing
//! but what is reported: every call goes on, whatever the reports make of it.

use crate::TraceError;
use crate::catch::{Catch, End, Enter, Event, NextEvent, Then, Wait};
use crate::relatives::Relatives;
use crate::report::Reports;
use crate::report::sockets;
use crate::report::stamp::Moment;
use fleetgate_calls::memory::Memory;
use fleetgate_calls::select::Selection;
use std::collections::BTreeSet;

/// What the kernel cannot be asked to select.
pub trait Wanted {
    /// Whether a call is to be reported.
    fn wants(&mut self, enter: &Enter, memory: &dyn Memory) -> bool;
}

/// More calls than were asked for stop where no filter selects, and where one has to stop some for the tracer's own sake.
impl Wanted for Selection {
    fn wants(&mut self, enter: &Enter, _: &dyn Memory) -> bool {
        self.stops(enter.audit, enter.number, &enter.arguments)
    }
}

/// The end of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Nobody is left; how the first process ended, where it was seen.
    Ended(Option<End>),
    /// The tracer was told to leave.
    Left,
}

/// A stopped task, as whoever decodes sees it.
struct Stopped<'a> {
    catch: &'a dyn Catch,
    tid: i32,
    addresses: bool,
}

impl Memory for Stopped<'_> {
    fn read(&self, at: u64, into: &mut [u8]) -> usize {
        self.catch.read(self.tid, at, into)
    }

    fn descriptor(&self, fd: i32) -> Option<Vec<u8>> {
        let what = link(&format!("/proc/{}/fd/{fd}", self.tid))?;
        let socket = self.addresses.then(|| sockets::named(self.tid, &what));
        Some(socket.flatten().unwrap_or(what))
    }

    fn directory(&self) -> Option<Vec<u8>> {
        link(&format!("/proc/{}/cwd", self.tid))
    }
}

fn link(path: &str) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    let path = std::fs::read_link(path).ok()?;
    Some(path.into_os_string().into_vec())
}

/// What is traced, and for whom.
pub struct Run<'a> {
    /// How calls are caught.
    pub catch: &'a mut dyn Catch,
    /// Who is told.
    pub reports: &'a mut Reports,
    /// Whose, where everybody's calls come.
    pub relatives: Option<Relatives>,
    /// What of it is reported.
    pub wanted: &'a mut dyn Wanted,
    /// Of sockets their addresses are said, where descriptors are described.
    pub addresses: bool,
    /// Results are asked for.
    pub results: bool,
    /// The process whose end is this program's.
    pub first: Option<i32>,
    /// Whether to leave at once; asked after each wait that a signal ended.
    pub is_told_to_leave: &'a dyn Fn() -> bool,
}

impl Run<'_> {
    /// Traces until nobody is left, or until it is told to leave.
    ///
    /// # Errors
    /// Nothing can be caught any more.
    pub fn run(mut self) -> Result<Over, TraceError> {
        // The tasks that are in a call of which the result is asked for.
        let mut inside: BTreeSet<i32> = BTreeSet::new();
        let mut end = None;
        loop {
            // What has happened already needs no writing before it: only a wait does.
            let found = match self.reports.is_due() {
                false => self.catch.next(Wait::Yes)?,
                true => match self.catch.next(Wait::No)? {
                    NextEvent::Nothing => {
                        self.reports.flush();
                        self.catch.next(Wait::Yes)?
                    }
                    found => found,
                },
            };
            let event = match found {
                NextEvent::Event(event) => event,
                NextEvent::Over => return Ok(Over::Ended(end)),
                NextEvent::Nothing if (self.is_told_to_leave)() => {
                    self.catch.leave();
                    self.reports.leave(self.now());
                    return Ok(Over::Left);
                }
                NextEvent::Nothing => continue,
            };
            if let Event::Ended { tid, end: how } = &event
                && self.first == Some(*tid)
            {
                end = Some(*how);
            }
            self.one(&event, &mut inside);
        }
    }

    fn now(&self) -> Moment {
        match self.reports.needs_time() {
            true => Moment::now(),
            false => Moment::NONE,
        }
    }

    fn one(&mut self, event: &Event, inside: &mut BTreeSet<i32>) {
        let tid = task(event);
        if let Some(relatives) = &mut self.relatives
            && !relatives.wants(event)
        {
            return self.catch.go_on(tid, Then::Free);
        }
        let now = self.now();
        let memory = Stopped {
            catch: &*self.catch,
            tid,
            addresses: self.addresses,
        };
        match event {
            Event::Enter(enter) => {
                if !self.wanted.wants(enter, &memory) {
                    inside.remove(&tid);
                    return self.catch.go_on(tid, Then::Free);
                }
                self.reports.tell(event, &memory, now);
                if self.results {
                    inside.insert(tid);
                }
            }
            Event::Leave { .. } => {
                if inside.remove(&tid) {
                    self.reports.tell(event, &memory, now);
                }
            }
            Event::Executed { pid, former } => {
                if pid != former && inside.remove(former) {
                    inside.insert(*pid);
                }
                self.reports.tell(event, &memory, now);
            }
            Event::Ended { .. } => {
                inside.remove(&tid);
                return self.reports.tell(event, &memory, now);
            }
            Event::Began { .. } | Event::Signal { .. } | Event::Stopped { .. } => {
                self.reports.tell(event, &memory, now);
            }
        }
        let then = match inside.contains(&tid) {
            true => Then::Result,
            false => Then::Free,
        };
        self.catch.go_on(tid, then);
    }
}

/// Whose event it is.
fn task(event: &Event) -> i32 {
    match event {
        Event::Enter(enter) => enter.tid,
        Event::Executed { pid, .. } => *pid,
        Event::Leave { tid, .. }
        | Event::Began { tid, .. }
        | Event::Signal { tid, .. }
        | Event::Stopped { tid, .. }
        | Event::Ended { tid, .. } => *tid,
    }
}
