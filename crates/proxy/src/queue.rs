//! What is to be sent on one stream, in order: a small queue that its stream empties. It has no room set aside, so ten
//! thousand of them that wait cost next to nothing.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use tonic::codegen::tokio_stream::Stream;

/// Puts in.
pub(crate) struct Queue<T>(Arc<Mutex<Inner<T>>>);

/// Takes out. It ends when the other end is gone and all was taken.
pub(crate) struct Outgoing<T>(Arc<Mutex<Inner<T>>>);

struct Inner<T> {
    waiting: VecDeque<T>,
    waker: Option<Waker>,
    over: bool,
}

/// Both ends.
pub(crate) fn queue<T>() -> (Queue<T>, Outgoing<T>) {
    let inner = Arc::new(Mutex::new(Inner {
        waiting: VecDeque::new(),
        waker: None,
        over: false,
    }));
    (Queue(inner.clone()), Outgoing(inner))
}

impl<T> Queue<T> {
    /// One more. How many wait now: its owner has a bound.
    pub(crate) fn push(&self, item: T) -> usize {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.waiting.push_back(item);
        if let Some(waker) = inner.waker.take() {
            waker.wake();
        }
        inner.waiting.len()
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.over = true;
        if let Some(waker) = inner.waker.take() {
            waker.wake();
        }
    }
}

impl<T> Stream for Outgoing<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.waiting.pop_front() {
            Some(item) => {
                if inner.waiting.is_empty() {
                    inner.waiting.shrink_to_fit();
                }
                Poll::Ready(Some(item))
            }
            None if inner.over => Poll::Ready(None),
            None => {
                inner.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
