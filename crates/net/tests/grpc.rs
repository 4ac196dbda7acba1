//! gRPC over one connection, in either direction: who asks is known, what is too much is refused, a reader that is behind
//! makes nobody keep much, and a flood ends the flooding connection.
#![forbid(unsafe_code)]

use bytes::Bytes;
use fleetgate_net::h2::{self, Caller, Channel, Routes, TRANSPORT_MESSAGE, Tuning};
use fleetgate_net::testing::{Cluster, name};
use fleetgate_net::tls::{Believe, Client, H2, PROXY, Server, Shown};
use fleetgate_policy::cluster::Subject;
use fleetgate_proto::v1::transport_client::TransportClient;
use fleetgate_proto::v1::transport_server::{Transport, TransportServer};
use fleetgate_proto::v1::{Frame, Node, NodesReply, NodesRequest, frame::Kind};
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::{mpsc, oneshot};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Code, Request, Response, Status, Streaming};

/// Sends every frame back; the inventory's one node has the caller's name.
struct Echo;

/// Frames out of a channel.
struct Frames(mpsc::Receiver<Frame>);

impl Stream for Frames {
    type Item = Result<Frame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

#[tonic::async_trait]
impl Transport for Echo {
    type DialStream = Frames;

    async fn dial(&self, request: Request<Streaming<Frame>>) -> Result<Response<Frames>, Status> {
        let mut from = request.into_inner();
        let (send, frames) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Ok(Some(frame)) = from.message().await {
                if send.send(frame).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Frames(frames)))
    }

    async fn nodes(&self, request: Request<NodesRequest>) -> Result<Response<NodesReply>, Status> {
        let caller = Caller::of(&request)?;
        let user = caller.peer.as_ref().and_then(|peer| peer.identity.clone());
        let node = Node {
            name: user.map(|user| user.subject.to_string()).unwrap_or_default(),
            address: caller.address.map(|a| a.to_string()).unwrap_or_default(),
            ..Node::default()
        };
        Ok(Response::new(NodesReply {
            nodes: vec![node],
            ..NodesReply::default()
        }))
    }
}

fn routes() -> Arc<Routes> {
    Arc::new(Routes::new().with(TransportServer::new(Echo).max_decoding_message_size(TRANSPORT_MESSAGE)))
}

/// Serves on one end of a pipe; the other is returned, and how the connection ended.
fn served() -> (DuplexStream, oneshot::Receiver<Result<(), hyper::Error>>) {
    served_as(Tuning::USER)
}

fn served_as(tuning: Tuning) -> (DuplexStream, oneshot::Receiver<Result<(), hyper::Error>>) {
    let (there, here) = duplex(64 * 1024);
    let (tell, ended) = oneshot::channel();
    tokio::spawn(async move {
        let nobody = Caller {
            peer: None,
            address: None,
        };
        let end = h2::serve(there, nobody, routes(), tuning, pending()).await;
        let _ = tell.send(end);
    });
    (here, ended)
}

async fn client() -> TransportClient<Channel> {
    TransportClient::new(h2::connect(served().0, Tuning::USER).await.unwrap())
}

fn ssh(bytes: Vec<u8>) -> Frame {
    Frame {
        kind: Some(Kind::Ssh(Bytes::from(bytes))),
    }
}

/// A request's stream that is fed by hand.
struct Outgoing(mpsc::Receiver<Frame>);

impl Stream for Outgoing {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        self.0.poll_recv(cx)
    }
}

#[tokio::test]
async fn both_ends_may_serve_and_know_who_asks() {
    let cluster = Cluster::new();
    let p1 = cluster.server(PROXY, Subject::Proxy(name("p1")));
    let server = Server::new(Shown::new().name(PROXY, &p1), Some(&cluster.trust()), &[H2]).unwrap();
    let alice = cluster.user("alice", &[]);
    let client = Client::new(&Believe::Trust(cluster.trust()), Some(&alice), &[H2]).unwrap();
    for reversed in [false, true] {
        let (there, here) = duplex(64 * 1024);
        let (there, here) = tokio::join!(server.accept(there), client.connect(PROXY, here));
        let ((there, alice), (here, p1)) = (there.unwrap(), here.unwrap());
        let (answers, peer, asks, expected) = if reversed {
            (here, p1, there, "proxy p1")
        } else {
            (there, alice, here, "user alice")
        };
        let caller = Caller {
            peer: Some(Arc::new(peer)),
            address: Some("192.0.2.1:40000".parse().unwrap()),
        };
        let (leave, left) = oneshot::channel::<()>();
        let serving = tokio::spawn(h2::serve(answers, caller, routes(), Tuning::TUNNEL, async {
            let _ = left.await;
        }));
        let channel = h2::connect(asks, Tuning::TUNNEL).await.unwrap();
        let mut closed = channel.closed();
        let mut asking = TransportClient::new(channel.clone());
        let reply = asking.nodes(NodesRequest::default()).await.unwrap().into_inner();
        assert_eq!(
            (reply.nodes[0].name.as_str(), reply.nodes[0].address.as_str()),
            (expected, "192.0.2.1:40000")
        );
        assert!(!channel.is_closed());
        leave.send(()).unwrap();
        serving.await.unwrap().unwrap();
        assert_eq!(closed.wait().await, "the connection was closed");
        assert!(channel.is_closed());
    }
}

#[tokio::test]
async fn a_service_that_is_not_there_is_said_to_be_so() {
    use fleetgate_proto::v1::tunnel_client::TunnelClient;
    let channel = h2::connect(served().0, Tuning::USER).await.unwrap();
    let (_send, frames) = mpsc::channel(1);
    let error = TunnelClient::new(channel)
        .session(Outgoing(frames))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert_eq!(
        h2::words(&error),
        "there is no such service at this address: is one side much older?"
    );
}

#[tokio::test]
async fn a_message_beyond_the_bound_ends_its_stream_alone() {
    let mut client = client().await;
    for (length, fits) in [(TRANSPORT_MESSAGE - 16, true), (TRANSPORT_MESSAGE + 1, false)] {
        let (send, frames) = mpsc::channel(1);
        send.send(ssh(vec![7; length])).await.unwrap();
        let mut answers = client.dial(Outgoing(frames)).await.unwrap().into_inner();
        let answer = answers.message().await;
        if fits {
            assert_eq!(answer.unwrap().unwrap(), ssh(vec![7; length]));
        } else {
            assert_eq!(answer.unwrap(), None, "the echo gave up");
        }
    }
    assert_eq!(
        client
            .nodes(NodesRequest::default())
            .await
            .unwrap()
            .into_inner()
            .nodes
            .len(),
        1
    );
}

#[tokio::test]
async fn a_stream_that_nobody_reads_is_bounded_and_holds_up_no_other() {
    let mut client = client().await;
    let (send, frames) = mpsc::channel(1);
    let _unread = client.dial(Outgoing(frames)).await.unwrap().into_inner();
    // What fits between a writer and a reader that does not read: windows both ways, and buffers on the way.
    let mut sent = 0;
    let frame = 32 * 1024;
    let mut waiting = Box::pin(async {
        loop {
            send.send(ssh(vec![1; frame])).await.unwrap();
            sent += frame;
        }
    });
    // Another stream makes a thousand round trips meanwhile: as many turns for the first to send all it may.
    let (other_send, other_frames) = mpsc::channel(1);
    let mut other = client.dial(Outgoing(other_frames)).await.unwrap().into_inner();
    for turn in 0..1000u32 {
        tokio::select! {
            biased;
            () = &mut waiting => {}
            answer = async {
                other_send.send(ssh(turn.to_be_bytes().to_vec())).await.unwrap();
                other.message().await.unwrap().unwrap()
            } => assert_eq!(answer, ssh(turn.to_be_bytes().to_vec())),
        }
    }
    drop(waiting);
    let most = 2 * (h2::STREAM_WINDOW as usize + h2::SEND_BUFFER) + 32 * frame;
    assert!(
        (h2::STREAM_WINDOW as usize..=most).contains(&sent),
        "{sent} of {most}"
    );
}

/// Frames of HTTP/2 by hand (RFC 9113 §4.1).
fn raw(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// :method POST, :scheme https, :path /, by the static table (RFC 7541 appendix A).
const REQUEST: &[u8] = &[0x83, 0x87, 0x84];
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const NO_ERROR: [u8; 4] = [0; 4];
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// What gathers in a connection while the server stands still is looked at at once when it goes on.
#[tokio::test]
async fn streams_that_were_given_up_meanwhile_end_no_members_connection() {
    let (stranger, member) = (h2::PENDING_RESETS, h2::MEMBER_PENDING_RESETS);
    for (tuning, resets, goes_on) in [
        (Tuning::AUTH, stranger, true),
        (Tuning::AUTH, stranger + 1, false),
        (Tuning::AUTH_MEMBER, member, true),
        (Tuning::AUTH_MEMBER, member + 1, false),
        (Tuning::TUNNEL, member, true),
    ] {
        let (mut stream, ended) = served_as(tuning);
        let mut all = [PREFACE, &raw(SETTINGS, 0, 0, &[])].concat();
        for n in 0..resets as u32 {
            all.extend(raw(HEADERS, END_HEADERS, 2 * n + 1, REQUEST));
            all.extend(raw(RESET, 0, 2 * n + 1, &8u32.to_be_bytes()));
        }
        all.extend(raw(PING, 0, 0, b"are you?"));
        // All of it is there before the server has its first turn.
        stream.write_all(&all).await.unwrap();
        let mut heard = Vec::new();
        let answer = raw(PING, 1, 0, b"are you?");
        let answered = loop {
            match stream.read_buf(&mut heard).await {
                Ok(0) | Err(_) => break false,
                Ok(_) if heard.windows(answer.len()).any(|part| part == answer) => break true,
                Ok(_) => {}
            }
        };
        assert_eq!(answered, goes_on, "{resets} resets");
        drop(stream);
        assert_eq!(ended.await.unwrap().is_ok(), goes_on, "{resets} resets");
    }
}

/// A stream that the server has ended and forgotten may get more from a client that did not know yet.
#[tokio::test]
async fn late_frames_for_ended_streams_end_no_long_connection() {
    // The server knows fifty at once, each for a second: twice the bound is beyond it on a slow machine too.
    for (tuning, late, goes_on) in [
        (Tuning::AUTH, h2::ERROR_RESETS, true),
        (Tuning::AUTH, 2 * h2::ERROR_RESETS, false),
        (Tuning::USER, h2::USER_ERROR_RESETS, true),
        (Tuning::USER, 2 * h2::USER_ERROR_RESETS, false),
        (Tuning::TUNNEL, 2 * h2::USER_ERROR_RESETS, true),
    ] {
        let (mut stream, ended) = served_as(tuning);
        stream
            .write_all(&[PREFACE, &raw(SETTINGS, 0, 0, &[])].concat())
            .await
            .unwrap();
        let ids: Vec<u32> = (0..late as u32).map(|n| 2 * n + 1).collect();
        let mut heard = Vec::new();
        let mut lives = true;
        for some in ids.chunks(100) {
            let requests: Vec<u8> = some
                .iter()
                .flat_map(|id| raw(HEADERS, END_HEADERS, *id, REQUEST))
                .collect();
            lives = lives && stream.write_all(&requests).await.is_ok();
            let mut resets = 0;
            while lives && resets < some.len() {
                match read_raw(&mut stream, &mut heard).await {
                    Some((RESET, reason)) if reason == NO_ERROR => resets += 1,
                    Some(_) => {}
                    None => lives = false,
                }
            }
            let frames: Vec<u8> = some.iter().flat_map(|id| raw(DATA, 0, *id, b"late")).collect();
            lives = lives && stream.write_all(&frames).await.is_ok();
        }
        lives = lives && stream.write_all(&raw(PING, 0, 0, b"are you?")).await.is_ok();
        while lives {
            match read_raw(&mut stream, &mut heard).await {
                Some((PING, _)) => break,
                Some(_) => {}
                None => lives = false,
            }
        }
        assert_eq!(lives, goes_on, "{late} late frames");
        drop(stream);
        assert_eq!(ended.await.unwrap().is_ok(), goes_on, "{late} late frames");
    }
}

/// The next frame's type and payload; None at the end, or when the server leaves.
async fn read_raw(stream: &mut DuplexStream, heard: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    loop {
        if let [high, middle, low, kind, _, _, _, _, _, rest @ ..] = heard.as_slice() {
            let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            if let Some(payload) = rest.get(..length) {
                let frame = (*kind, payload.to_vec());
                heard.drain(..9 + length);
                return (frame.0 != GOAWAY).then_some(frame);
            }
        }
        match stream.read_buf(heard).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

#[tokio::test]
async fn floods_end_the_flooding_connection() {
    type Flood = fn(u32) -> Vec<u8>;
    let floods: [(&str, Flood); 4] = [
        ("resets", |n| {
            let stream = 2 * n + 1;
            [
                raw(HEADERS, END_HEADERS, stream, REQUEST),
                raw(RESET, 0, stream, &8u32.to_be_bytes()),
            ]
            .concat()
        }),
        ("continuations", |n| match n {
            0 => raw(HEADERS, 0, 1, REQUEST),
            _ => raw(
                CONTINUATION,
                0,
                1,
                &[&[0x00, 0x01, b'x', 0x7f, 0x81, 0x1e][..], &[b'y'; 400]].concat(),
            ),
        }),
        ("header bombs", |n| match n {
            // One large header is put into the table, then named again and again: 1 byte each.
            0 => raw(
                HEADERS,
                0,
                1,
                &[REQUEST, &[0x40, 0x01, b'x', 0x7f, 0x81, 0x1e], &[b'y'; 272]].concat(),
            ),
            _ => raw(CONTINUATION, 0, 1, &[0xbe; 16_000]),
        }),
        ("frames of a megabyte", |_| raw(0, 0, 1, &[0; 1 << 20])),
    ];
    for (what, flood) in floods {
        let (stream, ended) = served();
        let (mut reader, mut writer) = tokio::io::split(stream);
        writer
            .write_all(&[PREFACE, &raw(SETTINGS, 0, 0, &[])].concat())
            .await
            .unwrap();
        let drain = tokio::spawn(async move {
            let mut all = Vec::new();
            let _ = reader.read_to_end(&mut all).await;
            all.len()
        });
        // It may take what it is sent until it says no more; a hundred thousand turns are far beyond every bound.
        let mut over = None;
        for turn in 0..100_000 {
            if writer.write_all(&flood(turn)).await.is_err() {
                over = Some(turn);
                break;
            }
        }
        assert!(over.is_some(), "{what}: the connection goes on");
        assert!(ended.await.unwrap().is_err(), "{what}");
        assert!(
            drain.await.unwrap() < 1 << 20,
            "{what}: the answers are bounded too"
        );
    }
}

#[tokio::test]
async fn pings_are_answered_one_at_a_time() {
    // Whoever pings without reading the answers is read no further.
    let (mut stream, _ended) = served();
    stream
        .write_all(&[PREFACE, &raw(SETTINGS, 0, 0, &[])].concat())
        .await
        .unwrap();
    let ping = raw(PING, 0, 0, &[7; 8]);
    let lot: Vec<u8> = ping.iter().copied().cycle().take(ping.len() * 1000).collect();
    let mut written = 0;
    let mut flood = Box::pin(async {
        loop {
            stream.write_all(&lot).await.unwrap();
            written += lot.len();
        }
    });
    // As many turns of the runtime as it wants; then it waits for good.
    for _ in 0..10_000 {
        tokio::select! {
            biased;
            () = &mut flood => {}
            () = tokio::task::yield_now() => {}
        }
    }
    drop(flood);
    assert!(written < 512 * 1024, "{written}");
}

#[tokio::test]
async fn headers_beyond_the_bound_refuse_the_request() {
    let mut client = client().await;
    for (length, fits) in [(1000, true), (20_000, false)] {
        let mut request = Request::new(NodesRequest::default());
        request
            .metadata_mut()
            .insert("x", "y".repeat(length).parse().unwrap());
        assert_eq!(client.nodes(request).await.is_ok(), fits, "{length}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_no_ping_is_gone() {
    let (_silent, here) = duplex(64 * 1024);
    let channel = h2::connect(here, Tuning::TUNNEL).await.unwrap();
    let begun = tokio::time::Instant::now();
    let why = channel.closed().wait().await;
    assert!(why.contains("a ping was not answered"), "{why}");
    assert_eq!(
        begun.elapsed(),
        Tuning::TUNNEL.ping.unwrap() + Tuning::TUNNEL.answer
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_behind_a_silence_asks_whether_the_peer_is_there() {
    let (silence, answer) = Tuning::USER.doubt.unwrap();
    // Asked at once it is given a moment; behind a silence, and a moment before a usual ping, it has to say so at once.
    for (after, until) in [
        (Duration::ZERO, h2::UNANSWERED + answer),
        (silence, silence + answer),
        (
            Tuning::USER.ping.unwrap() + silence,
            Tuning::USER.ping.unwrap() + silence + answer,
        ),
    ] {
        let (_silent, here) = duplex(64 * 1024);
        let channel = h2::connect(here, Tuning::USER).await.unwrap();
        let begun = tokio::time::Instant::now();
        tokio::time::sleep(after).await;
        let mut closed = channel.closed();
        let mut client = TransportClient::new(channel);
        let request = tokio::spawn(async move { client.nodes(NodesRequest::default()).await });
        closed.wait().await;
        assert_eq!(begun.elapsed(), until, "{after:?}");
        assert!(request.await.unwrap().is_err());
    }
    // One that is there is asked, and answers.
    let channel = h2::connect(served().0, Tuning::USER).await.unwrap();
    tokio::time::sleep(silence).await;
    let mut client = TransportClient::new(channel.clone());
    assert!(client.nodes(NodesRequest::default()).await.is_ok());
    tokio::time::sleep(2 * answer).await;
    assert!(!channel.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_pings_may_be_silent_for_ever() {
    let channel = h2::connect(served().0, Tuning::TUNNEL).await.unwrap();
    tokio::time::sleep(100 * Tuning::TUNNEL.ping.unwrap()).await;
    assert!(!channel.is_closed());
    let reply = TransportClient::new(channel).nodes(NodesRequest::default()).await;
    assert_eq!(reply.unwrap().into_inner().nodes.len(), 1);
}

/// Never answers, and tells when it is asked, and when it is not waited for any more.
struct Never(mpsc::Sender<&'static str>);

struct Told(mpsc::Sender<&'static str>);

impl Told {
    fn of(never: &Never) -> Told {
        let _ = never.0.try_send("asked");
        Told(never.0.clone())
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.try_send("taken back");
    }
}

#[tonic::async_trait]
impl Transport for Never {
    type DialStream = Frames;

    async fn dial(&self, _: Request<Streaming<Frame>>) -> Result<Response<Frames>, Status> {
        let _told = Told::of(self);
        pending().await
    }

    async fn nodes(&self, _: Request<NodesRequest>) -> Result<Response<NodesReply>, Status> {
        let _told = Told::of(self);
        pending().await
    }
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_is_taken_back() {
    let (told, mut heard) = mpsc::channel(2);
    let routes = Arc::new(Routes::new().with(TransportServer::new(Never(told))));
    let (there, here) = duplex(64 * 1024);
    let nobody = Caller {
        peer: None,
        address: None,
    };
    tokio::spawn(h2::serve(there, nobody, routes, Tuning::USER, pending()));
    let channel = h2::connect(here, Tuning::USER).await.unwrap();
    for streaming in [false, true] {
        let (send, frames) = mpsc::channel(1);
        let mut asking = TransportClient::new(channel.clone());
        let asked = async move {
            match streaming {
                true => drop(asking.dial(Outgoing(frames)).await),
                false => drop(asking.nodes(NodesRequest::default()).await),
            }
        };
        tokio::select! {
            () = asked => panic!("it is answered"),
            told = heard.recv() => assert_eq!(told, Some("asked")),
        }
        assert_eq!(heard.recv().await, Some("taken back"));
        // What would have gone on sending is gone too.
        send.closed().await;
    }
    assert!(!channel.is_closed());
}

/// Whoever has to wait for a wire waits for it alone: were another task its last asker, nobody would be woken.
#[tokio::test]
async fn much_comes_through_a_wire_that_takes_little_at_a_time() {
    const FRAMES: usize = 200;
    const FRAME: usize = 20_000;
    let cluster = Cluster::new();
    let p1 = cluster.server(PROXY, Subject::Proxy(name("p1")));
    let server = Server::new(Shown::new().name(PROXY, &p1), Some(&cluster.trust()), &[H2]).unwrap();
    let alice = cluster.user("alice", &[]);
    let client = Client::new(&Believe::Trust(cluster.trust()), Some(&alice), &[H2]).unwrap();
    let (there, here) = duplex(1000);
    let (there, here) = tokio::join!(server.accept(there), client.connect(PROXY, here));
    let ((there, alice), (here, _)) = (there.unwrap(), here.unwrap());
    let caller = Caller {
        peer: Some(Arc::new(alice)),
        address: None,
    };
    tokio::spawn(h2::serve(there, caller, routes(), Tuning::USER, pending()));
    let channel = h2::connect(here, Tuning::USER).await.unwrap();
    let (send, frames) = mpsc::channel(4);
    let mut asking = TransportClient::new(channel);
    let mut answers = asking.dial(Outgoing(frames)).await.unwrap().into_inner();
    let sent = async move {
        for at in 0..FRAMES {
            send.send(ssh(vec![at as u8; FRAME])).await.unwrap();
        }
    };
    let heard = async {
        for at in 0..FRAMES {
            let frame = answers.message().await.unwrap().expect("it goes on");
            assert_eq!(frame, ssh(vec![at as u8; FRAME]));
        }
        assert_eq!(answers.message().await.unwrap(), None);
    };
    tokio::join!(sent, heard);
}
