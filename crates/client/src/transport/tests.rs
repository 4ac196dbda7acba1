//! The way through a proxy, against a proxy that does as it is told: frames in, frames out, refusals, half ends.

use super::*;
use fleetgate_net::h2::{Caller, Routes, serve};
use fleetgate_proto::v1::transport_server::{Transport, TransportServer};
use fleetgate_proto::v1::{NodesReply, Spans};
use std::future::pending;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::sync::mpsc;
use tonic::Request;

/// Sends SSH bytes back behind Opened; node `none` is refused, node `late` answers only what came before the end.
struct Echo;

struct Sent(mpsc::Receiver<Frame>);

impl Stream for Sent {
    type Item = Result<Frame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

#[tonic::async_trait]
impl Transport for Echo {
    type DialStream = Sent;

    async fn dial(&self, request: Request<Streaming<Frame>>) -> Result<Response<Sent>, Status> {
        let mut from = request.into_inner();
        let (send, sent) = mpsc::channel(1);
        let Some(Frame {
            kind: Some(Kind::Dial(dial)),
        }) = from.message().await?
        else {
            return Err(Status::invalid_argument("the first frame is no Dial"));
        };
        if dial.node == "broken" {
            return Err(Status::unavailable("the proxy stops"));
        }
        tokio::spawn(async move {
            let frame = |kind| Frame { kind: Some(kind) };
            let say = async |kind| send.send(frame(kind)).await.is_ok();
            if dial.node == "none" {
                let denied = Denied {
                    reason: denied::Reason::Mfa.into(),
                    words: "a fresh second factor is wanted".into(),
                    rule: "role ops".into(),
                };
                say(Kind::Denied(denied)).await;
                return;
            }
            let node = dial.node.clone();
            say(Kind::Opened(Opened {
                node,
                terminated: false,
            }))
            .await;
            // What a newer proxy may say.
            let _ = send.send(Frame { kind: None }).await;
            say(Kind::Ssh(dial.ssh)).await;
            while let Ok(Some(Frame { kind })) = from.message().await {
                match kind {
                    Some(Kind::Ssh(bytes)) => {
                        let taken = say(Kind::Ssh(bytes)).await;
                        if !taken {
                            return;
                        }
                    }
                    Some(Kind::SshEnd(true)) => {
                        say(Kind::Ssh(Bytes::from_static(b"after"))).await;
                        say(Kind::SshEnd(true)).await;
                        let span = Span {
                            name: "dial".into(),
                            ..Span::default()
                        };
                        say(Kind::Spans(Spans { spans: vec![span] })).await;
                        return;
                    }
                    _ => {}
                }
            }
        });
        Ok(Response::new(Sent(sent)))
    }

    async fn nodes(&self, request: Request<NodesRequest>) -> Result<Response<NodesReply>, Status> {
        let name = request.into_inner().selector;
        let node = Node {
            name,
            ..Node::default()
        };
        Ok(Response::new(NodesReply {
            nodes: vec![node],
            ..NodesReply::default()
        }))
    }
}

async fn proxy() -> Proxy {
    let (here, there) = duplex(64 * 1024);
    tokio::spawn(async move {
        let nobody = Caller {
            peer: None,
            address: None,
        };
        let routes = Arc::new(Routes::new().with(TransportServer::new(Echo)));
        let _ = serve(there, nobody, routes, Tuning::USER, pending()).await;
    });
    Proxy::new(h2::connect(here, Tuning::USER).await.unwrap(), "test")
}

#[tokio::test]
async fn bytes_go_both_ways_and_end_one_way_at_a_time() {
    let proxy = proxy().await;
    let mut stream = proxy.dial(
        "web1",
        "ann",
        Bytes::from_static(b"first"),
        &DialOptions::default(),
    );
    let mut first = [0; 5];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"first");
    // More than any buffer on the way holds: both directions move at once.
    let bytes: Vec<u8> = (0..4_000_000u32).map(|n| n as u8).collect();
    let (mut read, mut write) = tokio::io::split(stream);
    let sent = bytes.clone();
    let writer = tokio::spawn(async move {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
        write
    });
    let mut got = Vec::new();
    read.read_to_end(&mut got).await.unwrap();
    let stream = read.unsplit(writer.await.unwrap());
    assert!(
        got.strip_suffix(b"after") == Some(&bytes[..]),
        "{} bytes",
        got.len()
    );
    let said = stream.report().snapshot();
    assert_eq!(said.opened.map(|o| o.node).as_deref(), Some("web1"));
    assert_eq!(said.spans.len(), 1);
}

#[tokio::test]
async fn a_refusal_is_an_error_with_its_rule() {
    let proxy = proxy().await;
    let mut stream = proxy.dial("none", "ann", Bytes::new(), &DialOptions::default());
    let error = stream.read_u8().await.unwrap_err();
    let refused = error.get_ref().and_then(|e| e.downcast_ref::<Refused>()).unwrap();
    assert_eq!(
        (refused.reason, refused.rule.as_str()),
        (denied::Reason::Mfa, "role ops")
    );
    assert_eq!(refused.to_string(), "a fresh second factor is wanted (role ops)");
    // The others on the same connection go on.
    let mut stream = proxy.dial("web1", "ann", Bytes::from_static(b"x"), &DialOptions::default());
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
    let mut stream = proxy.dial("broken", "ann", Bytes::new(), &DialOptions::default());
    let error = stream.read_u8().await.unwrap_err().to_string();
    assert!(error.contains("the proxy stops"), "{error}");
}

#[tokio::test]
async fn a_reader_that_is_behind_stops_the_writer() {
    let proxy = proxy().await;
    let mut stream = proxy.dial("web1", "ann", Bytes::new(), &DialOptions::default());
    let mut written = 0;
    // Nothing is read: what is on the way is bounded, and then a write waits.
    let full = std::future::poll_fn(|cx| {
        loop {
            match Pin::new(&mut stream).poll_write(cx, &[0; FRAME_BYTES]) {
                Poll::Ready(n) => written += n.unwrap(),
                Poll::Pending if written > 0 => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    full.await;
    assert_eq!(written, FRAME_BYTES, "one frame at a time");
    assert_eq!(stream.read_u8().await.unwrap(), 0, "control: it moves again");
}

#[tokio::test]
async fn nodes_are_asked_for_on_the_same_connection() {
    let mut timings = Timings::default();
    let nodes = proxy().await.nodes("env=prod", &mut timings).await.unwrap();
    assert_eq!(nodes[0].name, "env=prod");
    assert_eq!(timings.round_trips(), 1);
}
