//! A byte stream whose first bytes were read already: they are read again before what follows.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection of which the first bytes were read.
pub(crate) struct PrefixedStream<IO> {
    pub(crate) first: Vec<u8>,
    pub(crate) taken: usize,
    /// Bytes of the version line that the client already has: whoever speaks SSH here writes them again, and they are
    /// dropped.
    pub(crate) sent: usize,
    pub(crate) io: IO,
}

impl<IO: AsyncRead + Unpin> AsyncRead for PrefixedStream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let begun = &mut *self;
        if begun.taken < begun.first.len() {
            let more = &begun.first[begun.taken..];
            let length = more.len().min(into.remaining());
            into.put_slice(&more[..length]);
            begun.taken += length;
            if begun.taken == begun.first.len() {
                begun.first = Vec::new();
                begun.taken = 0;
            }
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_read(cx, into)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for PrefixedStream<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        if self.sent > 0 {
            let length = from.len().min(self.sent);
            self.sent -= length;
            return Poll::Ready(Ok(length));
        }
        Pin::new(&mut self.io).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.sent > 0 {
            let part = from.iter().find(|part| !part.is_empty());
            return self.poll_write(cx, part.map_or(&[], |part| part));
        }
        Pin::new(&mut self.io).poll_write_vectored(cx, from)
    }
}
