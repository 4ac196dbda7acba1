//! One end of an SSH connection on a byte stream: moves bytes between the two, and tells the core the time. It decides
//! nothing; who owns it asks the core for events after each move.
//!
//! System calls on a bulk path: one read and one write for each 64 KB and more, none to be told that there is nothing.

use fleetgate_ssh::Connection;
use fleetgate_ssh::driver::READ_AT_LEAST;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// A byte stream of any kind.
pub trait Bytes: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin + ?Sized> Bytes for T {}

/// The connection and its stream.
pub struct Endpoint<S> {
    /// The protocol.
    pub core: Connection,
    stream: S,
    unflushed: bool,
    begun: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S: Bytes> Endpoint<S> {
    /// A connection that begins on this stream.
    pub fn new(core: Connection, stream: S) -> Endpoint<S> {
        Endpoint {
            core,
            stream,
            unflushed: false,
            begun: Instant::now(),
            timer: None,
        }
    }

    /// Since when the core's clock runs.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Moves what can be moved. Ready when something was, or when the core wants the time; then it is to be asked for
    /// events. An error is the stream's end.
    pub fn poll_move(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wrote = self.poll_write(cx)?;
        let read = self.poll_read(cx)?;
        let due = self.poll_time(cx);
        match wrote || read || due {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// Sends what is left, as far as the peer reads within this time, and ends the stream.
    pub async fn last_words(&mut self, within: Duration) {
        let rest = std::future::poll_fn(|cx| {
            ready!(self.poll_rest(cx));
            Pin::new(&mut self.stream).poll_shutdown(cx).map(|_| ())
        });
        let _ = tokio::time::timeout(within, rest).await;
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.core.output().is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, self.core.output())) {
                Ok(n) if n > 0 => self.core.sent(n),
                _ => return Poll::Ready(()),
            }
        }
        Pin::new(&mut self.stream).poll_flush(cx).map(|_| ())
    }

    /// Sends what is left, and reads what nobody wants until the peer is done: one that is still writing would miss our last
    /// words, had the stream ended.
    pub async fn hear_out(&mut self, within: Duration) {
        let _ = tokio::time::timeout(within, std::future::poll_fn(|cx| self.poll_rest(cx))).await;
        let rest = std::future::poll_fn(|cx| {
            let mut room = [0; 1024];
            loop {
                let mut buffer = ReadBuf::new(&mut room);
                match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
                    Ok(()) if !buffer.filled().is_empty() => {}
                    _ => return Poll::Ready(()),
                }
            }
        });
        let _ = tokio::time::timeout(within, rest).await;
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut moved = false;
        while !self.core.output().is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, self.core.output()) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => {
                    self.core.sent(n);
                    self.unflushed = true;
                    moved = true;
                }
                Poll::Ready(Err(e)) => return Err(e),
                Poll::Pending => break,
            }
        }
        if self.unflushed && self.core.output().is_empty() {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Ready(done) => {
                    done?;
                    self.unflushed = false;
                }
                Poll::Pending => {}
            }
        }
        Ok(moved)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if !self.core.wants_input() {
            return Ok(false);
        }
        let room = self.core.room(READ_AT_LEAST);
        if room.is_empty() {
            return Ok(false);
        }
        let mut buffer = ReadBuf::new(room);
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        let n = buffer.filled().len();
        // Also where nothing came: a connection that holds no bytes then gives its buffer back.
        self.core.received(n);
        match read {
            Poll::Ready(Ok(())) if n == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Ready(Err(e)) => Err(e),
            Poll::Pending => Ok(false),
        }
    }

    fn poll_time(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.core.deadline() else {
            self.timer = None;
            return false;
        };
        let at = self.begun + deadline;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        if timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.timer = None;
        self.core.tick(self.begun.elapsed());
        true
    }
}
