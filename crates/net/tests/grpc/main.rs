//! gRPC over one connection, in either direction: who asks is known, what is too much is refused, a reader that is behind
//! makes nobody keep much, and a flood ends the flooding connection.
#![forbid(unsafe_code)]

mod floods;
mod silence;

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
use tokio::io::{DuplexStream, duplex};
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

/// The two ends of TLS between the proxy p1 and the user alice.
fn p1_and_alice() -> (Server, Client) {
    let cluster = Cluster::new();
    let p1 = cluster.server(PROXY, Subject::Proxy(name("p1")));
    let server = Server::new(Shown::new().name(PROXY, &p1), Some(&cluster.trust()), &[H2]).unwrap();
    let alice = cluster.user("alice", &[]);
    let client = Client::new(&Believe::Trust(cluster.trust()), Some(&alice), &[H2]).unwrap();
    (server, client)
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
    let (server, client) = p1_and_alice();
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
    let (server, client) = p1_and_alice();
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
