//! Users who still send when a session is over, and users who read nothing: HTTP/2 by hand, so that the test alone decides what
//! is on the way.

use super::support::{Behaviour, Session, World, denied, dial_as, ssh};
use fleetgate_net::h2::USER_ERROR_RESETS;
use fleetgate_net::tls::{H2, Stream};
use fleetgate_policy::cluster::Target;
use fleetgate_proto::v1::denied::Reason;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::{Node, NodeChange, to_node};
use prost::Message;
use std::collections::HashSet;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 §6.5.2).
const INITIAL_WINDOW: u16 = 4;
/// Sessions at once: fewer than a user's streams on one connection, and than a user's sessions.
const AT_ONCE: usize = 200;

/// A user's connection.
struct Raw {
    stream: Stream<TcpStream>,
    heard: Vec<u8>,
    next: u32,
}

/// A frame that came.
struct Heard {
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Raw {
    /// Alice's, with so large a window for each stream.
    async fn new(world: &World, window: u32) -> Raw {
        let (mut stream, _) = world.tls(Some(&world.cluster.user("alice", &["dev"])), H2).await;
        let setting = [&INITIAL_WINDOW.to_be_bytes()[..], &window.to_be_bytes()].concat();
        let wide = raw(WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes());
        let all = [PREFACE, &raw(SETTINGS, 0, 0, &setting), &wide].concat();
        stream.write_all(&all).await.unwrap();
        Raw {
            stream,
            heard: Vec::new(),
            next: 1,
        }
    }

    /// Begins a session; its stream.
    async fn dial(&mut self, node: &str) -> u32 {
        let id = self.next;
        self.next += 2;
        // :method POST and :scheme https by the static table, :path and content-type by its names (RFC 7541 appendix A).
        let path = b"/fleetgate.v1.Transport/Dial";
        let kind = b"application/grpc";
        let fields = [
            &[0x83, 0x87, 0x04, path.len() as u8][..],
            path,
            &[0x0f, 0x10, kind.len() as u8],
            kind,
        ];
        let all = [
            raw(HEADERS, END_HEADERS, id, &fields.concat()),
            raw(
                DATA,
                0,
                id,
                &message(&dial_as(node, "root", b"one").encode_to_vec()),
            ),
        ];
        self.send(&all.concat()).await;
        id
    }

    /// False: the proxy has ended the connection.
    async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok() && self.stream.flush().await.is_ok()
    }

    /// The next frame; None: the proxy ends the connection.
    async fn next(&mut self) -> Option<Heard> {
        loop {
            if let [high, middle, low, kind, flags, a, b, c, d, rest @ ..] = self.heard.as_slice() {
                let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
                if rest.len() >= length {
                    let heard = Heard {
                        kind: *kind,
                        flags: *flags,
                        stream: u32::from_be_bytes([*a, *b, *c, *d]),
                    };
                    self.heard.drain(..9 + length);
                    return (heard.kind != GOAWAY).then_some(heard);
                }
            }
            match self.stream.read_buf(&mut self.heard).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Waits until each of these streams had such a frame; false: the connection ended.
    async fn all(&mut self, streams: &[u32], is_it: impl Fn(&Heard) -> bool) -> bool {
        let mut left: HashSet<u32> = streams.iter().copied().collect();
        while !left.is_empty() {
            match self.next().await {
                Some(heard) if is_it(&heard) => _ = left.remove(&heard.stream),
                Some(_) => {}
                None => return false,
            }
        }
        true
    }

    /// So many sessions, which the node ends while the user still sends. Whether the connection lives.
    async fn sessions(&mut self, count: usize, is_told_of_the_reset: bool) -> bool {
        let mut left = count;
        while left > 0 {
            let mut streams = Vec::new();
            for _ in 0..left.min(AT_ONCE) {
                streams.push(self.dial("web1").await);
            }
            left -= streams.len();
            let is_end = |heard: &Heard| heard.kind == HEADERS && heard.flags & END_STREAM != 0;
            if !self.all(&streams, is_end).await {
                return false;
            }
            // A user who never ends his side: the proxy does it for him.
            if is_told_of_the_reset && !self.all(&streams, |heard| heard.kind == RESET).await {
                return false;
            }
            let late: Vec<u8> = streams
                .iter()
                .flat_map(|id| {
                    let bytes = message(&ssh(vec![7; 10]).encode_to_vec());
                    [raw(DATA, 0, *id, &bytes), raw(DATA, END_STREAM, *id, &[])].concat()
                })
                .collect();
            if !self.send(&late).await {
                return false;
            }
        }
        true
    }
}

fn raw(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

/// As gRPC has it: not compressed, and its length.
fn message(bytes: &[u8]) -> Vec<u8> {
    [&[0][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

#[tokio::test]
async fn a_kept_connection_outlives_sessions_whose_user_still_sends_at_their_end() {
    let world = World::new("late").await;
    let _node = world.node("web1", Behaviour::End).await;
    let mut user = Raw::new(&world, 65_535).await;
    assert!(user.sessions(USER_ERROR_RESETS * 3 / 2, false).await);
    let more = user.dial("web1").await;
    assert!(user.all(&[more], |heard| heard.kind == DATA).await, "it serves");
    // Control: a user who goes on when the proxy has ended his side is ended.
    let mut offender = Raw::new(&world, 65_535).await;
    let lives = offender.sessions(USER_ERROR_RESETS * 3 / 2, true).await;
    let more = offender.dial("web1").await;
    assert!(!lives || !offender.all(&[more], |heard| heard.kind == DATA).await);
}

/// After a restore, say: the state that a node was told at first is not the one that what it signs is to be as of.
#[tokio::test]
async fn a_state_that_comes_while_a_node_opens_its_stream_is_told_too() {
    let world = World::new("between").await;
    let mut slow = world.dialled("web1", Behaviour::Slow).await;
    slow.left.recv().await.expect("the proxy asks for the stream");
    let mut other = world.node("web2", Behaviour::Echo).await;
    world.lock(Target::Login("nobody".to_owned()));
    other.hears_of_the_lock().await;
    world.fresh();
    // The proxy has both by then.
    while !matches!(
        other.told.recv().await.unwrap().kind,
        Some(to_node::Kind::Fresh(_))
    ) {}
    slow.answers.notify_one();
    let hears = tokio::time::timeout(Duration::from_secs(60), slow.hears_of_the_lock());
    assert!(hears.await.is_ok(), "the node was not told the newer state");
}

#[tokio::test]
async fn a_session_that_is_refused_ends_though_its_user_reads_nothing() {
    let world = World::with("unread", |config| config.sessions_per_user = 1).await;
    let mut node = world.node("web1", Behaviour::Pour).await;
    let mut user = Raw::new(&world, 1).await;
    let session = user.dial("web1").await;
    assert!(user.all(&[session], |heard| heard.kind == DATA).await);
    // Control: it has the only place.
    let mut other = world.alice().await;
    let mut second = Session::begin(&mut other, dial_as("web1", "root", b"")).await;
    assert_eq!(denied(second.next().await).reason(), Reason::Busy);
    // Not of the user, whose connection would end as a whole.
    world.lock(Target::Login("root".to_owned()));
    node.hears_of_the_lock().await;
    let event = world.event("dial_ended").await;
    let reason = event["reason"].as_str().unwrap();
    assert!(reason.contains("stolen laptop"), "{event}");
    world.change(|state| state.locks = Default::default());
    until_opened(&world, "web1").await;
}

#[tokio::test]
async fn a_session_that_is_refused_on_a_plain_sshd_ends_though_its_user_reads_nothing() {
    let world = World::with("unread-plain", |config| config.sessions_per_user = 1).await;
    let _node = world.node("web1", Behaviour::Echo).await;
    let plain = Node {
        name: "db1".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        plain: true,
        ..Node::default()
    };
    let change = NodeChange {
        node: Some(plain),
        ..NodeChange::default()
    };
    world.auth.nodes.send(change).unwrap();
    // The proxy knows it once it has looked at it.
    world.auth.reached.lock().await.recv().await.unwrap();
    let mut user = Raw::new(&world, 1).await;
    let session = user.dial("db1").await;
    assert!(user.all(&[session], |heard| heard.kind == DATA).await);
    let mut other = world.alice().await;
    let mut second = Session::begin(&mut other, dial_as("web1", "root", b"")).await;
    assert_eq!(denied(second.next().await).reason(), Reason::Busy, "control");
    // Auth certifies no host key: the session is refused by the proxy.
    let event = world.event("login_refused").await;
    let reason = event["reason"].as_str().unwrap();
    assert!(reason.contains("not in this test"), "{event}");
    let event = world.event("dial_ended").await;
    let reason = event["reason"].as_str().unwrap();
    assert!(reason.contains("not in this test"), "{event}");
    until_opened(&world, "web1").await;
}

/// Alice has a place again.
async fn until_opened(world: &World, node: &str) {
    let mut alice = world.alice().await;
    loop {
        let mut session = Session::begin(&mut alice, dial_as(node, "root", b"")).await;
        if matches!(session.next().await, Some(Kind::Opened(_))) {
            return;
        }
    }
}
