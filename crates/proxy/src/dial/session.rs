//! An open session towards its client. HTTP/2 asks for frames only while the client takes some, so what ends a session by
//! itself, and what it holds, belong to a task that waits for no client.

use super::last;
use super::plain::PlainLeg;
use super::to_node::ssh_length;
use crate::denial::{Why, denied, refused};
use crate::open_dials::DialRecord;
use crate::quota::Slot;
use crate::steps::Steps;
use crate::streams::NodeFrames;
use fleetgate_net::h2;
use fleetgate_policy::cluster::{Name, Refusal};
use fleetgate_proto::v1::Frame;
use fleetgate_proto::v1::frame::Kind;
use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tonic::Status;
use tonic::codegen::tokio_stream::Stream;

/// How long a node has to hear why a session of its may not go on, before this proxy ends it. The client is told at once, and
/// nothing that it sends reaches the node from then on.
const NODE_HEARS_WITHIN: Duration = Duration::from_millis(500);
/// How long a client has to take the rest of a session that ended at the proxy, before its place is free.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);

/// What the node sends, and what ends it.
pub(super) struct Session {
    held: SharedParts,
    /// When the decision no longer holds; None: that is not to be known any more.
    refused: Option<oneshot::Receiver<Refusal>>,
    steps: Steps,
    watching: AbortHandle,
}

/// A node with fleetgate sends frames; from a plain sshd come bytes.
pub(super) enum FramesFromNode {
    Tunnel(NodeFrames),
    Plain(PlainLeg),
}

/// What a session holds until it ends, whether its client reads or not.
#[derive(Clone)]
struct SharedParts(Arc<Mutex<Parts>>);

struct Parts {
    /// None: it was refused.
    from_node: Option<FramesFromNode>,
    /// The other direction ends with this one; the node waits for that before it ends the stream.
    end: Option<oneshot::Sender<Duration>>,
    /// The node's side is over: the client has all of the session.
    is_whole: bool,
    account: Option<Account>,
}

/// What others see of it: its place, and its end in the audit log.
struct Account {
    told: DialRecord,
    _place: Slot<Name>,
}

impl Session {
    /// Of what a node sends. `left`: why the SSH that ended at this proxy did.
    pub(super) fn begin(
        from_node: FramesFromNode,
        end: oneshot::Sender<Duration>,
        steps: Steps,
        told: DialRecord,
        place: Slot<Name>,
        refusal: impl Future<Output = Refusal> + Send + 'static,
        left: Option<oneshot::Receiver<String>>,
    ) -> Session {
        let held = SharedParts(Arc::new(Mutex::new(Parts {
            from_node: Some(from_node),
            end: Some(end),
            is_whole: false,
            account: Some(Account { told, _place: place }),
        })));
        let (tell, refused) = oneshot::channel();
        let watching = tokio::spawn(watch(held.clone(), refusal, left, tell));
        Session {
            held,
            refused: Some(refused),
            steps,
            watching: watching.abort_handle(),
        }
    }

    /// The next frame, if there is one, and whether nothing comes behind it.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<(Option<Frame>, bool)> {
        if let Some(waiting) = &mut self.refused
            && let Poll::Ready(told) = Pin::new(waiting).poll(cx)
        {
            self.refused = None;
            if let Ok(refusal) = told {
                let is_whole = self.held.parts().is_whole;
                return Poll::Ready(((!is_whole).then(|| last(refused(&refusal))), true));
            }
        }
        let held = self.held.clone();
        let mut parts = held.parts();
        loop {
            let Some(from_node) = &mut parts.from_node else {
                // The refusal is on its way.
                return Poll::Pending;
            };
            return Poll::Ready(match ready!(from_node.poll_next(cx)) {
                Some(Ok(frame)) => {
                    if let Some(account) = &mut parts.account {
                        account.told.sent(ssh_length(&frame));
                    }
                    if let Some(Kind::SshEnd(true)) = frame.kind {
                        (parts.end, parts.is_whole) = (None, true);
                        parts.ends("the node ended it");
                    }
                    match self.steps.pass(frame) {
                        Some(frame) => (Some(frame), false),
                        None => continue,
                    }
                }
                None => {
                    parts.ends("the node ended it");
                    (None, true)
                }
                Some(Err(_)) if parts.is_whole => (None, true),
                Some(Err(status)) => {
                    parts.ends("the node is gone");
                    let words = format!("the connection to the node broke: {}", h2::words(&status));
                    (Some(last(denied(Why::Offline, &words))), true)
                }
            });
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.watching.abort();
        // The task may end later.
        self.held.parts().release();
    }
}

/// Ends what may not go on. It waits for no client.
async fn watch(
    held: SharedParts,
    refusal: impl Future<Output = Refusal>,
    left: Option<oneshot::Receiver<String>>,
    tell: oneshot::Sender<Refusal>,
) {
    let left = async {
        match left {
            Some(left) => left.await.unwrap_or_default(),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        refusal = refusal => {
            let mut parts = held.parts();
            if !parts.is_whole {
                parts.ends(refusal.words.clone());
            }
            parts.refuse();
            drop(parts);
            // The client hears of it when it reads.
            let _ = tell.send(refusal);
        }
        why = left => {
            // What is on its way the client may still take, and takes nobody's place meanwhile.
            sleep(TAKEN_WITHIN).await;
            let mut parts = held.parts();
            if !parts.is_whole {
                parts.ends(why);
            }
            parts.account = None;
        }
    }
}

impl SharedParts {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parts {
    /// Why it ends, for the audit log.
    fn ends(&mut self, why: impl Into<Cow<'static, str>>) {
        if let Some(account) = &mut self.account {
            account.told.reason = why.into();
        }
    }

    /// Gives back all of it. A node gets the same state by this proxy's tunnel, and is to end the session itself, with its
    /// reason in its audit log: it would take the end of the stream for its client's.
    fn refuse(&mut self) {
        if let (Some(FramesFromNode::Tunnel(_)), Some(end)) = (&self.from_node, self.end.take()) {
            let _ = end.send(NODE_HEARS_WITHIN);
        }
        self.release();
    }

    /// Gives back all of it.
    fn release(&mut self) {
        self.end = None;
        (self.from_node, self.account) = (None, None);
    }
}

impl FramesFromNode {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Status>>> {
        match self {
            FramesFromNode::Tunnel(frames) => Pin::new(frames).poll_next(cx),
            FramesFromNode::Plain(leg) => leg.poll_next(cx).map(|frame| frame.map(Ok)),
        }
    }
}
