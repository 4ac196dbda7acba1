//! One listener's thread: a call comes, what it is about is read and put into the outbox, it goes on. In this order, so a
//! call that was made is a call that was told; what a killed watcher had read and not answered, the guardian answers.

use super::caller::Task;
use super::outbox::Outbox;
use fleetgate_calls::abi::Call;
use fleetgate_calls::audit::{self, AuditEvent, Caller, Calls, Fact, Level};
use fleetgate_sys::poll::{CLOSED, READ, Watch, poll};
use fleetgate_sys::seccomp::{self, Waiting};
use fleetgate_sys::slots::Slots;
use fleetgate_sys::{Errno, Fd, clock};
use fleetgate_wire::common::Moment;
use fleetgate_wire::node::Blob;
use fleetgate_wire::node::watch::{Field, Source, Value, WatchedSession, WatcherEvent};
use std::ffi::CString;
use std::sync::{Arc, LazyLock};

/// What a thread needs is a path, a list of words and a few pages.
const STACK: usize = 128 << 10;
/// The most processes of one session that are about to execute something.
const MAX_EXECUTING: usize = 1024;

static CALLS: LazyLock<Calls> = LazyLock::new(Calls::new);

struct Thread {
    key: u64,
    listener: Arc<Fd>,
    slots: Slots,
    watched: WatchedSession,
    level: Level,
    /// The helper has become the session's program: what comes before that is the helper's own.
    begun: bool,
    /// Processes that asked to execute something and have not begun it yet.
    pending: Vec<i32>,
    outbox: Arc<Outbox>,
}

pub(super) fn start(
    key: u64,
    listener: Arc<Fd>,
    slots: Slots,
    watched: WatchedSession,
    begun: bool,
    outbox: Arc<Outbox>,
) -> std::io::Result<()> {
    let level = Level::numbered(watched.level);
    let mut thread = Thread {
        key,
        listener,
        slots,
        watched,
        level,
        begun,
        pending: Vec::new(),
        outbox,
    };
    std::thread::Builder::new().stack_size(STACK).spawn(move || {
        thread.run();
        thread.outbox.end(thread.key);
    })?;
    Ok(())
}

impl Thread {
    /// Until nobody is bound by the filter any more.
    fn run(&mut self) {
        loop {
            let mut watch = [Watch::new(self.listener.raw(), READ)];
            if poll(&mut watch, None).is_err() {
                continue;
            }
            let happened = watch[0].happened();
            if happened & READ == 0 {
                if happened & CLOSED != 0 {
                    return;
                }
                continue;
            }
            if let Ok(Some(waiting)) = self.slots.receive(0, &self.listener) {
                let refuse = self.see(&waiting);
                // Its caller may be gone by now.
                let _ = match refuse {
                    true => seccomp::refuse(&self.listener, &waiting, Errno::EPERM),
                    false => seccomp::allow(&self.listener, &waiting),
                };
            }
            self.slots.free(0);
        }
    }

    /// Tells of a call; whether it is to be refused.
    fn see(&mut self, waiting: &Waiting) -> bool {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the kernel's numbers are of 32 bits"
        )]
        let number = waiting.call as u32;
        let Some(call) = Call::seen(waiting.audit, number) else {
            let unknown = unknown(waiting);
            self.put(unknown, false);
            return false;
        };
        let row = CALLS.row(call, &waiting.arguments);
        let is_exec = row.is_some_and(|row| row.event == "exec");
        if !self.begun {
            if !is_exec {
                return false;
            }
            self.begun = true;
        }
        let task = Task::new(waiting.pid);
        if CALLS.begins(call) {
            let begun = |pid| self.pending.iter().position(|pending| *pending == pid);
            if !self.pending.is_empty()
                && let Some(at) = task.who().and_then(|who| begun(who.pid))
            {
                self.pending.swap_remove(at);
                self.put_if_waiting(waiting, AuditEvent::executed(&task), false);
            }
            return false;
        }
        let told = match row {
            Some(row) => audit::tell(row, call.abi, &waiting.arguments, self.level, &task),
            None if CALLS.is_socketcall(call) => {
                audit::tell_socketcall(&waiting.arguments, self.level, &task)
            }
            None => None,
        };
        let refuse = self.watched.refuse_io_uring && row.is_some_and(|row| row.event == "io_uring");
        if is_exec && let Some(who) = task.who() {
            self.pending.retain(|pending| *pending != who.pid);
            if self.pending.len() == MAX_EXECUTING {
                self.pending.remove(0);
            }
            self.pending.push(who.pid);
        }
        if let Some(told) = told {
            self.put_if_waiting(waiting, told, refuse);
        }
        refuse
    }

    /// What was read was the caller's, if the caller still waits; else its number may be another's by now, and the call is
    /// never made.
    fn put_if_waiting(&self, waiting: &Waiting, told: AuditEvent, refused: bool) {
        if seccomp::is_waiting(&self.listener, waiting) {
            self.put(told, refused);
        }
    }

    fn put(&self, told: AuditEvent, refused: bool) {
        let now = clock::wall();
        let mut fields: Vec<Field> = told.facts.into_iter().map(field).collect();
        if refused {
            fields.push(Field {
                name: c"refused".into(),
                source: Source::Kernel,
                value: Value::Truth { truth: true },
            });
        }
        let seen = WatcherEvent {
            session: self.watched.session,
            at: Moment {
                sec: now.sec,
                nsec: now.nsec,
            },
            event: name(told.event),
            fields,
        };
        self.outbox.put(self.key, seen);
    }
}

/// A call in a numbering that nobody here knows: it is told by its number.
fn unknown(waiting: &Waiting) -> AuditEvent {
    let number = |name, number| Fact {
        name,
        source: audit::Source::Register,
        value: audit::Value::Number(number),
    };
    AuditEvent {
        event: audit::UNKNOWN,
        facts: vec![
            number("architecture", waiting.audit.into()),
            number("number", waiting.call),
        ],
    }
}

fn name(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}

fn field(fact: Fact) -> Field {
    Field {
        name: name(fact.name),
        source: match fact.source {
            audit::Source::Kernel => Source::Kernel,
            audit::Source::Register => Source::Register,
            audit::Source::Claimed => Source::Claimed,
        },
        value: match fact.value {
            audit::Value::Number(number) => Value::Number { number },
            audit::Value::Text(bytes, cut) => Value::Text { bytes, cut },
            audit::Value::Words(words, cut) => Value::Words {
                words: words.into_iter().map(|bytes| Blob { bytes }).collect(),
                cut,
            },
        },
    }
}
