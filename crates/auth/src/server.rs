//! Where the service is reached: TLS on an address, for the name `auth.fleetgate`, and a unix socket for this machine's
//! administrators. It answers nothing itself.

use crate::audit::DEFAULT_SIZE;
use crate::authorities::SKEW;
use crate::backup::STATE_FILE;
use crate::clock::{Clock, MachineClock};
use crate::error::{Refused, Result};
use crate::face::{self, Face};
use crate::init::open_audit;
use crate::issue::{self, MEMBER_LIFETIME};
use crate::limits::{Handshakes, Places, Source};
use crate::service::Service;
use fleetgate_net::h2::{self, Caller, Routes, Tuning, Wire};
use fleetgate_net::tls::{self, AUTH, H2, RELAY, Shown};
use fleetgate_net::{Credentials, Trust, relay};
use fleetgate_store::Store;
use fleetgate_store::sqlite::Sqlite;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

/// The unix socket's name below the directory.
pub const SOCKET: &str = "auth.sock";
/// The most connections by TLS at once.
pub const MAX_CONNECTIONS: usize = 4096;
/// The most connections by the unix socket at once.
pub const MAX_LOCAL: usize = 64;
/// The most of them from one source (IPv6: one /64) without a certificate.
pub const STRANGERS_OF_ONE: usize = 64;
/// The most TLS handshakes of one source at once. One more ends the oldest, so that a proxy on auth's own machine, whose
/// handshake takes a moment, is not shut out by a user there who begins many and finishes none.
pub const HANDSHAKES_OF_ONE: usize = 64;
/// How long a connection without a certificate may last: long enough to type a password.
const STRANGER_LIFE: Duration = Duration::from_secs(600);
/// How long connections may take to end when the service stops.
const LEAVING: Duration = Duration::from_secs(5);
/// How long a connection goes on whose certificate proves nothing any more, for what is on its way to the caller.
const LAST_WORDS: Duration = Duration::from_millis(250);
/// How often it is looked whether the last answer has ended.
const CLOSING: Duration = Duration::from_millis(5);
/// How long the service waits when it cannot accept a connection: for want of descriptors, for the most part.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How long it waits for the store of an auth service that is just ending.
const PREDECESSOR: Duration = Duration::from_secs(3);

/// How the service runs.
#[derive(Clone)]
pub struct Config {
    /// Where the state is: what `init` made.
    pub directory: PathBuf,
    /// Where TLS is served.
    pub listen: SocketAddr,
    /// How large the audit log may be.
    pub audit_size: u64,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Config {
    /// The usual one: 127.0.0.1:3025.
    pub fn new(directory: &Path) -> Config {
        Config {
            directory: directory.to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 3025)),
            audit_size: DEFAULT_SIZE,
            clock: Arc::new(MachineClock),
        }
    }
}

/// The service on its addresses; answering as long as [`Server::run`] does.
pub struct Server {
    service: Arc<Service>,
    config: Config,
    tcp: TcpListener,
    unix: UnixListener,
    shown: watch::Receiver<tls::Server>,
    /// What must run for as long as the service does.
    beside: JoinSet<&'static str>,
}

/// The store, which an auth service that is just ending may still have for a moment.
async fn open_store(directory: &Path) -> std::result::Result<Sqlite, fleetgate_store::Error> {
    let begun = std::time::Instant::now();
    loop {
        match Sqlite::open(directory) {
            Err(fleetgate_store::Error::Locked(_)) if begun.elapsed() < PREDECESSOR => {
                tokio::time::sleep(PREDECESSOR / 60).await;
            }
            opened => return opened,
        }
    }
}

impl Server {
    /// Opens the state, and listens for this machine's administrators. What asks now is answered when it runs.
    pub async fn open(config: Config, listener: std::net::TcpListener) -> Result<Server> {
        // Opening makes one, which would look like a state that lost its cluster.
        if !config.directory.join(STATE_FILE).exists() {
            return Err(Refused::unavailable(format!(
                "there is no state in {}: `fleetgate init` makes a cluster, `fleetgate restore BACKUP` brings one back",
                config.directory.display()
            )));
        }
        // Memory for passwords is large and given back: from the heap it would leave holes that never go.
        fleetgate_sys::heap::keep_large_apart();
        let store: Arc<dyn Store> = Arc::new(open_store(&config.directory).await?);
        let audit = open_audit(&config.directory, config.audit_size, config.clock.clone())?;
        let (service, beside) = Service::open(store, audit, config.clock.clone()).await?;
        let mut beside = beside.start();
        let shown = Showing::new(service.clone()).await?;
        let (tell, served) = watch::channel(shown.server()?);
        beside.spawn(async move {
            shown.run(tell).await;
            "renews the service's own certificate"
        });
        let listens = |what: &dyn std::fmt::Display, e: std::io::Error| {
            Refused::unavailable(format!(
                "{what} cannot be listened on: {e}; is another auth service running?"
            ))
        };
        let tcp = listener
            .set_nonblocking(true)
            .and_then(|()| TcpListener::from_std(listener))
            .map_err(|e| listens(&config.listen, e))?;
        let path = config.directory.join(SOCKET);
        let unix = local(&path).map_err(|e| listens(&path.display(), e))?;
        Ok(Server {
            service,
            config,
            tcp,
            unix,
            shown: served,
            beside,
        })
    }

    /// Where TLS is served.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// The service itself.
    #[cfg(test)]
    pub(crate) fn service(&self) -> Arc<Service> {
        self.service.clone()
    }

    /// Lets a test have something run beside the service.
    #[cfg(test)]
    pub(crate) fn beside(&mut self) -> &mut JoinSet<&'static str> {
        &mut self.beside
    }

    /// The hash of the cluster's TLS authority, by which it is known.
    pub fn pin(&self) -> Result<fleetgate_net::Pin> {
        self.service.pin()
    }

    /// Answers until `leave`; then what is under way is ended. An error: something without which no change is done has ended.
    /// Whoever started the service starts it again.
    pub async fn run(mut self, leave: impl Future<Output = ()>) -> Result<()> {
        let (stop, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        let (room, local_room) = (
            Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            Arc::new(Semaphore::new(MAX_LOCAL)),
        );
        let remote = Arc::new(Remote {
            service: self.service.clone(),
            routes: Arc::new(Face::routes(self.service.clone(), None)),
            handshakes: Handshakes::new(HANDSHAKES_OF_ONE),
            places: Places::new(STRANGERS_OF_ONE),
        });
        tokio::pin!(leave);
        let done = loop {
            tokio::select! {
                () = &mut leave => break Ok(()),
                Some(ended) = self.beside.join_next() => break Err(match ended {
                    Ok(task) => Refused::unavailable(format!("what {task} has ended: the service has to be started again")),
                    Err(e) => Refused::unavailable(format!("what runs beside the service has ended: {e}")),
                }),
                accepted = self.tcp.accept() => match (accepted, room.clone().try_acquire_owned()) {
                    (Ok((stream, peer)), Ok(permit)) => {
                        let (remote, stopped) = (remote.clone(), stopped.clone());
                        let shown = self.shown.borrow().clone();
                        connections.spawn(async move {
                            let done = remote.serve(stream, peer, shown, stopped).await;
                            drop(permit);
                            if let Err(why) = done {
                                tracing::debug!("the connection from {peer}: {why}");
                            }
                        });
                    }
                    // There is no room: the connection is closed, and whoever it was tries again.
                    (Ok(_), Err(_)) => tracing::warn!("more than {MAX_CONNECTIONS} connections: one is refused"),
                    (Err(e), _) => refused_by_the_machine(&e).await,
                },
                accepted = self.unix.accept() => match (accepted, local_room.clone().try_acquire_owned()) {
                    (Ok((stream, _)), Ok(permit)) => {
                        let (service, stopped) = (self.service.clone(), stopped.clone());
                        connections.spawn(administered(stream, service, stopped, permit));
                    }
                    (Ok(_), Err(_)) => tracing::warn!("more than {MAX_LOCAL} local connections: one is refused"),
                    (Err(e), _) => refused_by_the_machine(&e).await,
                },
                Some(_) = connections.join_next() => {}
            }
        };
        let _ = stop.send(true);
        self.service.stopping.send_replace(true);
        let _ = tokio::time::timeout(LEAVING, async {
            while connections.join_next().await.is_some() {}
        })
        .await;
        connections.shutdown().await;
        if let Err(refused) = self.service.tell_sums(true).await {
            tracing::error!("sums of refusals are not in the audit log: {refused}");
        }
        let _ = std::fs::remove_file(self.config.directory.join(SOCKET));
        self.beside.shutdown().await;
        drop((self.tcp, self.unix, self.shown, remote));
        // Answers that were under way end when their connections have; then the store is closed.
        let closed = async {
            while Arc::strong_count(&self.service) > 1 {
                tokio::time::sleep(CLOSING).await;
            }
        };
        let _ = tokio::time::timeout(LEAVING, closed).await;
        done
    }
}

/// What connections by TLS have in common.
struct Remote {
    service: Arc<Service>,
    routes: Arc<Routes>,
    handshakes: Handshakes,
    places: Arc<Places>,
}

impl Remote {
    /// One connection: a caller's, or a proxy's that passes a caller's on.
    async fn serve(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        server: tls::Server,
        stopped: watch::Receiver<bool>,
    ) -> std::result::Result<(), String> {
        let _ = stream.set_nodelay(true);
        let (mut stream, shown) = self
            .handshakes
            .run(Source::of(peer.ip()), server.accept(stream))
            .await?;
        if shown.alpn.as_deref() != Some(RELAY) {
            return self.answer(stream, shown, peer, stopped).await;
        }
        let known = h2::Caller {
            peer: Some(Arc::new(shown)),
            address: Some(peer),
        };
        let proxy = face::caller(None, &known);
        proxy
            .proxy(&self.service)
            .map_err(|refused| refused.to_string())?;
        let passed_on = async {
            let source = relay::read(&mut stream).await.map_err(|e| e.to_string())?;
            let accepted = self
                .handshakes
                .run(Source::of(source.ip()), server.accept(stream));
            let (stream, shown) = accepted.await?;
            match shown.alpn.as_deref() == Some(RELAY) {
                true => Err("a proxy passes on no other proxy".to_owned()),
                false => self.answer(stream, shown, source, stopped).await,
            }
        };
        tokio::select! {
            done = passed_on => done,
            refused = proxy.until_refused(&self.service) => Err(format!("its proxy is refused: {refused}")),
        }
    }

    /// Answers what is asked on a connection from this address, after its handshake.
    async fn answer<IO: Wire + 'static>(
        &self,
        stream: IO,
        peer: tls::Peer,
        source: SocketAddr,
        stopped: watch::Receiver<bool>,
    ) -> std::result::Result<(), String> {
        let known = peer.identity.is_some();
        let place = match known {
            true => None,
            false => {
                let place = self.places.take(Source::of(source.ip()));
                Some(place.ok_or("too many connections of one source without a certificate")?)
            }
        };
        let caller = Caller {
            peer: Some(Arc::new(peer)),
            address: Some(source),
        };
        let leave = async {
            tokio::select! {
                () = stop(stopped) => {}
                () = tokio::time::sleep(STRANGER_LIFE), if !known => {}
            }
        };
        let tuning = match known {
            true => Tuning::AUTH_MEMBER,
            false => Tuning::AUTH,
        };
        let proven = face::caller(None, &caller);
        // Requests are refused from that moment on. A state that says why is on its way to a proxy, which passes it on.
        let refused = async {
            let refused = proven.until_refused(&self.service).await;
            tokio::time::sleep(LAST_WORDS).await;
            refused
        };
        let done = tokio::select! {
            done = h2::serve(stream, caller, self.routes.clone(), tuning, leave) => done.map_err(|e| e.to_string()),
            refused = refused => Err(format!("it is ended: {refused}")),
        };
        drop(place);
        done
    }
}

/// One connection by the unix socket.
async fn administered(
    stream: UnixStream,
    service: Arc<Service>,
    stopped: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
) {
    let Ok(credentials) = stream.peer_cred() else {
        return;
    };
    let uid = credentials.uid();
    if uid != 0 && uid != fleetgate_sys::process::effective_uid() {
        tracing::warn!("user {uid} may not administer by the unix socket");
        return;
    }
    let caller = Caller {
        peer: None,
        address: None,
    };
    let routes = Arc::new(Face::routes(service, Some(uid)));
    if let Err(e) = h2::serve(stream, caller, routes, Tuning::AUTH, stop(stopped)).await {
        tracing::debug!("a connection by the unix socket: {e}");
    }
}

async fn stop(mut stopped: watch::Receiver<bool>) {
    // A sender that is gone has stopped too.
    let _ = stopped.wait_for(|stop| *stop).await;
}

async fn refused_by_the_machine(error: &std::io::Error) {
    tracing::error!("a connection cannot be accepted: {error}");
    tokio::time::sleep(ACCEPT_AGAIN).await;
}

/// The unix socket: in a directory of mode 0700, and of mode 0600 itself.
fn local(path: &Path) -> std::io::Result<UnixListener> {
    // The store's lock says that no other service runs here, so one that is there was left behind.
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// What the service shows by TLS, and whom it believes: made anew when an authority changes or its certificate grows old.
struct Showing {
    service: Arc<Service>,
    credentials: Credentials,
    trust: Vec<Vec<u8>>,
    made: u64,
}

impl Showing {
    async fn new(service: Arc<Service>) -> Result<Showing> {
        let trust = service.published().state.trust.tls_ca.clone();
        let (cluster, made) = (service.cluster(), service.now());
        let (key, chain) = issue::own(&service.signers, &cluster, made).await?;
        let credentials = Credentials::new(key, chain).map_err(|e| Refused::unavailable(e.to_string()))?;
        Ok(Showing {
            service,
            credentials,
            trust,
            made,
        })
    }

    fn server(&self) -> Result<tls::Server> {
        let wrong = |e: tls::Error| Refused::unavailable(e.to_string());
        let trust = Trust::new(&self.trust).map_err(wrong)?;
        let shown = Shown::new().name(AUTH, &self.credentials);
        tls::Server::new(shown, Some(&trust), &[H2, RELAY]).map_err(wrong)
    }

    async fn run(mut self, tell: watch::Sender<tls::Server>) {
        let mut published = self.service.published.clone();
        loop {
            if published.changed().await.is_err() {
                return;
            }
            let now = self.service.now();
            // One that was made by a clock that has been set back since is not valid yet for anybody.
            let old = now >= self.made + MEMBER_LIFETIME / 2 || now + SKEW < self.made;
            let other = published.borrow_and_update().state.trust.tls_ca != self.trust;
            if !old && !other {
                continue;
            }
            let made = async {
                let showing = Showing::new(self.service.clone()).await?;
                let server = showing.server()?;
                Ok::<_, Refused>((showing, server))
            };
            match made.await {
                Ok((showing, server)) => {
                    self = showing;
                    tell.send_replace(server);
                }
                Err(refused) => tracing::error!("the service's own certificate: {refused}"),
            }
        }
    }
}
