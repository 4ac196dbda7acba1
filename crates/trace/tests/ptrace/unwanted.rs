//! Children and threads that are not wanted: they do what they did untraced, and no line is of them.

use super::*;

/// A shell, two children, and a grandchild. /dev/null is a child's, /dev/zero the grandchild's.
const FAMILY: &[&str] = &[
    "sh",
    "-c",
    "cat /dev/null; sh -c 'head -c 1 /dev/zero > $OUT; exit 4'; echo $? >> $OUT; exit 5",
];
/// A thread that opens a file, and one that executes.
const THREADS: &[&str] = &[
    "/usr/bin/python3",
    "-c",
    r#"
import os, threading, subprocess
def work():
    for _ in range(10): os.close(os.open("/dev/zero", os.O_RDONLY))
t = threading.Thread(target=work); t.start(); t.join()
subprocess.call(["cat", "/proc/version"], stdout=subprocess.DEVNULL)
os.close(os.open("/dev/null", os.O_RDONLY))
open(os.environ["OUT"], "w").write("done")
"#,
];

/// A program that gives itself a filter (it may not call getppid), and makes a child, before and after which it tries.
const SANDBOX: &[&str] = &[
    "sh",
    "-c",
    r#"/usr/bin/python3 -c '
import ctypes, os, struct
libc = ctypes.CDLL(None)
getppid = 110 if os.uname().machine == "x86_64" else 173
code = b"".join(struct.pack("HBBI", *i) for i in [(0x20,0,0,0), (0x15,0,1,getppid), (6,0,0,0x50001), (6,0,0,0x7fff0000)])
buffer = ctypes.create_string_buffer(code)
class Program(ctypes.Structure): _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
program = Program(4, ctypes.addressof(buffer))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
child = os.fork()
if not child:
    os._exit(17 if libc.syscall(getppid) == -1 else 18)
open(os.environ["OUT"], "w").write(f"{os.waitpid(child, 0)[1] >> 8} {libc.syscall(getppid)}")
'"#,
];

const CALLS: &[i64] = &[libc::SYS_openat, libc::SYS_execve];

/// Which of the files that name a kind of task are opened by tasks that are told of, and how many tasks are freed or kept.
struct Row {
    follow: &'static str,
    command: &'static [&'static str],
    opens: &'static [(&'static str, bool)],
    unwanted: u64,
}

const ROWS: &[Row] = &[
    Row {
        follow: "all",
        command: FAMILY,
        opens: &[("/dev/null", true), ("/dev/zero", true)],
        unwanted: 0,
    },
    Row {
        follow: "none",
        command: FAMILY,
        opens: &[("/dev/null", false), ("/dev/zero", false)],
        unwanted: 3,
    },
    Row {
        follow: "0",
        command: FAMILY,
        opens: &[("/dev/null", false), ("/dev/zero", false)],
        unwanted: 3,
    },
    Row {
        follow: "1",
        command: FAMILY,
        opens: &[("/dev/null", true), ("/dev/zero", false)],
        unwanted: 1,
    },
    Row {
        follow: "2",
        command: FAMILY,
        opens: &[("/dev/null", true), ("/dev/zero", true)],
        unwanted: 0,
    },
    Row {
        follow: "exec=*/cat",
        command: FAMILY,
        opens: &[("/dev/null", true), ("/dev/zero", false)],
        unwanted: 3,
    },
    Row {
        follow: "threads",
        command: THREADS,
        opens: &[("/dev/null", true), ("/dev/zero", true), ("/proc/version", false)],
        unwanted: 1,
    },
    Row {
        follow: "none",
        command: THREADS,
        opens: &[
            ("/dev/null", true),
            ("/dev/zero", false),
            ("/proc/version", false),
        ],
        unwanted: 2,
    },
    Row {
        follow: "none",
        command: launched::UNTRACED,
        opens: &[("/dev/zero", false)],
        unwanted: 3,
    },
    Row {
        follow: "all",
        command: SANDBOX,
        opens: &[],
        unwanted: 0,
    },
    Row {
        follow: "none",
        command: SANDBOX,
        opens: &[],
        unwanted: 2,
    },
];

#[test]
fn unwanted_tasks_do_what_they_do_and_nothing_is_told_of_them() {
    let place = Place::new("unwanted");
    for row in ROWS {
        let control = untraced(row.command, &place.out("control"));
        assert!(!control.0.is_empty(), "it writes");
        for (calls, may_suspend) in [(CALLS, false), (CALLS, true), (&[] as &[i64], false)] {
            for then in [Then::Free, Then::Result] {
                let way = Way {
                    follow: row.follow.parse().expect("a row says what to follow"),
                    may_suspend,
                    ..Way::of(calls, then)
                };
                let out = place.out("out");
                let _ = std::fs::remove_file(&out);
                let seen = trace(row.command, &out, &way);
                let what = format!("{way:?}: {seen:#?}");
                assert_eq!(
                    (written(&out), seen.end),
                    (control.0.clone(), Some(control.1)),
                    "{what}"
                );
                for (file, told) in row.opens {
                    assert_eq!(seen.count(&format!("openat {file}")) > 0, *told, "{file}: {what}");
                }
                let root = fleetgate_sys::process::effective_uid() == 0;
                let counts = seen.counts;
                if !way.calls.is_empty() {
                    assert_eq!(counts.freed + counts.kept, row.unwanted, "{what}");
                    if !may_suspend {
                        assert_eq!(counts.freed, 0, "{what}");
                    } else if root && row.command != SANDBOX {
                        assert_eq!(counts.kept, 0, "{what}");
                    }
                } else {
                    assert_eq!(counts.kept, 0, "{what}");
                }
            }
        }
    }
}
