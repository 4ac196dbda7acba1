//! hyper's view of a tokio connection, a runtime and a clock; and what it writes in one turn, sent at the turn's end.

use hyper::rt::{self, ReadBufCursor};
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A tokio connection.
pub(crate) struct Io<T>(pub(crate) T);

/// A connection that hyper has, and whoever drives it too. hyper flushes behind every frame; here that means nothing, and
/// [`Driven`] sends at the end of a turn all that was written in it.
pub(super) struct Shared<T>(Arc<Mutex<Wire<T>>>);

struct Wire<T> {
    io: T,
    /// Sending failed at the end of a turn: the next one that looks hears of it.
    broken: Option<io::Error>,
}

/// A connection's future, with what it writes.
pub(super) struct Driven<C, T> {
    connection: C,
    wire: Shared<T>,
}

/// tokio's runtime.
#[derive(Clone, Copy)]
pub(crate) struct Spawn;

/// The same for the side that asks, whose connection hyper drives by a task of its own.
pub(super) struct SpawnDriven<T>(pub(super) Shared<T>);

/// tokio's clock.
#[derive(Clone, Copy)]
pub(crate) struct Clock;

struct Sleep(Pin<Box<tokio::time::Sleep>>);

/// As much as is read at once. One for each thread: connections that wait have none.
const READ: usize = 32 * 1024;

thread_local! {
    static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

impl<T: AsyncRead + Unpin> rt::Read for Io<T> {
    /// By way of the thread's buffer, since hyper's can only be filled in place by unsafe code.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        ROOM.with_borrow_mut(|room| {
            let length = room.len().min(into.remaining());
            let mut buffer = ReadBuf::new(&mut room[..length]);
            let read = Pin::new(&mut self.0).poll_read(cx, &mut buffer);
            into.put_slice(buffer.filled());
            read
        })
    }
}

impl<T: AsyncWrite + Unpin> rt::Write for Io<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, from)
    }
}

impl<T> Shared<T> {
    pub(super) fn new(io: T) -> Shared<T> {
        Shared(Arc::new(Mutex::new(Wire { io, broken: None })))
    }

    /// The same wire.
    pub(super) fn same(&self) -> Shared<T> {
        Shared(self.0.clone())
    }

    /// With the connection that was made of the same wire.
    pub(super) fn drive<C>(self, connection: C) -> Driven<C, T> {
        Driven {
            connection,
            wire: self,
        }
    }

    /// One task has both ends, so nobody waits for it.
    fn wire(&self) -> MutexGuard<'_, Wire<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C, T> Driven<C, T> {
    pub(super) fn connection(&mut self) -> &mut C {
        &mut self.connection
    }
}

impl<C: Future + Unpin, T: AsyncWrite + Unpin> Future for Driven<C, T> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let end = Pin::new(&mut self.connection).poll(cx);
        let mut wire = self.wire.wire();
        if let Poll::Ready(Err(error)) = Pin::new(&mut wire.io).poll_flush(cx) {
            wire.broken = Some(error);
            cx.waker().wake_by_ref();
        }
        end
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Shared<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut wire = self.wire();
        match wire.broken.take() {
            Some(error) => Poll::Ready(Err(error)),
            None => Pin::new(&mut wire.io).poll_read(cx, into),
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Shared<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire().io).poll_write(cx, from)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire().io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire().io.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire().io).poll_write_vectored(cx, from)
    }
}

impl<F> rt::Executor<F> for Spawn
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        tokio::spawn(future);
    }
}

impl<F, T> rt::Executor<F> for SpawnDriven<T>
where
    F: Future<Output = ()> + Send + 'static,
    T: AsyncWrite + Unpin + Send + 'static,
{
    fn execute(&self, future: F) {
        tokio::spawn(self.0.same().drive(Box::pin(future)));
    }
}

impl<T> Clone for SpawnDriven<T> {
    fn clone(&self) -> SpawnDriven<T> {
        SpawnDriven(self.0.same())
    }
}

impl rt::Timer for Clock {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Sleep(Box::pin(tokio::time::sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Sleep(Box::pin(tokio::time::sleep_until(deadline.into()))))
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(mut sleep) => sleep.0.as_mut().reset(deadline.into()),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl rt::Sleep for Sleep {}
