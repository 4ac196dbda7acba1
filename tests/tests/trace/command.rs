//! `fleetgate trace` from the command line: exit codes, where it writes, attaching and leaving, what a killed tracer costs. What
//! lines say is `trace_as_strace`'s business.

use fleetgate_tests::folder::Folder;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};

fn trace(arguments: &[&str]) -> Command {
    let mut command = Command::new(fleetgate_tests::fleetgate());
    command.arg("trace").args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    trace(arguments).output().expect("fleetgate starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("a trace is text")
}

/// A child that is killed where a test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal.
fn signal(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).expect("a pid");
    let pidfd = fleetgate_sys::process::pidfd_open(pid).expect("it is there");
    fleetgate_sys::process::signal(&pidfd, signal).expect("it is sent");
}

/// Every way to start a program under trace.
const WAYS: [&[&str]; 5] = [
    &["-e", "execve,exit_group"],
    &["-f", "-e", "execve,exit_group"],
    &["-e", "all"],
    &["--no-results", "-e", "execve,exit_group"],
    &["--no-ptrace", "-f", "-e", "execve,exit_group"],
];

#[test]
fn a_program_ends_as_it_would_alone() {
    let rows = [
        ("exit 0", Some(0), None),
        ("exit 7", Some(7), None),
        ("kill -TERM $$", None, Some(15)),
        ("kill -KILL $$", None, Some(9)),
        ("(exit 3)", Some(3), None),
        ("trap 'exit 9' USR1; kill -USR1 $$; exit 1", Some(9), None),
    ];
    for way in WAYS {
        for (script, code, by) in rows {
            let out = run(&[way, &["sh", "-c", script]].concat());
            assert_eq!(
                (out.status.code(), out.status.signal()),
                (code, by),
                "{way:?} {script}: {}",
                text(&out.stderr)
            );
            assert!(text(&out.stderr).contains("exec"), "{way:?} {script}");
        }
    }
}

#[test]
fn standard_streams_are_the_programs_own() {
    for way in WAYS {
        let folder = Folder::new();
        let file = folder.word("out");
        let mut command = trace(&[way, &["-o", &file, "sh", "-c", "cat; echo err >&2"]].concat());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        std::io::Write::write_all(&mut child.stdin.take().expect("asked for"), b"through\n")
            .expect("it reads");
        let out = child.wait_with_output().expect("it ends");
        assert_eq!(
            (text(&out.stdout), text(&out.stderr)),
            ("through\n".into(), "err\n".into())
        );
        assert!(folder.text("out").contains("exec"), "{way:?}");
    }
}

#[test]
fn a_trace_goes_where_it_is_sent() {
    let folder = Folder::new();
    let (file, piped, each) = (folder.word("file"), folder.word("piped"), folder.word("each"));
    let command = ["sh", "-c", "/bin/true; exit 4"];
    let with = |more: &[&str]| {
        let out = run(&[&["-f", "-e", "execve"], more, command.as_slice()].concat());
        assert_eq!(out.status.code(), Some(4), "{more:?}");
        text(&out.stderr)
    };
    assert!(with(&[]).contains("[pid "));
    assert_eq!(with(&["-o", &file]), "");
    let once = folder.text("file").lines().count();
    assert_eq!(with(&["-A", "-o", &file]), "");
    assert_eq!(folder.text("file").lines().count(), 2 * once);
    assert_eq!(with(&["-o", &format!("|tr a-z A-Z > {piped}")]), "");
    assert!(
        folder.text("piped").contains("EXECVE(") && folder.text("piped").contains("+++ EXITED WITH 4 +++")
    );
    assert_eq!(with(&["-f", "-o", &each]), "");
    let files = std::fs::read_dir(&folder).expect("a folder");
    let each = files.filter(|f| {
        f.as_ref()
            .is_ok_and(|f| f.file_name().to_string_lossy().starts_with("each."))
    });
    assert_eq!(each.count(), 2, "one for each process");
    let full = with(&["-o", "/dev/full"]);
    assert_eq!(full.lines().count(), 1, "{full}");
    assert!(full.contains("/dev/full: No space left on device"), "{full}");
}

#[test]
fn sums_and_a_picture() {
    let folder = Folder::new();
    let picture = folder.word("picture.svg");
    let out = run(&[
        "-f",
        "-c",
        "-w",
        "-S",
        "name",
        "--svg",
        &picture,
        "-e",
        "execve,wait4",
        "sh",
        "-c",
        "/bin/true; :",
    ]);
    let table = text(&out.stderr);
    let rows: Vec<&str> = table
        .lines()
        .filter_map(|l| l.split_whitespace().last())
        .collect();
    assert_eq!(rows[0], "syscall");
    assert_eq!(&rows[2..4], ["execve", "wait4"]);
    assert_eq!(rows.last(), Some(&"total"));
    let svg = folder.text("picture.svg");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains(">wait4"));
    let out = run(&["-c", "--json", "-e", "execve", "true"]);
    let document: Value = serde_json::from_slice(&out.stderr).expect("one document");
    assert_eq!(document["summary"][0]["call"], "execve");
}

#[test]
fn json_is_an_object_for_each_event() {
    for way in [&[][..], &["--no-ptrace"], &["--no-results"], &["-e", "raw=all"]] {
        let more = [
            "-f",
            "--json",
            "-e",
            "execve,kill",
            "sh",
            "-c",
            "/bin/true; kill -TERM $$",
        ];
        let out = run(&[way, more.as_slice()].concat());
        assert_eq!(out.status.signal(), Some(15));
        let lines = text(&out.stderr);
        let events: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{way:?} {e}: {line}")))
            .collect();
        let count = |kind: &str| events.iter().filter(|e| e["type"] == kind).count();
        assert_eq!(count("call"), 3, "{lines}");
        assert!(count("began") >= 2 && count("killed") == 1, "{lines}");
        for event in &events {
            assert!(
                event["time"].as_f64().is_some_and(|t| t > 1e9) && event["pid"].is_i64(),
                "{event}"
            );
        }
    }
}

#[test]
fn two_runs_are_compared() {
    let folder = Folder::new();
    let (a, b) = (folder.word("a"), folder.word("b"));
    for (file, script) in [(&a, "/bin/true"), (&b, "/bin/true; cat /etc/hostname")] {
        let out = run(&[
            "-f",
            "--json",
            "-e",
            "execve,openat",
            "-o",
            file,
            "sh",
            "-c",
            &format!("{script}; :"),
        ]);
        assert_eq!(out.status.code(), Some(0));
    }
    let out = run(&["--diff", &a, &a]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let out = run(&["--diff", &a, &b]);
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(
        said.contains("\n  /etc/hostname\n") && said.contains("programs only in "),
        "{said}"
    );
    let out = run(&["--diff", &a, "/etc/hostname"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(
        text(&out.stderr).contains("/etc/hostname:1: no JSON"),
        "{}",
        text(&out.stderr)
    );
}

#[test]
fn every_way_works_here() {
    let out = run(&["--status", "--json"]);
    let document: Value = serde_json::from_slice(&out.stdout).expect("a document");
    let ways = document["ways"].as_array().expect("ways");
    assert_eq!(ways.len(), 4);
    assert!(ways.iter().all(|way| way["works"] == true), "{document:#}");
}

#[test]
fn a_request_to_end_is_passed_on() {
    for way in WAYS {
        let mut command = trace(
            &[
                way,
                &[
                    "sh",
                    "-c",
                    "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done",
                ],
            ]
            .concat(),
        );
        let mut child = Killed(
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("it starts"),
        );
        let mut lines = BufReader::new(child.0.stdout.take().expect("asked for"));
        lines.read_line(&mut String::new()).expect("it is ready");
        signal(child.0.id(), 15);
        assert_eq!(child.0.wait().expect("it ends").code(), Some(5), "{way:?}");
    }
}

/// A program with two threads that goes round until its input ends, and says then that it was well.
fn busy() -> Killed {
    let script = "import os, threading, time, sys\n\
        def turn():\n while not over: os.getppid(); time.sleep(0.002)\n\
        over = False\n\
        threads = [threading.Thread(target=turn) for _ in range(2)]\n\
        [t.start() for t in threads]\n\
        print('ready', flush=True)\n\
        sys.stdin.read()\n\
        over = True\n\
        [t.join() for t in threads]\n\
        print('well', flush=True)\n";
    let mut command = Command::new("/usr/bin/python3");
    command
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    Killed(command.spawn().expect("python starts"))
}

#[test]
fn what_runs_already_is_attached_to_and_left() {
    for way in [&[][..], &["--inject"]] {
        let mut program = busy();
        let mut said = BufReader::new(program.0.stdout.take().expect("asked for"));
        said.read_line(&mut String::new()).expect("it is ready");
        let pid = program.0.id().to_string();
        let attach = ["-f", "-e", "getppid", "-p", pid.as_str()];
        let mut command = trace(&[attach.as_slice(), way].concat());
        let mut tracer = Killed(command.stderr(Stdio::piped()).spawn().expect("it starts"));
        let mut lines = BufReader::new(tracer.0.stderr.take().expect("asked for")).lines();
        // Both threads, several times.
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < 2 {
            let line = lines.next().expect("it goes on").expect("text");
            if line.contains("getppid(") {
                seen.insert(line.split(']').next().unwrap_or_default().to_owned());
            }
        }
        signal(tracer.0.id(), 2);
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        assert!(rest.iter().any(|l| l.ends_with("detached")), "{way:?} {rest:?}");
        assert_eq!(tracer.0.wait().expect("it ends").code(), Some(0));
        drop(program.0.stdin.take());
        let mut last = String::new();
        said.read_to_string(&mut last).expect("it speaks");
        assert_eq!(last, "well\n", "{way:?}");
        assert!(program.0.wait().expect("it ends").success());
    }
}

#[test]
fn a_killed_tracer_costs_a_notified_program_nothing() {
    let script = "echo ready; read line; for i in 1 2 3; do /bin/true || exit 1; done; echo well";
    // With ptrace the program is killed: that is the control.
    for (way, last) in [
        (&["--no-ptrace", "-f", "-e", "execve"][..], "well\n"),
        (&["-f", "-e", "execve"], ""),
    ] {
        let mut command = trace(&[way, &["sh", "-c", script]].concat());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut tracer = Killed(command.spawn().expect("it starts"));
        let mut said = BufReader::new(tracer.0.stdout.take().expect("asked for"));
        said.read_line(&mut String::new()).expect("it is ready");
        signal(tracer.0.id(), 9);
        tracer.0.wait().expect("it is gone");
        // It may be gone too: then nobody reads.
        let mut input = tracer.0.stdin.take();
        let input = input
            .as_mut()
            .map(|input| std::io::Write::write_all(input, b"go\n"));
        let mut rest = String::new();
        said.read_to_string(&mut rest).expect("it ends");
        assert_eq!(rest, last, "{way:?} {input:?}");
    }
}

#[test]
fn mistakes_are_named() {
    let many = vec!["1"; 257].join(",");
    for (arguments, said) in [
        (&[][..], "what is to be traced?"),
        (&["-p", "1", "true"], "a COMMAND or -p PID, not both"),
        (&["-p", &many], "257 processes; 256 is the most at once"),
        (&["-p", "abc"], "-p: `abc` is not the id of a process"),
        (
            &["-e", "opneat", "true"],
            "  opneat\n  ^^^^^^\ndid you mean openat",
        ),
        (&["-z", "-Z", "true"], "-z and -Z together leave nothing"),
        (
            &["-Z", "--no-ptrace", "true"],
            "which calls fail is known from their results",
        ),
        (
            &["--inject", "true"],
            "--inject puts a filter into what runs already",
        ),
        (&["--no-ptrace", "-p", "1"], "-p without ptrace needs --inject"),
        (&["-A", "true"], "-o is missing"),
        (
            &["--follow", "cousins", "true"],
            "--follow: \"cousins\" says nothing about following",
        ),
        (
            &["-o", "/nowhere/x", "true"],
            "/nowhere/x: No such file or directory",
        ),
        (
            &["--svg", "/nowhere/x", "true"],
            "/nowhere/x: No such file or directory",
        ),
        (
            &["/nowhere/x"],
            "cannot execute /nowhere/x: No such file or directory",
        ),
        (&["/etc/hostname"], "cannot execute /etc/hostname: "),
        (&["--diff", "a"], "`--diff` compares two files"),
        (&["-E", "=x", "true"], "has no name before `=`"),
    ] {
        let out = run(arguments);
        let why = text(&out.stderr);
        assert!(
            why.contains(said) && out.stdout.is_empty(),
            "{arguments:?}: {why}"
        );
        // What cannot be done is no mistake in the command line.
        let code = if why.contains("/nowhere/x: ") || why.contains("cannot execute") {
            1
        } else {
            2
        };
        assert_eq!(out.status.code(), Some(code), "{arguments:?}");
    }
}
