//! What HTTP/2 is spoken over, and when it is sent. h2 and hyper flush behind every frame; here that means nothing, and what
//! was written in a turn of the connection's is sent at the turn's end, in one call.

use crate::tls;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;

/// As much as is read at once. One for each thread: connections that wait have none.
const READ: usize = 32 * 1024;

thread_local! {
    static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

/// What HTTP/2 is spoken over.
pub trait Wire: AsyncRead + AsyncWrite + Unpin {
    /// Gives at most `room` bytes, where they lie, and says how many; 0: there are no more.
    fn poll_give(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
        give: &mut dyn FnMut(&[u8]),
    ) -> Poll<io::Result<usize>>
    where
        Self: Sized,
    {
        poll_room(self, cx, room, give)
    }
}

/// Reads by way of the thread's buffer, since hyper's can only be filled in place by unsafe code.
fn poll_room<T: AsyncRead + Unpin>(
    io: &mut T,
    cx: &mut Context<'_>,
    most: usize,
    give: &mut dyn FnMut(&[u8]),
) -> Poll<io::Result<usize>> {
    ROOM.with_borrow_mut(|room| {
        let length = room.len().min(most);
        let mut buffer = ReadBuf::new(&mut room[..length]);
        ready!(Pin::new(io).poll_read(cx, &mut buffer))?;
        give(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    })
}

impl Wire for TcpStream {}
impl Wire for UnixStream {}
impl Wire for DuplexStream {}

impl<IO: AsyncRead + AsyncWrite + Unpin> Wire for tls::Stream<IO> {
    fn poll_give(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
        give: &mut dyn FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        tls::Stream::poll_give(self, cx, room, give)
    }
}

/// A wire that a connection has, and whoever drives it too.
pub(super) struct SharedWire<T>(Arc<Mutex<End<T>>>);

struct End<T> {
    wire: T,
    /// Sending failed at the end of a turn: the next one that looks hears of it.
    broken: Option<io::Error>,
    /// When something came last.
    heard: Instant,
}

/// A connection's future, with what it writes.
pub(super) struct Driven<C, T> {
    connection: C,
    wire: SharedWire<T>,
}

impl<T> SharedWire<T> {
    pub(super) fn new(wire: T) -> SharedWire<T> {
        SharedWire(Arc::new(Mutex::new(End {
            wire,
            broken: None,
            heard: Instant::now(),
        })))
    }

    /// The same wire.
    pub(super) fn same(&self) -> SharedWire<T> {
        SharedWire(self.0.clone())
    }

    /// With the connection that was made of the same wire.
    pub(super) fn drive<C>(self, connection: C) -> Driven<C, T> {
        Driven {
            connection,
            wire: self,
        }
    }

    /// When something came last.
    pub(super) fn heard(&self) -> Instant {
        self.end().heard
    }

    /// One task has both ends, so nobody waits for it.
    fn end(&self) -> MutexGuard<'_, End<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C, T> Driven<C, T> {
    pub(super) fn connection(&mut self) -> &mut C {
        &mut self.connection
    }
}

impl<T: AsyncWrite + Unpin> SharedWire<T> {
    /// Sends what was written in this turn.
    pub(super) fn send(&self, cx: &mut Context<'_>) {
        let mut end = self.end();
        if let Poll::Ready(Err(error)) = Pin::new(&mut end.wire).poll_flush(cx) {
            end.broken = Some(error);
            cx.waker().wake_by_ref();
        }
    }
}

impl<C: Future + Unpin, T: AsyncWrite + Unpin> Future for Driven<C, T> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let ended = Pin::new(&mut self.connection).poll(cx);
        self.wire.send(cx);
        ended
    }
}

impl<T: Wire> Wire for SharedWire<T> {
    fn poll_give(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
        give: &mut dyn FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        let mut end = self.end();
        if let Some(error) = end.broken.take() {
            return Poll::Ready(Err(error));
        }
        let given = ready!(end.wire.poll_give(cx, room, give))?;
        end.heard = Instant::now();
        Poll::Ready(Ok(given))
    }
}

impl<T: Wire> AsyncRead for SharedWire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_give(cx, into.remaining(), &mut |bytes| into.put_slice(bytes))
            .map_ok(drop)
    }
}

impl<T: Wire> AsyncWrite for SharedWire<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.end().wire).poll_write(cx, from)
    }

    /// Nothing: [`SharedWire::send`] flushes, at a turn's end.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.end().wire).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.end().wire.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.end().wire).poll_write_vectored(cx, from)
    }
}
