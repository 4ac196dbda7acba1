//! A node that joined a cluster and has no port of its own: a proxy that the test plays, OpenSSH's client through it.

use fleetgate_net::x509::PublicKey;
use fleetgate_node::identity::NodeIdentity;
use fleetgate_proto::signed;
use fleetgate_proto::v1::{AuditPosition, Renewed, from_node, to_node};
use fleetgate_tests::joined::{Bridge, Cluster, Control, NODE, Proxy, by, life, now, run, soon};
use fleetgate_tests::service::{AUDIT, Manager, audited, kill};
use fleetgate_tests::world::wait_until;
use serde_json::Value;
use std::path::Path;

const STATE: &str = "/run/test/state";

fn configuration() -> String {
    format!(
        "listen = []\nhost_keys = [\"/run/test/host_ed25519\"]\nstate_directory = \"{STATE}\"\n\
         authorized_keys = true\npam = \"off\"\naudit_log = \"{AUDIT}\"\nlabels = {{ env = \"prod\" }}\n"
    )
}

/// An audit event. It is waited for on another thread: this one has the proxy, whose part it is that a connection ends.
async fn told(what: &'static str, which: fn(&Value) -> bool) -> Value {
    let waiting = tokio::task::spawn_blocking(move || audited(what, which));
    waiting.await.expect("it waits")
}

#[test]
fn ssh_reaches_a_node_without_a_port_through_its_proxy() {
    let Some((_world, manager)) = Manager::without_port() else {
        return;
    };
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        cluster.join(Path::new(STATE), &[proxy.address], life(100_000));
        let service = manager.begin(&configuration());
        let channel = proxy.joined().await;
        let mut bridge = Bridge::new(channel.clone(), "192.0.2.7:4711").await;
        assert_eq!(
            by(bridge.address, "echo $SSH_CONNECTION").await,
            "192.0.2.7 4711 0.0.0.0 0\n"
        );
        let login = told("a login by the proxy", |e| e["event"] == "login_accepted").await;
        assert_eq!(
            (&login["via"], &login["source"]),
            (&"p1".into(), &"192.0.2.7:4711".into())
        );
        let ended = told("its end", |e| e["event"] == "connection_ended").await;
        assert_eq!(ended["via"], "p1");
        // Its steps were told, each within the time that went by.
        let spans = soon("spans", bridge.spans.recv()).await.expect("they come");
        let names: Vec<&str> = spans.iter().map(|s| s.name.as_str()).collect();
        for step in ["exchange", "login", "handover", "launch"] {
            assert!(names.contains(&step), "{step} is missing in {names:?}");
        }
        let second = 1_000_000_000;
        for span in &spans {
            assert!(
                span.start <= span.end && span.end / second <= now() && span.start / second + 120 >= now()
            );
        }
        // Large things, both ways.
        let sum = by(bridge.address, "head -c 3000000 /dev/zero | sha256sum").await;
        assert_eq!(
            by(bridge.address, "head -c 3000000 /dev/zero").await.len(),
            3_000_000
        );
        assert!(sum.ends_with("-\n"));

        // The tunnel dies: it is told, and comes back.
        kill(service.seats("tunnel")[0]);
        let channel = proxy.joined().await;
        told("the death", |e| {
            e["event"] == "process_died" && e["process"] == "tunnel"
        })
        .await;
        let bridge = Bridge::new(channel, "192.0.2.8:1").await;
        assert_eq!(by(bridge.address, "echo back").await, "back\n");
    });
}

#[test]
fn a_node_says_who_it_is_and_its_audit_log_and_certificates_go_by_the_proxy() {
    let Some((_world, manager)) = Manager::without_port() else {
        return;
    };
    run(async {
        let mut cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        // Two thirds of this certificate's life are over: a newer one is asked for at once.
        cluster.join(
            Path::new(STATE),
            &[proxy.address],
            now() - 100_000..now() + 10_000,
        );
        let _service = manager.begin(&configuration());
        let channel = proxy.joined().await;
        let mut control = Control::new(&channel).await;
        let facts = control
            .hear("facts", |kind| match kind {
                from_node::Kind::Facts(facts) => Some(facts),
                _ => None,
            })
            .await;
        assert_eq!((facts.labels["env"].as_str(), facts.serial), ("prod", 1));
        let public = PublicKey::from_spki(cluster.key.public().spki()).expect("a key");
        // Each batch is signed, begins where the last one ended, and is whole.
        let (mut renewals, mut end, mut text) = (0, 0, String::new());
        while renewals == 0 || !text.contains("node_started") {
            let kind = control.hear("a word", Some).await;
            match kind {
                from_node::Kind::Audit(batch) => {
                    let message = signed::audit(NODE, &batch);
                    assert!(public.verify(&message, &batch.signature).is_ok());
                    assert_eq!((batch.offset, batch.lines.ends_with(b"\n")), (end, true));
                    end += batch.lines.len() as u64;
                    text += std::str::from_utf8(&batch.lines).expect("text");
                    let (log, offset) = (batch.log, end);
                    control
                        .say(to_node::Kind::Kept(AuditPosition { log, offset }))
                        .await;
                }
                from_node::Kind::Renew(renew) => {
                    renewals += 1;
                    assert!(public.verify(&signed::renew(&renew), &renew.signature).is_ok());
                    assert_eq!(renew.tls_public, cluster.key.public().spki());
                    assert_eq!(renew.host_keys.len(), 1);
                    let leaf = cluster.node_certificate(life(90_000));
                    let renewed = Renewed {
                        tls_chain: vec![leaf.clone().into()],
                        ..Renewed::default()
                    };
                    control.say(to_node::Kind::Renewed(renewed)).await;
                    // It is waited for on another thread: this one has the connection that it travels on.
                    let written = move || {
                        wait_until("the newer certificate is written", || {
                            let joined = NodeIdentity::load(Path::new(STATE)).ok().flatten();
                            joined.is_some_and(|joined| joined.tls_chain == [leaf.clone()])
                        });
                    };
                    tokio::task::spawn_blocking(written).await.expect("it is");
                }
                from_node::Kind::Facts(_) => {}
                from_node::Kind::Statement(_) => {}
            }
        }
        // A new state is taken, and said to be known; a forged one is neither.
        let forger = Cluster::new();
        let forged = fleetgate_tests::joined::sign(
            &forger.state_key,
            cluster.next(|_| ()).document,
            fleetgate_policy::cluster::State::signed,
        );
        let honest = cluster.next(|state| state.trust.user_ca.clear());
        for signed in [forged, honest, cluster.fresh()] {
            let is_fresh = signed == cluster.fresh();
            let signed = fleetgate_proto::v1::Signed {
                document: signed.document.into(),
                signature: signed.signature.into(),
            };
            control
                .say(match is_fresh {
                    true => to_node::Kind::Fresh(signed),
                    false => to_node::Kind::State(signed),
                })
                .await;
        }
        let serial = control
            .hear("the new serial", |kind| match kind {
                from_node::Kind::Facts(facts) => Some(facts.serial),
                _ => None,
            })
            .await;
        assert_eq!(serial, 3);
        let refused = told("the forged state", |e| {
            e["event"] == "cluster_state" && e["done"] == false
        })
        .await;
        assert_eq!(refused["serial"], 1);
    });
}

/// A second node with the same identity and the first would take each other's place at the proxy for ever. The next one of a
/// restart is none: the first has said by then that it accepts no more.
#[test]
fn a_second_node_of_the_same_identity_is_refused_and_ends_no_session() {
    const FIFO: &str = "/tmp/fleetgate-second-node";
    let Some((_world, manager)) = Manager::without_port() else {
        return;
    };
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        cluster.join(Path::new(STATE), &[proxy.address], life(100_000));
        let first = manager.start(&configuration());
        let bridge = Bridge::new(proxy.joined().await, "192.0.2.7:4711").await;
        let _ = std::fs::remove_file(FIFO);
        let held = tokio::spawn(by(
            bridge.address,
            "mkfifo /tmp/fleetgate-second-node && read -r line </tmp/fleetgate-second-node && echo $line",
        ));
        let begun = || wait_until("the session begins", || Path::new(FIFO).exists());
        tokio::task::spawn_blocking(begun).await.expect("it begins");

        let second = manager.begin(&configuration());
        let second = tokio::task::spawn_blocking(move || {
            wait_until("the second node is refused", || {
                second.log().contains("runs already")
            });
            second
        });
        let second = second.await.expect("it is refused");
        let words = format!(
            "this node runs already, pid {}, and its state directory is {STATE}",
            first.pid()
        );
        assert!(second.log().contains(&words), "{}", second.log());
        assert!(!matches!(second.end(), fleetgate_sys::process::Exit::Code(0)));
        assert_eq!(by(bridge.address, "echo still").await, "still\n");

        first.signal(fleetgate_sys::signals::TERM);
        first.end();
        let _next = manager.begin(&configuration());
        let bridge = Bridge::new(proxy.joined().await, "192.0.2.8:1").await;
        assert_eq!(by(bridge.address, "echo next").await, "next\n");
        std::fs::write(FIFO, "to the end\n").expect("the session of the first reads");
        assert_eq!(held.await.expect("no panic"), "to the end\n");
        let _ = std::fs::remove_file(FIFO);
    });
}
