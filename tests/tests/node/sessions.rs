//! Sessions as a front asks for them: they run, end, are signalled and refused, and the audit log has it all.

use fleetgate_node::config::Config;
use fleetgate_policy::commands::{Command, Commands};
use fleetgate_policy::{Permits, Rule};
use fleetgate_sys::poll::{self, Watch};
use fleetgate_sys::{Fd, file, process};
use fleetgate_tests::node_desk::{Desk, asked, command, on_terminal};
use fleetgate_tests::orders::{self, read_all, read_terminal, wait_for};
use fleetgate_tests::{needs_root, skip};
use fleetgate_wire::node::ProcessEnd;
use fleetgate_wire::node::front::{ClientVariable, Program, Start, ToFront};
use serde_json::Value;
use std::sync::Arc;

const GOOD: ProcessEnd = ProcessEnd {
    status: 0,
    signalled: false,
    core: false,
};

/// Standard output and error of a session that was given nothing to read.
fn outputs(fds: Vec<Fd>) -> (String, String) {
    let [stdin, output, errors] = <[Fd; 3]>::try_from(fds).expect("three pipes");
    drop(stdin);
    (read_all(output), read_all(errors))
}

fn names(log: &[Value]) -> Vec<&str> {
    log.iter().filter_map(|v| v["event"].as_str()).collect()
}

#[test]
fn a_command_runs_and_is_told_of() {
    needs_root!("sessions of another user");
    let mut desk = Desk::new();
    let environment = [("LC_TEST", "yes"), ("OTHER", "no")].map(|(name, value)| ClientVariable {
        name: name.into(),
        value: value.into(),
    });
    let line = "id -u; echo $SSH_CONNECTION; echo $LC_TEST$OTHER; echo oops >&2; exit 3";
    let start = Start {
        environment: environment.into(),
        ..command(line)
    };
    let (ticket, fds) = desk.started(start);
    let (output, errors) = outputs(fds);
    assert_eq!(output, "54321\n192.0.2.7 4711 192.0.2.7 22\nyes\n");
    assert_eq!(errors, "oops\n");
    assert_eq!(desk.ended(ticket), ProcessEnd { status: 3, ..GOOD });
    let log = desk.close();
    assert_eq!(names(&log), ["session_started", "session_ended"]);
    assert_eq!(log[0]["kind"], "exec");
    assert_eq!(log[0]["command"], line);
    assert_eq!(log[0]["session"], log[1]["session"]);
    assert_eq!(log[1]["code"], 3);
    // `memory` is there only where the session had more than its starter, or a cgroup.
    assert!(log[1]["cpu_us"].as_u64().is_some(), "{}", log[1]);
}

#[test]
fn standard_input_is_read_to_its_end() {
    needs_root!("sessions of another user");
    let mut desk = Desk::new();
    let (ticket, fds) = desk.started(command("wc -c"));
    let [stdin, output, _errors] = <[Fd; 3]>::try_from(fds).expect("three pipes");
    let writer = std::thread::spawn(move || {
        let mut left = 300_000;
        while left > 0 {
            wait_for(&stdin, fleetgate_sys::poll::WRITE);
            match file::write(stdin.raw(), &vec![b'x'; left.min(100_000)]) {
                Ok(n) => left -= n,
                Err(fleetgate_sys::Errno::EAGAIN) => {}
                Err(e) => panic!("{e}"),
            }
        }
    });
    assert_eq!(read_all(output).trim(), "300000");
    writer.join().expect("the writer");
    assert_eq!(desk.ended(ticket), GOOD);
}

#[test]
fn a_shell_has_the_terminal_that_was_described() {
    needs_root!("sessions of another user");
    let mut desk = Desk::new();
    let (ticket, mut fds) = desk.started(on_terminal(asked(Program::Shell)));
    let mut terminal: std::fs::File = fds.pop().expect("a terminal").into();
    assert!(fds.is_empty());
    use std::io::Write;
    let script =
        "PS1=; stty size; stty -a | grep -o -- '-echo '; echo $TERM; tty; echo \"[$SSH_TTY]\"; exit 5\n";
    terminal.write_all(script.as_bytes()).expect("type");
    let output = read_terminal(&mut terminal);
    for word in ["33 101\r\n", "-echo", "vt100\r\n", "/dev/pts/", "[/dev/pts/"] {
        assert!(output.contains(word), "{word}: {output}");
    }
    assert_eq!(desk.ended(ticket), ProcessEnd { status: 5, ..GOOD });
    let log = desk.close();
    assert_eq!(log[0]["kind"], "shell");
    assert!(
        log[0]["terminal"]
            .as_str()
            .is_some_and(|t| t.starts_with("/dev/pts/"))
    );
}

#[test]
fn signals_go_to_the_whole_group_and_only_those_that_may() {
    needs_root!("sessions of another user");
    let mut desk = Desk::new();
    // The child says that it is there: between its fork and its exec it would still have its parent's trap.
    let line = "trap 'echo got; exit 9' USR1; sh -c 'echo ready; exec cat'";
    let (ticket, fds) = desk.started(command(line));
    let [stdin, output, _errors] = <[Fd; 3]>::try_from(fds).expect("three pipes");
    wait_for(&output, fleetgate_sys::poll::READ);
    let Desk {
        sessions,
        tools,
        granted,
        ..
    } = &mut desk;
    for name in [c"STOP", c"usr1", c"9"] {
        sessions.signal(tools, granted, ticket, name);
    }
    sessions.signal(tools, granted, ticket, c"USR1");
    assert_eq!(read_all(output), "ready\ngot\n");
    drop(stdin);
    assert_eq!(desk.ended(ticket), ProcessEnd { status: 9, ..GOOD });
    // One that is over, or was never, is nobody's.
    let Desk {
        sessions,
        tools,
        granted,
        ..
    } = &mut desk;
    sessions.signal(tools, granted, ticket, c"KILL");
    sessions.signal(tools, granted, 999, c"KILL");
    let log = desk.close();
    assert_eq!(
        names(&log),
        ["session_started", "denied", "denied", "denied", "session_ended"]
    );
}

#[test]
fn a_session_that_a_signal_ended_is_said_to_be() {
    needs_root!("sessions of another user");
    let mut desk = Desk::new();
    let (ticket, fds) = desk.started(command("kill -TERM $$"));
    assert_eq!(
        desk.ended(ticket),
        ProcessEnd {
            status: 15,
            signalled: true,
            core: false
        }
    );
    drop(fds);
    assert_eq!(desk.close()[1]["signal"], 15);
}

#[test]
fn a_terminal_session_is_hung_up_with_its_connection() {
    needs_root!("sessions of another user");
    let mut desk = Desk::new();
    let line = "trap 'exit 0' HUP; echo ready; while :; do read x || :; done";
    let (_, fds) = desk.started(on_terminal(command(line)));
    wait_for(&fds[0], fleetgate_sys::poll::READ);
    // The front is gone, and its descriptors with it; closing waits for the session's end.
    drop(fds);
    let log = desk.close();
    assert_eq!(names(&log), ["session_started", "session_ended"]);
}

#[test]
fn what_the_grant_does_not_allow_is_not_begun() {
    needs_root!("sessions of another user");
    let mut permits = Permits::all();
    permits.forbid(&[fleetgate_policy::Kind::Shell], &Rule::new("the test"));
    let mut config = Config::default();
    config.limits.sessions = 1;
    let mut desk = Desk::with(config, permits);
    let ticket = desk.start(asked(Program::Shell));
    assert_eq!(desk.refused(ticket), "a shell is not allowed by the test");
    let (first, fds) = desk.started(command("cat"));
    let second = desk.start(command("true"));
    assert_eq!(
        desk.refused(second),
        "a connection has at most 1 sessions (limits.sessions)"
    );
    let (output, _) = outputs(fds);
    assert_eq!((output.as_str(), desk.ended(first)), ("", GOOD));
    // Its place is free again, and its account is still the one that logged in.
    let (third, _fds) = desk.started(command("true"));
    assert_eq!(desk.ended(third), GOOD);
    desk.account.ids.uid += 1;
    let other = desk.start(command("true"));
    assert_eq!(
        desk.refused(other),
        "the account is not the one that logged in: log in again"
    );
    let log = desk.close();
    assert_eq!(log.iter().filter(|v| v["event"] == "denied").count(), 3);
}

#[test]
fn a_session_whose_end_is_told_leaves_its_place_at_once() {
    needs_root!("sessions of another user");
    let mut config = Config::default();
    config.limits.sessions = 1;
    let mut desk = Desk::with(config, Permits::all());
    // The end is told before the session is closed, so its ticket and its place have to be free by then.
    for code in 0..20 {
        let (ticket, _fds) = desk.started(command(&format!("exit {code}")));
        assert_eq!(desk.ended(ticket), ProcessEnd { status: code, ..GOOD });
    }
    let log = desk.close();
    let ends: Vec<i64> = log.iter().filter_map(|v| v["code"].as_i64()).collect();
    assert_eq!(ends, (0..20).collect::<Vec<_>>());
    let told = names(&log);
    assert_eq!(told.iter().filter(|n| **n == "session_started").count(), 20);
    assert_eq!(told.iter().filter(|n| **n == "session_ended").count(), 20);
}

#[test]
fn what_a_named_command_left_behind_lives_on_though_its_client_goes_at_once() {
    needs_root!("sessions of another user");
    let mut list = Commands::new();
    let line = "sleep 100 > /dev/null 2>&1 & echo $!";
    let defined = Command::define(&["/bin/sh", "-c", line], &[]).expect("a command");
    list.add("leaves", defined).expect("one");
    let mut permits = Permits::all();
    permits.only_commands(Arc::new(list), &Rule::new("the test"));
    let mut desk = Desk::with(Config::default(), permits);
    let (ticket, fds) = desk.started(command("leaves"));
    assert_eq!(desk.ended(ticket), GOOD);
    // The session is not closed yet when its client goes.
    let log = desk.close();
    let left: i32 = outputs(fds).0.trim().parse().expect("a number");
    assert_eq!(names(&log), ["session_started", "session_ended"]);
    let pidfd = process::pidfd_open(left).expect("it lives on");
    assert_eq!(
        poll::poll(&mut [Watch::new(pidfd.raw(), poll::READ)], Some(50)),
        Ok(0)
    );
    process::signal(&pidfd, process::SIGKILL).expect("it is the test's");
}

#[test]
fn a_changed_shell_counts_at_the_next_session() {
    needs_root!("sessions of another user");
    let mut desk = Desk::new();
    for (shell, wanted) in [(c"/bin/sh", "sh\n"), (c"/bin/bash", "bash\n")] {
        desk.account.shell = shell.into();
        let (ticket, fds) = desk.started(command("echo $0"));
        assert_eq!(outputs(fds).0, wanted);
        assert_eq!(desk.ended(ticket), GOOD);
    }
    // A shell that is not there: the user is told as by sshd, and so is the exit code.
    desk.account.shell = c"/no/such/shell".into();
    let (ticket, fds) = desk.started(command("true"));
    assert_eq!(outputs(fds).1, "/no/such/shell: No such file or directory\n");
    assert_eq!(desk.ended(ticket), ProcessEnd { status: 1, ..GOOD });
}

#[test]
fn forced_commands_run_instead() {
    needs_root!("sessions of another user");
    let mut permits = Permits::all();
    permits.force(
        b"echo \"not $SSH_ORIGINAL_COMMAND\"".to_vec(),
        &Rule::new("the test"),
    );
    let mut desk = Desk::with(Config::default(), permits);
    let (ticket, fds) = desk.started(command("id -a"));
    assert_eq!(outputs(fds).0, "not id -a\n");
    assert_eq!(desk.ended(ticket), GOOD);
    let log = desk.close();
    assert_eq!(log[0]["original"], "id -a");
}

#[test]
fn the_file_server_is_one_socket_and_tells_what_was_done() {
    needs_root!("sessions of another user");
    let mut desk = Desk::new();
    let asked_at = desk.start(asked(Program::Subsystem {
        name: b"sftp".to_vec(),
    }));
    let (
        ToFront::Started {
            ticket,
            is_socket: true,
            ..
        },
        mut fds,
    ) = desk.hear()
    else {
        panic!("it is not started")
    };
    assert_eq!((ticket, fds.len()), (asked_at, 1));
    let socket = fds.pop().expect("a socket");
    // SSH_FXP_INIT, and SSH_FXP_MKDIR of a directory that is there.
    let path = b"/tmp";
    let mut request = vec![0, 0, 0, 5, 1, 0, 0, 0, 3];
    request.extend([0, 0, 0, 17, 14, 0, 0, 0, 1, 0, 0, 0, 4]);
    request.extend(path);
    request.extend([0, 0, 0, 0]);
    file::write_all(socket.raw(), &request).expect("sent");
    let mut heard: Vec<u8> = Vec::new();
    let mut chunk = [0; 4096];
    // The version, then a status.
    while !heard.windows(5).any(|w| w == [101u8, 0, 0, 0, 1]) {
        wait_for(&socket, fleetgate_sys::poll::READ);
        let got = file::read(socket.raw(), &mut chunk).expect("read");
        assert!(got > 0, "it ended: {heard:?}");
        heard.extend(&chunk[..got]);
    }
    drop(socket);
    assert_eq!(desk.ended(ticket), GOOD);
    let log = desk.close();
    assert_eq!(names(&log), ["session_started", "file", "session_ended"]);
    assert_eq!(
        (&log[1]["operation"], &log[1]["path"]),
        (&"mkdir".into(), &"/tmp".into())
    );
    assert_ne!(log[1]["errno"], 0);
}

#[test]
fn a_session_on_its_way_does_not_outlive_a_client_that_wants_nothing_left() {
    needs_root!("sessions of another user");
    for leaves_nothing in [true, false] {
        let mut desk = Desk::new();
        let ticket = desk.start(command("exec cat"));
        // Its launch is under way, and nobody has heard of it.
        if leaves_nothing {
            desk.sessions.leave_nothing(&desk.granted, ticket);
        }
        desk.sessions.hang_up(&desk.granted, ticket);
        let (said, fds) = desk.hear();
        match said {
            // Killed in its cgroup before its program ran.
            ToFront::NotStarted { .. } if leaves_nothing => continue,
            ToFront::Started { .. } => {}
            other => panic!("{leaves_nothing}: {other:?}"),
        }
        if leaves_nothing {
            let ended = desk.ended(ticket);
            assert_eq!((ended.signalled, ended.status), (true, 9));
        } else {
            // Control: without the word it goes on, and ends with its input.
            drop(fds);
            assert_eq!(desk.ended(ticket), GOOD);
        }
    }
}

#[test]
fn a_forced_command_outlives_a_client_that_wants_nothing_left() {
    needs_root!("sessions of another user");
    let mut permits = Permits::all();
    permits.force(b"exec cat".to_vec(), &Rule::new("the test"));
    let mut desk = Desk::with(Config::default(), permits);
    let (ticket, fds) = desk.started(command("true"));
    let [stdin, ..] = <[Fd; 3]>::try_from(fds).expect("three pipes");
    desk.sessions.leave_nothing(&desk.granted, ticket);
    desk.sessions.hang_up(&desk.granted, ticket);
    drop(stdin);
    assert_eq!(desk.ended(ticket), GOOD);
}

#[test]
fn what_a_session_leaves_running_goes_when_it_is_to() {
    needs_root!("sessions of another user");
    if fleetgate_launch::cgroup::Cgroups::find().is_err() {
        return skip("needs a cgroup v2 hierarchy of its own");
    }
    for kill in [true, false] {
        let config = Config {
            kill_user_processes: kill,
            ..Config::default()
        };
        let mut desk = Desk::with(config, Permits::all());
        // What is left holds standard error open, and ends when its standard input does.
        let line = "exec 3<&0; cat <&3 >/dev/null & echo started";
        let (ticket, fds) = desk.started(command(line));
        let [stdin, output, errors] = <[Fd; 3]>::try_from(fds).expect("three pipes");
        assert_eq!(read_all(output), "started\n");
        assert_eq!(desk.ended(ticket), GOOD);
        let mut watch = [fleetgate_sys::poll::Watch::new(
            errors.raw(),
            fleetgate_sys::poll::READ,
        )];
        if kill {
            let ready = fleetgate_sys::poll::poll(&mut watch, Some(orders::PATIENCE_MS)).expect("poll");
            assert_eq!(ready, 1, "it goes");
        } else {
            assert_eq!(fleetgate_sys::poll::poll(&mut watch, Some(0)), Ok(0), "it stays");
        }
        drop(stdin);
        assert_eq!(read_all(errors), "");
    }
}
