//! Whoever has taken over a front: the sessions that it orders, against the user's grant, the certificate's end and the
//! limits. As in `attacks_front`, every attack ends with an honest visitor who gets in over the lobby.

use fleetgate_sys::{clock, file};
use fleetgate_tests::taken::{Key, Node, SESSION, Scene, Stage, command, is_rejected, read_all};
use fleetgate_tests::world::wait_until;
use fleetgate_wire::Reason;
use fleetgate_wire::net::{Done, What};
use fleetgate_wire::node::front::{ClientVariable, FromFront, Program, Start, Terminal, ToFront};
use fleetgate_wire::node::lobby::FromLobby;
use fleetgate_wire::node::{FrozenConnection, Verdict};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn an_order_is_held_against_its_grant() {
    let Some(scene) = Scene::new() else { return };
    let mut stage = Stage::set(&scene);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let with_terminal = || Start {
        terminal: Some(Terminal {
            term: b"xterm".to_vec(),
            columns: 80,
            rows: 24,
            width: 0,
            height: 0,
            modes: Vec::new(),
        }),
        ..command("read line")
    };
    let networks = || {
        let connect = What::Connect {
            host: c"127.0.0.1".into(),
            port,
            timeout_ms: 10_000,
        };
        let accept = What::Accept {
            host: c"127.0.0.1".into(),
            port: 0,
            backlog: 1,
        };
        let connect_unix = What::ConnectUnix {
            path: c"/run/test/nobody".into(),
            timeout_ms: 1000,
        };
        let listen_unix = What::ListenUnix {
            path: c"/run/home/ada/socket".into(),
            umask: 0,
            unlink_first: true,
            backlog: 1,
        };
        let display = What::X11Display {
            first: 0,
            last: 999,
            any_address: true,
        };
        vec![
            connect,
            accept,
            connect_unix,
            listen_unix,
            What::AgentSocket,
            display,
        ]
    };
    let enter = |stage: &mut Stage<'_>, key: &Key| {
        let mut accepted = stage.lobby.let_in(&stage.node, key, "ada");
        stage.lobby.hand_over(&accepted);
        let mut front = stage.node.front();
        let handed = front.handed_as(&mut accepted);
        (front, handed, accepted)
    };
    let is_denied =
        |done: &Done| matches!(done, Done::Failed { failure } if failure.reason == Reason::Denied);

    // A key that nothing was taken away from.
    let whole = scene.certified("whole", "-V always:forever");
    let (mut front, handed, _open) = enter(&mut stage, &whole);
    for (ticket, what) in (10..).zip(networks()) {
        let shown = format!("{what:?}");
        let (done, _) = front.network(handed.number, ticket, what);
        assert!(!is_denied(&done), "{shown}: {done:?}");
    }
    let shell = front
        .start(handed.number, 1, with_terminal())
        .expect("a terminal");
    assert_eq!(shell.len(), 1);
    assert_eq!(front.run(handed.number, 2, "echo $0"), Ok("sh\n".to_owned()));
    assert_eq!(
        front.run(handed.number, 1, "true"),
        Err("the session's number is in use".to_owned())
    );
    // What only the node itself may order.
    for (ticket, what) in [
        (30, What::Stop),
        (
            31,
            What::Bind {
                host: c"127.0.0.1".into(),
                port: 0,
            },
        ),
    ] {
        let (done, fds) = front.network(handed.number, ticket, what);
        assert!(is_denied(&done) && fds.is_empty(), "{done:?}");
    }
    // Others' tickets are as good as none.
    let agent = Start {
        agent: Some(SESSION),
        ..command("true")
    };
    assert_eq!(
        front.output(handed.number, 40, agent),
        Err("there is no agent to forward".to_owned())
    );
    // The client's variables are what the configuration lets it set.
    let variable = |name: &str| ClientVariable {
        name: name.into(),
        value: b"/run/test/evil".to_vec(),
    };
    let environment = Start {
        environment: [
            "LD_PRELOAD",
            "PATH",
            "HOME",
            "LC_TEST",
            "LC_A\nLD_PRELOAD",
            "LD_PRELOAD=x",
        ]
        .map(variable)
        .into(),
        ..command("env | grep -a evil")
    };
    assert_eq!(
        front.output(handed.number, 41, environment),
        Ok("LC_TEST=/run/test/evil\n".to_owned())
    );

    // One that may run commands and nothing else.
    let clear = scene.certified("clear", "-V always:forever -O clear");
    let (mut front, handed, _open) = enter(&mut stage, &clear);
    for (ticket, what) in (10..).zip(networks()) {
        let shown = format!("{what:?}");
        let (done, fds) = front.network(handed.number, ticket, what);
        assert!(is_denied(&done) && fds.is_empty(), "{shown}: {done:?}");
    }
    let refused = front
        .start(handed.number, 1, with_terminal())
        .expect_err("no terminal");
    assert!(refused.contains("the certificate \"clear\""), "{refused}");
    assert_eq!(front.run(handed.number, 2, "echo in"), Ok("in\n".to_owned()));

    // One that may run one command.
    let forced = scene.certified("forced", "-V always:forever -O force-command='echo forced'");
    let (mut front, handed, _open) = enter(&mut stage, &forced);
    for (ticket, program) in [
        (1, Program::Shell),
        (
            2,
            Program::Exec {
                command: b"id".to_vec(),
            },
        ),
        (
            3,
            Program::Subsystem {
                name: b"sftp".to_vec(),
            },
        ),
    ] {
        let start = Start {
            program,
            ..command("")
        };
        assert_eq!(
            front.output(handed.number, ticket, start),
            Ok("forced\n".to_owned())
        );
    }
    wait_until("each denial is told", || stage.node.count("denied") == 4 + 7);
}

#[test]
fn a_grant_ends_with_its_certificate() {
    let Some(scene) = Scene::new() else { return };
    let mut node = scene.node();
    let mut lobby = node.lobby();
    // Long enough to log in and run a command, on however slow a machine.
    for seconds in [2u64, 4, 8, 16, 32] {
        let key = scene.certified(&format!("short{seconds}"), &format!("-V always:+{seconds}s"));
        let visit = lobby.establish(&node);
        let id = visit.client.session_id().expect("keys").to_vec();
        if lobby.ask(visit.arrival.number, &key.request(&id, "ada"))
            != Some(Verdict::Accepted { notes: Vec::new() })
        {
            continue;
        }
        lobby.seat.say(&FromLobby::HandOver {
            connection: visit.arrival.number,
            frozen: FrozenConnection::new(b"frozen".to_vec()),
        });
        let mut front = node.front();
        let number = front.handed().number;
        let in_time = front.run(number, 1, "echo in");
        let running = front.start(number, 2, command("read line; echo $line"));
        let (Ok(said), Ok(mut running)) = (in_time, running) else {
            continue;
        };
        assert_eq!(said, "in\n");
        wait_until("the certificate has expired", || {
            clock::wall().sec > key.valid_before() as i64
        });
        for (ticket, program) in [
            (3, Program::Shell),
            (
                4,
                Program::Exec {
                    command: b"id".to_vec(),
                },
            ),
        ] {
            let start = Start {
                program,
                ..command("")
            };
            let refused = front.output(number, ticket, start);
            assert_eq!(
                refused,
                Err("the login of ada has expired: log in again".to_owned())
            );
        }
        let (done, _) = front.network(number, 5, What::AgentSocket);
        assert!(matches!(done, Done::Failed { .. }), "{done:?}");
        // What runs goes on.
        file::write_all(running[0].raw(), b"still here\n").expect("it reads");
        assert_eq!(read_all(running.remove(1)), "still here\n");
        // And nobody comes in by it again.
        let visit = lobby.establish(&node);
        let id = visit.client.session_id().expect("keys").to_vec();
        assert!(is_rejected(
            lobby.ask(visit.arrival.number, &key.request(&id, "ada"))
        ));
        return;
    }
    panic!("no certificate lasted for a login and a command");
}

#[test]
fn orders_without_end_come_to_the_limits() {
    let Some(scene) = Scene::new() else { return };
    let mut config = scene.config();
    (config.limits.sessions, config.limits.listeners) = (2, 2);
    let mut node = Node::start(config);
    let mut lobby = node.lobby();
    let mut accepted = lobby.let_in(&node, &scene.key("ada"), "ada");
    lobby.hand_over(&accepted);
    let mut front = node.front();
    let number = front.handed_as(&mut accepted).number;
    const ORDERS: u32 = 300;
    for ticket in 1..=ORDERS {
        front.seat.say(&FromFront::Start {
            connection: number,
            ticket,
            start: command("read line"),
        });
        front.seat.say(&FromFront::Network {
            connection: number,
            ticket: ORDERS + ticket,
            what: What::AgentSocket,
        });
    }
    // Each has its answer; what is held of sessions keeps them running meanwhile.
    let (mut sessions, mut sockets, mut refused, mut held) = (0, 0, 0, Vec::new());
    let all = front.seat.hear_until(|word, fds| {
        held.extend(fds);
        match word {
            ToFront::Started { .. } => sessions += 1,
            ToFront::Network {
                done: Done::UnixListening { .. },
                ..
            } => sockets += 1,
            ToFront::NotStarted { .. }
            | ToFront::Network {
                done: Done::Failed { .. },
                ..
            } => refused += 1,
            other => panic!("{other:?}"),
        }
        (sessions + sockets + refused == 2 * ORDERS).then_some(())
    });
    assert!(all.is_some(), "the front stays");
    assert_eq!((sessions, sockets), (2, 2));
    drop(held);
    // They ended with their input: there is room again.
    wait_until("a session's place is free", || {
        static TICKET: AtomicU32 = AtomicU32::new(2 * ORDERS);
        let ticket = TICKET.fetch_add(1, Ordering::Relaxed) + 1;
        front.run(number, ticket, "echo in") == Ok("in\n".to_owned())
    });
}
