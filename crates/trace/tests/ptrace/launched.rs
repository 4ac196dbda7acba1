//! Programs that are started under trace.

use super::*;

const PY: &str = "/usr/bin/python3";

/// A program, and what must be seen of it when its calls of [`CALLS`] stop: how many lines at least end with this.
struct Row {
    name: &'static str,
    command: &'static [&'static str],
    seen: &'static [(&'static str, usize)],
}

const CALLS: &[i64] = &[libc::SYS_openat, libc::SYS_execve, libc::SYS_getppid];

/// Makes children of which it says that nobody is to trace them, in two ways, and one that is to be traced with nobody told.
pub const UNTRACED: &[&str] = &[
    PY,
    "-c",
    r#"
import ctypes, os, signal
libc = ctypes.CDLL(None)
libc.syscall.restype = ctypes.c_long
UNTRACED, PTRACE = 0x00800000, 0x2000
# struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls.
words = (ctypes.c_uint64 * 8)(UNTRACED, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
number = 56 if os.uname().machine == "x86_64" else 220
ends = []
for make in (
    lambda: libc.syscall(number, UNTRACED | signal.SIGCHLD, 0, 0, 0, 0),
    lambda: libc.syscall(435, words, 64),
    lambda: libc.syscall(number, PTRACE | UNTRACED | signal.SIGCHLD, 0, 0, 0, 0),
):
    child = make()
    if child == 0:
        os.close(os.open("/dev/zero", os.O_RDONLY))
        os._exit(8 if words[0] == UNTRACED else 9)
    ends.append(os.waitpid(child, 0)[1] >> 8)
open(os.environ["OUT"], "w").write(repr((ends, list(words))))
"#,
];

const ROWS: &[Row] = &[
    Row {
        name: "code",
        command: &["sh", "-c", "echo hello > $OUT; exit 3"],
        seen: &[
            ("a began", 1),
            ("execve /bin/sh", 0),
            ("a executed", 1),
            ("a Exited(3)", 1),
        ],
    },
    Row {
        name: "killed",
        command: &["sh", "-c", "echo hello > $OUT; kill -TERM $$"],
        seen: &[("a signal 15", 1), ("a Killed(15, false)", 1)],
    },
    Row {
        name: "at-once",
        command: &["true"],
        seen: &[("a Exited(0)", 1)],
    },
    Row {
        name: "children",
        command: &[
            "sh",
            "-c",
            "(cat /dev/null; exit 4); echo $? > $OUT; sh -c 'exit 5'; echo $? >> $OUT",
        ],
        seen: &[
            ("began process", 3),
            ("openat /dev/null", 1),
            ("Exited(4)", 1),
            ("Exited(5)", 1),
        ],
    },
    Row {
        name: "trap",
        command: &[
            "sh",
            "-c",
            "trap 'echo once >> $OUT' USR1; for i in 1 2 3; do kill -USR1 $$; done; exit 6",
        ],
        seen: &[("a signal 10", 3), ("a Exited(6)", 1)],
    },
    Row {
        name: "signals-with-values",
        command: &[
            PY,
            "-c",
            r#"
import ctypes, os, signal
libc = ctypes.CDLL(None)
seen = []
F = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.c_void_p)
# siginfo_t: the value of sigqueue is the eighth word, behind number, errno, code, padding, pid, uid.
handler = F(lambda n, info, ctx: seen.append((n, info[2], info[6])))
class Action(ctypes.Structure):
    _fields_ = [("handler", F), ("mask", ctypes.c_char * 128), ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p)]
libc.sigaction(40, ctypes.byref(Action(handler, b"", 4, None)), None)
for value in range(50):
    libc.sigqueue(os.getpid(), 40, ctypes.c_void_p(value))
open(os.environ["OUT"], "w").write(repr(seen))
"#,
        ],
        seen: &[("a signal 40", 50)],
    },
    Row {
        name: "threads",
        command: &[
            PY,
            "-c",
            r#"
import os, threading
def work():
    for _ in range(20): os.close(os.open("/dev/null", os.O_RDONLY))
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
open(os.environ["OUT"], "w").write("done")
os._exit(9)
"#,
        ],
        seen: &[("began thread", 8), ("openat /dev/null", 160), ("a Exited(9)", 1)],
    },
    Row {
        name: "exec-by-thread",
        command: &[
            PY,
            "-c",
            r#"
import os, threading
t = threading.Thread(target=lambda: os.execv("/bin/sh", ["sh", "-c", "echo $$ > /dev/null; echo thread > $OUT; exit 5"]))
o = threading.Thread(target=lambda: threading.Event().wait())
o.start(); t.start(); t.join()
"#,
        ],
        seen: &[("executed by thread", 1), ("a Exited(5)", 1)],
    },
    Row {
        name: "first-thread-ends",
        command: &[
            PY,
            "-c",
            r#"
import ctypes, os, threading, time
main = threading.get_native_id()
def state():
    return open(f"/proc/self/task/{main}/stat").read().rsplit(")", 1)[1].split()[0]
def last():
    while state() != "Z": os.getppid()
    open(os.environ["OUT"], "w").write("last")
    os._exit(6)
threading.Thread(target=last).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"#,
        ],
        seen: &[("Exited(6)", 2)],
    },
    Row {
        name: "vfork",
        command: &[
            PY,
            "-c",
            r#"
import os, subprocess
codes = [subprocess.call(["sh", "-c", f"exit {n}"]) for n in range(5)]
try: subprocess.call(["/nowhere"])
except OSError as e: codes.append(e.errno)
open(os.environ["OUT"], "w").write(repr(codes))
"#,
        ],
        seen: &[("began process", 6), ("Exited(4)", 1)],
    },
    Row {
        name: "job-control",
        command: &[
            PY,
            "-c",
            r#"
import os, signal
out = open(os.environ["OUT"], "w")
for sig in (signal.SIGSTOP, signal.SIGTSTP):
    r, w = os.pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os.kill(os.getpid(), sig)
        os.read(r, 1)
        os._exit(7)
    pid, status = os.waitpid(child, os.WUNTRACED)
    out.write(f"{os.WIFSTOPPED(status)} {os.WSTOPSIG(status)}\n")
    os.kill(child, signal.SIGCONT)
    pid, status = os.waitpid(child, os.WCONTINUED)
    out.write(f"{os.WIFCONTINUED(status)}\n")
    os.write(w, b"x")
    out.write(f"{os.waitpid(child, 0)[1]}\n")
"#,
        ],
        seen: &[
            ("b stopped 19", 1),
            ("b signal 18", 1),
            ("c stopped 20", 1),
            ("Exited(7)", 2),
        ],
    },
    Row {
        name: "stopped-then-killed",
        command: &[
            PY,
            "-c",
            r#"
import os, signal
child = os.fork()
if not child: os.kill(os.getpid(), signal.SIGSTOP)
os.waitpid(child, os.WUNTRACED)
os.kill(child, signal.SIGKILL)
open(os.environ["OUT"], "w").write(repr(os.waitpid(child, 0)[1]))
"#,
        ],
        seen: &[("b signal 19", 1), ("b Killed(9, false)", 1)],
    },
    Row {
        name: "killed-at-stops",
        command: &[
            PY,
            "-c",
            r#"
import os, signal
ends = []
for turn in range(40):
    r, w = os.pipe()
    child = os.fork()
    if not child:
        os.write(w, b"x")
        while True:
            if turn % 4 == 3 and not os.fork(): os._exit(0)
            os.close(os.open("/dev/null", os.O_RDONLY))
    os.read(r, 1)
    for _ in range(turn * 5): os.getppid()
    os.kill(child, signal.SIGKILL)
    ends.append(os.waitpid(child, 0)[1])
open(os.environ["OUT"], "w").write(repr(ends))
"#,
        ],
        seen: &[("Killed(9, false)", 40)],
    },
    Row {
        name: "bomb",
        command: &[
            "sh",
            "-c",
            "f() { [ $1 = 0 ] && return; f $(($1-1)) & f $(($1-1)) & wait; }; f 6; echo all > $OUT",
        ],
        seen: &[("began process", 126), ("Exited(0)", 127)],
    },
    Row {
        name: "setuid",
        command: &[
            PY,
            "-c",
            r#"
import os, shutil, subprocess
copy = os.environ["OUT"] + "-id"
if os.getuid() == 0:
    shutil.copy("/usr/bin/id", copy)
    os.chown(copy, 0, 0)
    os.chmod(copy, 0o4755)
    os.chmod(os.path.dirname(copy), 0o755)
    text = subprocess.run([copy, "-u"], user=65534, stdout=subprocess.PIPE).stdout.decode()
    open(os.environ["OUT"], "w").write(text)
"#,
        ],
        seen: &[],
    },
    Row {
        name: "untraced",
        command: UNTRACED,
        seen: &[],
    },
    Row {
        name: "terminal",
        command: &[
            PY,
            "-c",
            r#"
import os, pty
pid, fd = pty.fork()
if not pid: os.execvp("sh", ["sh", "-i"])
text = b""
def until(*parts):
    global text
    for part in parts:
        while part not in text: text += os.read(fd, 1000)
        text = text.split(part, 1)[1]
def write(what): os.write(fd, what)
write(b"cat; echo st$?op\n"); until(b"op")
# Once from the terminal's echo, once from cat.
write(b"one\n"); until(b"one", b"one")
write(b"\x1a"); until(b"st148op")
write(b"fg; echo en$?d\n"); until(b"d\r")
write(b"two\n"); until(b"two", b"two")
write(b"\x04"); until(b"en0d")
write(b"exit 5\n")
open(os.environ["OUT"], "w").write(str(os.waitpid(pid, 0)[1]))
"#,
        ],
        seen: &[("stopped 20", 1), ("began process", 2), ("Exited(5)", 1)],
    },
    Row {
        name: "long-arguments",
        command: &[
            "sh",
            "-c",
            "a=$(printf '%0100000d' 0); for i in 1 2 3 4 5 6 7 8 9; do set -- $a \"$@\"; done; /bin/echo $@ | wc -c > $OUT",
        ],
        seen: &[("began process", 3)],
    },
    Row {
        name: "interrupted-calls",
        command: &[
            PY,
            "-c",
            r#"
import os, signal, time
seen = ["nothing"]
def alarm(*_): seen[0] = "alarm"
signal.signal(signal.SIGALRM, alarm)
# Again and again: the first may come before the wait for it.
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
signal.pause()
signal.setitimer(signal.ITIMER_REAL, 0)
r, w = os.pipe()
child = os.fork()
if not child:
    os.read(r, 1); os._exit(3)
os.kill(child, signal.SIGSTOP); os.waitpid(child, os.WUNTRACED)
os.kill(child, signal.SIGCONT); os.waitpid(child, os.WCONTINUED)
os.write(w, b"x")
seen.append(os.waitpid(child, 0)[1])
open(os.environ["OUT"], "w").write(repr(seen))
"#,
        ],
        seen: &[("a signal 14", 1), ("b stopped 19", 1), ("b Exited(3)", 1)],
    },
];

#[test]
fn what_a_program_does_and_how_it_ends_is_the_same_under_trace() {
    let place = Place::new("same");
    for row in ROWS {
        if std::env::var("ROW").is_ok_and(|only| only != row.name) {
            continue;
        }
        let control = untraced(row.command, &place.out(&format!("{}-control", row.name)));
        assert!(
            row.name == "at-once" || row.name == "setuid" || !control.0.is_empty(),
            "{}: it writes",
            row.name
        );
        for way in [
            Way::of(CALLS, Then::Free),
            Way::of(CALLS, Then::Result),
            Way::of(&[], Then::Free),
            Way::of(&[], Then::Result),
        ] {
            let out = place.out(row.name);
            let _ = std::fs::remove_file(&out);
            let seen = trace(row.command, &out, &way);
            let what = format!("{} {:?} {}", row.name, way.then, way.calls.len());
            assert_eq!(
                (written(&out), seen.end),
                (control.0.clone(), Some(control.1)),
                "{what}: {seen:#?}"
            );
            for (line, least) in row.seen {
                assert!(seen.count(line) >= *least, "{what}: {line}: {seen:#?}");
            }
            pairs(&seen, &what, way.then);
        }
    }
}

/// Each task's calls begin and end in turns, and whoever began has ended.
fn pairs(seen: &Seen, what: &str, then: Then) {
    let mut open = HashMap::new();
    for line in &seen.lines {
        let (task, rest) = line.split_once(' ').expect("a task and what it does");
        if rest.starts_with("began") {
            assert!(
                open.insert(task, 0).is_none(),
                "{what}: {task} begins twice: {seen:#?}"
            );
            continue;
        }
        if rest == "executed by thread" {
            // It goes on in the call that the other one was in.
            open.insert(task, 1);
            continue;
        }
        let depth = open
            .get_mut(task)
            .unwrap_or_else(|| panic!("{what}: {task} has not begun: {seen:#?}"));
        if rest.starts_with('=') {
            *depth -= 1;
        } else if rest.starts_with("calls") {
            *depth = 1;
        }
        assert!(
            *depth == 0 || *depth == 1 && then == Then::Result || then == Then::Free,
            "{what}: {line}: {seen:#?}"
        );
    }
}
