//! Programs that run already and are bound by a filter in the middle of what they do. A program of its own: it starts itself
//! as tracer of an ordinary user's processes, and as guardian.
#![forbid(unsafe_code)]

mod alone;

use alone::filter;
use fleetgate_calls::guardian::{Guardian, Image};
use fleetgate_sys::process;
use fleetgate_trace::catch::inject::{Error, Injection, inject};
use fleetgate_trace::catch::notify::Notify;
use fleetgate_trace::catch::{Catch, Event, NextEvent, Then, Wait};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

fn main() {
    alone::main(
        tracer,
        &[
            (
                "calls_of_all_threads_are_seen_and_leaving_changes_nothing",
                calls_of_all_threads_are_seen_and_leaving_changes_nothing,
            ),
            (
                "a_call_that_was_cut_short_goes_on",
                a_call_that_was_cut_short_goes_on,
            ),
            (
                "signals_that_come_meanwhile_are_delivered_afterwards",
                signals_that_come_meanwhile_are_delivered_afterwards,
            ),
            ("a_stopped_process_stays_stopped", a_stopped_process_stays_stopped),
            (
                "threads_that_begin_meanwhile_are_bound",
                threads_that_begin_meanwhile_are_bound,
            ),
            (
                "what_cannot_be_is_refused_and_changes_nothing",
                what_cannot_be_is_refused_and_changes_nothing,
            ),
            (
                "a_filter_that_forbids_it_is_suspended_or_respected",
                a_filter_that_forbids_it_is_suspended_or_respected,
            ),
            (
                "an_ordinary_user_needs_no_new_privs",
                an_ordinary_user_needs_no_new_privs,
            ),
        ],
    );
}

/// Read by every program below: calls without the interpreter's own loops around them.
const PRELUDE: &str = "
import ctypes, os, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
class Span(ctypes.Structure):
    _fields_ = [('sec', ctypes.c_long), ('nsec', ctypes.c_long)]
def say(*words):
    os.write(1, (' '.join(map(str, words)) + '\\n').encode())
def result(value):
    say(value, ctypes.get_errno() if value < 0 else 0)
";

/// A program, which has said that it is ready.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(script: &str) -> Program {
        Program::of(Command::new("/usr/bin/python3").args(["-c", &format!("{PRELUDE}{script}")]))
    }

    fn of(command: &mut Command) -> Program {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut program = Program {
            input: child.stdin.take().expect("piped"),
            output: BufReader::new(child.stdout.take().expect("piped")),
            child,
        };
        assert_eq!(program.line(), "ready");
        program
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a pipe");
        line.trim_end().to_owned()
    }

    /// Until the task waits in this call.
    fn waits_in(&self, call: i64) {
        let path = format!("/proc/{}/syscall", self.pid());
        let begins = format!("{call} ");
        while !fs::read_to_string(&path).expect("it lives").starts_with(&begins) {
            std::thread::yield_now();
        }
    }

    fn tell(&mut self) {
        self.input.write_all(b"go\n").expect("it reads");
    }

    /// The rest of its output, and its exit code.
    fn finish(mut self) -> (String, Option<i32>) {
        let mut text = String::new();
        self.output.read_to_string(&mut text).expect("a pipe");
        let code = self.child.wait().expect("it ends").code();
        (text, code)
    }
}

fn bind(pid: i32, calls: &[i64]) -> Result<(Notify, Injection), Error> {
    inject(
        pid,
        &filter(calls),
        Guardian::start(&Image::own(), None).expect("a guardian"),
    )
}

/// Lets everything go on until the end or until told; the tasks that called.
fn watch(notify: &mut Notify, until: impl Fn(&HashSet<i32>) -> bool) -> HashSet<i32> {
    let mut tasks = HashSet::new();
    while !until(&tasks) {
        match notify.next(Wait::Yes).expect("it goes on") {
            NextEvent::Event(Event::Enter(enter)) => {
                tasks.insert(enter.tid);
                notify.go_on(enter.tid, Then::Free);
            }
            NextEvent::Over => break,
            _ => {}
        }
    }
    tasks
}

/// Four threads that open and sleep until they are told to end.
const THREADS: &str = "
stop = False
bad = []
def work():
    while not stop:
        try:
            os.close(os.open('/dev/null', os.O_RDONLY))
        except OSError as error:
            bad.append(error)
        time.sleep(0.001)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
say('ready')
os.read(0, 3)
stop = True
for thread in threads: thread.join()
say('bad', bad)
os._exit(5)
";

fn calls_of_all_threads_are_seen_and_leaving_changes_nothing() {
    let mut program = Program::start(THREADS);
    let (mut notify, injection) = bind(program.pid(), &[libc::SYS_openat]).expect("bound");
    assert!(injection.nanos > 0);
    assert_eq!(injection.no_new_privileges, process::effective_uid() != 0);
    let began = notify.next(Wait::No).expect("an event");
    let pid = program.pid();
    assert_eq!(began, NextEvent::Event(Event::Began { tid: pid, pid, by: 0 }));
    let tasks = watch(&mut notify, |tasks| tasks.len() == 4);
    assert!(!tasks.contains(&pid));
    notify.leave();
    // And by an end that is none: whoever drops it is gone for the guardian.
    drop(notify);
    program.tell();
    assert_eq!(program.finish(), ("bad []\n".into(), Some(5)));
}

fn a_call_that_was_cut_short_goes_on() {
    let waits = [
        // What is left of the time is the kernel's to remember (a restart block).
        (
            "libc.nanosleep(ctypes.byref(Span(0, 200000000)), None)",
            libc::SYS_clock_nanosleep,
            "0 0",
        ),
        ("libc.poll(None, 0, 200)", libc::SYS_poll, "0 0"),
        (
            "libc.syscall(202, ctypes.byref(ctypes.c_int(7)), 0, 7, ctypes.byref(Span(0, 200000000)), None, 0)",
            libc::SYS_futex,
            "-1 110",
        ),
        // Made again from its beginning.
        (
            "libc.read(0, ctypes.create_string_buffer(8), 8)",
            libc::SYS_read,
            "3 0",
        ),
        (
            "libc.syscall(271, ctypes.byref((ctypes.c_int * 2)(0, 1)), 1, None, ctypes.byref(ctypes.c_ulong(1 << 9)), 8)",
            libc::SYS_ppoll,
            "1 0",
        ),
        (
            "int(libc.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'read a'], {}), None, 0) > 0)",
            libc::SYS_wait4,
            "1 0",
        ),
        ("libc.flock(other(), 2)", libc::SYS_flock, "0 0"),
        // Not made again by the kernel, whoever stops it.
        (
            "libc.epoll_wait(watched(), ctypes.create_string_buffer(16), 1, -1)",
            libc::SYS_epoll_wait,
            "1 0",
        ),
    ];
    let helpers = "
import fcntl, select
def other():
    path = '/tmp/fleetgate-flock.%d' % os.getpid()
    held = os.open(path, os.O_CREAT | os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    wanted = os.open(path, os.O_RDWR)
    os.unlink(path)
    def release():
        os.read(0, 3)
        fcntl.flock(held, fcntl.LOCK_UN)
    threading.Thread(target=release).start()
    return wanted
def watched():
    epoll = select.epoll()
    epoll.register(0, select.EPOLLIN)
    return os.dup(epoll.fileno())
before = libc.getpid()
say('ready')
";
    for (wait, call, expected) in waits {
        let script = format!(
            "{helpers}\nvalue = {wait}\nresult(min(value, 1) if {call} == 61 else value)\nos._exit(3)\n"
        );
        let mut program = Program::start(&script);
        program.waits_in(call);
        let (mut notify, _) =
            bind(program.pid(), &[libc::SYS_getpid]).unwrap_or_else(|e| panic!("{wait}: {e}"));
        program.tell();
        watch(&mut notify, |_| false);
        assert_eq!(program.finish(), (format!("{expected}\n"), Some(3)), "{wait}");
    }
}

/// A timer sends signals all the time, and counts those that come: none is lost, and none breaks a call.
fn signals_that_come_meanwhile_are_delivered_afterwards() {
    for _ in 0..20 {
        let mut program = Program::start(
            "
count = 0
def came(*_):
    global count
    count += 1
signal.signal(signal.SIGALRM, came)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
say('ready')
def told():
    os.read(0, 3)
    os.write(inner, b'x')
outer, inner = os.pipe()
threading.Thread(target=told).start()
while True:
    data = os.read(outer, 1)
    if data: break
signal.setitimer(signal.ITIMER_REAL, 0)
say(count > 0)
os._exit(4)
",
        );
        let (mut notify, _) = bind(program.pid(), &[libc::SYS_openat]).expect("bound");
        notify.leave();
        program.tell();
        assert_eq!(program.finish(), ("True\n".into(), Some(4)));
    }
}

fn a_stopped_process_stays_stopped() {
    let mut program = Program::start(THREADS);
    let pid = program.pid();
    let pidfd = process::pidfd_open(pid).expect("it lives");
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
        stat.rsplit_once(") ").expect("a name").1.as_bytes()[0]
    };
    process::signal(&pidfd, libc::SIGSTOP).expect("it lives");
    while state() != b'T' {
        std::thread::yield_now();
    }
    let (mut notify, _) = bind(pid, &[libc::SYS_openat]).expect("bound");
    while state() == b'R' {
        std::thread::yield_now();
    }
    assert_eq!(state(), b'T');
    process::signal(&pidfd, libc::SIGCONT).expect("it lives");
    assert_eq!(watch(&mut notify, |tasks| tasks.len() == 4).len(), 4);
    notify.leave();
    program.tell();
    assert_eq!(program.finish(), ("bad []\n".into(), Some(5)));
}

fn threads_that_begin_meanwhile_are_bound() {
    for _ in 0..10 {
        let mut program = Program::start(
            "
stop = False
bad = []
def one():
    try:
        os.close(os.open('/dev/null', os.O_RDONLY))
    except OSError as error:
        bad.append(error)
def work():
    while not stop:
        thread = threading.Thread(target=one)
        thread.start()
        thread.join()
workers = [threading.Thread(target=work) for _ in range(3)]
for worker in workers: worker.start()
say('ready')
os.read(0, 3)
stop = True
for worker in workers: worker.join()
os.sched_yield()
fd = os.open('/dev/null', os.O_RDONLY)
say('bad', bad)
os._exit(5)
",
        );
        let (mut notify, _) = bind(program.pid(), &[libc::SYS_openat]).expect("bound");
        assert!(watch(&mut notify, |tasks| tasks.len() > 20).len() > 20);
        notify.leave();
        program.tell();
        assert_eq!(program.finish(), ("bad []\n".into(), Some(5)));
    }
}

fn what_cannot_be_is_refused_and_changes_nothing() {
    let refused = |pid| bind(pid, &[libc::SYS_openat]).map(drop);
    assert_eq!(refused(i32::MAX), Err(Error::Gone));
    assert_eq!(refused(process::id()), Err(Error::Own));

    let mut program = Program::start(THREADS);
    let (mut notify, _) = bind(program.pid(), &[libc::SYS_openat]).expect("bound");
    let open = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while open.load(Ordering::SeqCst) {
                if let NextEvent::Event(Event::Enter(enter)) = notify.next(Wait::No).expect("it goes on") {
                    notify.go_on(enter.tid, Then::Free);
                }
            }
            notify.leave();
        });
        assert_eq!(refused(program.pid()), Err(Error::Nested));
        open.store(false, Ordering::SeqCst);
    });
    program.tell();
    assert_eq!(program.finish(), ("bad []\n".into(), Some(5)));

    if std::path::Path::new("/usr/bin/strace").exists() {
        let script = format!("{PRELUDE}{THREADS}");
        let mut traced = Program::of(Command::new("strace").args([
            "-f",
            "-o",
            "/dev/null",
            "-e",
            "trace=none",
            "/usr/bin/python3",
            "-c",
            &script,
        ]));
        let strace = traced.pid();
        let children =
            fs::read_to_string(format!("/proc/{strace}/task/{strace}/children")).expect("its children");
        let pid = children.trim().parse().expect("one child");
        assert_eq!(refused(pid), Err(Error::Traced(strace)));
        traced.tell();
        assert_eq!(traced.finish(), ("bad []\n".into(), Some(5)));
    } else {
        println!("skipped: there is no strace");
    }

    // A thread with a filter of its own.
    let mut program = Program::start(
        "
class Step(ctypes.Structure):
    _fields_ = [('code', ctypes.c_ushort), ('yes', ctypes.c_ubyte), ('no', ctypes.c_ubyte), ('value', ctypes.c_uint)]
class Filter(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('steps', ctypes.c_void_p)]
step = Step(6, 0, 0, 0x7fff0000)
wait = threading.Event()
bound = threading.Event()
def own():
    libc.prctl(38, 1, 0, 0, 0)
    result(libc.syscall(317, 1, 0, ctypes.byref(Filter(1, ctypes.addressof(step)))))
    bound.set()
    wait.wait()
thread = threading.Thread(target=own)
say('ready')
thread.start()
bound.wait()
os.read(0, 3)
wait.set()
thread.join()
say('end')
os._exit(5)
",
    );
    assert_eq!(program.line(), "0 0");
    let error = refused(program.pid());
    let plain = match error {
        Err(Error::After(error)) => Err(*error),
        other => other,
    };
    assert_eq!(plain, Err(Error::Threads));
    program.tell();
    assert_eq!(program.finish(), ("end\n".into(), Some(5)));
}

/// A program that is killed when it makes the very call that binds it, and gives itself that filter before it begins.
const GUARDED: &str = "
class Step(ctypes.Structure):
    _fields_ = [('code', ctypes.c_ushort), ('yes', ctypes.c_ubyte), ('no', ctypes.c_ubyte), ('value', ctypes.c_uint)]
class Filter(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('steps', ctypes.c_void_p)]
steps = (Step * 4)(Step(0x20, 0, 0, 0), Step(0x15, 0, 1, 317), Step(6, 0, 0, 0x80000000), Step(6, 0, 0, 0x7fff0000))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.syscall(317, 1, 0, ctypes.byref(Filter(4, ctypes.addressof(steps)))) == 0
";

fn a_filter_that_forbids_it_is_suspended_or_respected() {
    if process::effective_uid() != 0 {
        println!("skipped: needs root, to suspend a filter and to become somebody else");
        return;
    }
    let mut program = Program::start(&format!("{GUARDED}{THREADS}"));
    let (mut notify, injection) = bind(program.pid(), &[libc::SYS_openat]).expect("bound");
    assert!(!injection.no_new_privileges, "it had that");
    assert_eq!(watch(&mut notify, |tasks| tasks.len() == 4).len(), 4);
    notify.leave();
    program.tell();
    assert_eq!(program.finish(), ("bad []\n".into(), Some(5)));

    let script = format!("{PRELUDE}{GUARDED}{THREADS}");
    let mut program = Program::of(
        Command::new("/usr/bin/python3")
            .args(["-c", &script])
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir("/"),
    );
    assert_eq!(traced_as_nobody(program.pid()), format!("{}\n", Error::Filtered));
    program.tell();
    assert_eq!(program.finish(), ("bad []\n".into(), Some(5)));
}

/// What a tracer of an ordinary user says.
fn traced_as_nobody(pid: i32) -> String {
    let tracer = Command::new("/proc/self/exe")
        .args(["tracer", &pid.to_string()])
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .expect("a tracer");
    assert!(
        tracer.status.success(),
        "{}",
        String::from_utf8_lossy(&tracer.stderr)
    );
    String::from_utf8_lossy(&tracer.stdout).into_owned()
}

const NOBODY: u32 = 65534;

/// `tracer PID`: binds it by a filter that even stops what the process is made to do, looks for a while, and leaves.
fn tracer(args: &[OsString]) -> ! {
    let pid = args[0]
        .to_str()
        .and_then(|pid| pid.parse().ok())
        .expect("a number");
    let calls = [libc::SYS_openat, libc::SYS_close, libc::SYS_munmap];
    match bind(pid, &calls) {
        Ok((mut notify, injection)) => {
            let tasks = watch(&mut notify, |tasks| tasks.len() == 4);
            notify.leave();
            println!("{} {}", tasks.len(), injection.no_new_privileges);
        }
        Err(error) => println!("{error}"),
    }
    std::process::exit(0);
}

fn an_ordinary_user_needs_no_new_privs() {
    if process::effective_uid() != 0 {
        println!("skipped: needs root, to become somebody else");
        return;
    }
    let script = format!("{PRELUDE}{THREADS}");
    for (user, expected) in [
        (NOBODY, "4 true\n"),
        (
            0,
            "this user may not trace it (Operation not permitted (EPERM)): it is another user's, or has privileges; do it as root\n",
        ),
    ] {
        let mut program = Program::of(
            Command::new("/usr/bin/python3")
                .args(["-c", &script])
                .uid(user)
                .gid(user)
                .current_dir("/"),
        );
        assert_eq!(traced_as_nobody(program.pid()), expected);
        program.tell();
        assert_eq!(program.finish(), ("bad []\n".into(), Some(5)));
    }
}
