//! Where the service is reached: TLS on an address, for the name `auth.fleetgate`, and a unix socket for this machine's
//! administrators. It answers nothing itself.

use crate::audit::DEFAULT_SIZE;
use crate::clock::{Clock, MachineClock};
use crate::error::{Refused, Result};
use crate::face::Face;
use crate::init::open_audit;
use crate::issue::{self, MEMBER_LIFETIME};
use crate::limits::{Places, Source};
use crate::service::Service;
use fleetgate_net::h2::{self, Caller, Routes, Tuning};
use fleetgate_net::tls::{self, AUTH, H2, Shown};
use fleetgate_net::{Credentials, Trust, relay};
use fleetgate_store::Store;
use fleetgate_store::sqlite::Sqlite;
use std::net::{IpAddr, SocketAddr};
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
/// How long a connection without a certificate may last: long enough to type a password.
const STRANGER_LIFE: Duration = Duration::from_secs(600);
/// How long connections may take to end when the service stops.
const LEAVING: Duration = Duration::from_secs(5);
/// How often it is looked whether the last answer has ended.
const CLOSING: Duration = Duration::from_millis(5);
/// How long the service waits when it cannot accept a connection: for want of descriptors, for the most part.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// How the service runs.
#[derive(Clone)]
pub struct Config {
    /// Where the state is: what `init` made.
    pub directory: PathBuf,
    /// Where TLS is served.
    pub listen: SocketAddr,
    /// Proxies on other machines, that may tell from where a connection comes that they pass on. Those on this machine
    /// may.
    pub relays: Vec<IpAddr>,
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
            relays: Vec::new(),
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
    beside: JoinSet<()>,
}

impl Server {
    /// Opens the state and listens. What asks now is answered when it runs.
    pub async fn open(config: Config) -> Result<Server> {
        let store: Arc<dyn Store> = Arc::new(Sqlite::open(&config.directory)?);
        let audit = open_audit(&config.directory, config.audit_size, config.clock.clone())?;
        let (service, beside) = Service::open(store, audit, config.clock.clone()).await?;
        let mut beside = beside.start();
        let shown = Showing::new(service.clone()).await?;
        let (tell, served) = watch::channel(shown.server()?);
        beside.spawn(shown.run(tell));
        let listens = |what: &dyn std::fmt::Display, e: std::io::Error| {
            Refused::unavailable(format!(
                "{what} cannot be listened on: {e}; is another auth service running?"
            ))
        };
        let tcp = TcpListener::bind(config.listen)
            .await
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

    /// The hash of the cluster's TLS authority, by which it is known.
    pub fn pin(&self) -> Result<fleetgate_net::Pin> {
        self.service.pin()
    }

    /// Answers until `leave`; then what is under way is ended.
    pub async fn run(mut self, leave: impl Future<Output = ()>) -> Result<()> {
        let (stop, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        let routes = Arc::new(Face::routes(self.service.clone(), None));
        let (room, local_room) = (
            Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            Arc::new(Semaphore::new(MAX_LOCAL)),
        );
        let relays = Arc::new(self.config.relays.clone());
        let places = Places::new(STRANGERS_OF_ONE);
        tokio::pin!(leave);
        loop {
            tokio::select! {
                () = &mut leave => break,
                accepted = self.tcp.accept() => match (accepted, room.clone().try_acquire_owned()) {
                    (Ok((stream, peer)), Ok(permit)) => {
                        let (routes, stopped) = (routes.clone(), stopped.clone());
                        let (shown, relays) = (self.shown.borrow().clone(), relays.clone());
                        let places = places.clone();
                        connections.spawn(async move {
                            let done = remote(stream, peer, shown, &relays, &places, routes, stopped).await;
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
        }
        let _ = stop.send(true);
        let _ = tokio::time::timeout(LEAVING, async {
            while connections.join_next().await.is_some() {}
        })
        .await;
        connections.shutdown().await;
        let _ = std::fs::remove_file(self.config.directory.join(SOCKET));
        self.beside.shutdown().await;
        drop((self.tcp, self.unix, self.shown, routes));
        // Answers that were under way end when their connections have; then the store is closed.
        let closed = async {
            while Arc::strong_count(&self.service) > 1 {
                tokio::time::sleep(CLOSING).await;
            }
        };
        let _ = tokio::time::timeout(LEAVING, closed).await;
        Ok(())
    }
}

/// One connection by TLS.
async fn remote(
    mut stream: TcpStream,
    peer: SocketAddr,
    server: tls::Server,
    relays: &[IpAddr],
    places: &Arc<Places>,
    routes: Arc<Routes>,
    stopped: watch::Receiver<bool>,
) -> std::result::Result<(), String> {
    let _ = stream.set_nodelay(true);
    let mut source = peer;
    let address = peer.ip().to_canonical();
    let told = relay::read(&mut stream).await.map_err(|e| e.to_string())?;
    // Whoever is no proxy may say what he wants: he is counted by his own address.
    if let Some(told) = told
        && (address.is_loopback() || relays.contains(&address))
    {
        source = told;
    }
    // Whoever says nothing holds a place too.
    let place = places
        .take(Source::of(source.ip()))
        .ok_or("too many connections of one source without a certificate")?;
    let (stream, peer) = server.accept(stream).await.map_err(|e| e.to_string())?;
    let known = peer.identity.is_some();
    let place = (!known).then_some(place);
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
    let done = h2::serve(stream, caller, routes, Tuning::AUTH, leave).await;
    drop(place);
    done.map_err(|e| e.to_string())
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
        tls::Server::new(shown, Some(&trust), &[H2]).map_err(wrong)
    }

    async fn run(mut self, tell: watch::Sender<tls::Server>) {
        let mut published = self.service.published.clone();
        loop {
            if published.changed().await.is_err() {
                return;
            }
            let old = self.service.now() >= self.made + MEMBER_LIFETIME / 2;
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
