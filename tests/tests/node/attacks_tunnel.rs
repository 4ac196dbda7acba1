//! Whoever has taken over the tunnel: what it may have signed, what it may say of the cluster and of others' connections,
//! and what its floods come to. The test sits in the seat itself, without its sandbox; monitor and resolver are the real
//! ones. Each try ends one tunnel, and the next one that is started is as good as the first.

use fleetgate_net::x509::{Key, PublicKey};
use fleetgate_node::config::Config;
use fleetgate_policy::cluster::State;
use fleetgate_tests::joined::{Cluster, life, sign};
use fleetgate_tests::taken::{Fate, Node, Scene, Tunnel};
use fleetgate_wire::node::tunnel::{FromTunnel, MAX_FIRST, MAX_PIECE, MAX_SIGN, ToTunnel};
use std::net::TcpStream;

/// A node that joined, its tunnel in the test's hands.
struct Stage {
    cluster: Cluster,
    node: Node,
    _scene: Scene,
}

impl Stage {
    fn new(change: impl FnOnce(&mut Config)) -> Option<Stage> {
        let scene = Scene::new()?;
        let mut config = scene.config();
        change(&mut config);
        let cluster = Cluster::new();
        let proxy = "192.0.2.1:443".parse().expect("an address");
        cluster.join(&config.state_directory, &[proxy], life(100_000));
        Some(Stage {
            cluster,
            node: Node::start(config),
            _scene: scene,
        })
    }
}

/// As a TLS 1.3 client has it signed (RFC 8446 §4.4.3).
fn handshake() -> Vec<u8> {
    let mut message = vec![b' '; 64];
    message.extend_from_slice(b"TLS 1.3, client CertificateVerify\0");
    message.extend_from_slice(&[9; 32]);
    message
}

/// The private number in a key's PKCS #8: the octet string of 32 bytes (RFC 5915 §3).
fn secret(key: &Key) -> &[u8] {
    let text = key.pkcs8();
    let at = text.windows(2).position(|w| w == [4, 32]).expect("it has one") + 2;
    &text[at..at + 32]
}

#[test]
fn a_tunnel_has_handshakes_signed_and_nothing_else() {
    let Some(mut stage) = Stage::new(|_| ()) else {
        return;
    };
    let public = PublicKey::from_spki(stage.cluster.key.public().spki()).expect("a key");
    let server = [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &[9; 32]].concat();
    let (good, mut short, mut long) = (handshake(), handshake(), handshake());
    short.pop();
    long.resize(MAX_SIGN + 1, 0);
    for (what, message) in [
        ("a server's handshake", server),
        ("audit records", b"fleetgate-audit-v1 and more".to_vec()),
        ("a request to renew", b"fleetgate-renew-v1 and more".to_vec()),
        ("a hash that is none", short),
        ("more than a handshake", long),
        ("nothing", Vec::new()),
    ] {
        let mut tunnel = stage.node.tunnel();
        // The control: what a handshake needs is signed, in the same seat.
        let signature = tunnel.signature(&good).expect("signed");
        assert!(public.verify(&good, &signature).is_ok(), "{what}");
        assert_eq!(tunnel.signature(&message), None, "{what}");
        assert!(tunnel.is_ended(), "{what}");
    }
    let mut tunnel = stage.node.tunnel();
    assert_eq!(tunnel.settings.node.as_c_str(), c"web1");
    stage.node.audited("process_died", &["tunnel"]);
    // No key was ever told, and signatures have an end.
    let secret = secret(&stage.cluster.key);
    assert!(!tunnel.seat.seen.windows(32).any(|w| w == secret));
    let signed = (0..10_000)
        .take_while(|_| tunnel.signature(&good).is_some())
        .count();
    assert!((500..5000).contains(&signed), "{signed}");
    drop(stage.node.tunnel());
}

#[test]
fn a_tunnel_forges_no_state_and_learns_no_names() {
    let Some(mut stage) = Stage::new(|_| ()) else {
        return;
    };
    let mut tunnel = stage.node.tunnel();
    let forger = Cluster::new();
    let honest = stage.cluster.next(|_| ());
    let forged = sign(&forger.state_key, honest.document.clone(), State::signed);
    let damaged = [&honest.document[..honest.document.len() - 1], b" "].concat();
    for (what, document, signature) in [
        ("forged", forged.document, forged.signature),
        ("damaged", damaged, honest.signature.clone()),
        ("none", b"{}".to_vec(), Vec::new()),
    ] {
        let before = stage.node.count("cluster_state");
        let word = FromTunnel::State {
            piece: document,
            signature,
            more: false,
        };
        assert_eq!(tunnel.say(&word), Fate::Stays, "{what}");
        fleetgate_tests::world::wait_until("it is refused", || stage.node.count("cluster_state") > before);
    }
    stage
        .node
        .audited("cluster_state", &["\"done\":false", "\"serial\":1"]);
    // The control: the honest one, in two pieces.
    let (head, tail) = honest.document.split_at(9);
    for (piece, signature, more) in [(head, Vec::new(), true), (tail, honest.signature, false)] {
        tunnel.say(&FromTunnel::State {
            piece: piece.to_vec(),
            signature,
            more,
        });
    }
    let known = tunnel.seat.hear_until(|word: &ToTunnel, _| match word {
        ToTunnel::Facts { facts } => Some(facts.serial),
        _ => None,
    });
    assert_eq!(known.map(|(_, serial)| serial), Some(2));
    let host = c"intranet.example".into();
    tunnel.say(&FromTunnel::Resolve { host });
    assert!(tunnel.is_ended());
    let mut tunnel = stage.node.tunnel();
    // Positions of what was never sent say nothing; neither do certificates that nobody gave.
    for word in [
        FromTunnel::AuditKept {
            log: c"1".into(),
            offset: u64::MAX,
        },
        FromTunnel::Renewed {
            tls_chain: Vec::new(),
            host_certificates: Vec::new(),
            refused: c"".into(),
        },
    ] {
        assert_eq!(tunnel.say(&word), Fate::Stays);
    }
    assert!(tunnel.signature(&handshake()).is_some());
}

#[test]
fn floods_of_a_tunnel_end_it_and_nobody_else() {
    let Some(mut stage) = Stage::new(|_| ()) else {
        return;
    };
    let mut lobby = stage.node.lobby();
    type Flood = fn(&Tunnel) -> Fate;
    let floods: [(&str, Flood); 4] = [
        ("what is no word", |t| t.seat.send(b"fg\x01\xff", &[])),
        ("a state without end", |t| {
            t.say(&FromTunnel::State {
                piece: vec![0; MAX_PIECE],
                signature: Vec::new(),
                more: true,
            })
        }),
        ("signs of freshness", |t| {
            t.say(&FromTunnel::Fresh {
                document: vec![0; 10],
                signature: Vec::new(),
            })
        }),
        ("a first flight that is too long", |t| {
            t.say(&FromTunnel::Arrived {
                ticket: 1,
                vouched: fleetgate_wire::node::tunnel::ProxyStatement {
                    source: fleetgate_wire::common::Endpoint {
                        address: [0; 16],
                        scope: 0,
                        port: 0,
                    },
                    proxy: c"".into(),
                    user: c"".into(),
                    trace: Vec::new(),
                    explain: false,
                },
                first: vec![0; MAX_FIRST + 1],
            })
        }),
    ];
    for (what, flood) in floods {
        let mut tunnel = stage.node.tunnel();
        let said = (0..1_000_000)
            .take_while(|_| flood(&tunnel) == Fate::Stays)
            .count();
        assert!(said < 1_000_000, "{what}: it is never ended");
        assert!(tunnel.is_ended(), "{what}");
        // Whoever comes by himself gets in as before.
        let arrival = lobby.arrive(&stage.node);
        assert_ne!(arrival.number, 0, "{what}");
    }
}

#[test]
fn addresses_that_a_tunnel_makes_up_take_no_room_from_others() {
    let bounds = |config: &mut Config| {
        config.limits.unauthenticated = 8;
        config.limits.unauthenticated_per_source = 4;
    };
    let Some(mut stage) = Stage::new(bounds) else {
        return;
    };
    let mut lobby = stage.node.lobby();
    let mut tunnel = stage.node.tunnel();
    let mut open = Vec::new();
    let mut refused = 0;
    for n in 0..20u8 {
        match tunnel.session(n.into(), [127, 0, 0, n % 3], b"SSH-2.0-x\r\n") {
            Ok(socket) => open.push(socket),
            Err(_) => refused += 1,
        }
    }
    // Of 20 some are refused, and some take the place of one whose source has more.
    assert!(
        refused > 0 && open.len() >= 8,
        "{} open, {refused} refused",
        open.len()
    );
    // By himself, from an address of those that are full.
    let direct = TcpStream::connect(stage.node.address()).expect("connected");
    stage.node.audited("connection_refused", &["\"via\":\"p1\""]);
    let mine = direct.local_addr().expect("bound").port();
    let arrived = lobby
        .seat
        .hear_until(|word: &fleetgate_wire::node::lobby::ToLobby, _| match word {
            fleetgate_wire::node::lobby::ToLobby::Arrived { addresses, .. } => {
                (addresses.peer.port == mine).then_some(())
            }
            _ => None,
        });
    assert!(arrived.is_some());
    // What ends makes room: by the tunnel's end of the pair, and when the tunnel goes.
    drop(open.pop());
    fleetgate_tests::world::wait_until("there is room", || {
        tunnel.session(100, [127, 0, 0, 9], b"").is_ok()
    });
    tunnel.seat.hang_up();
    let _next = stage.node.tunnel();
    drop(open);
    stage.node.audited("connection_ended", &["\"via\":\"p1\""]);
}
