//! A node's session as a byte stream: what `ssh -J` needs, where the SSH bytes come out of a channel and not out of frames.
//! It holds one frame that is not read yet, and one that is not sent yet.

use crate::steps::Steps;
use crate::streams::NodeFrames;
use bytes::{Buf, Bytes};
use fleetgate_proto::v1::Frame;
use fleetgate_proto::v1::frame::Kind;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tonic::Status;
use tonic::codegen::tokio_stream::Stream;

/// What goes into one frame.
const PART: usize = 32 * 1024;

/// The frames that a node reads.
pub(crate) struct OutgoingFrames(Receiver<Frame>);

/// A frame waits for room; the sender comes back when it had some.
type PendingSend = Pin<Box<dyn Future<Output = Option<Sender<Frame>>> + Send>>;

/// The byte stream.
pub(crate) struct NodeStream<K> {
    send: Option<Sender<Frame>>,
    waiting: Option<PendingSend>,
    read: NodeFrames,
    unread: Bytes,
    over: bool,
    steps: Steps,
    /// Whatever ends with it.
    _kept: K,
}

/// Where frames for a node are put, and what its stream is made of.
pub(crate) fn sending(first: Frame) -> (Sender<Frame>, OutgoingFrames) {
    let (send, sent) = mpsc::channel(2);
    // There is room for two.
    let _ = send.try_send(first);
    (send, OutgoingFrames(sent))
}

impl<K> NodeStream<K> {
    /// Of a session that was begun.
    pub(crate) fn new(send: Sender<Frame>, read: NodeFrames, steps: Steps, kept: K) -> NodeStream<K> {
        NodeStream {
            send: Some(send),
            waiting: None,
            read,
            unread: Bytes::new(),
            over: false,
            steps,
            _kept: kept,
        }
    }

    /// Waits until what was given has room.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(waiting) = &mut self.waiting {
            let back = ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
            self.send = back;
        }
        match self.send {
            Some(_) => Poll::Ready(Ok(())),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn give(&mut self, kind: Kind) {
        if let Some(send) = self.send.take() {
            self.waiting = Some(Box::pin(async move {
                let sent = send.send(Frame { kind: Some(kind) }).await;
                sent.is_ok().then_some(send)
            }));
        }
    }
}

impl Stream for OutgoingFrames {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        self.0.poll_recv(cx)
    }
}

impl<K: Unpin> AsyncRead for NodeStream<K> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.unread.is_empty() && !self.over {
            match ready!(Pin::new(&mut self.read).poll_next(cx)) {
                Some(Ok(frame)) => match frame.kind {
                    Some(Kind::Ssh(bytes)) => self.unread = bytes,
                    Some(Kind::SshEnd(_)) => self.over = true,
                    Some(Kind::Denied(denied)) => return Poll::Ready(Err(io::Error::other(denied.words))),
                    Some(Kind::Spans(mut spans)) => self.steps.tell(&mut spans),
                    _ => {}
                },
                Some(Err(status)) => return Poll::Ready(Err(broken(&status))),
                None => self.over = true,
            }
        }
        let length = self.unread.len().min(into.remaining());
        into.put_slice(&self.unread[..length]);
        self.unread.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<K: Unpin> AsyncWrite for NodeStream<K> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(cx))?;
        let length = from.len().min(PART);
        self.give(Kind::Ssh(Bytes::copy_from_slice(&from[..length])));
        // Begun at once: the task is woken when there is room.
        if let Poll::Ready(Err(error)) = self.poll_room(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(length))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waiting.is_some() {
            return self.poll_room(cx);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.send.is_none() && self.waiting.is_none() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_room(cx))?;
        // The stream's end is the end of what is sent: nothing but SSH bytes goes this way.
        self.send = None;
        Poll::Ready(Ok(()))
    }
}

fn broken(status: &Status) -> io::Error {
    io::Error::other(fleetgate_net::h2::words(status))
}
