//! Programs that run already, and tracers that end before what they trace.

use super::*;
use fleetgate_trace::catch::Enter;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Threads that open files and one that waits to be told to end; says so when all run, and what it has seen at the end.
const WORKERS: &str = r#"
import os, sys, threading, signal
stop = False
alarms = []
signal.signal(signal.SIGUSR1, lambda *_: alarms.append(1))
def work(file):
    while not stop: os.close(os.open(file, os.O_RDONLY))
threads = [threading.Thread(target=work, args=(f,)) for f in ("/dev/null", "/dev/zero")]
[t.start() for t in threads]
print(os.getpid(), flush=True)
for line in sys.stdin:
    if line == "signal\n":
        before = len(alarms)
        os.kill(os.getpid(), signal.SIGUSR1)
        while len(alarms) == before: pass
        print(len(alarms), flush=True)
    elif line == "child\n":
        print(os.waitpid(os.spawnlp(os.P_NOWAIT, "cat", "cat", "/proc/version", "/dev/full/no"), 0)[1] >> 8, flush=True)
    elif line == "end\n": break
stop = True
[t.join() for t in threads]
print("ended", flush=True)
os._exit(7)
"#;

/// A program, not the child of this thread: a shell stands between, and says how it ended.
struct Worker {
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pid: i32,
}

impl Worker {
    fn start(script: &str) -> Worker {
        let mut shell = Command::new("sh")
            .args(["-c", r#"/usr/bin/python3 -c "$1"; echo "code $?""#, "sh", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let input = shell.stdin.take().expect("its input");
        let output = BufReader::new(shell.stdout.take().expect("its output"));
        let mut worker = Worker {
            shell,
            input,
            output,
            pid: 0,
        };
        worker.pid = worker.says().parse().expect("its number");
        worker
    }

    fn tell(&mut self, what: &str) {
        // In one write: it may end at its first byte.
        self.input
            .write_all(format!("{what}\n").as_bytes())
            .expect("it listens");
    }

    fn says(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.output.read_line(&mut line).expect("it speaks"),
                0,
                "it has ended"
            );
            if !line.starts_with("Linux") {
                return line.trim_end().to_owned();
            }
        }
    }

    /// It ends as it would have.
    fn ends(mut self) {
        self.tell("end");
        assert_eq!(self.says(), "ended");
        assert_eq!(self.says(), "code 7");
        self.shell.wait().expect("the shell");
    }
}

/// Watches until `done` says so of some event.
fn until(catch: &mut Ptrace, then: Then, mut done: impl FnMut(&Ptrace, &Event) -> bool) -> Vec<String> {
    watch(catch, then, |catch, event| !done(catch, event))
}

fn opens(catch: &Ptrace, event: &Event, file: &str) -> bool {
    let Event::Enter(Enter {
        tid, call, arguments, ..
    }) = event
    else {
        return false;
    };
    let mut text = [0; 64];
    let read = catch.read(*tid, arguments[1], &mut text);
    called(*call) == "openat" && text[..read].starts_with(file.as_bytes())
}

#[test]
fn every_thread_of_a_process_is_attached_to_and_all_go_on_when_they_are_left() {
    for (follow, then, child) in [
        (Follow::All, Then::Result, true),
        (Follow::All, Then::Free, true),
        (Follow::None, Then::Free, false),
        (Follow::Threads, Then::Result, false),
    ] {
        let mut worker = Worker::start(WORKERS);
        let mut catch = Ptrace::attach(&[worker.pid], follow.clone()).expect("it can be traced");
        let mut files = vec!["/dev/null", "/dev/zero"];
        let mut began = 0;
        let lines = until(&mut catch, then, |catch, event| {
            files.retain(|file| !opens(catch, event, file));
            began += usize::from(matches!(event, Event::Began { .. }));
            let by_thread = matches!(event, Event::Enter(enter) if enter.tid != worker.pid);
            files.is_empty() && began == 3 && by_thread
        });
        let threads = lines.iter().filter(|line| line.ends_with("began thread")).count();
        assert_eq!(threads, 2, "{follow:?}: {lines:#?}");
        // The last event was not answered: its thread is left as it stands.
        worker.tell("signal");
        let mut answered = None;
        until(&mut catch, then, |_, event| {
            if let Event::Signal { tid, signal } = event {
                answered = Some((*tid, *signal));
            }
            answered.is_some()
        });
        let (tid, signal) = answered.expect("a signal");
        assert_eq!((signal.number, signal.pid), (libc::SIGUSR1, worker.pid));
        catch.go_on(tid, Then::Free);
        worker.tell("child");
        // The signal's answer shows that it went on; then the child, seen or not.
        let mut seen = false;
        let mut ended = 0;
        until(&mut catch, then, |catch, event| {
            seen |= opens(catch, event, "/proc/version");
            ended +=
                usize::from(matches!(event, Event::Signal { signal, .. } if signal.number == libc::SIGCHLD));
            ended > 0
        });
        assert_eq!(seen, child, "{follow:?}");
        catch.leave();
        assert_eq!(catch.next(Wait::Yes), Ok(NextEvent::Over));
        let tracer = |tid: i32| std::fs::read_to_string(format!("/proc/{tid}/status")).expect("it runs");
        assert!(tracer(worker.pid).contains("TracerPid:\t0\n"));
        assert_eq!(worker.says(), "1", "the signal came once");
        assert_eq!(worker.says(), "1", "cat has failed with one of its files");
        worker.tell("signal");
        assert_eq!(worker.says(), "2");
        worker.ends();
    }
}

/// Forks and signals itself until it is told to end, and then says whether a child or a signal was lost.
const BUSY: &str = r#"
import os, select, signal, sys
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
print(os.getpid(), flush=True)
turns = lost = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    child = os.fork()
    if not child: os._exit(3)
    lost += os.waitpid(child, 0)[1] != 3 << 8
    os.kill(os.getpid(), signal.SIGUSR1)
    turns += 1
    lost += len(seen) != turns
print("ended" if turns and not lost else f"lost {lost} of {turns}", flush=True)
os._exit(7)
"#;

#[test]
fn leaving_at_any_moment_loses_no_child_and_no_signal() {
    let worker = Worker::start(BUSY);
    for turn in 0..40 {
        let follow = if turn % 2 == 0 { Follow::All } else { Follow::None };
        let mut catch = Ptrace::attach(&[worker.pid], follow).expect("it can be traced");
        let mut events = 0;
        // Whatever the last event is, it is not answered.
        until(&mut catch, Then::Result, |_, _| {
            events += 1;
            events == turn * 3 + 1
        });
        catch.leave();
    }
    worker.ends();
}

/// Waits without end, in a call that answers EINTR to whoever is interrupted in it.
const WAITS: &str = r#"
import ctypes, os, select
libc = ctypes.CDLL(None)
epoll = select.epoll()
epoll.register(0, select.EPOLLIN)
print(os.getpid(), flush=True)
found = libc.epoll_wait(epoll.fileno(), ctypes.create_string_buffer(12), 1, -1)
print("ended" if found == 1 else "cut short", flush=True)
os._exit(7)
"#;

#[test]
fn a_wait_without_end_is_not_cut_short_by_coming_or_leaving() {
    let worker = Worker::start(WAITS);
    let waits = || {
        let call = std::fs::read_to_string(format!("/proc/{}/syscall", worker.pid)).expect("it is there");
        let call = call
            .split(' ')
            .next()
            .and_then(|number| number.parse::<i64>().ok());
        call.is_some_and(|call| call == libc::SYS_epoll_pwait || Abi::NATIVE == Abi::X86_64 && call == 232)
    };
    for _ in 0..5 {
        while !waits() {
            std::thread::yield_now();
        }
        let mut catch = Ptrace::attach(&[worker.pid], Follow::All).expect("it can be traced");
        // It makes its call again.
        until(&mut catch, Then::Result, |_, event| {
            matches!(event, Event::Enter(_))
        });
        catch.go_on(worker.pid, Then::Result);
        while !waits() {
            std::thread::yield_now();
        }
        catch.leave();
    }
    worker.ends();
}

#[test]
fn a_stopped_process_stays_stopped_when_it_is_attached_to_and_left() {
    let script = r#"
import os, signal
print(os.getpid(), flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
input()
print("ended", flush=True)
os._exit(7)
"#;
    let worker = Worker::start(script);
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", worker.pid)).expect("it is there");
        stat.rsplit_once(") ").expect("a state").1.as_bytes()[0]
    };
    let until_stopped = || {
        while state() != b'T' {
            std::thread::yield_now();
        }
    };
    until_stopped();
    let mut catch = Ptrace::attach(&[worker.pid], Follow::All).expect("it can be traced");
    assert_eq!(
        until(&mut catch, Then::Free, |_, event| matches!(
            event,
            Event::Began { .. }
        )),
        ["a began"]
    );
    catch.go_on(worker.pid, Then::Free);
    assert_eq!(
        catch.next(Wait::No),
        Ok(NextEvent::Nothing),
        "it stands as it stood"
    );
    catch.leave();
    until_stopped();
    Command::new("kill")
        .args(["-CONT", &worker.pid.to_string()])
        .status()
        .expect("kill");
    worker.ends();
}

#[test]
fn what_cannot_be_traced_or_executed_is_an_error_that_says_why() {
    let place = Place::new("errors");
    let file = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(place.out(name), text).expect("written");
        std::fs::set_permissions(place.out(name), PermissionsExt::from_mode(0o755)).expect("its mode");
        place.out(name).display().to_string()
    };
    let none = file("interpreter", "#!/nowhere/at-all\n");
    let odd = file("format", "no program");
    let empty = file("empty", "");
    for (program, why) in [
        (
            "/nowhere/at-all",
            "cannot execute /nowhere/at-all: No such file or directory",
        ),
        ("/etc", "cannot execute /etc: it is a directory"),
        ("/etc/passwd", "cannot execute /etc/passwd: nobody may execute it"),
        (none.as_str(), "or the interpreter that it names does not exist"),
        (odd.as_str(), "Exec format error"),
        (empty.as_str(), "Exec format error"),
    ] {
        for calls in [
            &[] as &[i64],
            &[libc::SYS_execve, libc::SYS_exit_group, libc::SYS_exit],
            &[libc::SYS_openat],
        ] {
            let said = launch(&[program], &place.0, &Way::of(calls, Then::Result)).err();
            let said = said
                .unwrap_or_else(|| panic!("{program} cannot be executed"))
                .to_string();
            assert!(said.contains(program) && said.contains(why), "{said}");
        }
    }
    let worker = Worker::start(WORKERS);
    let mut first = Ptrace::attach(&[worker.pid], Follow::All).expect("it can be traced");
    let this = fleetgate_sys::process::id();
    for (pids, why) in [
        (vec![0x3fff_ffff], "there is none of this number".to_owned()),
        (vec![this], "it is this one".to_owned()),
        (vec![worker.pid], "traces it already, and only one can".to_owned()),
        // Kernel threads cannot be traced; where none can be seen (a container), there is none.
        (vec![2], "cannot trace process 2:".to_owned()),
    ] {
        let said = Ptrace::attach(&pids, Follow::All)
            .err()
            .expect("it cannot be traced")
            .to_string();
        assert!(said.contains(&why), "{said}");
    }
    first.leave();
    worker.ends();
}

/// The tracer of the test below, in a process of its own: it traces until it is killed.
#[test]
fn a_tracer_that_is_killed() {
    let Ok(whom) = std::env::var("FLEETGATE_TRACER_OF") else {
        return;
    };
    let mut catch = match whom.parse() {
        Ok(pid) => Ptrace::attach(&[pid], Follow::All),
        Err(_) => launch(
            &["sh", "-c", &whom],
            Path::new("/dev/null"),
            &Way::of(&[libc::SYS_openat], Then::Free),
        ),
    }
    .expect("it can be traced");
    let mut calls = 0;
    until(&mut catch, Then::Result, |_, event| {
        calls += usize::from(matches!(event, Event::Enter(_)));
        if calls == 20 {
            println!("traced {}", catch_first(&whom, event));
        }
        false
    });
}

fn catch_first(whom: &str, event: &Event) -> i32 {
    match (whom.parse(), event) {
        (Ok(pid), _) => pid,
        (_, Event::Enter(enter)) => enter.tid,
        _ => 0,
    }
}

#[test]
fn what_was_attached_to_goes_on_without_its_tracer_and_what_was_started_ends_with_it() {
    let tracer = |whom: &str| {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "attached::a_tracer_that_is_killed", "--nocapture"])
            .env("FLEETGATE_TRACER_OF", whom)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a tracer");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let traced = lines.find_map(|line| line.expect("a line").strip_prefix("traced ").map(str::to_owned));
        child.kill().expect("it is killed");
        child.wait().expect("it has ended");
        traced.expect("it traces").parse::<i32>().expect("a number")
    };
    let mut worker = Worker::start(WORKERS);
    tracer(&worker.pid.to_string());
    worker.tell("signal");
    assert_eq!(worker.says(), "1");
    worker.ends();

    let traced = tracer("while :; do : < /dev/null; done");
    let there =
        || std::fs::read_to_string(format!("/proc/{traced}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while there() {
        std::thread::yield_now();
    }
}
