//! One request: its body out, its answer's body in. A body that is there whole goes out at once; one that comes piece by
//! piece has a task of its own until it ends, or nobody wants it any more.

use super::error::CallError;
use bytes::{Buf, Bytes};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::task::AbortHandle;
use tonic::body::Body;

/// A request until its answer begins. Dropped before, it is taken back.
pub struct Call {
    send: SendRequest<Bytes>,
    stage: Stage,
}

enum Stage {
    /// The peer takes no more requests now.
    Waiting(Option<Box<Request<Body>>>),
    Asked(ResponseFuture, Option<AbortHandle>),
}

/// Sends a body as its reader takes it.
struct Pump {
    body: Body,
    stream: SendStream<Bytes>,
}

/// The body of an answer.
pub struct Answer {
    stream: RecvStream,
    /// All data came, the trailers did not.
    trailing: bool,
}

impl Call {
    pub(super) fn new(send: SendRequest<Bytes>, request: Request<Body>) -> Call {
        Call {
            send,
            stage: Stage::Waiting(Some(Box::new(request))),
        }
    }
}

impl Future for Call {
    type Output = Result<Response<Answer>, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match &mut this.stage {
                Stage::Waiting(request) => {
                    ready!(this.send.poll_ready(cx))?;
                    let Some(request) = request.take() else {
                        return Poll::Pending;
                    };
                    let (head, body) = request.into_parts();
                    let whole = body.is_end_stream();
                    let (answer, stream) = this.send.send_request(Request::from_parts(head, ()), whole)?;
                    let mut pump = Pump { body, stream };
                    let task = match whole || Pin::new(&mut pump).poll(cx).is_ready() {
                        true => None,
                        false => Some(tokio::spawn(pump).abort_handle()),
                    };
                    this.stage = Stage::Asked(answer, task);
                }
                Stage::Asked(answer, task) => {
                    let answer = ready!(Pin::new(answer).poll(cx));
                    // From now on the body goes out for as long as the peer takes it.
                    *task = None;
                    return Poll::Ready(Ok(answer?.map(|stream| Answer {
                        stream,
                        trailing: false,
                    })));
                }
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Stage::Asked(_, Some(task)) = &self.stage {
            task.abort();
        }
    }
}

impl Future for Pump {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Pump { body, stream } = &mut *self;
        loop {
            // Nothing is taken from the body before there is room for some of it.
            stream.reserve_capacity(1);
            if stream.capacity() == 0 {
                match ready!(stream.poll_capacity(cx)) {
                    Some(Ok(_)) => continue,
                    // The peer, or the connection, wants no more.
                    Some(Err(_)) | None => return Poll::Ready(()),
                }
            }
            if stream.poll_reset(cx).is_ready() {
                return Poll::Ready(());
            }
            let frame = match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(_)) => {
                    stream.send_reset(Reason::INTERNAL_ERROR);
                    return Poll::Ready(());
                }
                None => {
                    stream.reserve_capacity(0);
                    let _ = stream.send_data(Bytes::new(), true);
                    return Poll::Ready(());
                }
            };
            match frame.into_data() {
                Ok(mut data) => {
                    let last = body.is_end_stream();
                    let sent = stream.send_data(data.copy_to_bytes(data.remaining()), last);
                    if sent.is_err() || last {
                        return Poll::Ready(());
                    }
                }
                Err(frame) => {
                    stream.reserve_capacity(0);
                    let _ = stream.send_trailers(frame.into_trailers().unwrap_or_default());
                    return Poll::Ready(());
                }
            }
        }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = CallError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CallError>>> {
        if !self.trailing {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    // It is taken: the peer may send as much again.
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                // The peer is done with it, without trailers.
                Some(Err(error)) if matches!(error.reason(), Some(Reason::NO_ERROR | Reason::CANCEL)) => {
                    return Poll::Ready(None);
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => self.trailing = true,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(cx)).transpose();
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers).map_err(CallError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
