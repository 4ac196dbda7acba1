//! One address for everything: what a connection is, its first byte says, and nothing is waited for beyond what settles
//! it. TLS for the auth service is passed on unread. Whoever has not shown who he is has little time and few places.

use crate::gate::Gate;
use crate::hello::{self, Asked, HELLO_MAX};
use crate::jump::Local;
use crate::places::{Place, Places, source};
use crate::state::now;
use crate::{dial, tunnels, web};
use fleetgate_net::h2::{self, Caller, Routes, Tuning};
use fleetgate_net::tls::{self, AUTH, Peer, TUNNEL};
use fleetgate_net::{dial as tcp, http1, relay};
use fleetgate_policy::cluster::{Identity, Target};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// How long a connection has until it is known what it is.
pub const FIRST_BYTES: Duration = Duration::from_secs(10);
/// Connections of people who have not shown who they are, in sum and of one source (IPv6: one /64).
pub const STRANGERS: usize = 4_096;
/// See [`STRANGERS`].
pub const STRANGERS_OF_ONE: usize = 256;
/// How long gRPC without a certificate may go on: there is little that it could ask for.
pub const STRANGER_LIFE: Duration = Duration::from_secs(30);
/// What is on its way to auth in either direction.
const SPLICE: usize = 16 * 1024;
/// After an accept that failed, as when there are no descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// What an open connection whose user was locked still has to read why.
const LOCKED_WORDS: Duration = Duration::from_millis(500);

/// A connection of which the first bytes were read.
pub(crate) struct Begun<IO> {
    first: Vec<u8>,
    taken: usize,
    io: IO,
}

/// Everything that the connections of one address share.
pub(crate) struct Mux {
    gate: Arc<Gate>,
    routes: Arc<Routes>,
    strangers: Places<IpAddr>,
}

impl Mux {
    /// For this gate.
    pub(crate) fn new(gate: Arc<Gate>) -> Mux {
        let routes = Routes::new().with(dial::service(gate.clone())).page(web::page);
        Mux {
            gate,
            routes: Arc::new(routes),
            strangers: Places::new(STRANGERS, STRANGERS_OF_ONE),
        }
    }

    /// Accepts until the proxy stops.
    pub(crate) async fn run(self: Arc<Mux>, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.gate.left() => return,
            };
            match accepted {
                Ok((stream, address)) => match self.strangers.take(&source(address.ip())) {
                    Some(place) => {
                        let mux = self.clone();
                        tokio::spawn(async move { mux.settle(stream, address, place).await });
                    }
                    None => tracing::debug!(%address, "turned away: too many strangers"),
                },
                Err(error) => {
                    tracing::warn!("no connection can be accepted: {error}");
                    sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    /// Finds out what a connection is.
    async fn settle(self: Arc<Mux>, stream: TcpStream, address: SocketAddr, place: Place<IpAddr>) {
        if stream.set_nodelay(true).is_err() {
            return;
        }
        match timeout(FIRST_BYTES, begin(stream)).await {
            Ok(Ok(What::Ssh(connection))) => {
                // An error says that the proxy stops.
                let _ = self.gate.local.send(Local::Ssh(connection, address, place));
            }
            Ok(Ok(What::Auth(connection))) => self.pass_on(connection, address).await,
            Ok(Ok(What::Tls(connection))) => {
                // A task of its own for each step: one that waits has no room of the steps before it.
                tokio::spawn(async move { self.terminate(connection, address, place).await });
            }
            Ok(Ok(What::Garbage)) => tracing::debug!(%address, "neither TLS nor SSH"),
            Ok(Err(error)) => tracing::debug!(%address, "gone before it was known what it is: {error}"),
            Err(_) => tracing::debug!(%address, "silent for too long"),
        }
    }

    /// Bytes to auth and back; whichever side has no more says so, and the other goes on.
    async fn pass_on(&self, mut connection: Begun<TcpStream>, address: SocketAddr) {
        let mut auth = match tcp::connect(&self.gate.config.auth, tcp::DEADLINE).await {
            Ok(auth) => auth,
            Err(why) => return tracing::warn!(%address, "auth is not reached: {why}"),
        };
        // Auth counts by source, and the TLS is not looked into.
        if let Err(error) = auth.write_all(relay::line(address).as_bytes()).await {
            return tracing::warn!(%address, "auth is gone: {error}");
        }
        tokio::select! {
            ended = copy_bidirectional_with_sizes(&mut connection, &mut auth, SPLICE, SPLICE) => match ended {
                Ok((to, from)) => tracing::debug!(%address, "passed on to auth: {to} bytes there, {from} back"),
                Err(error) => tracing::debug!(%address, "passed on to auth, and broke: {error}"),
            },
            () = self.gate.left() => {}
        }
    }

    async fn terminate(
        self: Arc<Mux>,
        connection: Begun<TcpStream>,
        address: SocketAddr,
        place: Place<IpAddr>,
    ) {
        let tls = self.gate.tls.borrow().clone();
        let (stream, peer) = match tls.accept(connection).await {
            Ok(accepted) => accepted,
            Err(why) => return tracing::info!(%address, "refused: {why}"),
        };
        match peer.alpn.as_deref() {
            Some(TUNNEL) => {
                if peer.identity.is_some() {
                    drop(place);
                }
                tunnels::serve(self.gate.clone(), stream, peer, address).await;
            }
            Some(tls::H2) => _ = tokio::spawn(async move { self.grpc(stream, peer, address, place).await }),
            _ => http1::serve(stream, web::page).await,
        }
    }

    /// A user's connection. It ends when the user is locked, or the certificate is over.
    async fn grpc(
        &self,
        stream: tls::Stream<Begun<TcpStream>>,
        peer: Peer,
        address: SocketAddr,
        place: Place<IpAddr>,
    ) {
        let identity = peer.identity.clone();
        let expires = peer
            .certificate
            .as_ref()
            .map(|certificate| certificate.validity().end);
        let caller = Caller {
            peer: Some(Arc::new(peer)),
            address: Some(address),
        };
        let stranger = identity.is_none().then_some(place);
        let serving = h2::serve(
            stream,
            caller,
            self.routes.clone(),
            Tuning::USER,
            self.gate.left(),
        );
        let ended = async {
            match &identity {
                Some(identity) => self.locked(identity, expires).await,
                None => sleep(STRANGER_LIFE).await,
            }
        };
        tokio::select! {
            end = serving => match end {
                Ok(()) => tracing::debug!(%address, "the connection has ended"),
                Err(error) => tracing::debug!(%address, "the connection broke: {error}"),
            },
            () = ended => tracing::info!(%address, "the connection is ended: its user is locked, over or unknown"),
        }
        drop(stranger);
    }

    /// Waits until this user is locked or the certificate is over; a moment more, so that open sessions hear why. A lock that
    /// was lifted by then has ended those, and nothing that was begun since.
    async fn locked(&self, identity: &Identity, expires: Option<u64>) {
        let Some(user) = identity.user() else {
            return sleep(STRANGER_LIFE).await;
        };
        let target = Target::User(user.clone());
        let holds = || {
            let view = self.gate.view.borrow();
            view.state.locks.on(&target, now(), identity.issued).is_some()
        };
        let left = expires.map_or(0, |expires| expires.saturating_sub(now()) + crate::state::SKEW);
        let locked = async {
            let mut view = self.gate.view.subscribe();
            loop {
                if holds() {
                    sleep(LOCKED_WORDS).await;
                    if holds() {
                        return;
                    }
                } else if view.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = locked => {}
            () = sleep(Duration::from_secs(left)) => sleep(LOCKED_WORDS).await,
        }
    }
}

/// What a connection is.
enum What<IO> {
    Ssh(Begun<IO>),
    Auth(Begun<IO>),
    Tls(Begun<IO>),
    Garbage,
}

/// Reads until it is settled.
async fn begin<IO: AsyncRead + Unpin>(mut io: IO) -> io::Result<What<IO>> {
    let mut first = Vec::with_capacity(2048);
    let mut room = Vec::new();
    loop {
        if io.read_buf(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // A handshake record (RFC 8446 §5.1), "SSH-" (RFC 4253 §4.2).
        let what = match first[0] {
            22 => match hello::name(&first, &mut room) {
                Asked::More if first.len() < HELLO_MAX => continue,
                Asked::Name(AUTH) => What::Auth,
                _ => What::Tls,
            },
            b'S' => What::Ssh,
            _ => return Ok(What::Garbage),
        };
        return Ok(what(Begun { first, taken: 0, io }));
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Begun<IO> {
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

impl<IO: AsyncWrite + Unpin> AsyncWrite for Begun<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
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
        Pin::new(&mut self.io).poll_write_vectored(cx, from)
    }
}
