//! What a program does, decoded here, is what the installed strace prints of it: line for line, addresses and process
//! numbers aside. The program is `tests/peers/trace/calls.py`, which makes calls in groups; what differs, and why, stands
//! in [`DIFFERENT`]. A process of its own, because it waits for what it traces.
#![forbid(unsafe_code)]

use fleetgate_calls::abi::Call;
use fleetgate_calls::memory::Memory;
use fleetgate_sys::memory;
use fleetgate_sys::ptrace::{self, AT_CALL, At, Status, event};
use fleetgate_trace::catch::Enter;
use fleetgate_trace::decode::{self, CallProgress, Limits};
use fleetgate_trace::report::text::{COLUMN, Text};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of strace's that may differ: how they begin, what is in them, and why.
const DIFFERENT: &[(&str, &str, &str)] = &[
    ("shm", "", "numbers that the kernel gives out one after the other"),
    ("sem", "", "the same"),
    ("msg", "", "the same"),
    ("ioctl(", " TIOCGPTN,", "the same"),
    (
        "ioctl(",
        " SNDCTL_TMR_START or TCSETS,",
        "a sound card's request of the same number is not named",
    ),
    ("setsockopt(", " SO_RCVTIMEO_OLD,", "a time is shown as a time"),
    ("rseq(", " 0x20, 0x1,", "the flag has a name"),
    (
        "getsockname(",
        "sa_data=",
        "bytes of a port that the kernel chose",
    ),
];

/// The memory of a stopped process, and its descriptors.
struct Process(i32);

impl Memory for Process {
    fn read(&self, at: u64, into: &mut [u8]) -> usize {
        memory::read(self.0, at, into).unwrap_or(0)
    }

    fn descriptor(&self, fd: i32) -> Option<Vec<u8>> {
        link(&format!("/proc/{}/fd/{fd}", self.0))
    }

    fn directory(&self) -> Option<Vec<u8>> {
        link(&format!("/proc/{}/cwd", self.0))
    }
}

fn link(path: &str) -> Option<Vec<u8>> {
    let path = std::fs::read_link(path).ok()?;
    Some(path.into_os_string().into_encoded_bytes())
}

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers/trace/calls.py")
}

/// Lines of the program as they are decoded here. A shell stops itself, and becomes the program when it goes on.
fn ours(directory: &Path, descriptors: bool) -> Vec<String> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", "kill -STOP $$; exec python3 -S -E \"$0\""])
        .arg(program())
        .current_dir(directory)
        .spawn()
        .expect("a shell");
    let pid = child.id() as i32;
    ptrace::seize(pid, ptrace::option::SYSGOOD | ptrace::option::EXIT_KILL).expect("a child can be traced");
    let mut lines = Vec::new();
    let mut pending: Option<(Enter, CallProgress, Vec<u8>)> = None;
    let mut woken = false;
    let limits = Limits {
        descriptors,
        ..Limits::default()
    };
    let process = Process(pid);
    loop {
        let status = match ptrace::wait(pid, true) {
            Ok(Some((_, status))) => status,
            Ok(None) => continue,
            Err(_) => break,
        };
        let mut signal = 0;
        match status {
            Status::Exited(_) | Status::Killed(..) => break,
            Status::Stopped { signal: AT_CALL, .. } => match ptrace::call(pid).expect("a stopped child") {
                At::Entry(entry) => {
                    let enter = entered(pid, &entry);
                    let name = enter.call.and_then(Call::name).map(str::to_owned);
                    let name = name.unwrap_or_else(|| format!("syscall_{:#x}", enter.number));
                    let mut line = name.into_bytes();
                    let mut out = Text::new(&mut line, 0, COLUMN);
                    let begun = decode::begin(&enter, &process, &limits, &mut out);
                    pending = Some((enter, begun, line));
                }
                At::Exit(result) => {
                    if let Some((enter, begun, mut line)) = pending.take() {
                        let mut out = Text::new(&mut line, 0, COLUMN);
                        decode::finish(&enter, begun, result, &process, &limits, &mut out);
                        lines.push(String::from_utf8(line).expect("text"));
                    }
                }
                At::Elsewhere => {}
            },
            // The stop that it made itself, once.
            Status::Stopped {
                event: event::STOP, ..
            } => {
                if !woken {
                    woken = true;
                    let kill = Command::new("/bin/sh")
                        .args(["-c", &format!("kill -CONT {pid}")])
                        .status();
                    assert!(kill.expect("kill").success());
                }
            }
            Status::Stopped {
                signal: delivered,
                event: 0,
            } => signal = delivered,
            Status::Stopped { .. } => {}
        }
        if ptrace::go_on_to_call(pid, signal).is_err() {
            break;
        }
    }
    let _ = child.wait();
    lines
}

fn entered(tid: i32, entry: &ptrace::Entry) -> Enter {
    let number = entry.number as u32;
    Enter {
        tid,
        call: Call::seen(entry.audit, number),
        audit: entry.audit,
        number,
        arguments: entry.arguments,
        instruction: entry.instruction,
    }
}

/// Lines of the program as strace prints them.
fn theirs(directory: &Path, descriptors: bool) -> Vec<String> {
    let out = directory.with_extension("strace");
    let status = Command::new("strace")
        .args(descriptors.then_some("-y"))
        .args(["-e", "signal=none", "-o"])
        .arg(&out)
        .args(["python3", "-S", "-E"])
        .arg(program())
        .current_dir(directory)
        .status();
    assert!(status.expect("strace").success());
    let text = std::fs::read(&out).expect("what strace wrote");
    std::fs::remove_file(&out).expect("what strace wrote");
    String::from_utf8_lossy(&text)
        .lines()
        .map(str::to_owned)
        .collect()
}

/// The lines between the program's marks, by the marks' names.
fn sections(lines: &[String]) -> Vec<(&str, Vec<&str>)> {
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in lines {
        if let Some(mark) = line.strip_prefix("write(-1, \"== ") {
            sections.push((mark.split('"').next().unwrap_or_default(), Vec::new()));
        } else if let Some((name, lines)) = sections.last_mut()
            && *name != "end"
            && is_of_the_program(line)
        {
            lines.push(line);
        }
    }
    sections
}

/// What an interpreter does between its calls depends on where its memory ends.
fn is_of_the_program(line: &str) -> bool {
    !line.starts_with("brk(0x") && !line.starts_with("mmap(NULL, 262144,") && !line.starts_with("munmap(0x7")
}

/// The numbers of the processes that a run had.
fn processes(lines: &[String]) -> BTreeSet<String> {
    let tells = ["getpid(", "getppid(", "gettid(", "clone(", "clone3("];
    let lines = lines
        .iter()
        .filter(|line| tells.iter().any(|name| line.starts_with(name)));
    lines
        .filter_map(|line| Some(line.rsplit_once("= ")?.1.to_owned()))
        .collect()
}

/// A line in pieces: numbers, and what stands between them.
fn pieces(line: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        let length = match number.strip_prefix("0x") {
            Some(hex) => 2 + hex.chars().take_while(char::is_ascii_hexdigit).count(),
            None => number.chars().take_while(char::is_ascii_digit).count(),
        };
        let (number, after) = number.split_at(length);
        pieces.extend([before, number]);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

/// Whether two lines differ in nothing but what differs from run to run: addresses, processes, times, ports that the kernel
/// chose; and in spaces, because these have lengths.
fn is_the_same(ours: &str, theirs: &str, processes: &[BTreeSet<String>; 2]) -> bool {
    let (ours, theirs) = (pieces(ours), pieces(theirs));
    let before = |at: usize| {
        at.checked_sub(1)
            .and_then(|at| ours.get(at))
            .copied()
            .unwrap_or("")
    };
    ours.len() == theirs.len()
        && ours.iter().zip(&theirs).enumerate().all(|(at, (a, b))| {
            let is_address = |text: &str| text.starts_with("0x") && text.len() >= 8;
            let is_random = ["tv_usec=", "tv_nsec=", "htons(", "<socket:[", "<pipe:["]
                .iter()
                .any(|name| before(at).ends_with(name));
            a == b
                || a.split_whitespace().eq(b.split_whitespace()) && a.contains(") ")
                || is_address(a) && is_address(b)
                || is_random && at % 2 == 1
                || processes[0].contains(*a) && processes[1].contains(*b)
        })
}

#[test]
fn lines_are_strace_s() {
    if Command::new("strace").arg("-V").output().is_err() {
        assert!(
            std::env::var_os("CI").is_none(),
            "strace is missing: install it, or this compares nothing"
        );
        println!("skipped: no strace");
        return;
    }
    for descriptors in [false, true] {
        compare(descriptors);
    }
}

fn compare(descriptors: bool) {
    let directory = std::env::temp_dir().join(format!("as-strace-{}", std::process::id()));
    let run = |way: fn(&Path, bool) -> Vec<String>| {
        std::fs::create_dir_all(&directory).expect("a directory");
        let lines = way(&directory, descriptors);
        std::fs::remove_dir_all(&directory).expect("a directory");
        lines
    };
    let (ours, theirs) = (run(ours), run(theirs));
    let processes = [processes(&ours), processes(&theirs)];
    let (ours, theirs) = (sections(&ours), sections(&theirs));
    assert!(theirs.len() > 30, "{} sections", theirs.len());
    let mut differences = Vec::new();
    let mut compared = 0;
    for ((name, ours), (other, theirs)) in ours.iter().zip(&theirs) {
        assert_eq!(name, other);
        compared += ours.len();
        for (a, b) in ours.iter().zip(theirs) {
            let known = DIFFERENT
                .iter()
                .any(|(begin, within, _)| b.starts_with(begin) && b.contains(within));
            if !known && !is_the_same(a, b, &processes) {
                differences.push(format!("{name}\n  ours   {a}\n  strace {b}"));
            }
        }
        if ours.len() != theirs.len() {
            differences.push(format!("{name}: {} lines, strace {}", ours.len(), theirs.len()));
        }
    }
    assert_eq!(ours.len(), theirs.len());
    let count = differences.len();
    assert!(
        count == 0,
        "{count} of {compared} lines differ:\n{}",
        differences.join("\n")
    );
}

#[test]
fn a_line_that_differs_is_seen() {
    let processes = [["7".to_owned()].into(), ["8".to_owned()].into()];
    for (ours, theirs, same) in [
        ("kill(7, SIGTERM)   = 0", "kill(8, SIGTERM) = 0", true),
        ("kill(7, SIGTERM) = 0", "kill(9, SIGTERM) = 0", false),
        ("kill(7, SIGTERM) = 0", "kill(8, SIGKILL) = 0", false),
        (
            "brk(0x55d0aa0000) = 0x55d0aa0000",
            "brk(0x55d0bb0000) = 0x55d0bb0000",
            true,
        ),
        ("mmap(NULL, 4096) = 0", "mmap(NULL, 8192) = 0", false),
        ("read(3, \"a b\", 3) = 3", "read(3, \"a  b\", 3) = 3", false),
        ("f({tv_sec=1, tv_nsec=5})", "f({tv_sec=1, tv_nsec=6})", true),
        ("f({tv_sec=1, tv_nsec=5})", "f({tv_sec=2, tv_nsec=5})", false),
    ] {
        assert_eq!(is_the_same(ours, theirs, &processes), same, "{ours} {theirs}");
    }
}
