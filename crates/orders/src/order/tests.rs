//! What a request becomes: the decision, the order, the text of a refusal. Tables; nothing is opened.

use super::*;
use crate::choose::*;
use crate::facts::{ClusterUser, Inherited};
use fleetgate_audit::SessionKind;
use fleetgate_node_config::Config;
use fleetgate_policy::commands::{Command, CommandLimits, Commands, NamedCommand};
use fleetgate_policy::{AccountName, Grant, GrantId, How, Permits as May, Proofs, Rule};
use fleetgate_sys::clock::Time;
use fleetgate_wire::common::{Endpoint, Ids, Variable};
use fleetgate_wire::exec::Limit;
use fleetgate_wire::node::ConnectionAddresses;
use fleetgate_wire::node::front::{ClientVariable, Start, Terminal};
use fleetgate_wire::node::{
    FrontPermit, FrontPermits, MAX_COMMAND, MAX_ENVIRONMENT, MAX_MODES, MAX_TERM, MAX_VARIABLES,
};
use std::sync::Arc;
use std::time::Duration;

const NOW: Duration = Duration::from_secs(100);

fn grant(permits: May) -> Grant {
    Grant {
        id: GrantId(1),
        proofs: Proofs {
            proven: vec![How::Password],
        },
        login: AccountName::parse(b"ada").expect("a name"),
        permits,
        must_change_password: false,
        source: "192.0.2.7:4711".parse().expect("an address"),
        expires: Some(Duration::from_secs(200)),
    }
}

fn forced(command: &str) -> May {
    let mut permits = May::all();
    permits.force(command.into(), &Rule::new("the test"));
    permits
}

fn without(kind: fleetgate_policy::Kind) -> May {
    let mut permits = May::all();
    permits.forbid(&[kind], &Rule::new("the test"));
    permits
}

fn named() -> May {
    let mut list = Commands::new();
    let echo = Command::define(&["/bin/echo", "{w}"], &[("w", "word", None)]).expect("a command");
    list.add("echo", echo).expect("added");
    let check = Command::define(&["/bin/check"], &[]).expect("a command");
    let check = check.with_secrets(vec!["PASSWORD".to_owned()]).expect("a name");
    list.add("check", check).expect("added");
    let mut permits = May::all();
    permits.only_commands(Arc::new(list), &Rule::new("the test"));
    permits
}

fn start(program: front::Program) -> Start {
    Start {
        program,
        terminal: None,
        environment: Vec::new(),
        agent: None,
        x11: None,
    }
}

fn line(command: &str) -> Start {
    start(front::Program::Exec {
        command: command.into(),
    })
}

fn subsystem(name: &str) -> Start {
    start(front::Program::Subsystem { name: name.into() })
}

fn shell() -> Start {
    start(front::Program::Shell)
}

fn terminal() -> Terminal {
    Terminal {
        term: b"xterm".to_vec(),
        columns: 80,
        rows: 24,
        width: 0,
        height: 0,
        modes: Vec::new(),
    }
}

fn with_terminal() -> Start {
    Start {
        terminal: Some(terminal()),
        ..shell()
    }
}

fn variables(count: usize, bytes: usize) -> Start {
    let one = |_| ClientVariable {
        name: b"A".to_vec(),
        value: vec![b'x'; bytes],
    };
    Start {
        environment: (0..count).map(one).collect(),
        ..shell()
    }
}

#[test]
fn requests_are_decided() {
    use fleetgate_policy::Kind as P;
    let run = |command: &str| Permitted::Line {
        command: command.into(),
        original: None,
    };
    let instead = |original: &str| Permitted::Line {
        command: b"uptime".to_vec(),
        original: Some(original.into()),
    };
    let sftp = |arguments: &str| Permitted::Sftp {
        arguments: arguments.into(),
    };
    let none = || Permitted::Line {
        command: b"uptime".to_vec(),
        original: None,
    };
    let argv = Permitted::Named(NamedCommand {
        name: "echo".to_owned(),
        argv: vec![b"/bin/echo".to_vec(), b"hi".to_vec()],
        limits: CommandLimits::default(),
        environment: Vec::new(),
        secrets: Vec::new(),
        cache: None,
        user: None,
    });
    for (permits, start, wanted) in [
        (
            May::all(),
            shell(),
            Ok((Permitted::Shell, SessionKind::Shell, None)),
        ),
        (
            May::all(),
            with_terminal(),
            Ok((Permitted::Shell, SessionKind::Shell, None)),
        ),
        (May::all(), line("id"), Ok((run("id"), SessionKind::Exec, None))),
        (
            May::all(),
            subsystem("sftp"),
            Ok((sftp(""), SessionKind::Sftp, None)),
        ),
        (
            May::all(),
            subsystem("netconf"),
            Err("there is no subsystem \"netconf\" here"),
        ),
        (
            forced("uptime"),
            line("id"),
            Ok((instead("id"), SessionKind::Exec, Some("id"))),
        ),
        (forced("uptime"), shell(), Ok((none(), SessionKind::Exec, None))),
        (
            forced("uptime"),
            subsystem("sftp"),
            Ok((instead("sftp"), SessionKind::Exec, Some("sftp"))),
        ),
        (
            forced("internal-sftp -R"),
            line("id"),
            Ok((sftp("-R"), SessionKind::Sftp, None)),
        ),
        (
            named(),
            line("echo hi"),
            Ok((argv, SessionKind::Command, Some("echo hi"))),
        ),
        (named(), shell(), Err("a shell is not allowed by the test")),
        (
            without(P::Pty),
            with_terminal(),
            Err("a terminal is not allowed by the test"),
        ),
        (
            without(P::Pty),
            shell(),
            Ok((Permitted::Shell, SessionKind::Shell, None)),
        ),
        (
            without(P::Agent),
            Start {
                agent: Some(1),
                ..shell()
            },
            Err("agent forwarding is not allowed by the test"),
        ),
        (
            without(P::X11),
            Start {
                x11: Some(front::X11 {
                    display: 1,
                    protocol: Vec::new(),
                    cookie: Vec::new(),
                    screen: 0,
                }),
                ..shell()
            },
            Err("X11 forwarding is not allowed by the test"),
        ),
    ] {
        let got = choose_program(&grant(permits), &start, NOW).map(|d| (d.program, d.kind, d.original));
        let wanted = wanted.map(|(p, k, o)| (p, k, o.map(|o: &str| o.as_bytes().to_vec())));
        let got = got.map_err(|refusal| refusal.words);
        assert_eq!(got, wanted.map_err(str::to_owned), "{start:?}");
    }
    let late = choose_program(&grant(May::all()), &shell(), Duration::from_secs(200));
    assert_eq!(
        late,
        Err(SessionRefusal::new(
            "the login of ada has expired: log in again".to_owned()
        ))
    );
}

#[test]
fn requests_are_bounded() {
    let term = |term: Vec<u8>, modes: usize| Start {
        terminal: Some(Terminal {
            term,
            modes: vec![1; modes],
            ..terminal()
        }),
        ..shell()
    };
    for (start, refused) in [
        (line(&"x".repeat(MAX_COMMAND - 1)), None),
        (
            line(&"x".repeat(MAX_COMMAND)),
            Some("the command is longer than 131071 bytes"),
        ),
        (line("a\0b"), Some("the command holds a zero byte")),
        (
            subsystem(&"x".repeat(MAX_COMMAND)),
            Some("the command is longer than 131071 bytes"),
        ),
        (variables(MAX_VARIABLES, 1), None),
        (
            variables(MAX_VARIABLES + 1, 1),
            Some("more than 256 environment variables were sent"),
        ),
        (variables(1, MAX_ENVIRONMENT - 1), None),
        (
            variables(1, MAX_ENVIRONMENT),
            Some("the environment that was sent is longer than 32768 bytes"),
        ),
        (term(vec![b'x'; MAX_TERM], MAX_MODES), None),
        (
            term(b"x".to_vec(), MAX_MODES + 1),
            Some("the terminal modes are longer than 1024 bytes"),
        ),
        (
            term(vec![b'x'; MAX_TERM + 1], 0),
            Some("the terminal type is longer than 255 bytes or holds a zero byte"),
        ),
    ] {
        let got = choose_program(&grant(May::all()), &start, NOW).err();
        // A subsystem that is short enough is refused for its name; none here is.
        assert_eq!(got, refused.map(|r| SessionRefusal::new(r).finally()));
    }
}

#[test]
fn a_front_is_offered_what_may_be_had() {
    let all = FrontPermit::ALL;
    let names = |permits: FrontPermits| all.into_iter().filter(|k| permits.has(*k)).collect::<Vec<_>>();
    let but = |left: &[FrontPermit]| all.into_iter().filter(|k| !left.contains(k)).collect::<Vec<_>>();
    use fleetgate_policy::Kind as P;
    for (permits, wanted) in [
        (May::all(), all.to_vec()),
        (without(P::Pty), but(&[FrontPermit::Pty])),
        (without(P::ConnectTcp), all.to_vec()),
        (May::none(&Rule::new("x")), Vec::new()),
        (forced("uptime"), all.to_vec()),
        (named(), but(&[FrontPermit::Shell, FrontPermit::Sftp])),
    ] {
        assert_eq!(names(front_permits(&grant(permits), NOW)), wanted);
    }
}

mod exec;
