//! One address for everything: what a connection is, its first byte says, and nothing is waited for beyond what settles
//! it. TLS for the auth service is passed on unread. Whoever has not shown who he is has little time and few places.

use crate::client_hello::{self, HELLO_MAX, ServerName};
use crate::prefixed::PrefixedStream;
use crate::shared::{Local, Shared, UserConnection};
use crate::ssh::authenticator;
use crate::state::now;
use crate::strangers::{GAVE_WAY, StrangerSlot};
use crate::{auth_relay, dial, tunnel_control, web};
use fleetgate_net::h2::{self, Caller, Routes, Tuning};
use fleetgate_net::http1;
use fleetgate_net::tls::{self, AUTH, Kind, Peer, TUNNEL};
use fleetgate_policy::cluster::{Identity, Target};
use fleetgate_policy::strangers::Offence;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// How long a connection has until it is known what it is.
pub const FIRST_BYTES: Duration = Duration::from_secs(10);
/// After this silence the proxy sends its SSH version line: `ssh-keyscan` and others wait for it before they send anything.
pub const SILENCE: Duration = Duration::from_millis(300);
/// How long gRPC without a certificate may go on: there is little that it could ask for.
pub const STRANGER_LIFE: Duration = Duration::from_secs(30);
/// After an accept that failed, as when there are no descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// What an open connection whose user was locked still has to read why. Within it a node's monitor that drains has the state
/// too, by way of the one that took its place, and ends what the user runs.
const LOCKED_WORDS: Duration = Duration::from_secs(1);

/// Everything that the connections of one address share.
pub(crate) struct Mux {
    shared: Arc<Shared>,
    routes: Arc<Routes>,
}

impl Mux {
    /// With this shared state.
    pub(crate) fn new(shared: Arc<Shared>) -> Mux {
        let routes = Routes::new().with(dial::service(shared.clone())).page(web::page);
        Mux {
            shared,
            routes: Arc::new(routes),
        }
    }

    /// Accepts until it is told to close the listener, or nobody could tell it any more.
    pub(crate) async fn run(self: Arc<Mux>, listener: TcpListener, mut close: oneshot::Receiver<()>) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = &mut close => return,
            };
            match accepted {
                Ok((stream, address)) => match self.shared.strangers.enter(address.ip()) {
                    Ok(place) => {
                        // A socket of both families has addresses of version 4 as ::ffff:192.0.2.1: one spelling is told.
                        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
                        let mux = self.clone();
                        tokio::spawn(async move { mux.settle(stream, address, place).await });
                    }
                    Err(why) => tracing::debug!(%address, "turned away: {why}"),
                },
                Err(error) => {
                    tracing::warn!("no connection can be accepted: {error}");
                    sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    /// Finds out what a connection is.
    async fn settle(self: Arc<Mux>, stream: TcpStream, address: SocketAddr, place: StrangerSlot) {
        // From here on: a proxy that drains waits for those too of whom it does not know yet what they want.
        let guest = self.shared.count_user();
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let begun = tokio::select! {
            begun = timeout(FIRST_BYTES, begin(stream)) => begun,
            () = place.given_up() => return tracing::debug!(%address, "{}", GAVE_WAY),
        };
        match begun {
            Ok(Ok(What::Ssh(connection))) => {
                // An error says that the proxy stops.
                let _ = self
                    .shared
                    .local
                    .send(Local::Ssh(connection, address, place, guest));
            }
            Ok(Ok(What::Auth(mut connection))) => {
                connection.sent = 0;
                tokio::select! {
                    () = auth_relay::pass_on(&self.shared, connection, address) => {}
                    () = place.given_up() => tracing::debug!(%address, "{}", GAVE_WAY),
                }
            }
            Ok(Ok(What::Tls(mut connection))) => {
                connection.sent = 0;
                // A task of its own for each step: one that waits has no room of the steps before it.
                tokio::spawn(async move { self.terminate(connection, address, place, guest).await });
            }
            Ok(Ok(What::Garbage)) => {
                self.shared.strangers.offend(address.ip(), Offence::Garbage);
                tracing::debug!(%address, "neither TLS nor SSH");
            }
            Ok(Err(error)) => tracing::debug!(%address, "gone before it was known what it is: {error}"),
            Err(_) => {
                self.shared.strangers.offend(address.ip(), Offence::TooLate);
                tracing::debug!(%address, "silent for too long");
            }
        }
    }

    async fn terminate(
        self: Arc<Mux>,
        connection: PrefixedStream<TcpStream>,
        address: SocketAddr,
        place: StrangerSlot,
        guest: UserConnection,
    ) {
        let tls = self.shared.tls.borrow().clone();
        let strangers = &self.shared.strangers;
        let accepted = tokio::select! {
            accepted = tls.accept(connection) => accepted,
            () = place.given_up() => return tracing::debug!(%address, "{}", GAVE_WAY),
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(why) => {
                match why.kind() {
                    Kind::Deadline => strangers.offend(address.ip(), Offence::TooLate),
                    Kind::Broken => strangers.offend(address.ip(), Offence::Garbage),
                    Kind::Authority | Kind::Usage | Kind::Certificate => {
                        strangers.offend(address.ip(), Offence::WrongKey);
                    }
                    _ => {}
                }
                return match strangers.has_line(address.ip(), "tls_refused", false) {
                    true => tracing::info!(%address, "refused: {why}"),
                    false => tracing::debug!(%address, "refused: {why}"),
                };
            }
        };
        let certified = match &peer.identity {
            Some(identity) => match self.shared.certified(identity) {
                Ok(held) => {
                    // A locked one is served as far as it learns why, and its source pays as before.
                    if self.shared.locked(identity).is_none() {
                        strangers.proven(address.ip());
                    }
                    Some(held)
                }
                Err(why) => {
                    return match strangers.has_line(address.ip(), "connection_refused", true) {
                        true => tracing::info!(%address, "refused: {why}"),
                        false => tracing::debug!(%address, "refused: {why}"),
                    };
                }
            },
            None => None,
        };
        match peer.alpn.as_deref() {
            Some(TUNNEL) => {
                if certified.is_some() {
                    drop(place);
                }
                drop(guest);
                tunnel_control::serve(self.shared.clone(), stream, peer, address, certified).await;
            }
            Some(tls::H2) => {
                _ = tokio::spawn(async move {
                    let _certified = certified;
                    self.grpc(stream, peer, address, place, guest).await;
                });
            }
            _ => tokio::select! {
                () = http1::serve(stream, web::page) => {}
                () = place.given_up() => tracing::debug!(%address, "{}", GAVE_WAY),
            },
        }
    }

    /// A user's connection. It ends when the user is locked, or the certificate is over.
    async fn grpc(
        &self,
        stream: tls::Stream<PrefixedStream<TcpStream>>,
        peer: Peer,
        address: SocketAddr,
        place: StrangerSlot,
        _guest: UserConnection,
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
        let gives_way = stranger.as_ref().map(StrangerSlot::given_up);
        let gives_way = async {
            match gives_way {
                Some(gives_way) => gives_way.await,
                None => std::future::pending().await,
            }
        };
        let serving = h2::serve(
            stream,
            caller,
            self.routes.clone(),
            Tuning::USER,
            self.shared.left(),
        );
        let ended = async {
            match &identity {
                Some(identity) => self.until_locked(identity, expires).await,
                None => tokio::select! {
                    () = sleep(STRANGER_LIFE) => {}
                    () = gives_way => {}
                },
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
    async fn until_locked(&self, identity: &Identity, expires: Option<u64>) {
        let Some(user) = identity.user() else {
            return sleep(STRANGER_LIFE).await;
        };
        let target = Target::User(user.clone());
        let holds = || {
            let view = self.shared.view.borrow();
            view.state.locks.on(&target, now(), identity.serial).is_some()
        };
        let left = expires.map_or(0, |expires| expires.saturating_sub(now()) + crate::state::SKEW);
        let locked = async {
            let mut view = self.shared.view.subscribe();
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
    Ssh(PrefixedStream<IO>),
    Auth(PrefixedStream<IO>),
    Tls(PrefixedStream<IO>),
    Garbage,
}

/// Reads until it is settled. A client that is silent for [`SILENCE`] gets the version line of SSH. One that then turns out
/// to speak TLS is served as TLS: its hello was late, and our own clients skip the line.
async fn begin<IO: AsyncRead + AsyncWrite + Unpin>(mut io: IO) -> io::Result<What<IO>> {
    let mut first = Vec::with_capacity(2048);
    let mut room = Vec::new();
    let mut sent = 0;
    loop {
        let read = match first.is_empty() && sent == 0 {
            false => io.read_buf(&mut first).await?,
            // A read that is given up has taken nothing.
            true => match timeout(SILENCE, io.read_buf(&mut first)).await {
                Ok(read) => read?,
                Err(_) => {
                    let line = authenticator::version_line();
                    io.write_all(line.as_bytes()).await?;
                    sent = line.len();
                    continue;
                }
            },
        };
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // A handshake record (RFC 8446 §5.1), "SSH-" (RFC 4253 §4.2).
        let what = match first[0] {
            22 => match client_hello::name(&first, &mut room) {
                ServerName::More if first.len() < HELLO_MAX => continue,
                ServerName::Name(AUTH) => What::Auth,
                _ => What::Tls,
            },
            b'S' => What::Ssh,
            _ => return Ok(What::Garbage),
        };
        return Ok(what(PrefixedStream {
            first,
            taken: 0,
            sent,
            io,
        }));
    }
}
