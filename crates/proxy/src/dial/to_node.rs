//! What a node reads of a session: the dial, then the client's frames.

use super::client::FromClient;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::{Dial, Frame};
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
pub(super) struct ToNode {
    first: Option<Frame>,
    from_client: Option<FromClient>,
    received: Arc<AtomicU64>,
    /// Ends it at once when it is dropped, or so much later as it says; nothing of the client goes on meanwhile.
    end: oneshot::Receiver<Duration>,
    later: Option<Pin<Box<Sleep>>>,
    /// Takes the client's frames back where the node took none of them.
    back: Option<oneshot::Sender<FromClient>>,
}

impl ToNode {
    /// With what ends it, and what brings the client's frames back where the node took none.
    #[allow(clippy::type_complexity)]
    pub(super) fn new(
        dial: Dial,
        from_client: FromClient,
        received: Arc<AtomicU64>,
    ) -> (ToNode, oneshot::Sender<Duration>, oneshot::Receiver<FromClient>) {
        let (end, ended) = oneshot::channel();
        let (back, brought) = oneshot::channel();
        let to_node = ToNode {
            first: Some(Frame {
                kind: Some(Kind::Dial(dial)),
            }),
            from_client: Some(from_client),
            received,
            end: ended,
            later: None,
            back: Some(back),
        };
        (to_node, end, brought)
    }
}

impl Drop for ToNode {
    fn drop(&mut self) {
        if let (Some(from_client), Some(back)) = (self.from_client.take(), self.back.take()) {
            // Mostly nobody waits for it.
            let _ = back.send(from_client);
        }
    }
}

impl Stream for ToNode {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
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
                    // From here on the node has what no other could be given.
                    self.back = None;
                    match &frame.kind {
                        // A kind that this proxy does not know, a second dial, or what only the other side says.
                        None | Some(Kind::Dial(_) | Kind::Opened(_) | Kind::Denied(_)) => {}
                        Some(_) => {
                            self.received.fetch_add(ssh_length(&frame), Relaxed);
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
