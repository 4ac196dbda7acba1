//! A connection that ends when the peer has sent too much.

use fleetgate_net::h2::Wire;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

/// The stream, and how many bytes the peer may still send.
pub struct BoundedStream {
    stream: UnixStream,
    left: Arc<AtomicUsize>,
}

impl BoundedStream {
    /// At most `most` bytes are read. What is left of them is told by the counter that is handed back; 0: the peer sent more.
    pub fn new(stream: UnixStream, most: usize) -> (BoundedStream, Arc<AtomicUsize>) {
        let left = Arc::new(AtomicUsize::new(most));
        let bounded = BoundedStream {
            stream,
            left: left.clone(),
        };
        (bounded, left)
    }
}

impl Wire for BoundedStream {}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        let read = into.filled().len() - before;
        let left = self.left.load(Relaxed).saturating_sub(read);
        self.left.store(left, Relaxed);
        Poll::Ready(match left {
            0 => Err(io::Error::other("too much was sent")),
            _ => Ok(()),
        })
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
