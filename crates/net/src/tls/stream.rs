//! A connection under TLS as a byte stream. rustls has the protocol and no buffer: it is lent [`Room`]s, and a connection
//! that waits has none. rustls' own are read into 4 KB at a time and sent with each frame: a mebibyte through a proxy was 109
//! reads, 66 sends and 15 waits, and is 11 reads, 18 sends and 4 waits, those of windows among them.
//!
//! What is written is sent by a flush, when a room is full, or when a read has to wait.

use super::room::Room;
use rustls::client::{ClientConfig, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::server::{ServerConfig, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{CommonState, Error as TlsError, HandshakeKind};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

/// A record's plaintext, at most (RFC 8446 §5.1).
const RECORD: usize = 16 * 1024;
/// What a record has besides it: its header, its type, its tag (RFC 8446 §5.2, with AEADs of 16 bytes).
const BESIDE: usize = 5 + 1 + 16;
/// What of a room is left to alerts and key updates, which have to go out even where the peer reads nothing.
const RESERVE: usize = 2 * (RECORD + BESIDE);

/// How long a client that is refused may take to read why, and what it may still send meanwhile.
pub const LINGER: Duration = Duration::from_secs(1);
/// See [`LINGER`].
pub const LINGER_BYTES: usize = 256 * 1024;

/// The longest line that a client skips before the handshake (RFC 4253 §4.2).
pub const GREETING_MAX: usize = 255;

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

enum Side {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// What is wanted of rustls, besides looking at what has come.
enum Wish<'a> {
    Nothing,
    Encrypt(&'a [u8]),
    Close,
}

/// What came of it.
enum Next {
    /// There may be more in what has come.
    Again,
    /// More has to come first.
    Blocked,
    /// The wish is fulfilled.
    Done,
    /// The peer sends no more.
    Over,
}

/// A reader and the room that it has; what it has none for is kept.
struct Reader<'a> {
    room: usize,
    give: &'a mut dyn FnMut(&[u8]),
    kept: &'a mut Vec<u8>,
}

impl Reader<'_> {
    fn take(&mut self, plain: &[u8]) {
        let (now, later) = plain.split_at(self.room.min(plain.len()));
        if !now.is_empty() {
            (self.give)(now);
            self.room -= now.len();
        }
        self.kept.extend_from_slice(later);
    }
}

impl Side {
    fn common(&self) -> &CommonState {
        match self {
            Side::Client(connection) => connection,
            Side::Server(connection) => connection,
        }
    }

    /// One step: what has come is looked at first, always from where rustls left off. It must never be shown less than it
    /// was shown before: it remembers places in the part of a message that it waits for the rest of.
    fn step(
        &mut self,
        coming: &mut Inbox,
        leaving: &mut Outbox,
        reader: &mut Reader<'_>,
        wish: Wish<'_>,
    ) -> io::Result<Next> {
        let (gone, next) = match self {
            Side::Client(connection) => act(
                connection.process_tls_records(coming.filled()),
                leaving,
                reader,
                wish,
            ),
            Side::Server(connection) => act(
                connection.process_tls_records(coming.filled()),
                leaving,
                reader,
                wish,
            ),
        };
        coming.discard(gone);
        next.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// What rustls says of it, and how much of what had come it needs no more.
fn act<D>(
    status: UnbufferedStatus<'_, '_, D>,
    leaving: &mut Outbox,
    reader: &mut Reader<'_>,
    wish: Wish<'_>,
) -> (usize, Result<Next, TlsError>) {
    let mut gone = status.discard;
    let next = match status.state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    gone += record.discard;
                    reader.take(record.payload);
                }
                Some(Err(error)) => break Err(error),
                None => break Ok(Next::Again),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut message)) => match message.encode(leaving.all_room()) {
            Ok(length) => {
                leaving.put(length);
                Ok(Next::Again)
            }
            Err(EncodeError::AlreadyEncoded) => Ok(Next::Again),
            Err(EncodeError::InsufficientSize(_)) => Err(full()),
        },
        Ok(ConnectionState::TransmitTlsData(message)) => {
            // It is in line before everything that is encrypted from here on.
            message.done();
            Ok(Next::Again)
        }
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let sealed = match wish {
                Wish::Nothing => return (gone, Ok(Next::Blocked)),
                Wish::Encrypt(plain) => traffic.encrypt(plain, leaving.all_room()),
                Wish::Close => traffic.queue_close_notify(leaving.all_room()),
            };
            match sealed {
                Ok(length) => {
                    leaving.put(length);
                    Ok(Next::Done)
                }
                Err(EncryptError::InsufficientSize(_)) => Err(full()),
                Err(EncryptError::EncryptExhausted) => Err(TlsError::EncryptError),
            }
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Next::Blocked),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Next::Over),
        Ok(_) => Err(TlsError::General(
            "a state of TLS that was not asked for".to_owned(),
        )),
    };
    (gone, next)
}

fn full() -> TlsError {
    TlsError::General("the peer asks for answers and reads none".to_owned())
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Stream<IO> {
    /// The handshake with a client.
    pub(super) async fn accept(io: IO, config: Arc<ServerConfig>) -> io::Result<Stream<IO>> {
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
    pub(super) async fn connect(
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

/// Records that have come.
#[derive(Default)]
struct Inbox {
    room: Option<Room>,
    start: usize,
    end: usize,
    /// The part of a record that has come, while there is no room.
    part: Vec<u8>,
    /// rustls has seen all of it, and said all that it has to say of it.
    seen: bool,
}

impl Inbox {
    fn filled(&mut self) -> &mut [u8] {
        match &mut self.room {
            Some(room) => &mut room[self.start..self.end],
            None => &mut self.part,
        }
    }

    fn discard(&mut self, length: usize) {
        match self.room {
            Some(_) => self.start += length,
            None => drop(self.part.drain(..length)),
        }
    }

    /// Reads what there is. Whoever has to wait has no room meanwhile.
    fn poll_more<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let room = self.room.get_or_insert_with(|| {
            let mut room = Room::take();
            room[..self.part.len()].copy_from_slice(&self.part);
            (self.start, self.end) = (0, self.part.len());
            self.part = Vec::new();
            room
        });
        if self.start > 0 {
            room.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let mut into = ReadBuf::new(&mut room[self.end..]);
        if into.remaining() == 0 {
            let why = "a message of TLS is larger than any is";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        match Pin::new(io).poll_read(cx, &mut into) {
            Poll::Ready(Ok(())) => {
                let length = into.filled().len();
                self.end += length;
                self.seen = false;
                Poll::Ready(Ok(length))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.seen = true;
                self.rest();
                Poll::Pending
            }
        }
    }

    /// Gives the room back; the part of a record in it is kept apart.
    fn rest(&mut self) {
        if let Some(room) = self.room.take() {
            self.part = room[self.start..self.end].to_vec();
            (self.start, self.end) = (0, 0);
        }
    }
}

/// Records that have not been sent.
#[derive(Default)]
struct Outbox {
    room: Option<Room>,
    start: usize,
    end: usize,
}

impl Outbox {
    /// All the room that is left.
    fn all_room(&mut self) -> &mut [u8] {
        &mut self.room.get_or_insert_with(Room::take)[self.end..]
    }

    /// How much plaintext there is room for.
    fn room(&self) -> usize {
        let left = (super::room::ROOM - RESERVE).saturating_sub(self.end);
        let (whole, rest) = (left / (RECORD + BESIDE), left % (RECORD + BESIDE));
        whole * RECORD + rest.saturating_sub(BESIDE)
    }

    fn put(&mut self, length: usize) {
        self.end += length;
    }

    /// Sends all of it.
    fn poll_send<IO: AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(room) = &self.room else {
            return Poll::Ready(Ok(()));
        };
        while self.start < self.end {
            let sent = ready!(Pin::new(&mut *io).poll_write(cx, &room[self.start..self.end]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.start += sent;
        }
        *self = Outbox::default();
        Poll::Ready(Ok(()))
    }
}
