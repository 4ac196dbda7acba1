//! `fleetgate trace --status`: every way to catch calls, really tried on a tiny child, and which one is taken for what.

use crate::cluster::is_root;
use crate::output::print;
use fleetgate_calls::abi::{Abi, Call};
use fleetgate_calls::filter::{self, Answers};
use fleetgate_calls::guardian::{Guardian, Image};
use fleetgate_calls::select::{Selection, When};
use fleetgate_sys::spawn::Strings;
use fleetgate_sys::traced::Start;
use fleetgate_trace::catch::inject::inject;
use fleetgate_trace::catch::notify::Notify;
use fleetgate_trace::catch::ptrace::{Launch, Ptrace};
use fleetgate_trace::catch::{Catch, Event, NextEvent, Then, Wait, program};
use fleetgate_trace::follow::Follow;
use serde_json::{Value, json};
use std::ffi::{CStr, CString};
use std::process::{Child, Command, Stdio};

/// A way, and what came of trying it.
struct Row {
    name: &'static str,
    /// What it is taken for.
    used: &'static str,
    /// What there is to know, or why it does not work.
    found: Result<String, String>,
}

/// Shows them. The exit code is 1 where none works.
pub fn run(as_json: bool) -> crate::flags::Outcome {
    let rows = [
        Row {
            name: "seccomp and ptrace",
            used: "COMMAND, where -e leaves calls out",
            found: by_ptrace(true),
        },
        Row {
            name: "ptrace",
            used: "COMMAND with every call; -p",
            found: by_ptrace(false).and_then(|_| attached()),
        },
        Row {
            name: "notification",
            used: "--no-ptrace",
            found: by_notification(),
        },
        Row {
            name: "injection",
            used: "-p with --inject",
            found: injected(),
        },
    ];
    let works = rows.iter().any(|row| row.found.is_ok());
    let text = match as_json {
        true => format!("{:#}\n", document(&rows)),
        false => table(&rows),
    };
    print(&text)?;
    Ok(i32::from(!works))
}

fn document(rows: &[Row]) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let (works, why) = match &row.found {
                Ok(why) => (true, why),
                Err(why) => (false, why),
            };
            json!({ "way": row.name, "works": works, "used_for": row.used, "why": why })
        })
        .collect();
    json!({ "ways": rows, "root": is_root() })
}

fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let (word, why) = match &row.found {
            Ok(why) => ("yes", why),
            Err(why) => ("no", why),
        };
        text += &format!("{:<20} {word:<4} for {:<36} {why}\n", row.name, row.used);
    }
    text + match is_root() {
        true => {
            "\nas root: programs with the setuid bit keep their privileges, and children that nobody wants run free\n"
        }
        false => {
            "\nas an ordinary user: a filter costs the program its setuid bits (no_new_privs), and children that nobody \
             wants are kept and answered at once; as root neither is so\n"
        }
    }
}

/// What the child is: it asks for its identity, and ends.
const CHILD: &CStr = c"/bin/sh";
const ASKS: [&CStr; 3] = [c"sh", c"-c", c"exec /bin/true"];

/// The second exec of the child, which every way has to see.
fn wanted(answers: &Answers) -> Result<filter::Program, String> {
    let mut selection = Selection::none();
    let exec = Call::named(Abi::NATIVE, "execve").ok_or("this kernel's execve has no number here")?;
    selection.add(exec, When::Always);
    filter::compile(&selection, answers).map_err(|e| e.to_string())
}

/// Whether a program is seen to execute another one, and how the trace ends.
fn sees_execs(catch: &mut dyn Catch) -> Result<u32, String> {
    let mut seen = 0;
    loop {
        match catch.next(Wait::Yes)? {
            NextEvent::Over => return Ok(seen),
            NextEvent::Nothing => {}
            NextEvent::Event(Event::Enter(enter)) => {
                seen += u32::from(enter.call.and_then(Call::name) == Some("execve"));
                catch.go_on(enter.tid, Then::Result);
            }
            NextEvent::Event(
                Event::Leave { tid, .. }
                | Event::Began { tid, .. }
                | Event::Executed { pid: tid, .. }
                | Event::Signal { tid, .. }
                | Event::Stopped { tid, .. },
            ) => catch.go_on(tid, Then::Free),
            NextEvent::Event(Event::Ended { .. }) => {}
        }
    }
}

fn judged(seen: u32) -> Result<String, String> {
    match seen {
        1.. => Ok("tried on a child".to_owned()),
        0 => Err("a child was traced, and its call was not seen".to_owned()),
    }
}

fn by_ptrace(filtered: bool) -> Result<String, String> {
    let filter = wanted(&Answers::trace(0))?;
    let path = program::find(CHILD.to_bytes(), None)?;
    let mut catch = Ptrace::launch(Launch {
        path: &path,
        arguments: ASKS.iter().map(|word| CString::from(*word)).collect(),
        environment: Vec::new(),
        filter: if filtered { filter.instructions() } else { &[] },
        wanted: None,
        follow: Follow::All,
        may_suspend: false,
    })?;
    judged(sees_execs(&mut catch)?)
}

fn by_notification() -> Result<String, String> {
    let filter = wanted(&Answers::notify())?;
    let guardian = Guardian::start(&Image::own(), None);
    let start = Start {
        path: CHILD,
        argv: &Strings::new(ASKS),
        envp: &Strings::new([]),
        filter: filter.instructions(),
        flags: 0,
    };
    let mut catch = Notify::start(&start, guardian).map_err(|e| e.to_string())?;
    let notes: Vec<String> = catch.notes().iter().map(ToString::to_string).collect();
    let tried = judged(sees_execs(&mut catch)?)?;
    match notes.is_empty() {
        true => Ok(tried + ", under a guardian"),
        false => Ok(format!("{tried}; {}", notes.join("; "))),
    }
}

/// A child that waits for its input to end, and its end.
struct Waiting(Child);

impl Waiting {
    fn start() -> Result<(Waiting, i32), String> {
        let child = Command::new("/bin/sh")
            .args(["-c", "read line; exec /bin/true"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| format!("/bin/sh: {e}"))?;
        let pid = i32::try_from(child.id()).map_err(|e| e.to_string())?;
        Ok((Waiting(child), pid))
    }

    fn goes_on(&mut self) {
        drop(self.0.stdin.take());
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.goes_on();
        // Whoever traced it may have had its end already.
        let _ = self.0.wait();
    }
}

fn attached() -> Result<String, String> {
    let (mut child, pid) = Waiting::start()?;
    let mut catch = Ptrace::attach(&[pid], Follow::All)?;
    child.goes_on();
    judged(sees_execs(&mut catch)?)
}

fn injected() -> Result<String, String> {
    let filter = wanted(&Answers::notify())?;
    let (mut child, pid) = Waiting::start()?;
    let guardian = Guardian::start(&Image::own(), None).map_err(|e| e.to_string())?;
    let (mut catch, injection) = inject(pid, filter.instructions(), guardian).map_err(|e| e.to_string())?;
    child.goes_on();
    let tried = judged(sees_execs(&mut catch)?)?;
    let stood = injection.nanos / 1000;
    let privileges = match injection.no_new_privileges {
        true => ", and gave up setuid programs",
        false => "",
    };
    Ok(format!("{tried}, which stood still for {stood} us{privileges}"))
}
