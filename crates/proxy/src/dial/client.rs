//! What a client sends. It is read on when the session is over, until the client has ended its side: a stream that the proxy
//! ended before would be reset, and what is still on the way for it would count as the client's error (h2's
//! `USER_ERROR_RESETS`). It looks at no frame.

use fleetgate_proto::v1::Frame;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Status, Streaming};

/// How long a client has to end its side of a session that is over.
const LINGER: Duration = Duration::from_secs(2);

/// The client's frames. One reader at a time: the session, then whoever waits for the client's end.
#[derive(Clone)]
pub(super) struct FromClient(Arc<Mutex<Streaming<Frame>>>);

/// Reads them on when it is dropped.
pub(super) struct ClientSide(FromClient);

impl FromClient {
    pub(super) fn new(frames: Streaming<Frame>) -> FromClient {
        FromClient(Arc::new(Mutex::new(frames)))
    }

    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Status>>> {
        let mut frames = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Pin::new(&mut *frames).poll_next(cx)
    }

    /// The next one.
    pub(super) async fn next(&self) -> Option<Result<Frame, Status>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// For when the session is over.
    pub(super) fn side(&self) -> ClientSide {
        ClientSide(self.clone())
    }
}

impl Drop for ClientSide {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let frames = self.0.clone();
        runtime.spawn(timeout(LINGER, async move {
            while let Some(Ok(_)) = frames.next().await {}
        }));
    }
}
