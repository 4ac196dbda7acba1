//! One session: frames of an HTTP/2 stream on one side, a socket pair's end on the other. It holds one frame each way: the
//! stream is asked for the next when this one is written, and the socket is read when the stream takes more, so a side
//! that does not read holds up the other and costs nobody memory. It looks at no byte.
//!
//! When the node's side is over the proxy reads so, and ends its own; the stream ends behind that. One that ended before
//! would be reset, and what is still on the way for it would count as the proxy's error (h2's `TUNNEL_ERROR_RESETS`).

use bytes::{Bytes, BytesMut};
use fleetgate_proto::v1::{Denied, Frame, Opened, Spans, denied::Reason, frame::Kind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep};
use tonic::codegen::tokio_stream::Stream;
use tonic::{Status, Streaming};

/// The most bytes of one frame to the proxy: with what is around them they are one frame of HTTP/2.
const FRAME: usize = fleetgate_net::h2::FRAME as usize - 32;

/// How long a proxy may take to end its side of a session that is over.
const LINGER: Duration = Duration::from_secs(2);

/// What goes to the proxy, as it is asked for.
pub(crate) struct Outward(State);

enum State {
    /// One frame and no more.
    Only(Option<Frame>),
    Open(Box<Open>),
}

struct Open {
    opened: Option<Frame>,
    from: OwnedReadHalf,
    spans: Option<mpsc::Receiver<Spans>>,
    /// Towards the socket pair, which lobby and front read; ended with this.
    inward: JoinHandle<()>,
    /// The node's side is over: how long the proxy's is still awaited.
    linger: Option<Pin<Box<Sleep>>>,
}

impl Outward {
    /// Refuses.
    pub(crate) fn denied(reason: Reason, words: &str) -> Outward {
        Outward(State::Only(Some(frame(Kind::Denied(Denied {
            reason: reason.into(),
            words: words.to_owned(),
            rule: String::new(),
        })))))
    }

    /// Begins: `first` goes to the socket before anything else of the stream's.
    pub(crate) fn open(
        node: &str,
        socket: UnixStream,
        first: Bytes,
        frames: Streaming<Frame>,
        spans: Option<mpsc::Receiver<Spans>>,
    ) -> Outward {
        let (from, to) = socket.into_split();
        Outward(State::Open(Box::new(Open {
            opened: Some(frame(Kind::Opened(Opened {
                node: node.to_owned(),
                terminated: false,
            }))),
            from,
            spans,
            inward: tokio::spawn(inward(frames, first, to)),
            linger: None,
        })))
    }
}

impl Stream for Outward {
    type Item = Result<Frame, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match &mut self.0 {
            State::Only(frame) => Poll::Ready(frame.take().map(Ok)),
            State::Open(open) => {
                let frame = ready!(open.next(cx));
                if frame.is_none() {
                    self.0 = State::Only(None);
                }
                Poll::Ready(frame.map(Ok))
            }
        }
    }
}

impl Open {
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        if let Some(opened) = self.opened.take() {
            return Poll::Ready(Some(opened));
        }
        if let Some(spans) = &mut self.spans
            && let Poll::Ready(said) = spans.poll_recv(cx)
        {
            match said {
                Some(spans) => return Poll::Ready(Some(frame(Kind::Spans(spans)))),
                None => self.spans = None,
            }
        }
        if let Some(linger) = &mut self.linger {
            if Pin::new(&mut self.inward).poll(cx).is_pending() {
                ready!(linger.as_mut().poll(cx));
            }
            return Poll::Ready(None);
        }
        let read = ready!(self.poll_read(cx));
        Poll::Ready(Some(frame(match read {
            Some(bytes) => Kind::Ssh(bytes),
            None => {
                // The node's side is over: an SSH server says all before it closes, and hears nothing after it.
                self.linger = Some(Box::pin(sleep(LINGER)));
                Kind::SshEnd(true)
            }
        })))
    }

    /// What is there; none: the end. Room is made when there is something, so a session that waits holds none.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let socket: &UnixStream = self.from.as_ref();
        loop {
            if ready!(socket.poll_read_ready(cx)).is_err() {
                return Poll::Ready(None);
            }
            let mut room = BytesMut::with_capacity(FRAME);
            match socket.try_read_buf(&mut room) {
                Ok(0) => return Poll::Ready(None),
                Ok(n) if n < FRAME / 4 => return Poll::Ready(Some(Bytes::copy_from_slice(&room))),
                Ok(_) => return Poll::Ready(Some(room.freeze())),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.inward.abort();
    }
}

/// Frames to the socket. Its half is closed by the client's word, or because the stream is gone. What comes when nobody reads
/// any more is dropped, until the proxy's side is over.
async fn inward(mut frames: Streaming<Frame>, first: Bytes, to: OwnedWriteHalf) {
    let mut to = Some(to);
    let mut next = Some(first);
    loop {
        if let (Some(bytes), Some(socket)) = (&next, &mut to)
            && socket.write_all(bytes).await.is_err()
        {
            to = None;
        }
        next = match frames.message().await {
            Ok(Some(Frame {
                kind: Some(Kind::Ssh(bytes)),
            })) => Some(bytes),
            Ok(Some(Frame {
                kind: Some(Kind::SshEnd(true)),
            })) => {
                to = None;
                None
            }
            // A newer proxy's, or not for a node: an agent's bytes travel inside SSH here.
            Ok(Some(_)) => None,
            Ok(None) | Err(_) => return,
        };
    }
}

fn frame(kind: Kind) -> Frame {
    Frame { kind: Some(kind) }
}
