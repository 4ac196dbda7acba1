//! What a front may ask for, and what it becomes.

use super::*;
use fleetgate_policy::permits::Target;
use fleetgate_policy::{AccountName, GrantId, Kind, Permits, Proofs, Rule};

fn grant(permits: Permits) -> Grant {
    Grant {
        id: GrantId(1),
        proofs: Proofs { proven: Vec::new() },
        login: AccountName::parse(b"ada").expect("a name"),
        permits,
        must_change_password: false,
        source: "192.0.2.7:1".parse().expect("an address"),
        expires: Some(Duration::from_secs(10)),
    }
}

fn only(connect: &str, listen: &str) -> Permits {
    let mut permits = Permits::all();
    permits.only_connect(
        vec![Target::parse(connect, false).expect("a target")],
        &Rule::new("permitopen"),
    );
    permits.only_listen(
        vec![Target::parse(listen, true).expect("a target")],
        &Rule::new("permitlisten"),
    );
    permits
}

fn host(name: &str) -> CString {
    CString::new(name).expect("a name")
}

fn connect(name: &str, port: u16, timeout_ms: u32) -> What {
    What::Connect {
        host: host(name),
        port,
        timeout_ms,
    }
}

fn listen(name: &str, port: u16, backlog: u32) -> What {
    What::Accept {
        host: host(name),
        port,
        backlog,
    }
}

#[test]
fn requests_meet_the_grant_and_get_their_bounds() {
    let gateway = Config {
        gateway_ports: true,
        ..Config::default()
    };
    let plain = Config::default();
    let without = |kind| {
        let mut permits = Permits::all();
        permits.forbid(&[kind], &Rule::new("the test"));
        permits
    };
    let socket = |umask, unlink_first, backlog| What::ListenUnix {
        path: host("/x"),
        umask,
        unlink_first,
        backlog,
    };
    let display = |first, last, any_address| What::X11Display {
        first,
        last,
        any_address,
    };
    let unix = |timeout_ms| What::ConnectUnix {
        path: host("/x"),
        timeout_ms,
    };
    let long = "x".repeat(MAX_HOST + 1);
    for (config, permits, what, wanted) in [
        (
            &plain,
            Permits::all(),
            connect("db", 5432, 1),
            Ok(connect("db", 5432, 60_000)),
        ),
        (
            &plain,
            only("db:5432", "8080"),
            connect("db", 5432, 1),
            Ok(connect("db", 5432, 60_000)),
        ),
        (
            &plain,
            only("db:5432", "8080"),
            connect("db", 22, 1),
            Err("forwarding to a TCP address \"db\" port 22 is not allowed by permitopen"),
        ),
        (
            &plain,
            Permits::all(),
            connect(&long, 1, 1),
            Err("a host's name is longer than 255 bytes"),
        ),
        (
            &plain,
            without(Kind::ConnectTcp),
            connect("db", 1, 1),
            Err("forwarding to a TCP address is not allowed by the test"),
        ),
        (
            &plain,
            Permits::all(),
            listen("", 8080, 9999),
            Ok(listen("localhost", 8080, BACKLOG)),
        ),
        (
            &plain,
            Permits::all(),
            listen("*", 8080, 1),
            Ok(listen("localhost", 8080, BACKLOG)),
        ),
        (
            &plain,
            Permits::all(),
            listen("192.0.2.1", 8080, 1),
            Ok(listen("localhost", 8080, BACKLOG)),
        ),
        (
            &plain,
            Permits::all(),
            listen("127.0.0.1", 8080, 1),
            Ok(listen("127.0.0.1", 8080, BACKLOG)),
        ),
        (
            &gateway,
            Permits::all(),
            listen("", 8080, 1),
            Ok(listen("", 8080, BACKLOG)),
        ),
        (
            &gateway,
            Permits::all(),
            listen("192.0.2.1", 0, 1),
            Ok(listen("192.0.2.1", 0, BACKLOG)),
        ),
        (
            &plain,
            only("db:1", "8080"),
            listen("localhost", 8080, 1),
            Ok(listen("localhost", 8080, BACKLOG)),
        ),
        (
            &plain,
            only("db:1", "8080"),
            listen("localhost", 8081, 1),
            Err("listening on a TCP port \"localhost\" port 8081 is not allowed by permitlisten"),
        ),
        (
            &plain,
            Permits::all(),
            What::Listen {
                host: host(""),
                port: 1,
                backlog: 1,
            },
            Ok(listen("localhost", 1, BACKLOG)),
        ),
        (&plain, Permits::all(), unix(7), Ok(unix(60_000))),
        (
            &plain,
            only("db:1", "1"),
            unix(7),
            Err("forwarding to a unix socket is not allowed by permitopen"),
        ),
        (
            &plain,
            Permits::all(),
            socket(0, true, 9999),
            Ok(socket(0o177, false, BACKLOG)),
        ),
        (&plain, Permits::all(), What::AgentSocket, Ok(What::AgentSocket)),
        (
            &plain,
            without(Kind::Agent),
            What::AgentSocket,
            Err("agent forwarding is not allowed by the test"),
        ),
        (
            &plain,
            Permits::all(),
            display(0, 5, true),
            Ok(display(10, 999, false)),
        ),
        (
            &plain,
            without(Kind::X11),
            display(0, 5, true),
            Err("X11 forwarding is not allowed by the test"),
        ),
        (
            &plain,
            Permits::none(&Rule::new("x")),
            What::Cancel { of: 3 },
            Ok(What::Cancel { of: 3 }),
        ),
        (
            &plain,
            Permits::all(),
            What::Stop,
            Err("a request that only the node itself may make"),
        ),
        (
            &plain,
            Permits::all(),
            What::Bind {
                host: host(""),
                port: 1,
            },
            Err("a request that only the node itself may make"),
        ),
    ] {
        let got = allow(&grant(permits), Duration::from_secs(9), config, what.clone());
        assert_eq!(got, wanted.map_err(str::to_owned), "{what:?}");
    }
    let late = allow(
        &grant(Permits::all()),
        Duration::from_secs(10),
        &plain,
        connect("db", 1, 1),
    );
    assert_eq!(late, Err("the login of ada has expired: log in again".to_owned()));
}
