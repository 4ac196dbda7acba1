//! Programs under ptrace, and the same ones left alone: what they write and how they end must be the same. The kernel knows
//! tracers by thread, so that these tests run beside each other.
#![forbid(unsafe_code)]

mod attached;
#[cfg(target_arch = "x86_64")]
mod image;
mod launched;
mod unwanted;

use fleetgate_calls::abi::{Abi, Call};
use fleetgate_calls::select::{Selection, When};
use fleetgate_sys::seccomp::Instruction;
use fleetgate_trace::TraceError;
use fleetgate_trace::catch::ptrace::{Counts, Launch, Ptrace};
use fleetgate_trace::catch::{Catch, End, Event, NextEvent, Then, Wait, program};
use fleetgate_trace::follow::Follow;
use std::collections::HashMap;
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// A directory of one test's own.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("fleetgate-ptrace-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Place(path)
    }

    /// Where a program is to write what it has seen.
    fn out(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What is caught, and how.
#[derive(Clone, Debug)]
struct Way {
    /// Numbers of this machine's own calls; empty: every call stops.
    calls: &'static [i64],
    then: Then,
    follow: Follow,
    may_suspend: bool,
}

impl Way {
    fn of(calls: &'static [i64], then: Then) -> Way {
        Way {
            calls,
            then,
            follow: Follow::All,
            may_suspend: false,
        }
    }
}

/// What was seen.
#[derive(Debug)]
struct Seen {
    /// Tasks by letters, in the order in which they came: `a began`.
    lines: Vec<String>,
    end: Option<End>,
    counts: Counts,
}

impl Seen {
    /// How many lines end with this.
    fn count(&self, ending: &str) -> usize {
        self.lines.iter().filter(|line| line.ends_with(ending)).count()
    }
}

const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const TRACE: u32 = 0x7ff0_0000;
const ALLOW: u32 = 0x7fff_0000;

/// `LD nr; JEQ call, RET TRACE; …`, the same for clone3, and for clone where it says CLONE_UNTRACED; of any architecture.
fn filter(calls: &[i64]) -> Vec<Instruction> {
    const BITS: u16 = 0x45;
    let step = |code, no, value| Instruction {
        code,
        yes: 0,
        no,
        value,
    };
    let mut program = vec![step(LOAD, 0, 0)];
    for call in calls.iter().chain(&[libc::SYS_clone3]) {
        program.extend([step(EQUAL, 1, *call as u32), step(RETURN, 0, TRACE)]);
    }
    program.extend([step(EQUAL, 3, libc::SYS_clone as u32), step(LOAD, 0, 16)]);
    program.extend([
        step(BITS, 1, 0x0080_0000),
        step(RETURN, 0, TRACE),
        step(RETURN, 0, ALLOW),
    ]);
    if calls.is_empty() { Vec::new() } else { program }
}

fn wanted(calls: &[i64]) -> Selection {
    let mut wanted = Selection::none();
    for (call, abi) in calls
        .iter()
        .flat_map(|call| Abi::SERVED.iter().map(move |abi| (call, abi)))
    {
        let number = *call as u32;
        wanted.add(Call { abi: *abi, number }, When::Always);
    }
    wanted
}

fn launch(command: &[&str], out: &Path, way: &Way) -> Result<Ptrace, TraceError> {
    let string = |s: &str| CString::new(s).expect("no zero byte");
    let path = std::env::var_os("PATH").map(|p| p.into_encoded_bytes());
    Ptrace::launch(Launch {
        path: &program::find(command[0].as_bytes(), path.as_deref())?,
        arguments: command.iter().map(|s| string(s)).collect(),
        environment: vec![
            string(&format!("OUT={}", out.display())),
            string(&format!("PATH={}", std::env::var("PATH").unwrap_or_default())),
        ],
        filter: &filter(way.calls),
        wanted: (!way.calls.is_empty()).then(|| wanted(way.calls)),
        follow: way.follow.clone(),
        may_suspend: way.may_suspend,
    })
}

/// Traces a program to its end.
fn trace(command: &[&str], out: &Path, way: &Way) -> Seen {
    let mut catch = launch(command, out, way).expect("it starts");
    let lines = watch(&mut catch, way.then, |_, _| true);
    assert_eq!(catch.known(), 0, "nobody is kept in mind who is gone: {lines:#?}");
    Seen {
        lines,
        end: catch.end(),
        counts: catch.counts(),
    }
}

/// Lets everything go on until nobody is left, or `goes_on` says no to an event, which then is not answered.
fn watch(catch: &mut Ptrace, then: Then, mut goes_on: impl FnMut(&Ptrace, &Event) -> bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut names: HashMap<i32, char> = HashMap::new();
    loop {
        let event = match catch.next(Wait::Yes).expect("it can be waited for") {
            NextEvent::Event(event) => event,
            NextEvent::Nothing => continue,
            NextEvent::Over => return lines,
        };
        let next = char::from_u32('a' as u32 + names.len() as u32).expect("not that many");
        let mut name = |tid: i32| *names.entry(tid).or_insert(next);
        let (tid, line) = match &event {
            Event::Began { tid, pid, by } => (
                *tid,
                format!(
                    "began{}",
                    match (tid == pid, *by) {
                        (false, _) => " thread",
                        (true, 0) => "",
                        (true, _) => " process",
                    }
                ),
            ),
            Event::Enter(enter) => {
                let mut text = [0; 64];
                let at = match enter.call {
                    Some(Call {
                        abi: Abi::X86_64 | Abi::Aarch64,
                        number,
                    }) if i64::from(number) == libc::SYS_openat => 1,
                    _ => 0,
                };
                let read = catch.read(enter.tid, enter.arguments[at], &mut text);
                let end = text[..read].iter().position(|b| *b == 0).unwrap_or(0);
                let text = String::from_utf8_lossy(&text[..end]).into_owned();
                (enter.tid, format!("calls {} {text}", called(enter.call)))
            }
            Event::Leave { tid, result } => (*tid, format!("= {}", if *result < 0 { *result } else { 0 })),
            Event::Executed { pid, former } => (
                *pid,
                format!("executed{}", if pid == former { "" } else { " by thread" }),
            ),
            Event::Signal { tid, signal } => (*tid, format!("signal {}", signal.number)),
            Event::Stopped { tid, signal } => (*tid, format!("stopped {signal}")),
            Event::Ended { tid, end } => (*tid, format!("{end:?}")),
        };
        lines.push(format!("{} {line}", name(tid)));
        if !goes_on(catch, &event) {
            return lines;
        }
        catch.go_on(tid, then);
    }
}

fn called(call: Option<Call>) -> String {
    let Some(call) = call else {
        return "unknown".into();
    };
    match (call.abi, i64::from(call.number)) {
        (Abi::X86_64 | Abi::Aarch64, libc::SYS_openat) => "openat".into(),
        (Abi::X86_64 | Abi::Aarch64, libc::SYS_execve) => "execve".into(),
        (Abi::X86_64 | Abi::Aarch64, libc::SYS_getppid) => "getppid".into(),
        (abi, number) => format!("{}:{}", abi.name(), number as i32),
    }
}

/// The same, untraced: what it wrote, and how it ended.
fn untraced(command: &[&str], out: &Path) -> (String, End) {
    use std::os::unix::process::ExitStatusExt;
    let status = std::process::Command::new(command[0])
        .args(&command[1..])
        .env_clear()
        .env("OUT", out)
        .env("PATH", std::env::var("PATH").unwrap_or_default())
        .status()
        .expect("it runs");
    let end = match status.signal() {
        Some(signal) => End::Killed(signal, status.core_dumped()),
        None => End::Exited(status.code().expect("a code")),
    };
    (written(out), end)
}

fn written(out: &Path) -> String {
    std::fs::read_to_string(out).unwrap_or_default()
}
