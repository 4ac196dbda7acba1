//! What `fleetgate trace` prints is what the installed strace prints of the same program, task by task and line for line:
//! signals, ends, unfinished calls, times, filters. Numbers of processes, addresses and times aside. What calls mean is held
//! to strace in the crate `trace`; what differs on purpose stands in docs/trace.md.

use fleetgate_tests::folder::Folder;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// A tracer.
#[derive(Clone, Copy)]
enum Tracer {
    Ours,
    Theirs,
}

impl Tracer {
    fn command(self) -> Command {
        let mut command = match self {
            Tracer::Ours => {
                let mut command = Command::new(fleetgate_tests::fleetgate());
                command.arg("trace");
                command
            }
            Tracer::Theirs => Command::new("strace"),
        };
        // What the tests' own environment has would be looked for by every program.
        command
            .env_clear()
            .envs([("PATH", "/usr/bin:/bin"), ("LC_ALL", "C"), ("GONE", "x")]);
        command
    }
}

/// The first line in which two texts differ.
fn difference(ours: &str, theirs: &str) -> Option<String> {
    let (mut a, mut b) = (ours.lines(), theirs.lines());
    loop {
        match (a.next(), b.next()) {
            (None, None) => return None,
            (a, b) if a == b => {}
            (a, b) => {
                return Some(format!(
                    "\n  ours   {}\n  strace {}",
                    a.unwrap_or("-"),
                    b.unwrap_or("-")
                ));
            }
        }
    }
}

/// What a program does, in Python: each row's own.
const PYTHON: &str = "import os, signal, sys, threading, time, ctypes, select\n";

/// What a tracer writes about each task, in the order in which they began, and how it exits.
fn each(tracer: Tracer, flags: &[&str], program: &[&str]) -> (Vec<String>, Option<i32>) {
    let folder = Folder::new();
    let mut command = tracer.command();
    command.args(["-f", "-f", "-o"]).arg(folder.join("t"));
    let out = command.args(flags).args(program).output().expect("it starts");
    let mut files: BTreeMap<i32, String> = BTreeMap::new();
    for entry in std::fs::read_dir(&folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let number = path
            .extension()
            .and_then(|e| e.to_str()?.parse().ok())
            .expect("a number");
        files.insert(number, read(&path));
    }
    let begun = as_begun(files.keys().copied().collect());
    let known: Vec<String> = begun.iter().map(i32::to_string).collect();
    let texts = begun
        .iter()
        .map(|task| in_order(&plain(&files[task], &known)))
        .collect();
    (texts, out.status.code())
}

/// Numbers of tasks, sorted, in the order in which they were given: behind the last number the kernel begins anew.
fn as_begun(mut tasks: Vec<i32>) -> Vec<i32> {
    let first = tasks.windows(2).position(|pair| pair[1] - pair[0] > 10_000);
    tasks.rotate_left(first.map_or(0, |at| at + 1));
    tasks
}

#[test]
fn numbers_of_tasks_begin_anew() {
    assert_eq!(as_begun(vec![7, 8, 20]), [7, 8, 20]);
    assert_eq!(
        as_begun(vec![300, 301, 32_766, 32_767]),
        [32_766, 32_767, 300, 301]
    );
    assert_eq!(as_begun(vec![]), [0; 0]);
}

/// What a tracer writes about one task.
fn one(tracer: Tracer, flags: &[&str], program: &[&str]) -> (String, Option<i32>) {
    let folder = Folder::new();
    let file = folder.join("t");
    let mut command = tracer.command();
    let out = command
        .arg("-o")
        .arg(&file)
        .args(flags)
        .args(program)
        .output()
        .expect("it starts");
    let text = read(&file);
    (plain(&text, &[]), out.status.code())
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a trace is text")
}

/// Without the times that stand as comments behind numbers: a pipe is made anew for each run.
fn without_times(line: &str) -> String {
    let (mut out, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once("/* ")
        && let Some((comment, behind)) = after.split_once(" */")
    {
        let is_time = comment.contains('T') && comment.matches(':').count() == 2;
        out.push_str(&format!(
            "{before}/* {} */",
            if is_time { "TIME" } else { comment }
        ));
        rest = behind;
    }
    out + rest
}

/// Without what differs from run to run: tasks by their order, addresses, times, what a child's time was.
fn plain(text: &str, tasks: &[String]) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let line = match line.split_once(", si_utime=") {
            Some((before, _)) => format!("{before}}} ---"),
            None => line.to_owned(),
        };
        let line = without_times(&line);
        // The time of day: no two runs are in the same second for sure.
        let line = match line.as_bytes() {
            [a, _, b':', _, _, b':', c, ..] if a.is_ascii_digit() && c.is_ascii_digit() => {
                format!("00:00:00{}", &line[8..])
            }
            _ => line,
        };
        let mut rest = line.as_str();
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            let (before, number) = rest.split_at(at);
            out.push_str(before);
            let length = match number.strip_prefix("0x") {
                Some(hex) => 2 + hex.chars().take_while(char::is_ascii_hexdigit).count(),
                None => number.chars().take_while(char::is_ascii_alphanumeric).count(),
            };
            let (number, after) = number.split_at(length);
            match tasks.iter().position(|task| task == number) {
                Some(task) => out.push_str(&format!("TASK{task}")),
                // An address, a time, a process's number.
                None if length >= 3 => out.push('N'),
                None => out.push_str(number),
            }
            rest = after;
        }
        out.push_str(rest);
        out.push('\n');
    }
    // Where numbers have another length, results stand elsewhere.
    let mut even = String::new();
    for line in out.lines() {
        match line.split_once(" = ") {
            Some((before, after)) => even.push_str(&format!("{} = {after}\n", before.trim_end())),
            None => even.push_str(&format!("{line}\n")),
        }
    }
    even
}

/// When a child's end is told of in its parent is chance: that stands last, and a wait that it cut short counts once.
fn in_order(text: &str) -> String {
    let of_child = |line: &&str| line.starts_with("--- SIGCHLD");
    let cut_short = |line: &str| line.starts_with("wait4(") && line.contains("? ERESTARTSYS");
    let rest = text.lines().filter(|line| !of_child(line) && !cut_short(line));
    let last = text.lines().filter(of_child);
    rest.chain(last).map(|line| format!("{line}\n")).collect()
}

#[test]
fn tasks_are_told_of_as_strace_does() {
    let python = |text: &str| {
        vec![
            "/usr/bin/python3".to_owned(),
            "-c".to_owned(),
            format!("{PYTHON}{text}"),
        ]
    };
    let shell = |text: &str| vec!["sh".to_owned(), "-c".to_owned(), text.to_owned()];
    let calls = "trace=execve,kill,wait4,exit_group,exit,tgkill";
    let rows: Vec<(&str, Vec<String>)> = vec![
        ("children", shell("/bin/true; (exit 3); sh -c 'exit 4'; exit 5")),
        ("a signal to itself", shell("kill -TERM $$")),
        ("killed", shell("kill -KILL $$")),
        (
            "a child is killed",
            shell("sh -c 'kill -9 $$'; sh -c 'kill -SEGV $$'"),
        ),
        ("a handler", shell("trap 'echo' USR1; kill -USR1 $$; exit 2")),
        ("an exec that fails", shell("exec /etc/hostname 2> /dev/null")),
        ("a fault", python("ctypes.string_at(16)")),
        (
            "stopped and continued",
            python(
                "pid = os.fork()\n\
                 if pid == 0: os.kill(os.getpid(), signal.SIGSTOP); os._exit(0)\n\
                 os.waitpid(pid, os.WUNTRACED); os.kill(pid, signal.SIGCONT); os.waitpid(pid, 0)",
            ),
        ),
        (
            "signals with something in them",
            python(
                "signal.signal(signal.SIGUSR1, lambda *a: None)\n\
                 ctypes.CDLL(None).sigqueue(os.getpid(), signal.SIGUSR1, ctypes.c_void_p(77))\n\
                 signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)",
            ),
        ),
        (
            "a timer in a wait",
            python(
                "signal.signal(signal.SIGALRM, lambda *a: None)\n\
                 signal.setitimer(signal.ITIMER_REAL, 0.05); signal.pause()",
            ),
        ),
        (
            "a thread",
            python("t = threading.Thread(target=lambda: os.getppid()); t.start(); t.join()"),
        ),
        (
            "ended with a thread in a call",
            python(
                "r, w = os.pipe()\n\
                 threading.Thread(target=lambda: os.read(r, 1), daemon=True).start()\n\
                 os._exit(3)",
            ),
        ),
    ];
    for (what, program) in rows {
        let program: Vec<&str> = program.iter().map(String::as_str).collect();
        // Signals of the same number that come close together are one.
        let signals = match what {
            "stopped and continued" => "signal=!SIGCHLD",
            _ => "signal=all",
        };
        let run = |tracer| each(tracer, &["-e", calls, "-e", signals], &program);
        let (ours, theirs) = (run(Tracer::Ours), run(Tracer::Theirs));
        assert_eq!(
            difference(&ours.0.join("--\n"), &theirs.0.join("--\n")),
            None,
            "{what}"
        );
        assert_eq!(ours.1, theirs.1, "{what}");
        assert!(theirs.0[0].contains("execve("), "{what}: something is traced");
    }
}

#[test]
fn flags_mean_what_they_mean_for_strace() {
    let cat = &["cat", "/etc/hostname", "/nonexistent"][..];
    let rows: &[(&[&str], &[&str])] = &[
        (&["-e", "trace=openat,read,write,close"], cat),
        (&["-e", "openat", "-a", "60"], cat),
        (&["-e", "openat", "-a", "0"], cat),
        (&["-e", "openat,close", "-y"], cat),
        (&["-e", "read", "-s", "5"], cat),
        (&["-e", "read", "-s", "0"], cat),
        (&["-z", "-e", "%file"], cat),
        (&["-Z", "-e", "%file"], cat),
        (&["-e", "status=failed", "-e", "openat"], cat),
        (&["-e", "status=unfinished"], cat),
        (&["-e", "openat", "-e", "quiet=exit"], cat),
        (&["-qq", "-e", "openat"], cat),
        (&["-P", "/etc/hostname", "-e", "openat,close,newfstatat"], cat),
        (&["-v", "-e", "newfstatat"], cat),
        (&["-e", "abbrev=none", "-e", "newfstatat"], cat),
        (&["-e", "raw=openat,close", "-e", "openat,close"], cat),
        (&["-T", "-e", "openat"], cat),
        (&["-t", "-e", "openat"], cat),
        (&["-tt", "-e", "openat"], cat),
        (&["-ttt", "-e", "openat"], cat),
        (&["-r", "-e", "openat"], cat),
        (&["-r", "-t", "-e", "openat"], cat),
        (&["-i", "-e", "openat"], cat),
        (&["-e", "!openat,mmap,brk,munmap,mprotect,getrandom"], cat),
        (&["-e", "/^(open|clo)"], cat),
        (&["-e", "none"], cat),
        (
            &["-e", "signal=none", "-e", "none"],
            &["sh", "-c", "kill -CHLD $$"],
        ),
        (
            &["-e", "signal=!SIGCHLD", "-e", "none"],
            &["sh", "-c", "kill -CHLD $$; kill -WINCH $$"],
        ),
        (
            &["-E", "GONE", "-E", "NEW=x", "-e", "none"],
            &["sh", "-c", "exit ${#NEW}"],
        ),
        (&["-e", "execve"], &["sh", "-c", "/bin/true; :"]),
        (&["-f", "-e", "execve,exit_group"], &["sh", "-c", "exit 1"]),
    ];
    for (flags, program) in rows {
        let (ours, theirs) = (
            one(Tracer::Ours, flags, program),
            one(Tracer::Theirs, flags, program),
        );
        assert_eq!(difference(&ours.0, &theirs.0), None, "{flags:?}");
        assert_eq!(ours.1, theirs.1, "{flags:?}");
    }
}

/// Whose line it is, where several are in one: their order is chance, so these are looked for.
#[test]
fn lines_of_several_tasks_say_whose_they_are() {
    for (tracer, attached) in [
        (Tracer::Ours, "fleetgate: process"),
        (Tracer::Theirs, "strace: Process"),
    ] {
        let mut command = tracer.command();
        command.args([
            "-f",
            "-e",
            "trace=wait4,exit_group",
            "sh",
            "-c",
            "sh -c 'exit 0; :'; exit 0",
        ]);
        let out = command.output().expect("it starts");
        let text = plain(&String::from_utf8(out.stderr).expect("text"), &[]);
        let text = text.replace("[pid   ", "[pid ").replace("[pid  ", "[pid ");
        for line in [
            format!("{attached} N attached\n"),
            "[pid N] exit_group(0) = ?\n".to_owned(),
            "[pid N] +++ exited with 0 +++\n".to_owned(),
            "\nexit_group(0) = ?\n+++ exited with 0 +++\n".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
    }
}
