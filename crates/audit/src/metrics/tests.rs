//! The page's text, and the answers of its server.

use super::*;

fn place() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("fleetgate-metrics-{}/audit.jsonl", std::process::id()))
}

#[test]
fn the_page_counts() {
    let metrics = Metrics::default();
    metrics.connection_opened();
    metrics.connection_opened();
    metrics.connection_ended();
    metrics.connection_refused();
    metrics.connection_tunnelled();
    metrics.died(Process::Tunnel);
    metrics.login(LoginResult::Refused);
    metrics.login(LoginResult::Accepted);
    metrics.login(LoginResult::Refused);
    metrics.session_started(SessionKind::Sftp);
    metrics.session_ended();
    metrics.session_started(SessionKind::Shell);
    metrics.launched(Strategy::Memfd);
    metrics.launch_failed();
    metrics.denied();
    metrics.died(Process::Resolver);
    let page = metrics.page(9);
    for line in [
        "fleetgate_connections_total 2",
        "fleetgate_connections_open 1",
        "fleetgate_connections_refused_total 1",
        "fleetgate_connections_tunnelled_total 1",
        "fleetgate_process_deaths_total{process=\"tunnel\"} 1",
        "fleetgate_logins_total{result=\"accepted\"} 1",
        "fleetgate_logins_total{result=\"refused\"} 2",
        "fleetgate_logins_total{result=\"abandoned\"} 0",
        "fleetgate_sessions_total{kind=\"sftp\"} 1",
        "fleetgate_sessions_total{kind=\"shell\"} 1",
        "fleetgate_sessions_open 1",
        "fleetgate_launches_total{strategy=\"memfd\"} 1",
        "fleetgate_launches_failed_total 1",
        "fleetgate_denied_total 1",
        "fleetgate_process_deaths_total{process=\"resolver\"} 1",
        "fleetgate_audit_lost_total 9",
        concat!(
            "fleetgate_build_info{version=\"",
            env!("CARGO_PKG_VERSION"),
            "\"} 1"
        ),
    ] {
        assert!(page.lines().any(|l| l == line), "{line} is missing:\n{page}");
    }
    // Each family is described once, before its values.
    let mut described = Vec::new();
    for line in page.lines() {
        match line
            .strip_prefix("# HELP ")
            .and_then(|rest| rest.split(' ').next())
        {
            Some(name) => described.push(name.to_owned()),
            None if line.starts_with('#') => {}
            None => {
                let name = line.split(['{', ' ']).next().expect("a name");
                assert_eq!(described.last().map(String::as_str), Some(name));
            }
        }
    }
    let count = described.len();
    described.sort();
    described.dedup();
    assert_eq!(described.len(), count, "a family twice");
}

#[test]
fn requests_are_answered_or_dropped() {
    let (audit, _writing) = Audit::start(&place()).expect("a log");
    let metrics = Arc::new(Metrics::default());
    let page = serve("127.0.0.1:0".parse().expect("an address"), metrics, audit).expect("served");
    let at = ("127.0.0.1", port(&page));
    let ask = |request: &[u8]| {
        let mut socket = TcpStream::connect(at).expect("connected");
        // A request that is too long is dropped before all of it is sent.
        let _ = socket.write_all(request);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    for (request, status) in [
        ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\n"),
        ("GET /metrics?x=y HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n"),
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found\r\n"),
        (
            "POST /metrics HTTP/1.1\r\n\r\n",
            "HTTP/1.1 405 Method Not Allowed\r\n",
        ),
        ("\r\n\r\n", "HTTP/1.1 405 Method Not Allowed\r\n"),
    ] {
        let answer = ask(request.as_bytes());
        assert!(answer.starts_with(status), "{request:?}: {answer}");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(
            head.contains(&format!("Content-Length: {}", body.len())),
            "{head}"
        );
        assert_eq!(
            body.contains("fleetgate_build_info"),
            status.contains("200"),
            "{body}"
        );
    }
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(MAX_REQUEST));
    assert_eq!(ask(long.as_bytes()), "");
    let _ = std::fs::remove_dir_all(place().parent().expect("its directory"));
}

#[test]
fn only_loopback_is_listened_on() {
    for (address, refused) in [
        ("0.0.0.0:0", true),
        ("[::]:0", true),
        ("192.0.2.1:0", true),
        ("127.0.0.1:0", false),
    ] {
        let (audit, _writing) = Audit::start(std::path::Path::new("-")).expect("a log");
        let served = serve(address.parse().expect("an address"), Arc::default(), audit);
        assert_eq!(
            matches!(served, Err(MetricsError::NotLoopback(_))),
            refused,
            "{address}"
        );
    }
}

/// The port that a page is served on, once it is.
fn port(page: &MetricsServer) -> u16 {
    loop {
        match page.address() {
            Some(address) => return address.port,
            None => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_page_that_is_dropped_gives_its_port_back_at_once() {
    let (audit, _writing) = Audit::start(std::path::Path::new("-")).expect("a log");
    let first = serve(
        "127.0.0.1:0".parse().expect("an address"),
        Arc::default(),
        audit.clone(),
    );
    let first = first.expect("served");
    let address = SocketAddr::from(([127, 0, 0, 1], port(&first)));
    // A reader that says nothing keeps the thread busy.
    let _silent = TcpStream::connect(address).expect("connected");
    assert!(TcpListener::bind(address).is_err(), "control: it is taken");
    drop(first);
    TcpListener::bind(address).expect("it is free");
}

#[test]
fn a_port_that_is_taken_is_tried_until_it_is_free() {
    let (audit, _writing) = Audit::start(std::path::Path::new("-")).expect("a log");
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address");
    let page = serve(address, Arc::default(), audit).expect("no error of the node's");
    assert!(page.address().is_none());
    drop(taken);
    assert_eq!(port(&page), address.port());
}

#[test]
fn a_node_is_ready_when_it_accepts_and_has_the_state_of_its_cluster() {
    let metrics = Metrics::default();
    assert!(metrics.ready().is_err(), "the lobby is not there yet");
    metrics.accepts(true);
    assert_eq!(metrics.ready(), Ok(()), "it has joined no cluster");
    metrics.joined(true);
    assert!(metrics.ready().expect_err("no state").contains("no state of it"));
    metrics.cluster(7, 1);
    assert_eq!(metrics.ready(), Ok(()));
    metrics.accepts(false);
    assert!(metrics.ready().is_err());
}
