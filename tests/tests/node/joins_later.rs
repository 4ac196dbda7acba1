//! A node that serves already and joins a cluster, leaves it and joins anew: each at a reload, and no session that is open
//! notices. The proxies are the test's; what was open before the first of them came by the node's own port.

use fleetgate_node::identity::DIRECTORY;
use fleetgate_proto::signed;
use fleetgate_proto::v1::{AuditPosition, from_node, to_node};
use fleetgate_sys::signals;
use fleetgate_tests::joined::{Bridge, Cluster, Control, NODE, Proxy, by, life, run, soon, ssh_by, tried_by};
use fleetgate_tests::service::{self, AUDIT, Manager, Open, Service, audited};
use fleetgate_tests::world::wait_until;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

const STATE: &str = "/run/test/state";

fn configuration(more: &str) -> String {
    format!(
        "{more}host_keys = [\"/run/test/host_ed25519\"]\nstate_directory = \"{STATE}\"\nauthorized_keys = true\n\
         pam = \"off\"\naudit_log = \"{AUDIT}\"\n"
    )
}

/// A file that joining makes.
fn file(name: &str) -> PathBuf {
    Path::new(STATE).join(DIRECTORY).join(name)
}

/// Takes all of it away, as who wants to leave does.
fn leave() {
    std::fs::remove_dir_all(Path::new(STATE).join(DIRECTORY)).expect("it joined");
}

/// Reads configuration and cluster again; whether they were taken.
async fn reload(manager: &Manager, service: &Service) -> bool {
    let reloads = || {
        let mut events = service::audit();
        events.retain(|event| event["event"] == "node_reloaded");
        events
    };
    let before = reloads().len();
    service.signal(signals::HUP);
    manager.hear("RELOADING=1", service);
    manager.hear("READY=1", service);
    wait_until("the reload is told", || reloads().len() > before);
    reloads()[before]["done"] == true
}

/// Waits on a thread of its own: this one has the proxies, without which what is waited for may not come.
async fn beside<T: Send + 'static>(what: &str, wait: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waited) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || drop(done.send(wait())));
    soon(what, waited).await.expect("it came")
}

/// A session that says again what it is told.
struct Echo {
    ssh: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Echo {
    async fn new(address: SocketAddr) -> Echo {
        let mut ssh = ssh_by(address, "exec cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("ssh starts");
        let (to, from) = (ssh.stdin.take().expect("piped"), ssh.stdout.take());
        let from = BufReader::new(from.expect("piped"));
        Echo { ssh, to, from }.lives().await
    }

    /// It goes both ways.
    async fn lives(mut self) -> Echo {
        beside("an echo", move || {
            self.to.write_all(b"is it there?\n").expect("it reads");
            let mut line = String::new();
            self.from.read_line(&mut line).expect("it answers");
            assert_eq!(line, "is it there?\n");
            self
        })
        .await
    }

    /// Its input ends, and it ends well.
    async fn ends(self) {
        let Echo { mut ssh, to, from } = self;
        drop(to);
        let status = beside("its end", move || ssh.wait().expect("ours")).await;
        assert!(status.success(), "{status}");
        drop(from);
    }
}

/// Takes audit lines until one of them is `event`'s. All that were written before the node joined come too.
async fn keeps(control: &mut Control, cluster: &Cluster, event: &str) {
    let public = cluster.key.public();
    let mut text = String::new();
    while !text.contains(&format!("\"{event}\"")) {
        let batch = control
            .hear("audit lines", |kind| match kind {
                from_node::Kind::Audit(batch) => Some(batch),
                _ => None,
            })
            .await;
        assert!(
            public
                .verify(&signed::audit(NODE, &batch), &batch.signature)
                .is_ok()
        );
        text += std::str::from_utf8(&batch.lines).expect("text");
        let (log, offset) = (batch.log, batch.offset + batch.lines.len() as u64);
        control
            .say(to_node::Kind::Kept(AuditPosition { log, offset }))
            .await;
    }
}

#[test]
fn a_node_that_serves_joins_leaves_and_joins_anew_at_reloads() {
    let Some((_world, manager)) = Manager::in_world() else {
        return;
    };
    let service = manager.start(&configuration(""));
    assert!(service.seats("tunnel").is_empty());
    let mut open = Open::new("ada", "before");
    let own = |open: &mut Open| assert_eq!((open.run("echo on").as_str(), open.lives()), ("on\n", true));
    own(&mut open);
    run(async {
        let home = Cluster::new();
        let proxy = Proxy::new(&home).await;
        home.join(Path::new(STATE), &[proxy.address], life(100_000));
        // A part of it is missing: all stays as it was, until it is there.
        std::fs::rename(file("tls.key"), file("away")).expect("moved");
        assert!(!reload(&manager, &service).await);
        let why = audited("why", |e| e["event"] == "node_reloaded" && e["done"] == false);
        let why = why["reason"].as_str().expect("a reason").to_owned();
        assert!(why.contains("its TLS key is missing"), "{why}");
        assert!(service.seats("tunnel").is_empty());
        own(&mut open);

        std::fs::rename(file("away"), file("tls.key")).expect("moved");
        assert!(reload(&manager, &service).await);
        let channel = proxy.joined().await;
        let mut control = Control::new(&channel).await;
        keeps(&mut control, &home, "node_started").await;
        let bridge = Bridge::new(channel.clone(), "192.0.2.7:4711").await;
        assert_eq!(by(bridge.address, "echo in").await, "in\n");
        own(&mut open);

        // The same once more, and one that is damaged: the tunnel stays what it is.
        let session = Echo::new(bridge.address).await;
        let tunnel = service.seats("tunnel");
        assert!(reload(&manager, &service).await);
        let state = std::fs::read(file("state.json")).expect("there");
        std::fs::write(file("state.json"), "{").expect("written");
        assert!(!reload(&manager, &service).await);
        std::fs::write(file("state.json"), state).expect("written");
        let first = tunnel[0];
        assert_eq!((tunnel.len(), service.seats("tunnel")), (1, tunnel));
        assert_eq!(by(bridge.address, "echo still in").await, "still in\n");

        // It leaves: nobody comes by the proxy any more, and who is there stays.
        leave();
        assert!(reload(&manager, &service).await);
        control.ended().await;
        assert!(!tried_by(bridge.address, "echo in").await.status.success());
        assert_eq!(service::run("ada", "echo by its port"), "by its port\n");
        own(&mut open);
        let session = session.lives().await;

        // It joins a cluster of the same name, whose keys are others, while the tunnel of the first is still there.
        let other = Cluster::new();
        let second = Proxy::new(&other).await;
        other.join(Path::new(STATE), &[second.address], life(100_000));
        assert!(reload(&manager, &service).await);
        let mut control = Control::new(&second.joined().await).await;
        keeps(&mut control, &other, "node_started").await;
        assert_eq!(service.seats("tunnel").len(), 2);

        // And another one without having left before: there, too, all lines come that the log has.
        leave();
        let third = Cluster::new();
        let last = Proxy::new(&third).await;
        third.join(Path::new(STATE), &[last.address], life(100_000));
        assert!(reload(&manager, &service).await);
        control.ended().await;
        let channel = last.joined().await;
        let mut control = Control::new(&channel).await;
        keeps(&mut control, &third, "node_started").await;
        let bridge = Bridge::new(channel.clone(), "192.0.2.9:1").await;
        assert_eq!(by(bridge.address, "echo in again").await, "in again\n");
        own(&mut open);
        session.lives().await.ends().await;

        // With its last session the first tunnel ends, by itself.
        beside("its end", move || {
            wait_until("the first tunnel ends", || {
                !Path::new(&format!("/proc/{first}")).exists()
            });
        })
        .await;
        let died = |e: &Value| e["event"] == "process_died";
        assert!(!service::audit().iter().any(died));
    });
}

#[test]
fn a_node_without_a_port_does_not_leave_its_last_way_in() {
    let Some((_world, manager)) = Manager::without_port() else {
        return;
    };
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        cluster.join(Path::new(STATE), &[proxy.address], life(100_000));
        let service = manager.start(&configuration("listen = []\n"));
        let bridge = Bridge::new(proxy.joined().await, "192.0.2.7:4711").await;
        assert_eq!(by(bridge.address, "echo in").await, "in\n");
        leave();
        assert!(!reload(&manager, &service).await);
        let why = audited("why", |e| e["event"] == "node_reloaded" && e["done"] == false);
        assert!(
            why["reason"]
                .as_str()
                .is_some_and(|why| why.contains("nobody could come in")),
            "{why}"
        );
        assert_eq!(by(bridge.address, "echo still in").await, "still in\n");
    });
}
