//! What the cluster and the node say to each other beside sessions, and how connections come and go.

use crate::world::{Cluster, Frames, Joined, Proxy, Tunnel, dial, facts, run, settings, soon};
use fleetgate_policy::cluster::MAX_STATE;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::tunnel_client::TunnelClient;
use fleetgate_proto::v1::{
    AuditBatch, AuditPosition, FromNode, Renew, Renewed, Signed, Statement, ToNode, from_node, to_node,
};
use fleetgate_wire::node::tunnel::{FromTunnel, LockedProxy, MAX_PIECE, Proxy as Dialled, ToTunnel};
use fleetgate_worker::budget::{Budget, SHARE, WORD};
use prost::Message;
use std::ffi::CString;
use tokio::sync::mpsc;
use tonic::Streaming;

struct Control {
    to: mpsc::Sender<ToNode>,
    from: Streaming<FromNode>,
}

async fn control(joined: &Joined) -> Control {
    let (to, words) = mpsc::channel(4);
    let mut client = TunnelClient::new(joined.channel.clone());
    let from = soon("the control stream", client.control(Frames(words)))
        .await
        .expect("a stream")
        .into_inner();
    Control { to, from }
}

impl Control {
    async fn next(&mut self) -> Option<from_node::Kind> {
        let word = soon("a word of the node", self.from.message()).await;
        word.ok().flatten().and_then(|word| word.kind)
    }

    async fn say(&self, kind: to_node::Kind) {
        let word = ToNode { kind: Some(kind) };
        soon("room", self.to.send(word)).await.expect("it listens");
    }
}

#[test]
fn facts_documents_certificates_and_audit_go_both_ways() {
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        let mut tunnel = Tunnel::start(&cluster, &[&proxy]);
        let (joined, ()) = tokio::join!(proxy.joined(), tunnel.connected(&cluster));
        let mut control = control(&joined).await;
        let Some(from_node::Kind::Facts(first)) = control.next().await else {
            panic!("facts come first")
        };
        assert_eq!(
            (first.labels["env"].as_str(), first.version.as_str(), first.serial),
            ("prod", "1.2.3", 7)
        );
        tunnel.say(&ToTunnel::Facts { facts: facts(8) }, &[]);
        assert!(matches!(control.next().await, Some(from_node::Kind::Facts(f)) if f.serial == 8));

        // A document longer than a frame comes whole and in order.
        let document: Vec<u8> = (0..3 * MAX_PIECE as u32 + 9).map(|n| n as u8).collect();
        let signed = Signed {
            document: document.clone().into(),
            signature: b"sig".as_slice().into(),
        };
        control.say(to_node::Kind::State(signed.clone())).await;
        let mut got = Vec::new();
        loop {
            let (piece, signature, more) = tunnel
                .hear(&cluster, "a piece", |word| match word {
                    FromTunnel::State {
                        piece,
                        signature,
                        more,
                    } => Some((piece.clone(), signature.clone(), *more)),
                    _ => None,
                })
                .await;
            got.extend(piece);
            if !more {
                assert_eq!(signature, b"sig");
                break;
            }
            assert_eq!(signature, b"");
        }
        assert_eq!(got, document);
        let small = Signed {
            document: b"fresh".as_slice().into(),
            ..signed
        };
        control.say(to_node::Kind::Fresh(small)).await;
        tunnel
            .hear(&cluster, "a fresh word", |word| match word {
                FromTunnel::Fresh { document, .. } => {
                    assert_eq!(document, b"fresh");
                    Some(())
                }
                _ => None,
            })
            .await;

        let renew = Renew {
            tls_public: b"key".as_slice().into(),
            ..Renew::default()
        };
        let message = renew.encode_to_vec();
        tunnel.say(&ToTunnel::Renew { message }, &[]);
        assert!(matches!(control.next().await, Some(from_node::Kind::Renew(r)) if r == renew));
        let renewed = Renewed {
            tls_chain: vec![b"leaf".as_slice().into()],
            ..Renewed::default()
        };
        control.say(to_node::Kind::Renewed(renewed)).await;
        tunnel
            .hear(&cluster, "certificates", |word| match word {
                FromTunnel::Renewed { tls_chain, .. } => {
                    assert_eq!(tls_chain[0].bytes, b"leaf");
                    Some(())
                }
                _ => None,
            })
            .await;

        let batch = AuditBatch {
            log: "1".into(),
            offset: 5,
            lines: b"{}\n".as_slice().into(),
            ..AuditBatch::default()
        };
        let message = batch.encode_to_vec();
        tunnel.say(&ToTunnel::Audit { message }, &[]);
        assert!(matches!(control.next().await, Some(from_node::Kind::Audit(b)) if b == batch));
        // The stream breaks before it is kept: whoever comes next gets it again.
        drop(control);
        let mut control = self::control(&joined).await;
        assert!(matches!(control.next().await, Some(from_node::Kind::Facts(_))));
        assert!(matches!(control.next().await, Some(from_node::Kind::Audit(b)) if b == batch));
        let log = "1".to_owned();
        control
            .say(to_node::Kind::Kept(AuditPosition { log, offset: 8 }))
            .await;
        tunnel
            .hear(&cluster, "the position", |word| match word {
                FromTunnel::AuditKept { log, offset } => {
                    assert_eq!((log.as_c_str(), *offset), (c"1", 8));
                    Some(())
                }
                _ => None,
            })
            .await;
        // Once it is kept nobody gets it again.
        drop(control);
        let mut control = self::control(&joined).await;
        assert!(matches!(control.next().await, Some(from_node::Kind::Facts(_))));
        tunnel.say(&ToTunnel::Facts { facts: facts(9) }, &[]);
        assert!(matches!(control.next().await, Some(from_node::Kind::Facts(f)) if f.serial == 9));
        assert_eq!(tunnel.finish(), Some(0));
    });
}

#[test]
fn audit_lines_that_auth_did_not_keep_are_sent_again_on_the_same_tunnel() {
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        let mut tunnel = Tunnel::start(&cluster, &[&proxy]);
        let (joined, ()) = tokio::join!(proxy.joined(), tunnel.connected(&cluster));
        let mut control = control(&joined).await;
        assert!(matches!(control.next().await, Some(from_node::Kind::Facts(_))));
        let batch = AuditBatch {
            log: "1".into(),
            offset: 5,
            lines: b"{}\n".as_slice().into(),
            ..AuditBatch::default()
        };
        let message = batch.encode_to_vec();
        tunnel.say(&ToTunnel::Audit { message }, &[]);
        assert!(matches!(control.next().await, Some(from_node::Kind::Audit(b)) if b == batch));
        // A word on something else says nothing about it.
        for (log, offset) in [("2", 5), ("1", 8), ("1", 5)] {
            let log = log.to_owned();
            control
                .say(to_node::Kind::Unkept(AuditPosition { log, offset }))
                .await;
        }
        tunnel
            .hear(&cluster, "that it is not kept", |word| match word {
                FromTunnel::AuditUnkept { proxy, log, offset } => {
                    assert_eq!((proxy.as_c_str(), log.as_c_str(), *offset), (c"p1", c"1", 5));
                    Some(())
                }
                _ => None,
            })
            .await;
        assert!(matches!(control.next().await, Some(from_node::Kind::Audit(b)) if b == batch));
        assert_eq!(tunnel.finish(), Some(0));
    });
}

#[test]
fn a_proxy_that_goes_is_dialled_again_and_sessions_of_another_stay() {
    run(async {
        let cluster = Cluster::new();
        let (one, two) = (Proxy::new(&cluster).await, Proxy::new(&cluster).await);
        let mut tunnel = Tunnel::start(&cluster, &[&one, &two]);
        let (first, second, ()) = tokio::join!(one.joined(), two.joined(), async {
            tunnel.connected(&cluster).await;
            tunnel.connected(&cluster).await;
        });
        let (mut session, (_, _, node)) =
            tokio::join!(second.session(Kind::Dial(dial(b""))), tunnel.taken(&cluster));
        assert!(matches!(session.next().await, Some(Kind::Opened(_))));
        drop(first);
        tunnel
            .hear(&cluster, "the loss", |word| {
                matches!(word, FromTunnel::Lost { .. }).then_some(())
            })
            .await;
        let again = async { tunnel.connected(&cluster).await };
        let (_first, ()) = tokio::join!(one.joined(), again);
        node.try_write(b"still here").expect("written");
        assert_eq!(session.read(10).await, b"still here");
        assert_eq!(tunnel.finish(), Some(0));
    });
}

#[test]
fn a_proxy_that_only_says_that_it_leaves_holds_a_bounded_number_of_connections() {
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        let mut tunnel = Tunnel::start(&cluster, &[&proxy]);
        let mut held = Vec::new();
        // Nine that leave, one more than the bound, and one that stays.
        for _ in 0..10 {
            let (joined, ()) = tokio::join!(proxy.joined(), tunnel.connected(&cluster));
            let control = control(&joined).await;
            if held.len() < 9 {
                control.say(to_node::Kind::Leaving(true)).await;
            }
            held.push((joined, control));
        }
        soon("the oldest ends", held[0].0.channel.closed().wait()).await;
        let (mut session, _) = tokio::join!(held[1].0.session(Kind::Dial(dial(b""))), tunnel.taken(&cluster));
        assert!(matches!(session.next().await, Some(Kind::Opened(_))));
        assert_eq!(tunnel.finish(), Some(0));
    });
}

#[test]
fn a_statement_is_asked_for_with_each_sign_of_freshness_and_goes_to_its_proxy_alone() {
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        let mut tunnel = Tunnel::start(&cluster, &[&proxy]);
        let (joined, ()) = tokio::join!(proxy.joined(), tunnel.connected(&cluster));
        let mut control = control(&joined).await;
        assert!(matches!(control.next().await, Some(from_node::Kind::Facts(_))));
        for _ in 0..2 {
            control.say(to_node::Kind::Fresh(Signed::default())).await;
            let attest = |word: &FromTunnel| match word {
                FromTunnel::Attest { proxy } => Some(proxy.clone()),
                _ => None,
            };
            let asked = tunnel.hear(&cluster, "who wants a statement", attest).await;
            assert_eq!(asked.as_c_str(), c"p1");
        }
        for (name, signature) in [(c"p2", b"another's"), (c"p1", b"its own  ")] {
            let statement = Statement {
                signature: signature.as_slice().into(),
                ..Statement::default()
            };
            let word = ToTunnel::Statement {
                proxy: name.into(),
                message: statement.encode_to_vec(),
            };
            tunnel.say(&word, &[]);
        }
        let said = control.next().await;
        assert!(matches!(said, Some(from_node::Kind::Statement(s)) if *s.signature == *b"its own  "));
        assert_eq!(tunnel.finish(), Some(0));
    });
}

#[test]
fn nobody_comes_in_by_a_locked_proxy_until_the_lock_is_over() {
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        let mut tunnel = Tunnel::start(&cluster, &[&proxy]);
        let (joined, ()) = tokio::join!(proxy.joined(), tunnel.connected(&cluster));
        let (mut session, _) = tokio::join!(joined.session(Kind::Dial(dial(b""))), tunnel.taken(&cluster));
        assert!(
            matches!(session.next().await, Some(Kind::Opened(_))),
            "the control"
        );
        let locked = |name: &str, serial_before: u64| {
            let mut credentials = cluster.credentials();
            credentials.locked = vec![LockedProxy {
                name: CString::new(name).expect("a name"),
                serial_before,
                expires: u64::MAX,
            }];
            ToTunnel::Credentials { credentials }
        };
        // Another proxy's lock, and one on certificates of a machine that had this name before, end nothing.
        tunnel.say(&locked("p2", u64::MAX), &[]);
        tunnel.say(&locked("p1", 1), &[]);
        let (mut session, _) = tokio::join!(joined.session(Kind::Dial(dial(b""))), tunnel.taken(&cluster));
        assert!(matches!(session.next().await, Some(Kind::Opened(_))));
        tunnel.say(&locked("p1", u64::MAX), &[]);
        soon("the connection ends", joined.channel.closed().wait()).await;
        // The state is heard from it, since by the next the lock may be over. Nothing else is.
        let again = async {
            let joined = proxy.joined().await;
            let control = control(&joined).await;
            let kept = to_node::Kind::Kept(AuditPosition {
                log: "a".into(),
                offset: 1,
            });
            control.say(kept).await;
            control.say(to_node::Kind::Fresh(Signed::default())).await;
            let mut session = joined.session(Kind::Dial(dial(b""))).await;
            let Some(Kind::Denied(denied)) = session.next().await else {
                panic!("a session was taken")
            };
            assert!(denied.words.contains("p1 is locked"), "{denied:?}");
            assert_eq!(denied.reason, Reason::Lock as i32);
            (joined, control)
        };
        let heard = tunnel.hear(&cluster, "a word of the proxy", |word| match word {
            FromTunnel::Fresh { .. } => Some(true),
            FromTunnel::AuditKept { .. } => Some(false),
            _ => None,
        });
        let (_locked, is_state) = tokio::join!(again, heard);
        assert!(is_state, "it was believed that audit records are kept");
        let credentials = cluster.credentials();
        tunnel.say(&ToTunnel::Credentials { credentials }, &[]);
        let (joined, ()) = tokio::join!(proxy.joined(), tunnel.connected(&cluster));
        let (mut session, _) = tokio::join!(joined.session(Kind::Dial(dial(b""))), tunnel.taken(&cluster));
        assert!(matches!(session.next().await, Some(Kind::Opened(_))));
        assert_eq!(tunnel.finish(), Some(0));
    });
}

#[test]
fn the_list_of_proxies_is_followed_and_drain_lets_sessions_end() {
    run(async {
        let cluster = Cluster::new();
        let one = Proxy::new(&cluster).await;
        // Another address, the same port: the sandbox knows ports.
        let elsewhere = (std::net::Ipv4Addr::new(127, 0, 0, 2), one.address.port()).into();
        let two = Proxy::at(&cluster, elsewhere).await;
        let mut tunnel = Tunnel::start(&cluster, &[&one]);
        let (first, ()) = tokio::join!(one.joined(), tunnel.connected(&cluster));
        let named = Dialled {
            host: c"proxy.example".into(),
            port: one.address.port(),
        };
        tunnel.say(&ToTunnel::Proxies { proxies: vec![named] }, &[]);
        let why = soon("the end", first.channel.closed().wait()).await;
        assert!(!why.is_empty());
        // Its name is the monitor's to look up.
        let host = tunnel
            .hear(&cluster, "a question", |word| match word {
                FromTunnel::Resolve { host } => Some(host.clone()),
                _ => None,
            })
            .await;
        assert_eq!(host.as_c_str(), c"proxy.example");
        let found = vec![fleetgate_wire::common::Endpoint {
            address: std::net::Ipv4Addr::new(127, 0, 0, 2).to_ipv6_mapped().octets(),
            scope: 0,
            port: 0,
        }];
        tunnel.say(&ToTunnel::Addresses { host, found }, &[]);
        let (second, ()) = tokio::join!(two.joined(), tunnel.connected(&cluster));
        let (mut session, (_, _, node)) =
            tokio::join!(second.session(Kind::Dial(dial(b""))), tunnel.taken(&cluster));
        let mut control = control(&second).await;
        assert!(matches!(control.next().await, Some(from_node::Kind::Facts(_))));
        tunnel.say(&ToTunnel::Drain { follows: false }, &[]);
        assert!(control.next().await.is_none(), "the control stream ends");
        assert!(matches!(session.next().await, Some(Kind::Opened(_))));
        node.try_write(b"to the end").expect("written");
        assert_eq!(session.read(10).await, b"to the end");
        drop(node);
        assert_eq!(session.next().await, Some(Kind::SshEnd(true)));
        drop((session, control));
        // With the last session it ends by itself, and well.
        assert_eq!(
            soon("its end", async {
                loop {
                    if let Some(status) = tunnel.child.try_wait().expect("waited") {
                        return status.code();
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            })
            .await,
            Some(0)
        );
    });
}

#[test]
fn a_proxy_of_another_cluster_is_not_believed() {
    run(async {
        let (cluster, other) = (Cluster::new(), Cluster::new());
        let stranger = Proxy::new(&other).await;
        let mut tunnel = Tunnel::spawn();
        let word = ToTunnel::Begin {
            settings: settings(&cluster, vec![stranger.dialled()]),
        };
        tunnel.say(&word, &[]);
        let accept = stranger.refused();
        let lost = tunnel.hear(&cluster, "the loss", |word| match word {
            FromTunnel::Lost { why, .. } => Some(why.to_string_lossy().into_owned()),
            FromTunnel::Connected { .. } => panic!("connected"),
            _ => None,
        });
        let ((), why) = tokio::join!(accept, lost);
        assert!(why.contains("certificate") || why.contains("authority"), "{why}");
        assert_eq!(tunnel.finish(), Some(0));
    });
}

/// What a proxy that lies may send the monitor's way, so that all of them together stay below what ends the tunnel there.
#[test]
fn a_proxy_that_sends_documents_without_end_takes_no_more_than_its_share() {
    run(async {
        let cluster = Cluster::new();
        let (liar, honest) = (Proxy::new(&cluster).await, Proxy::new(&cluster).await);
        let mut tunnel = Tunnel::start(&cluster, &[&liar, &honest]);
        let (first, second, ()) = tokio::join!(liar.joined(), honest.joined(), async {
            tunnel.connected(&cluster).await;
            tunnel.connected(&cluster).await;
        });
        let (lies, truth) = (control(&first).await, control(&second).await);
        let fresh = |document: &'static [u8]| {
            let document = document.into();
            let signature = b"sig".as_slice().into();
            to_node::Kind::Fresh(Signed { document, signature })
        };
        tokio::spawn(async move {
            loop {
                lies.say(fresh(b"lie")).await;
            }
        });
        let begun = std::time::Instant::now();
        // The two count parts of a millisecond each by itself.
        let mut share = Budget::new(SHARE.0 + 2 * WORD, 2 * SHARE.1);
        let heard = |word: &FromTunnel| match word {
            FromTunnel::Fresh { document, .. } => Some(document.clone()),
            _ => None,
        };
        for lie in 0..SHARE.0 / WORD + 20 {
            let document = tunnel.hear(&cluster, "a lie", heard).await;
            assert_eq!(document, b"lie");
            assert!(share.spend(WORD, begun.elapsed()), "{lie} lies");
        }
        truth.say(fresh(b"truth")).await;
        while tunnel.hear(&cluster, "the truth", heard).await != b"truth" {}
    });
}

#[test]
fn a_state_that_no_honest_proxy_sends_spoils_none_of_another() {
    run(async {
        let cluster = Cluster::new();
        let (liar, honest) = (Proxy::new(&cluster).await, Proxy::new(&cluster).await);
        let mut tunnel = Tunnel::start(&cluster, &[&liar, &honest]);
        let (first, second, ()) = tokio::join!(liar.joined(), honest.joined(), async {
            tunnel.connected(&cluster).await;
            tunnel.connected(&cluster).await;
        });
        let (lies, truth) = (control(&first).await, control(&second).await);
        let state = |document: usize, signature: usize| {
            let (document, signature) = (vec![b'x'; document].into(), vec![b'y'; signature].into());
            to_node::Kind::State(Signed { document, signature })
        };
        // Longer than any, with a signature that fits no frame, and with none that ends the pieces.
        for lie in [state(MAX_STATE + 1, 100), state(10, 1 << 20), state(0, 100)] {
            lies.say(lie).await;
        }
        // Behind them, so that they were heard.
        let fresh = Signed {
            document: b"lie".as_slice().into(),
            signature: b"sig".as_slice().into(),
        };
        lies.say(to_node::Kind::Fresh(fresh)).await;
        tunnel
            .hear(&cluster, "the last lie", |word| {
                matches!(word, FromTunnel::Fresh { .. }).then_some(())
            })
            .await;
        truth.say(state(MAX_PIECE + 1, 64)).await;
        for (len, signed) in [(MAX_PIECE, 0), (1, 64)] {
            let piece = tunnel
                .hear(&cluster, "a piece", |word| match word {
                    FromTunnel::State { piece, signature, .. } => Some((piece.len(), signature.len())),
                    _ => None,
                })
                .await;
            assert_eq!(piece, (len, signed));
        }
    });
}
