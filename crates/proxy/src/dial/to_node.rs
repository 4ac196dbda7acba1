//! What a node reads of a session: the dial, then the client's frames.

use super::client::FromClient;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::{Dial, Frame};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};
use tonic::codegen::tokio_stream::Stream;

/// The stream of them.
pub(super) struct FramesToNode {
    first: Option<Frame>,
    from_client: Option<FromClient>,
    received: Arc<AtomicU64>,
    /// Ends it at once when it is dropped, or so much later as it says; nothing of the client goes on meanwhile.
    end: oneshot::Receiver<Duration>,
    later: Option<Pin<Box<Sleep>>>,
    /// Takes the client's frames back where the node took none of them, until it has answered.
    back: Option<oneshot::Sender<GivenBack>>,
    /// What went to the node meanwhile, and how many bytes that is: another node can be given it too.
    kept: VecDeque<Frame>,
    kept_bytes: u64,
    /// What went to another node, which did not take it.
    again: VecDeque<Frame>,
}

/// What a client said and no node took: frames that are read, and those to come.
pub(super) struct GivenBack {
    pub(super) read: VecDeque<Frame>,
    pub(super) from_client: FromClient,
}

impl From<FromClient> for GivenBack {
    fn from(from_client: FromClient) -> GivenBack {
        GivenBack {
            read: VecDeque::new(),
            from_client,
        }
    }
}

/// So many bytes are kept for another node at most. Before a node's first answer a client has little to say: its version and
/// its share of a key exchange.
const MAX_BYTES_FOR_ANOTHER_NODE: u64 = 64 * 1024;

impl FramesToNode {
    /// With what ends it, and what brings the client's frames back where the node took none.
    #[allow(clippy::type_complexity)]
    pub(super) fn new(
        dial: Dial,
        GivenBack { read, from_client }: GivenBack,
        received: Arc<AtomicU64>,
    ) -> (
        FramesToNode,
        oneshot::Sender<Duration>,
        oneshot::Receiver<GivenBack>,
    ) {
        let (end, ended) = oneshot::channel();
        let (back, brought) = oneshot::channel();
        let to_node = FramesToNode {
            first: Some(Frame {
                kind: Some(Kind::Dial(dial)),
            }),
            from_client: Some(from_client),
            received,
            end: ended,
            later: None,
            back: Some(back),
            kept: VecDeque::new(),
            kept_bytes: 0,
            again: read,
        };
        (to_node, end, brought)
    }
}

impl Drop for FramesToNode {
    fn drop(&mut self) {
        if let (Some(from_client), Some(back)) = (self.from_client.take(), self.back.take()) {
            let mut read = std::mem::take(&mut self.kept);
            read.append(&mut self.again);
            // Mostly nobody waits for it.
            let _ = back.send(GivenBack { read, from_client });
        }
    }
}

impl FramesToNode {
    /// Keeps a frame that goes to the node, as long as another one may be given it.
    fn keep(&mut self, frame: &Frame) {
        self.kept_bytes += ssh_length(frame);
        // Nobody waits for them any more, since the node has answered; or they are too many.
        if self.back.as_ref().is_some_and(oneshot::Sender::is_closed)
            || self.kept_bytes > MAX_BYTES_FOR_ANOTHER_NODE
        {
            self.back = None;
        }
        match self.back {
            Some(_) => self.kept.push_back(frame.clone()),
            None => self.kept = VecDeque::new(),
        }
    }
}

impl Stream for FramesToNode {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        if let Some(frame) = self.again.pop_front() {
            self.keep(&frame);
            return Poll::Ready(Some(frame));
        }
        // The other direction is over, so this one is: whoever sent on would find nobody.
        if self.from_client.is_some()
            && let Poll::Ready(after) = Pin::new(&mut self.end).poll(cx)
        {
            self.from_client = None;
            self.later = after.ok().map(|after| Box::pin(sleep(after)));
        }
        loop {
            let Some(from_client) = &self.from_client else {
                if let Some(later) = &mut self.later {
                    ready!(later.as_mut().poll(cx));
                    self.later = None;
                }
                return Poll::Ready(None);
            };
            match from_client.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => {
                    match &frame.kind {
                        // A kind that this proxy does not know, a second dial, or what only the other side says.
                        None | Some(Kind::Dial(_) | Kind::Opened(_) | Kind::Denied(_)) => {}
                        Some(_) => {
                            self.received.fetch_add(ssh_length(&frame), Relaxed);
                            self.keep(&frame);
                            return Poll::Ready(Some(frame));
                        }
                    }
                }
                Poll::Ready(None | Some(Err(_))) => self.from_client = None,
            }
        }
    }
}

/// How many bytes of SSH a frame carries.
pub(super) fn ssh_length(frame: &Frame) -> u64 {
    match &frame.kind {
        Some(Kind::Ssh(bytes)) => bytes.len() as u64,
        _ => 0,
    }
}
