//! Sessions: their bytes, their ends, and what a side that does not read costs.

use crate::world::{Cluster, Proxy, Session, Tunnel, dial, run, soon};
use fleetgate_policy::cluster::Subject;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::{Dial, Via};
use fleetgate_wire::node::tunnel::{FromTunnel, Span, ToTunnel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[test]
fn a_session_carries_bytes_both_ways_and_either_side_ends_it() {
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        let mut tunnel = Tunnel::start(&cluster, &[&proxy]);
        let (joined, ()) = tokio::join!(proxy.joined(), tunnel.connected(&cluster));
        assert!(
            matches!(joined.peer.identity.as_ref().map(|i| &i.subject), Some(Subject::Node(n)) if n.as_str() == "web1")
        );
        // Longer than what comes with the word: nothing of it is lost, nothing comes twice.
        let flight: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        for is_node_first in [true, false] {
            let (mut session, (word, _, mut node)) =
                tokio::join!(joined.session(Kind::Dial(dial(&flight))), tunnel.taken(&cluster));
            let FromTunnel::Arrived { vouched, first, .. } = word else {
                unreachable!("it is one")
            };
            assert_eq!(vouched.source.port, 4711);
            assert_eq!(vouched.source.address[12..], [192, 0, 2, 7]);
            assert_eq!(
                (vouched.proxy.as_c_str(), vouched.user.as_c_str()),
                (c"p1", c"ann")
            );
            let mut rest = vec![0; flight.len() - first.len()];
            soon("the flight", node.read_exact(&mut rest))
                .await
                .expect("all of it");
            assert_eq!([first, rest].concat(), flight);
            assert!(matches!(session.next().await, Some(Kind::Opened(o)) if o.node == "web1"));
            node.write_all(b"SSH-2.0-node\r\n").await.expect("written");
            assert_eq!(session.read(14).await, b"SSH-2.0-node\r\n");
            session.say(b"more").await;
            let mut more = [0; 4];
            soon("more", node.read_exact(&mut more)).await.expect("read");
            assert_eq!(&more, b"more");
            if is_node_first {
                // What was said before the end comes before it.
                node.write_all(b"bye").await.expect("written");
                drop(node);
                assert_eq!(session.read(3).await, b"bye");
                assert_eq!(session.next().await, Some(Kind::SshEnd(true)));
                // What is still on the way is taken, until the proxy's side is over too.
                session.say(&flight).await;
                session.say(&flight).await;
                let Session { to, mut from } = session;
                drop(to);
                assert!(soon("the end", from.message()).await.expect("no reset").is_none());
            } else {
                // The client's half is closed, the other goes on.
                session
                    .to
                    .send(crate::world::frame(Kind::SshEnd(true)))
                    .await
                    .expect("sent");
                assert_eq!(soon("the end", node.read(&mut more)).await.expect("read"), 0);
                node.write_all(b"still").await.expect("written");
                assert_eq!(session.read(5).await, b"still");
                drop(session);
                soon("the other end", async {
                    while node.write_all(b"x").await.is_ok() {
                        tokio::task::yield_now().await;
                    }
                })
                .await;
            }
        }
        drop(joined);
        assert_eq!(tunnel.finish(), Some(0));
    });
}

#[test]
fn a_session_that_is_over_waits_for_the_proxys_side_no_longer_than_the_bound() {
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        let mut tunnel = Tunnel::start(&cluster, &[&proxy]);
        let (joined, ()) = tokio::join!(proxy.joined(), tunnel.connected(&cluster));
        let (mut session, (_, _, node)) =
            tokio::join!(joined.session(Kind::Dial(dial(b""))), tunnel.taken(&cluster));
        assert!(matches!(session.next().await, Some(Kind::Opened(_))));
        drop(node);
        assert_eq!(session.next().await, Some(Kind::SshEnd(true)));
        assert_eq!(session.next().await, None, "the proxy's side is still open");
        assert_eq!(tunnel.finish(), Some(0));
    });
}

#[test]
fn what_is_no_session_is_denied_with_its_reason() {
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        let mut tunnel = Tunnel::start(&cluster, &[&proxy]);
        let (joined, ()) = tokio::join!(proxy.joined(), tunnel.connected(&cluster));
        let without_via = Dial {
            via: None,
            ..dial(b"")
        };
        let bad_source = Dial {
            via: Some(Via {
                source: "somewhere".into(),
                ..Via::default()
            }),
            ..dial(b"")
        };
        let other_node = Dial {
            node: "web2".into(),
            ..dial(b"")
        };
        let bad_trace = Dial {
            trace: vec![1; 3].into(),
            ..dial(b"")
        };
        for (what, first, reason) in [
            ("no Dial", Kind::SshEnd(true), Reason::Protocol),
            ("no via", Kind::Dial(without_via), Reason::Protocol),
            ("a source that is none", Kind::Dial(bad_source), Reason::Protocol),
            ("another node", Kind::Dial(other_node), Reason::Node),
            ("a trace that is none", Kind::Dial(bad_trace), Reason::Protocol),
        ] {
            let mut session = joined.session(first).await;
            match session.next().await {
                Some(Kind::Denied(denied)) => assert_eq!(denied.reason(), reason, "{what}"),
                other => panic!("{what}: {other:?}"),
            }
            assert_eq!(session.next().await, None, "{what}");
        }
        // The monitor's no is passed on in its words.
        let refuse = async {
            let ticket = tunnel
                .hear(&cluster, "a session", |word| match word {
                    FromTunnel::Arrived { ticket, .. } => Some(*ticket),
                    _ => None,
                })
                .await;
            let why = c"too many".into();
            tunnel.say(&ToTunnel::NotTaken { ticket, why }, &[]);
        };
        let (mut session, ()) = tokio::join!(joined.session(Kind::Dial(dial(b""))), refuse);
        assert!(matches!(session.next().await, Some(Kind::Denied(d)) if d.words == "too many"));
        assert_eq!(tunnel.finish(), Some(0));
    });
}

#[test]
fn a_side_that_does_not_read_costs_a_bounded_amount_and_holds_up_no_other() {
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        let mut tunnel = Tunnel::start(&cluster, &[&proxy]);
        let (joined, ()) = tokio::join!(proxy.joined(), tunnel.connected(&cluster));
        let open = Kind::Dial(dial(b""));
        let (mut stalled, (_, _, node)) = tokio::join!(joined.session(open.clone()), tunnel.taken(&cluster));
        let (mut other, (_, _, mut other_node)) = tokio::join!(joined.session(open), tunnel.taken(&cluster));
        // The node says more than anybody takes.
        let chunk = vec![7u8; 64 << 10];
        let mut sent = 0;
        while let Ok(n) = tokio::time::timeout(std::time::Duration::from_millis(300), async {
            node.writable().await.expect("open");
            node.try_write(&chunk)
        })
        .await
        {
            sent += n.unwrap_or(0);
            assert!(sent < 8 << 20, "it is held back");
        }
        assert!(matches!(stalled.next().await, Some(Kind::Opened(_))));
        // Another session goes on meanwhile.
        assert!(matches!(other.next().await, Some(Kind::Opened(_))));
        other_node.write_all(b"hello").await.expect("written");
        assert_eq!(other.read(5).await, b"hello");
        // All of it comes once somebody reads.
        assert_eq!(stalled.read(sent).await, vec![7; sent]);
        assert_eq!(tunnel.finish(), Some(0));
    });
}

#[test]
fn spans_reach_whoever_asked_for_them() {
    run(async {
        let cluster = Cluster::new();
        let proxy = Proxy::new(&cluster).await;
        let mut tunnel = Tunnel::start(&cluster, &[&proxy]);
        let (joined, ()) = tokio::join!(proxy.joined(), tunnel.connected(&cluster));
        for (explain, trace) in [(true, vec![]), (false, vec![3; 24])] {
            let asks = Dial {
                explain,
                trace: trace.into(),
                ..dial(b"")
            };
            let (mut session, (_, ticket, _node)) =
                tokio::join!(joined.session(Kind::Dial(asks)), tunnel.taken(&cluster));
            let spans = vec![Span {
                name: c"login".into(),
                place: c"node".into(),
                start: 10,
                end: 20,
            }];
            tunnel.say(&ToTunnel::Spans { ticket, spans }, &[]);
            assert!(matches!(session.next().await, Some(Kind::Opened(_))));
            match session.next().await {
                Some(Kind::Spans(spans)) => {
                    let one = &spans.spans[0];
                    assert_eq!((one.name.as_str(), one.start, one.end), ("login", 10, 20));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(tunnel.finish(), Some(0));
    });
}
