//! The handshake of either side, and what is around it: the version line of SSH that a client may find before it, and the
//! moment that a peer which is refused has to read why.

use super::Stream;
use super::step::{Next, Side, Wish};
use rustls::client::{ClientConfig, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::server::{ServerConfig, UnbufferedServerConnection};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// How long a client that is refused may take to read why, and what it may still send meanwhile.
pub const LINGER: Duration = Duration::from_secs(1);
/// See [`LINGER`].
pub const LINGER_BYTES: usize = 256 * 1024;

/// The longest line that a client skips before the handshake (RFC 4253 §4.2).
pub const GREETING_MAX: usize = 255;

impl<IO: AsyncRead + AsyncWrite + Unpin> Stream<IO> {
    /// The handshake with a client.
    pub(in crate::tls) async fn accept(io: IO, config: Arc<ServerConfig>) -> io::Result<Stream<IO>> {
        let connection = UnbufferedServerConnection::new(config).map_err(io::Error::other)?;
        let mut stream = Stream::new(io, Side::Server(Box::new(connection)));
        match poll_fn(|cx| stream.poll_shake(cx)).await {
            Ok(()) => Ok(stream),
            Err(error) => {
                stream.linger().await;
                Err(error)
            }
        }
    }

    /// The handshake with a server.
    pub(in crate::tls) async fn connect(
        io: IO,
        config: Arc<ClientConfig>,
        server: ServerName<'static>,
    ) -> io::Result<Stream<IO>> {
        let connection = UnbufferedClientConnection::new(config, server).map_err(io::Error::other)?;
        let mut stream = Stream::new(io, Side::Client(Box::new(connection)));
        poll_fn(|cx| stream.poll_hello(cx)).await?;
        poll_fn(|cx| stream.poll_shake(cx)).await?;
        Ok(stream)
    }

    /// A connection that is closed while the peer still sends is reset, and a peer that hears of a reset first never reads
    /// why it was refused: so it has a moment to read that, and to close.
    async fn linger(&mut self) {
        let listen = async {
            let _ = self.io.shutdown().await;
            // Not in this future, which a tunnel's task has room for as long as it lives.
            let mut room = vec![0; 4096];
            let mut left = LINGER_BYTES;
            while let Ok(more @ 1..) = self.io.read(&mut room).await {
                left = left.saturating_sub(more);
                if left == 0 {
                    break;
                }
            }
        };
        let _ = timeout(LINGER, listen).await;
    }

    /// Sends a client's hello, and skips the version line of SSH where the server sent one. A proxy, whose one port takes both
    /// protocols, sends it to clients whose hello is late.
    fn poll_hello(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.coming.filled().is_empty() {
            while matches!(self.step(Wish::Nothing, 0, &mut |_| {})?, Next::Again) {}
        }
        loop {
            let come = self.coming.filled();
            match come.iter().take(GREETING_MAX).position(|byte| *byte == b'\n') {
                _ if come.first().is_some_and(|byte| *byte != b'S') => return Poll::Ready(Ok(())),
                Some(end) => {
                    self.coming.discard(end + 1);
                    return Poll::Ready(Ok(()));
                }
                // It is no such line: TLS says what is wrong with it.
                None if come.len() >= GREETING_MAX => return Poll::Ready(Ok(())),
                None => {}
            }
            ready!(self.leaving.poll_send(&mut self.io, cx))?;
            if ready!(self.coming.poll_more(&mut self.io, cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    fn poll_shake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let next = self.step(Wish::Nothing, 0, &mut |_| {});
            let next = next.map_err(|error| self.last_words(cx, error))?;
            if !self.side.common().is_handshaking() {
                // The peer may wait for these last words before this side has anything else to say. The next one to read
                // may be another task, whose turn comes later.
                self.coming.rest();
                return self.leaving.poll_send(&mut self.io, cx);
            }
            match next {
                Next::Again | Next::Done => {}
                Next::Over => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Next::Blocked => {
                    ready!(self.leaving.poll_send(&mut self.io, cx))?;
                    if ready!(self.coming.poll_more(&mut self.io, cx))? == 0 {
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                }
            }
        }
    }
}
