//! A connection under TLS as a byte stream. rustls has the protocol and no buffer: it is lent [`Room`]s, and a connection
//! that waits has none. rustls' own are read into 4 KB at a time and sent with each frame: a mebibyte through a proxy was 109
//! reads, 66 sends and 15 waits, and is 11 reads, 18 sends and 4 waits, those of windows among them.
//!
//! What is written is sent by a flush, when a room is full, or when a read has to wait. The parts: `handshake`, before this;
//! `step`, what rustls is asked for; `records`, what came and what leaves.
//!
//! [`Room`]: crate::tls::room::Room

mod handshake;
mod records;
mod step;

pub use handshake::{LINGER, LINGER_BYTES};

use records::{Inbox, Outbox};
use rustls::{CommonState, HandshakeKind};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use step::{Next, Reader, Side, Wish};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection under TLS, of either side.
pub struct Stream<IO> {
    io: IO,
    side: Side,
    coming: Inbox,
    /// Plaintext that no reader has had yet, from `read` on.
    plain: Vec<u8>,
    read: usize,
    leaving: Outbox,
    /// The peer sends no more.
    over: bool,
    /// This side sends no more.
    closed: bool,
    /// A writer is to be woken when more can be sent; a wire wakes only whoever asked last.
    writer_waits: bool,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Stream<IO> {
    fn new(io: IO, side: Side) -> Stream<IO> {
        Stream {
            io,
            side,
            coming: Inbox::default(),
            plain: Vec::new(),
            read: 0,
            leaving: Outbox::default(),
            over: false,
            closed: false,
            writer_waits: false,
        }
    }
    fn step(&mut self, wish: Wish<'_>, room: usize, give: &mut dyn FnMut(&[u8])) -> io::Result<Next> {
        let mut reader = Reader {
            room,
            give,
            kept: &mut self.plain,
        };
        let (coming, leaving) = (&mut self.coming, &mut self.leaving);
        let next = self.side.step(coming, leaving, &mut reader, wish);
        if next.is_err() {
            // rustls would look at the same bytes again, and ends the process before it says a second alert: the first is
            // all that it is asked for from here on. Whoever reads meets the end, whoever writes a broken pipe.
            self.over = true;
            self.closed = true;
            while self.side.common().wants_write()
                && self
                    .side
                    .step(coming, leaving, &mut reader, Wish::Nothing)
                    .is_ok()
            {}
        }
        next
    }

    /// The peer is told by an alert what is wrong, as far as that goes without waiting.
    fn last_words(&mut self, cx: &mut Context<'_>, error: io::Error) -> io::Error {
        let _ = self.leaving.poll_send(&mut self.io, cx);
        error
    }

    /// Gives at most `room` bytes of plaintext, in pieces, and says how many; 0: there are no more.
    pub(crate) fn poll_give(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
        give: &mut dyn FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        if self.read < self.plain.len() {
            let length = room.min(self.plain.len() - self.read);
            give(&self.plain[self.read..self.read + length]);
            self.read += length;
            return Poll::Ready(Ok(length));
        }
        self.plain.clear();
        self.read = 0;
        let mut given = 0;
        loop {
            if self.over {
                return Poll::Ready(Ok(given));
            }
            let left = room - given;
            let mut counted = |plain: &[u8]| {
                given += plain.len();
                give(plain);
            };
            let next = match self.coming.seen {
                false => self.step(Wish::Nothing, left, &mut counted),
                true => Ok(Next::Blocked),
            };
            match next.map_err(|error| self.last_words(cx, error))? {
                // What came for nobody is kept, and there is a reader for no more.
                Next::Again | Next::Done if given == room => return Poll::Ready(Ok(given)),
                Next::Again | Next::Done => {}
                Next::Over => self.over = true,
                Next::Blocked if given > 0 => {
                    self.coming.seen = true;
                    if self.coming.filled().is_empty() {
                        self.coming.rest();
                    }
                    return Poll::Ready(Ok(given));
                }
                Next::Blocked => match self.coming.poll_more(&mut self.io, cx) {
                    Poll::Ready(Ok(0)) => {
                        self.over = true;
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        self.plain = Vec::new();
                        // Whoever waits for an answer wants the question to be sent.
                        if !self.writer_waits
                            && let Poll::Ready(Err(error)) = self.leaving.poll_send(&mut self.io, cx)
                        {
                            return Poll::Ready(Err(error));
                        }
                        return Poll::Pending;
                    }
                },
            }
        }
    }

    /// Sends all that is written, for a writer.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = self.leaving.poll_send(&mut self.io, cx);
        self.writer_waits = sent.is_pending();
        sent
    }

    /// Encrypts some of it into the room for what leaves.
    fn poll_take(&mut self, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        if self.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.leaving.room() == 0 {
            ready!(self.poll_send(cx))?;
        }
        let length = from.len().min(self.leaving.room());
        loop {
            let next = self.step(Wish::Encrypt(&from[..length]), 0, &mut |_| {});
            match next.map_err(|error| self.last_words(cx, error))? {
                Next::Again => {}
                Next::Over => self.over = true,
                Next::Done => return Poll::Ready(Ok(length)),
                Next::Blocked => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
    }
}

impl<IO> Stream<IO> {
    /// What both sides know of the connection.
    pub(super) fn common(&self) -> &CommonState {
        self.side.common()
    }

    /// Whether the handshake took a retry.
    #[must_use]
    pub fn handshake_kind(&self) -> Option<HandshakeKind> {
        self.side.common().handshake_kind()
    }
}

/// Keys and plaintext are nobody's to read.
impl<IO> std::fmt::Debug for Stream<IO> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = into.remaining();
        if room == 0 {
            return Poll::Ready(Ok(()));
        }
        let given = ready!(self.poll_give(cx, room, &mut |plain| into.put_slice(plain)));
        Poll::Ready(given.map(drop))
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        match from.is_empty() {
            true => Poll::Ready(Ok(0)),
            false => self.poll_take(cx, from),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut taken = 0;
        for part in from.iter().filter(|part| !part.is_empty()) {
            match self.poll_take(cx, part) {
                Poll::Ready(Ok(length)) => {
                    taken += length;
                    if length < part.len() {
                        break;
                    }
                }
                other if taken == 0 => return other,
                // It comes again with the next write.
                _ => break,
            }
        }
        Poll::Ready(Ok(taken))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = &mut *self;
        ready!(stream.poll_send(cx))?;
        Pin::new(&mut stream.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = &mut *self;
        if !std::mem::replace(&mut stream.closed, true) {
            loop {
                match stream.step(Wish::Close, 0, &mut |_| {}) {
                    Ok(Next::Again) => {}
                    Ok(Next::Over) if !stream.over => stream.over = true,
                    _ => break,
                }
            }
        }
        ready!(stream.poll_send(cx))?;
        match ready!(Pin::new(&mut stream.io).poll_shutdown(cx)) {
            // The peer was faster.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            done => Poll::Ready(done),
        }
    }
}
