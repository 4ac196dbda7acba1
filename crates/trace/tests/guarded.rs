//! Programs that are traced by notification while their tracer is killed, and what their guardian does. A program of its
//! own: it starts itself as tracer and as guardian.
#![forbid(unsafe_code)]

mod alone;

use alone::filter;
use fleetgate_calls::guardian::{self, Guardian, Image};
use fleetgate_sys::Errno;
use fleetgate_sys::file;
use fleetgate_sys::net::PrivateDirectory;
use fleetgate_sys::poll::{READ, Watch, poll};
use fleetgate_sys::process::{self, numbers};
use fleetgate_sys::seccomp::flag;
use fleetgate_sys::slots::{SLOTS, Slots};
use fleetgate_sys::socket;
use fleetgate_sys::spawn::Strings;
use fleetgate_sys::traced::{self, Start, Step};
use fleetgate_trace::catch::notify::{self, Note, Notify};
use fleetgate_trace::catch::{Catch, End, Event, NextEvent, Then, Wait};
use fleetgate_wire::encode;
use fleetgate_wire::guard::{Kept, MAX_LISTENERS, MAX_TRACERS, Request};
use std::ffi::{CStr, CString, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

fn main() {
    alone::main(
        tracer,
        &[
            (
                "a_traced_program_is_told_of_from_its_exec_to_its_end",
                a_traced_program_is_told_of_from_its_exec_to_its_end,
            ),
            (
                "a_tracer_killed_at_any_moment_changes_nothing",
                a_tracer_killed_at_any_moment_changes_nothing,
            ),
            (
                "what_nobody_saw_is_counted_and_another_goes_on",
                what_nobody_saw_is_counted_and_another_goes_on,
            ),
            ("leaving_changes_nothing", leaving_changes_nothing),
            (
                "a_guardian_outlives_signals_and_is_replaced",
                a_guardian_outlives_signals_and_is_replaced,
            ),
            (
                "a_guardian_keeps_no_more_than_its_bounds",
                a_guardian_keeps_no_more_than_its_bounds,
            ),
            ("strace_and_gdb_work_inside", strace_and_gdb_work_inside),
            ("signals_change_nothing", signals_change_nothing),
            ("more_calls_wait_than_are_held", more_calls_wait_than_are_held),
        ],
    );
}

const EXECVE: i64 = libc::SYS_execve;
const CHDIR: i64 = libc::SYS_chdir;

fn start(path: &CStr, script: &CStr, calls: &[i64], guardian: Result<Guardian, guardian::Error>) -> Notify {
    let envp: Vec<CString> = std::env::vars()
        .map(|(name, value)| CString::new(format!("{name}={value}")).expect("no zero"))
        .collect();
    let what = Start {
        path,
        argv: &Strings::new([c"sh", c"-c", script]),
        envp: &Strings::new(envp.iter().map(CString::as_c_str)),
        filter: &filter(calls),
        flags: 0,
    };
    Notify::start(&what, guardian).expect("it starts")
}

/// Everything until the end, each call let go on at once: the calls' numbers, and the other events.
fn watch(notify: &mut Notify) -> (Vec<u32>, Vec<Event>) {
    let (mut calls, mut others) = (Vec::new(), Vec::new());
    loop {
        match notify.next(Wait::Yes).expect("it goes on") {
            NextEvent::Event(Event::Enter(enter)) => {
                calls.push(enter.number);
                notify.go_on(enter.tid, Then::Free);
            }
            NextEvent::Event(event) => others.push(event),
            NextEvent::Nothing => {}
            NextEvent::Over => return (calls, others),
        }
    }
}

fn a_traced_program_is_told_of_from_its_exec_to_its_end() {
    let (e, c) = (EXECVE as u32, CHDIR as u32);
    for (path, script, calls, end, failure) in [
        (
            c"/bin/sh",
            c"cd / && cd /tmp; exit 7",
            vec![e, c, c],
            End::Exited(7),
            None,
        ),
        (
            c"/bin/sh",
            c"exec /bin/sh -c 'cd /; kill -9 $$'",
            vec![e, e, c],
            End::Killed(9, false),
            None,
        ),
        (c"/bin/sh", c"(cd /) & wait", vec![e, c], End::Exited(0), None),
        (
            c"/nowhere",
            c"",
            vec![e],
            End::Exited(127),
            Some((Step::Exec, Errno::ENOENT)),
        ),
    ] {
        // These and exit_group, where it cannot be executed, are made by the child itself: nobody is told of them.
        let mut wanted = vec![EXECVE, CHDIR, libc::SYS_futex, libc::SYS_prctl];
        wanted.extend(failure.map(|_| libc::SYS_exit_group));
        let mut notify = start(path, script, &wanted, Guardian::start(&Image::own(), None));
        let pid = notify.pid().expect("a first process");
        let (seen, others) = watch(&mut notify);
        assert_eq!(seen, calls, "{script:?}");
        assert_eq!(others.first(), Some(&Event::Began { tid: pid, pid, by: 0 }));
        assert!(others.contains(&Event::Ended { tid: pid, end }), "{others:?}");
        assert_eq!(notify.failure(), failure);
        let notes = notify.notes();
        assert!(
            notes.iter().all(|n| !matches!(n, Note::NoGuardian(_))),
            "{notes:?}"
        );
    }
}

/// What the programs below do: so many calls, then a line from whoever watches, then as many again.
const ROUNDS: u64 = 20;
const SCRIPT: &CStr = c"exec 2> /dev/null; round() { i=0; while [ $i -lt 20 ]; do i=$((i+1)); cd / || echo bad; echo $i; done; }
    (round; echo half; read line; round; exit 3); echo code $?";

fn expected() -> String {
    let round: String = (1..=ROUNDS).map(|i| format!("{i}\n")).collect();
    format!("{round}half\n{round}code 3\n")
}

/// A tracer in a process of its own, with a program whose output comes here.
struct Traced {
    tracer: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    text: String,
}

impl Traced {
    fn start(door: &CStr, point: &str) -> Traced {
        let mut tracer = Command::new("/proc/self/exe")
            .args(["tracer", door.to_str().expect("text"), point])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a tracer");
        Traced {
            input: tracer.stdin.take().expect("piped"),
            output: BufReader::new(tracer.stdout.take().expect("piped")),
            text: String::new(),
            tracer,
        }
    }

    /// Until the tracer says that it stands still.
    fn parked(&mut self) {
        let mut word = [0; 6];
        let said = self.tracer.stderr.as_mut().expect("piped").read_exact(&mut word);
        assert!(said.is_ok() && &word == b"parked", "{word:?}");
    }

    fn line(&mut self) {
        assert!(
            self.output.read_line(&mut self.text).expect("a pipe") > 0,
            "{}",
            self.text
        );
    }

    fn kill(&mut self) {
        self.tracer.kill().expect("it lives");
        self.tracer.wait().expect("it is gone");
    }

    /// The program's whole output.
    fn finish(mut self) -> String {
        // One that never began reads nothing.
        let _ = self.input.write_all(b"go\n");
        self.output.read_to_string(&mut self.text).expect("a pipe");
        self.text
    }
}

/// Stands still when nobody but this process has the listener: the program has not begun, and never does.
fn starting() -> ! {
    let child = traced::start(&Start {
        path: c"/bin/sh",
        argv: &Strings::new([c"sh", c"-c", SCRIPT]),
        envp: &Strings::new([]),
        filter: &filter(&[CHDIR]),
        flags: flag::NEW_LISTENER,
    });
    let child = child.expect("a child");
    child.begin();
    let _listener = child.listener().expect("a listener");
    park()
}

fn park() -> ! {
    eprint!("parked");
    loop {
        let _ = poll(&mut [], None);
    }
}

/// `tracer DOOR POINT`: stands still at the third call, `received` or `answered`, or never.
fn tracer(args: &[OsString]) -> ! {
    let door = CString::new(args[0].as_encoded_bytes()).expect("no zero");
    let point = args[1].to_str().expect("text");
    let listening = guardian::door(&door).expect("a door");
    let guardian = Guardian::start(&Image::own(), Some(&listening));
    drop(listening);
    if point == "starting" {
        starting();
    }
    let mut notify = start(c"/bin/sh", SCRIPT, &[CHDIR], guardian);
    let mut count = 0;
    loop {
        match notify.next(Wait::Yes).expect("it goes on") {
            NextEvent::Event(Event::Enter(enter)) => {
                count += 1;
                if point == "answered" {
                    notify.go_on(enter.tid, Then::Free);
                }
                if count == 3 && point != "never" {
                    park();
                }
                notify.go_on(enter.tid, Then::Free);
            }
            NextEvent::Over => std::process::exit(0),
            _ => {}
        }
    }
}

fn place() -> (PrivateDirectory, CString) {
    let directory = PrivateDirectory::make(b"/tmp/fleetgate-trace.").expect("a directory");
    let door = [directory.path().to_bytes(), b"/guardian"].concat();
    (directory, CString::new(door).expect("no zero"))
}

fn clean((directory, door): (PrivateDirectory, CString)) {
    std::fs::remove_file(door.to_str().expect("text")).expect("it was there");
    directory.remove().expect("it is empty");
}

fn a_tracer_killed_at_any_moment_changes_nothing() {
    let place = place();
    for point in ["received", "answered", "starting"] {
        let mut traced = Traced::start(&place.1, point);
        traced.parked();
        traced.kill();
        let output = if point == "starting" {
            String::new()
        } else {
            expected()
        };
        assert_eq!(traced.finish(), output, "{point}");
        std::fs::remove_file(place.1.to_str().expect("text")).expect("a door");
    }
    // Without a stop: whatever the tracer is doing when the program has said so many lines.
    for lines in 0..ROUNDS {
        let mut traced = Traced::start(&place.1, "never");
        (0..=lines).for_each(|_| traced.line());
        traced.kill();
        assert_eq!(traced.finish(), expected(), "{lines} lines");
        std::fs::remove_file(place.1.to_str().expect("text")).expect("a door");
    }
    place.0.remove().expect("it is empty");
}

fn what_nobody_saw_is_counted_and_another_goes_on() {
    for (point, left) in [("received", 1), ("answered", 0)] {
        let place = place();
        let mut traced = Traced::start(&place.1, point);
        traced.parked();
        let early = Guardian::connect(&place.1).expect("a guardian");
        let nothing = Kept {
            id: notify::ONLY,
            gap: None,
        };
        assert_eq!(early.list(), Ok(vec![nothing]));
        assert_eq!(early.adopt(notify::ONLY).err(), Some(guardian::Error::Taken));
        assert_eq!(early.adopt(77).err(), Some(guardian::Error::Unknown));
        traced.kill();
        while !traced.text.ends_with("half\n") {
            traced.line();
        }
        let adopted = early.adopt(notify::ONLY).expect("nobody has it");
        let gap = adopted.kept.gap.clone().expect("a gap");
        assert_eq!((gap.left, gap.unseen), (left, ROUNDS - 3), "{point}");
        assert!(gap.until.is_some_and(|until| until >= gap.since));
        let mut notify = Notify::adopted(early, adopted, None);
        let writer = std::thread::spawn(move || traced.finish());
        let (calls, _) = watch(&mut notify);
        assert_eq!(calls.len() as u64, ROUNDS, "{point}");
        assert_eq!(writer.join().expect("it ends"), expected());
        clean(place);
    }
}

fn leaving_changes_nothing() {
    let guardian = Guardian::start(&Image::own(), None).expect("a guardian");
    let process = guardian
        .process()
        .expect("started here")
        .duplicate(0)
        .expect("a descriptor");
    let mut notify = start(
        c"/bin/sh",
        c"for i in 1 2 3 4 5 6 7 8; do cd / || exit 9; done; exit 6",
        &[CHDIR],
        Ok(guardian),
    );
    let pid = notify.pid().expect("a first process");
    let pidfd = process::pidfd_open(pid).expect("it lives");
    while !matches!(notify.next(Wait::Yes), Ok(NextEvent::Event(Event::Enter(_)))) {}
    notify.leave();
    assert_eq!(notify.next(Wait::Yes), Ok(NextEvent::Over));
    assert_eq!(process::wait(&pidfd, true), Ok(Some(process::Exit::Code(6))));
    drop(notify);
    assert_eq!(
        process::wait(&process, true),
        Ok(Some(process::Exit::Code(0))),
        "it has nothing left to do"
    );
}

fn a_guardian_outlives_signals_and_is_replaced() {
    let guardian = Guardian::start(&Image::own(), None).expect("a guardian");
    guardian.list().expect("it has begun");
    let process = guardian
        .process()
        .expect("started here")
        .duplicate(0)
        .expect("a descriptor");
    for signal in [
        numbers::SIGHUP,
        numbers::SIGINT,
        numbers::SIGTERM,
        numbers::SIGQUIT,
    ] {
        process::signal(&process, signal).expect("it lives");
    }
    assert_eq!(guardian.list(), Ok(vec![]));
    let mut notify = start(c"/bin/sh", c"cd /; exit 5", &[CHDIR], Ok(guardian));
    assert!(notify.notes().iter().all(|n| !matches!(n, Note::NoGuardian(_))));
    process::signal(&process, process::SIGKILL).expect("it lives");
    assert!(process::wait(&process, true).is_ok());
    let (calls, others) = watch(&mut notify);
    assert_eq!(calls.len(), 1);
    let end = End::Exited(5);
    assert!(
        others
            .iter()
            .any(|e| matches!(e, Event::Ended { end: e, .. } if *e == end))
    );
    let notes = notify.notes();
    assert!(notes.contains(&Note::NewGuardian), "{notes:?}");
}

fn a_guardian_keeps_no_more_than_its_bounds() {
    let place = place();
    let listening = guardian::door(&place.1).expect("a door");
    let first = Guardian::start(&Image::own(), Some(&listening)).expect("a guardian");
    drop(listening);
    let process = first
        .process()
        .expect("started here")
        .duplicate(0)
        .expect("a descriptor");
    let mut others: Vec<Guardian> = (1..MAX_TRACERS)
        .map(|_| Guardian::connect(&place.1).expect("there is room"))
        .collect();
    assert!(others.iter().all(|other| other.list() == Ok(vec![])));
    // One more waits at the door: it is let in when another one has gone.
    let late = Guardian::connect(&place.1).expect("the kernel takes it");
    socket::send(late.socket(), &encode(&Request::List), &[]).expect("there is room");
    let mut watch = [Watch::new(late.socket().raw(), READ)];
    for _ in 0..3 {
        assert_eq!(first.list(), Ok(vec![]));
    }
    assert_eq!(poll(&mut watch, Some(0)), Ok(0));
    others.pop();
    poll(&mut watch, None).expect("it is answered");

    // These are no listeners, which it finds out when it is its turn to answer: there is nothing to answer.
    let null = file::openat(file::CWD, c"/dev/null", file::flags::O_RDWR, 0).expect("there is one");
    let slots = Slots::new().expect("memory");
    for id in 0..MAX_LISTENERS as u64 {
        first.keep(id, &null, &slots).expect("it takes it");
    }
    assert_eq!(first.list().map(|kept| kept.len()), Ok(MAX_LISTENERS));
    let _ = first.keep(u64::MAX, &null, &slots);
    assert!(
        matches!(first.list(), Err(guardian::Error::Gone(_))),
        "it is let go"
    );
    drop((first, others, late));
    assert_eq!(process::wait(&process, true), Ok(Some(process::Exit::Code(0))));
    clean(place);
}

/// A timer's signals come while calls wait: each call is told of once and answers as it would. (Where the handler has no
/// SA_RESTART, one that was not received yet answers EINTR: that is the kernel's.)
fn signals_change_nothing() {
    let script = c"exec /usr/bin/python3 -c '
import os, signal
count = 0
def came(*_):
    global count
    count += 1
signal.signal(signal.SIGALRM, came)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for _ in range(300): os.chdir(\"/\")
while not count: pass
os._exit(7)
'";
    let mut notify = start(c"/bin/sh", script, &[CHDIR], Guardian::start(&Image::own(), None));
    let notes = notify.notes();
    let (calls, others) = watch(&mut notify);
    if notes.contains(&Note::Interruptible) {
        println!("skipped: this kernel begins calls anew");
        return;
    }
    assert_eq!(calls.len(), 300);
    let end = End::Exited(7);
    assert!(
        others
            .iter()
            .any(|e| matches!(e, Event::Ended { end: e, .. } if *e == end))
    );
}

/// Calls that are held and never answered are bounded; those that are answered free their room.
fn more_calls_wait_than_are_held() {
    let script = c"for i in $(seq 80); do (cd / && exit 0 || exit 1) & done; bad=0; wait; exit 6";
    let mut notify = start(c"/bin/sh", script, &[CHDIR], Guardian::start(&Image::own(), None));
    let mut held = Vec::new();
    loop {
        match notify.next(Wait::Yes).expect("it goes on") {
            NextEvent::Event(Event::Enter(enter)) => held.push(enter.tid),
            NextEvent::Event(_) => {}
            NextEvent::Nothing => break,
            NextEvent::Over => unreachable!("eighty processes wait"),
        }
    }
    assert_eq!(held.len(), SLOTS);
    for tid in held {
        notify.go_on(tid, Then::Free);
    }
    let (calls, others) = watch(&mut notify);
    assert_eq!(calls.len(), 80 - SLOTS);
    let end = End::Exited(6);
    assert!(
        others
            .iter()
            .any(|e| matches!(e, Event::Ended { end: e, .. } if *e == end))
    );
}

fn strace_and_gdb_work_inside() {
    for (tool, script) in [
        (
            "/usr/bin/strace",
            c"strace -f -o /dev/null -e trace=chdir sh -c 'cd /; (cd /tmp; exit 4)'",
        ),
        (
            "/usr/bin/gdb",
            c"gdb -nx -batch -return-child-result -ex run --args sh -c 'cd /; exit 4' > /dev/null 2>&1",
        ),
    ] {
        if !std::path::Path::new(tool).exists() {
            println!("skipped: there is no {tool}");
            continue;
        }
        let mut notify = start(c"/bin/sh", script, &[CHDIR], Guardian::start(&Image::own(), None));
        let (calls, others) = watch(&mut notify);
        assert!(!calls.is_empty(), "{tool}");
        let end = End::Exited(4);
        assert!(
            others
                .iter()
                .any(|e| matches!(e, Event::Ended { end: e, .. } if *e == end)),
            "{tool}: {others:?}"
        );
    }
}
