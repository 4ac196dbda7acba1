//! Sessions over connections that the lobby handed to the front.

use crate::world::{Said, World};
use fleetgate_ssh::event::{Pty, Request, Stream, WindowSize};
use fleetgate_sys::{file, process, terminal};
use fleetgate_wire::node::front::{FromFront, Program, RequestKind};
use fleetgate_wire::node::{FrontPermit, MAX_COMMAND, MAX_ENVIRONMENT, MAX_VARIABLES};

/// How a program ends.
enum Ends {
    Exit(u32),
    Signal(&'static str),
}

#[test]
fn commands_run_and_their_ends_are_said_in_order() {
    // Command, input, output, errors, end. The client sends EOF after its input.
    type Row = (&'static str, &'static [u8], &'static [u8], &'static [u8], Ends);
    let rows: &[Row] = &[
        (
            "echo out; echo err >&2; exit 7",
            b"",
            b"out\n",
            b"err\n",
            Ends::Exit(7),
        ),
        ("exec cat", b"some input", b"some input", b"", Ends::Exit(0)),
        ("exec wc -c", &[7; 300_000], b"300000\n", b"", Ends::Exit(0)),
        ("true", &[7; 300_000], b"", b"", Ends::Exit(0)),
        ("kill -9 $$", b"", b"", b"", Ends::Signal("KILL")),
        ("kill -TERM $$", b"", b"", b"", Ends::Signal("TERM")),
        (
            "exec head -c 3000000 /dev/zero",
            b"",
            &[0; 3_000_000],
            b"",
            Ends::Exit(0),
        ),
        (
            "exec head -c 3000000 /dev/zero >&2",
            b"",
            b"",
            &[0; 3_000_000],
            Ends::Exit(0),
        ),
    ];
    let mut w = World::new();
    let c = w.login();
    for (command, input, output, errors, ends) in rows {
        let ch = w.exec(c, command);
        w.until(|w| w.clients[c].steps(ch).contains(&Said::Replied(ch.0, true)));
        w.write(c, ch, input);
        w.clients[c].core.eof(ch);
        w.until(|w| w.clients[c].steps(ch).contains(&Said::Closed(ch.0)));
        assert!(w.output(c, ch, Stream::Main) == *output, "{command}: output");
        assert!(w.output(c, ch, Stream::Stderr) == *errors, "{command}: errors");
        let n = ch.0;
        let end = match ends {
            Ends::Exit(code) => Said::Exit(n, *code),
            Ends::Signal(name) => Said::Signal(n, (*name).to_owned()),
        };
        let mut steps = w.clients[c].steps(ch);
        // The end of the output may come before or after the status; CLOSE comes last.
        steps.retain(|s| *s != Said::Eof(n));
        assert_eq!(
            steps,
            [Said::Opened(n), Said::Replied(n, true), end, Said::Closed(n)],
            "{command}"
        );
    }
    w.clients[c].disconnect();
    w.until(|w| w.clients[c].over.is_some());
    assert_eq!(w.front.finish(), Some(0));
    assert_eq!(w.lobby.finish(), Some(0));
}

#[test]
fn a_child_that_holds_the_output_keeps_the_channel_open_after_the_status() {
    let mut w = World::new();
    let c = w.login();
    // The child waits for the end of the input, which comes with the end of the shell.
    let ch = w.exec(c, "exec 3<&0; (cat <&3 >/dev/null; echo late) & echo now");
    w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
    assert_eq!(w.output(c, ch, Stream::Main), b"now\nlate\n");
    let at = |what: &dyn Fn(&Said) -> bool| w.clients[c].said.iter().position(what).expect("said");
    let exit = at(&|s| *s == Said::Exit(ch.0, 0));
    let late = at(&|s| matches!(s, Said::Data(_, _, b) if b.ends_with(b"late\n")));
    assert!(exit < late, "{:?}", w.clients[c].said);
}

#[test]
fn the_end_of_the_output_is_said_while_the_program_goes_on() {
    let mut w = World::new();
    let c = w.login();
    let ch = w.exec(c, "exec >&- 2>&-; read line; exit 3");
    w.until(|w| w.clients[c].said.contains(&Said::Eof(ch.0)));
    w.write(c, ch, b"go on\n");
    w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
    let n = ch.0;
    let expected = [
        Said::Opened(n),
        Said::Replied(n, true),
        Said::Eof(n),
        Said::Exit(n, 3),
        Said::Closed(n),
    ];
    assert_eq!(w.clients[c].steps(ch), expected);
}

#[test]
fn words_about_the_end_come_before_the_end_of_the_output() {
    let mut w = World::new();
    let c = w.login();
    // Its outputs end long before it does, as where the monitor is slow to hear of a session that it killed.
    let ch = w.exec(c, "read line; exec >&- 2>&-; read line");
    w.until(|w| w.clients[c].steps(ch).contains(&Said::Replied(ch.0, true)));
    w.announce_end(c, 1);
    w.write(c, ch, b"go on\n");
    for _ in 0..20 {
        w.step(10);
    }
    assert!(!w.clients[c].said.contains(&Said::Eof(ch.0)));
    w.end_session(c, 1, 9, "it took too long");
    w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
    assert_eq!(w.output(c, ch, Stream::Stderr), b"\r\nit took too long\r\n");
}

#[test]
fn a_client_that_closes_at_the_end_of_the_output_still_gets_the_status() {
    let mut w = World::new();
    let c = w.login();
    // As OpenSSH's client does when its own input has ended. The program goes on, and is not hung up on.
    let ch = w.exec(c, "exec >&- 2>&-; read line; exit 3");
    w.until(|w| w.clients[c].said.contains(&Said::Eof(ch.0)));
    w.clients[c].core.close(ch);
    w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
    let n = ch.0;
    let expected = [
        Said::Opened(n),
        Said::Replied(n, true),
        Said::Eof(n),
        Said::Exit(n, 3),
        Said::Closed(n),
    ];
    assert_eq!(w.clients[c].steps(ch), expected);
    assert!(!w.told.iter().any(|t| matches!(t, FromFront::HangUp { .. })));
    // The control is `a_client_that_closes_hangs_up`.
}

#[test]
fn a_stalled_channel_stalls_no_other() {
    let mut w = World::new();
    let c = w.login();
    // Neither reads: a program that has stopped, and a client that does not want its output.
    let stopped = w.exec(c, "echo $$; kill -STOP $$; exec wc -c");
    w.until(|w| w.output(c, stopped, Stream::Main).ends_with(b"\n"));
    let pid = String::from_utf8(w.output(c, stopped, Stream::Main)).expect("digits");
    let pidfd = process::pidfd_open(pid.trim().parse().expect("a number")).expect("it is there");
    let hoarded = w.exec(c, "exec head -c 20000000 /dev/zero");
    w.clients[c].hoard = Some(hoarded);
    let mut sent = 0;
    while w.clients[c].core.writable(stopped) > 0 {
        sent += w.clients[c].core.write(stopped, Stream::Main, &[1; 30_000]);
        w.step(10);
    }
    assert!(sent >= 128 << 10, "a whole window was taken: {sent}");
    w.until(|w| w.output(c, hoarded, Stream::Main).len() >= 128 << 10);

    let fast = w.exec(c, "exec head -c 9000000 /dev/zero");
    w.until(|w| w.clients[c].said.contains(&Said::Closed(fast.0)));
    assert_eq!(w.output(c, fast, Stream::Main).len(), 9_000_000);
    let up = w.exec(c, "exec wc -c");
    w.until(|w| w.clients[c].steps(up).contains(&Said::Replied(up.0, true)));
    w.write(c, up, &vec![1; 9_000_000]);
    w.clients[c].core.eof(up);
    w.until(|w| w.output(c, up, Stream::Main) == b"9000000\n");
    assert!(!w.clients[c].said.contains(&Said::Closed(hoarded.0)));

    // And both go on as soon as they are read.
    process::signal(&pidfd, 18).expect("it is there");
    w.clients[c].core.eof(stopped);
    w.until(|w| {
        w.output(c, stopped, Stream::Main)
            .ends_with(format!("{sent}\n").as_bytes())
    });
    w.clients[c].hoard = None;
    let held = w.output(c, hoarded, Stream::Main).len();
    w.clients[c].core.consumed(hoarded, held);
    w.until(|w| w.clients[c].said.contains(&Said::Closed(hoarded.0)));
    assert_eq!(w.output(c, hoarded, Stream::Main).len(), 20_000_000);
}

#[test]
fn a_terminal_has_its_size_its_bytes_and_its_end() {
    let mut w = World::new();
    let c = w.login();
    let ch = w.session(c);
    let size = |columns, rows| WindowSize {
        columns,
        rows,
        width: 0,
        height: 0,
    };
    let pty = Pty {
        term: b"xterm".to_vec(),
        size: size(80, 24),
        modes: vec![0],
    };
    let core = &mut w.clients[c].core;
    core.request(ch, &Request::Pty(pty), true);
    core.request(ch, &Request::WindowChange(size(90, 30)), false);
    core.request(ch, &Request::Shell, true);
    w.until(|w| {
        w.clients[c]
            .steps(ch)
            .ends_with(&[Said::Replied(ch.0, true), Said::Replied(ch.0, true)])
    });
    let start = w.starts.pop().expect("it was started");
    assert_eq!(start.program, Program::Shell);
    let asked = start.terminal.expect("with a terminal");
    assert_eq!(
        (asked.columns, asked.rows, &asked.term[..]),
        (90, 30, &b"xterm"[..])
    );

    let user = w.terminals.pop().expect("it was opened");
    w.clients[c]
        .core
        .request(ch, &Request::WindowChange(size(132, 50)), false);
    w.clients[c]
        .core
        .request(ch, &Request::Break { milliseconds: 500 }, true);
    w.until(|w| {
        w.clients[c]
            .steps(ch)
            .iter()
            .filter(|s| **s == Said::Replied(ch.0, true))
            .count()
            == 3
    });
    assert_eq!(terminal::size(user.raw()), Ok((132, 50)));
    w.write(c, ch, b"typed\n");
    w.until(|w| w.output(c, ch, Stream::Main) == b"typed\r\n");
    let mut line = [0; 16];
    assert_eq!(
        file::read(user.raw(), &mut line).map(|n| line[..n].to_vec()),
        Ok(b"typed\n".to_vec())
    );
    // The client's end of input says nothing to a terminal, as with sshd.
    w.clients[c].core.eof(ch);
    file::write_all(user.raw(), b"shown\n").expect("there is room");
    w.until(|w| w.output(c, ch, Stream::Main).ends_with(b"shown\r\n"));
    file::write_all(user.raw(), b"last words\n").expect("there is room");
    drop(user);
    w.end_session(c, 1, 5, "the session was ended by user ada (maintenance)");
    w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
    // Its user reads who ended it, and why.
    assert_eq!(
        w.output(c, ch, Stream::Stderr),
        b"\r\nthe session was ended by user ada (maintenance)\r\n"
    );
    assert!(w.output(c, ch, Stream::Main).ends_with(b"last words\r\n"));
    assert!(w.clients[c].said.contains(&Said::Exit(ch.0, 5)));
}

#[test]
fn what_a_session_asks_for_is_passed_on_within_bounds() {
    let mut w = World::new();
    let c = w.login();
    let ch = w.session(c);
    let core = &mut w.clients[c].core;
    let env = |name: &str, value: Vec<u8>| Request::Env {
        name: name.into(),
        value,
    };
    core.request(ch, &env("GREETING", b"hello".to_vec()), true);
    core.request(ch, &env("TOO_LONG", vec![b'x'; MAX_ENVIRONMENT]), true);
    core.request(
        ch,
        &Request::Other {
            name: b"frobnicate@example.com".to_vec(),
            payload: Vec::new(),
        },
        true,
    );
    core.request(
        ch,
        &Request::Signal {
            name: b"TERM".to_vec(),
        },
        true,
    );
    let command = b"echo $GREETING".to_vec();
    core.request(
        ch,
        &Request::Exec {
            command: command.clone(),
        },
        true,
    );
    // A second program on the same channel.
    core.request(ch, &Request::Exec { command }, true);
    w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
    assert_eq!(w.output(c, ch, Stream::Main), b"hello\n");
    let replies: Vec<bool> = w.clients[c]
        .said
        .iter()
        .filter_map(|s| match s {
            Said::Replied(_, done) => Some(*done),
            _ => None,
        })
        .collect();
    assert_eq!(replies, [true, false, false, false, true, false]);

    let many = w.session(c);
    for n in 0..=MAX_VARIABLES {
        w.clients[c]
            .core
            .request(many, &env(&format!("V{n}"), Vec::new()), false);
    }
    let command = b"env | grep -c ^V".to_vec();
    w.clients[c].core.request(many, &Request::Exec { command }, true);
    w.until(|w| {
        w.clients[c].steps(many).ends_with(&[Said::Closed(many.0)])
            && w.output(c, many, Stream::Main).ends_with(b"256\n")
    });
}

#[test]
fn what_is_not_started_is_said_to_the_user() {
    let mut w = World::new();
    let c = w.login();
    let ch = w.session(c);
    let name = b"refused".to_vec();
    w.clients[c].core.request(ch, &Request::Subsystem { name }, true);
    w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
    assert_eq!(w.output(c, ch, Stream::Stderr), b"no such subsystem\r\n");
    assert!(w.clients[c].said.contains(&Said::Replied(ch.0, false)));

    // Clients show nothing of a command whose request failed.
    let ch = w.session(c);
    let command = b"refused".to_vec();
    w.clients[c].core.request(ch, &Request::Exec { command }, true);
    w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
    assert_eq!(w.output(c, ch, Stream::Stderr), b"not today\r\n");
    assert!(w.clients[c].said.contains(&Said::Replied(ch.0, true)));
    assert!(w.clients[c].said.contains(&Said::Exit(ch.0, 255)));
}

#[test]
fn a_command_that_fits_no_frame_with_its_environment_is_not_started() {
    let mut w = World::new();
    let c = w.login();
    let ch = w.session(c);
    let core = &mut w.clients[c].core;
    let mut command = b": ".to_vec();
    command.resize(MAX_COMMAND, b'x');
    let env = Request::Env {
        name: b"V".to_vec(),
        value: vec![b'x'; MAX_ENVIRONMENT - 16],
    };
    core.request(ch, &env, true);
    core.request(ch, &Request::Exec { command }, true);
    w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
    assert_eq!(
        w.output(c, ch, Stream::Stderr),
        b"the command and its environment are too long\r\n"
    );
    assert!(w.starts.is_empty());
    w.until(|w| w.told.iter().any(|word| matches!(word, FromFront::Denied { .. })));

    // The connection goes on.
    let ch = w.session(c);
    let command = b"echo on".to_vec();
    w.clients[c].core.request(ch, &Request::Exec { command }, true);
    w.until(|w| w.clients[c].said.contains(&Said::Closed(ch.0)));
    assert_eq!(w.output(c, ch, Stream::Main), b"on\n");
}

#[test]
fn what_the_grant_has_not_is_refused_and_told() {
    let pty = Request::Pty(Pty {
        term: b"xterm".to_vec(),
        size: WindowSize::default(),
        modes: vec![0],
    });
    let command = b"id".to_vec();
    let rows = [
        (FrontPermit::Shell, Request::Shell, RequestKind::Shell, "shell"),
        (
            FrontPermit::Exec,
            Request::Exec { command },
            RequestKind::Exec,
            "exec id",
        ),
        (
            FrontPermit::Sftp,
            Request::Subsystem {
                name: b"sftp".to_vec(),
            },
            RequestKind::Sftp,
            "subsystem sftp",
        ),
        (
            FrontPermit::Exec,
            Request::Subsystem { name: b"x".to_vec() },
            RequestKind::Exec,
            "subsystem x",
        ),
        (FrontPermit::Pty, pty, RequestKind::Terminal, "pty-req"),
        (
            FrontPermit::Agent,
            Request::Agent,
            RequestKind::Agent,
            "auth-agent-req@openssh.com",
        ),
    ];
    for (kind, request, refused, told) in rows {
        let mut w = World::new();
        w.permits.0 &= !(kind as u32);
        let c = w.login();
        let ch = w.session(c);
        w.clients[c].core.request(ch, &request, true);
        w.until(|w| w.clients[c].steps(ch).ends_with(&[Said::Replied(ch.0, false)]));
        let denied = |w: &FromFront| {
            matches!(w, FromFront::Denied { kind, what, .. }
                if *kind == refused && what.to_bytes() == told.as_bytes())
        };
        w.until(|w| w.told.iter().any(denied));
        assert!(w.starts.is_empty(), "{told}");
    }
}

#[test]
fn a_client_that_closes_hangs_up() {
    let mut w = World::new();
    let c = w.login();
    let ch = w.exec(c, "exec cat");
    w.until(|w| w.clients[c].steps(ch).contains(&Said::Replied(ch.0, true)));
    w.clients[c].core.close(ch);
    w.until(|w| {
        w.told
            .iter()
            .any(|t| matches!(t, FromFront::HangUp { ticket: 1, .. }))
    });
    // The connection goes on.
    let next = w.exec(c, "echo on");
    w.until(|w| w.output(c, next, Stream::Main) == b"on\n");
}

#[test]
fn input_that_comes_before_the_program_runs_reaches_it_whole() {
    let mut w = World::new();
    let c = w.login();
    for size in [1, 300_000] {
        let input: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
        // Nothing is waited for: the input follows the request as closely as it can.
        let ch = w.exec(c, "exec cat");
        w.write(c, ch, &input);
        w.clients[c].core.eof(ch);
        w.until(|w| w.clients[c].steps(ch).contains(&Said::Closed(ch.0)));
        assert!(w.output(c, ch, Stream::Main) == input, "{size} bytes");
    }
}
