//! Where the service is reached: TLS on an address, for the name `auth.fleetgate`, and a unix socket for this machine's
//! administrators. It answers nothing itself.

use crate::audit::DEFAULT_SIZE;
use crate::authorities::SKEW;
use crate::backup::STATE_FILE;
use crate::caller::Caller as Proven;
use crate::clock::{Clock, MachineClock};
use crate::error::{Refused, Result};
use crate::face::{self, Face};
use crate::init::open_audit;
use crate::issue::{self, MEMBER_LIFETIME};
use crate::limits::{Place, Places, Source};
use crate::service::Service;
use crate::shares::{NoPlace, Shares, WhenEven};
use fleetgate_net::h2::{self, Caller, Routes, Tuning, Wire};
use fleetgate_net::tls::{self, AUTH, H2, RELAY, Shown};
use fleetgate_net::{Credentials, Trust, relay};
use fleetgate_policy::cluster::Subject;
use fleetgate_store::Store;
use fleetgate_store::sqlite::Sqlite;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

/// The unix socket's name below the directory.
pub const SOCKET: &str = "auth.sock";
/// The most connections by TLS at once, but for [`RESERVED`].
pub const MAX_CONNECTIONS: usize = 4096;
/// Further ones of the cluster's proxies, which everybody else is behind: they come in when all other places are taken.
pub const RESERVED: usize = 64;
/// The most of those of one proxy. One more ends its oldest; a proxy that has fewer takes the place of one that has more.
pub const RESERVED_OF_ONE: usize = 8;
/// The most handshakes at once of those who came when all other places were taken.
pub const HANDSHAKES_BEYOND: usize = 64;
/// The most connections of one user or node with a certificate.
pub const CERTIFIED_OF_ONE: usize = 256;
/// The most connections of one proxy, but for those that it passes on. Each of its processes has one, and some may drain.
pub const PROXY_OF_ONE: usize = 32;
/// The connections that one proxy passes on have at most this part of all places: it passes 1,024 on, and so does one more
/// that drains.
pub const PASSED_ON_SHARE: usize = 2;
/// The most proxies of which it is known from where they came last.
const KNOWN_PROXIES: usize = 1024;
/// How often it is said that connections are refused.
const REFUSALS_TOLD: Duration = Duration::from_secs(60);
/// The most connections by the unix socket at once.
pub const MAX_LOCAL: usize = 64;
/// The most of them from one source (IPv6: one /64) without a certificate.
pub const STRANGERS_OF_ONE: usize = 64;
/// The most TLS handshakes of one source at once, of those that one proxy passes on or of others. One more ends the oldest, so
/// that a proxy on auth's own machine, whose handshake takes a moment, is not shut out by a user there who begins many and
/// finishes none.
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
    /// The most connections by TLS at once, but for those that are kept for proxies.
    pub connections: usize,
    /// The most TLS handshakes at once of one source.
    pub handshakes: usize,
}

impl Config {
    /// The usual one: 127.0.0.1:3025.
    pub fn new(directory: &Path) -> Config {
        Config {
            directory: directory.to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 3025)),
            audit_size: DEFAULT_SIZE,
            clock: Arc::new(MachineClock),
            connections: MAX_CONNECTIONS,
            handshakes: HANDSHAKES_OF_ONE,
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
            Arc::new(Semaphore::new(self.config.connections)),
            Arc::new(Semaphore::new(MAX_LOCAL)),
        );
        let remote = Arc::new(Remote {
            service: self.service.clone(),
            routes: Arc::new(Face::routes(self.service.clone(), None)),
            handshakes: Shares::new(usize::MAX, self.config.handshakes, WhenEven::EndOldest),
            places: Places::new(STRANGERS_OF_ONE),
            certified: Places::new(CERTIFIED_OF_ONE),
            proxies: Places::new(PROXY_OF_ONE),
            passed_on: Places::new((self.config.connections / PASSED_ON_SHARE).max(1)),
            beyond: Shares::new(HANDSHAKES_BEYOND, HANDSHAKES_BEYOND, WhenEven::EndOldest),
            reserved: Shares::new(RESERVED, RESERVED_OF_ONE, WhenEven::Refuse),
            known: Mutex::default(),
            refused: Mutex::default(),
        });
        let mut local_refused = Refusals::default();
        tokio::pin!(leave);
        let done = loop {
            tokio::select! {
                () = &mut leave => break Ok(()),
                Some(ended) = self.beside.join_next() => break Err(match ended {
                    Ok(task) => Refused::unavailable(format!("what {task} has ended: the service has to be started again")),
                    Err(e) => Refused::unavailable(format!("what runs beside the service has ended: {e}")),
                }),
                accepted = self.tcp.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let (remote, stopped) = (remote.clone(), stopped.clone());
                        let shown = self.shown.borrow().clone();
                        let permit = room.clone().try_acquire_owned().ok();
                        connections.spawn(async move {
                            if let Err(why) = remote.serve(stream, peer, shown, stopped, permit).await {
                                tracing::debug!("the connection from {peer}: {why}");
                            }
                        });
                    }
                    Err(e) => refused_by_the_machine(&e).await,
                },
                accepted = self.unix.accept() => match (accepted, local_room.clone().try_acquire_owned()) {
                    (Ok((stream, _)), Ok(permit)) => {
                        let (service, stopped) = (self.service.clone(), stopped.clone());
                        connections.spawn(administered(stream, service, stopped, permit));
                    }
                    (Ok(_), Err(_)) => {
                        if let Some(count) = local_refused.count(Instant::now()) {
                            tracing::warn!(count, "more than {MAX_LOCAL} local connections: refused");
                        }
                    }
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
    handshakes: Shares<Arrival>,
    places: Arc<Places<Arrival>>,
    /// By whom the certificate names.
    certified: Arc<Places<String>>,
    /// Proxies' own, by their names.
    proxies: Arc<Places<String>>,
    /// What proxies pass on, by their names.
    passed_on: Arc<Places<String>>,
    /// Handshakes of those who came when all places were taken.
    beyond: Shares<Source>,
    /// Places of proxies among those, by their names.
    reserved: Shares<String>,
    known: Mutex<ProxySources>,
    refused: Mutex<Refusals>,
}

/// Where a connection comes from: a source, and the proxy whose word that is, if it is one's. What a proxy says takes nothing
/// from those who come otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Arrival {
    by: Option<String>,
    source: Source,
}

impl Arrival {
    fn new(by: Option<&str>, address: SocketAddr) -> Arrival {
        Arrival {
            by: by.map(str::to_owned),
            source: Source::of(address.ip()),
        }
    }
}

/// From where each proxy came last.
#[derive(Debug, Default)]
struct ProxySources(HashMap<String, Source>);

impl ProxySources {
    fn came(&mut self, name: &str, source: Source) {
        // As many names as that were made by administrators, and most are gone.
        if self.0.len() >= KNOWN_PROXIES && !self.0.contains_key(name) {
            self.0.clear();
        }
        self.0.insert(name.to_owned(), source);
    }
}

/// Connections that were refused for want of room, of which a line a minute tells.
#[derive(Default)]
struct Refusals {
    count: u64,
    told: Option<Instant>,
}

impl Refusals {
    /// One more; how many there are to tell of, if it is time.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        let is_time = self
            .told
            .is_none_or(|told| now.saturating_duration_since(told) >= REFUSALS_TOLD);
        is_time.then(|| {
            self.told = Some(now);
            std::mem::take(&mut self.count)
        })
    }
}

impl Remote {
    /// One connection: a caller's, or a proxy's that passes a caller's on.
    async fn serve(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        server: tls::Server,
        stopped: watch::Receiver<bool>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> std::result::Result<(), String> {
        let _ = stream.set_nodelay(true);
        let arrival = Arrival::new(None, peer);
        let handshake = self.handshake(arrival, server.accept(stream));
        let (stream, shown) = match permit {
            Some(_) => handshake.await?,
            None => {
                let favoured = || self.known_sources();
                let turn = self.beyond.run(Source::of(peer.ip()), favoured, handshake);
                turn.await.map_err(|e| e.to_string())??
            }
        };
        let passes_on = shown.alpn.as_deref() == Some(RELAY);
        let caller = Caller {
            peer: Some(Arc::new(shown)),
            address: Some(peer),
        };
        let proven = face::caller(None, &caller);
        let proxy = proven.proxy(&self.service).map(ToString::to_string);
        if let Ok(name) = &proxy {
            self.lock_known().came(name, Source::of(peer.ip()));
        }
        if permit.is_some() {
            return match passes_on {
                true => {
                    let name = proxy.map_err(|refused| refused.to_string())?;
                    self.pass_on(stream, &name, &caller, server, stopped).await
                }
                false => self.answer(stream, caller, peer, None, stopped).await,
            };
        }
        // Without a place of the others: one that is kept for proxies, and not for whom they pass on.
        let reserved = match proxy {
            Ok(name) if !passes_on => {
                let answer = self.answer(stream, caller, peer, None, stopped);
                self.reserved.run(name, HashSet::new, answer).await
            }
            _ => Err(NoPlace::Full),
        };
        reserved.map_err(|why| {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(count) = refused.count(Instant::now()) {
                tracing::warn!(count, "there are as many connections as may be: refused");
            }
            why.to_string()
        })?
    }

    /// A handshake, in its source's turn.
    async fn handshake<T>(
        &self,
        arrival: Arrival,
        accepted: impl Future<Output = std::result::Result<T, tls::Error>>,
    ) -> std::result::Result<T, String> {
        let turn = self.handshakes.run(arrival, HashSet::new, accepted);
        let done = turn.await.map_err(|e| e.to_string())?;
        done.map_err(|e| e.to_string())
    }

    fn lock_known(&self) -> MutexGuard<'_, ProxySources> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From where proxies that have proven themselves came last.
    fn known_sources(&self) -> HashSet<Source> {
        self.lock_known().0.values().copied().collect()
    }

    /// A connection that a proxy passes on.
    async fn pass_on(
        &self,
        mut stream: tls::Stream<TcpStream>,
        by: &str,
        proxy: &Caller,
        server: tls::Server,
        stopped: watch::Receiver<bool>,
    ) -> std::result::Result<(), String> {
        let taken = self.passed_on.take(by.to_owned());
        let _place = taken.ok_or("its proxy passes on as many connections as it may")?;
        let proven = face::caller(None, proxy);
        let passed_on = async {
            let source = relay::read(&mut stream).await.map_err(|e| e.to_string())?;
            let arrival = Arrival::new(Some(by), source);
            let (stream, shown) = self.handshake(arrival, server.accept(stream)).await?;
            match shown.alpn.as_deref() == Some(RELAY) {
                true => Err("a proxy passes on no other proxy".to_owned()),
                false => {
                    let caller = Caller {
                        peer: Some(Arc::new(shown)),
                        address: Some(source),
                    };
                    self.answer(stream, caller, source, Some(by), stopped).await
                }
            }
        };
        tokio::select! {
            done = passed_on => done,
            refused = proven.until_refused(&self.service) => Err(format!("its proxy is refused: {refused}")),
        }
    }

    /// Answers what is asked on a connection, after its handshake; `by`: the proxy that passes it on.
    async fn answer<IO: Wire + 'static>(
        &self,
        stream: IO,
        caller: Caller,
        from: SocketAddr,
        by: Option<&str>,
        stopped: watch::Receiver<bool>,
    ) -> std::result::Result<(), String> {
        let subject = caller.peer.as_ref().and_then(|peer| peer.identity.as_ref());
        let subject = subject.map(|identity| identity.subject.clone());
        let known = subject.is_some();
        let proven = face::caller(None, &caller);
        let (mut place, mut certified) = (None::<Place<Arrival>>, None);
        match subject {
            Some(subject) => {
                let places = match subject {
                    Subject::Proxy(_) => &self.proxies,
                    _ => &self.certified,
                };
                let taken = places.take(counts_as(&proven, &subject, &self.service));
                certified = Some(taken.ok_or_else(|| format!("{subject} has too many connections"))?);
            }
            None => {
                let arrival = Arrival::new(by, from);
                let taken = self.places.take(arrival);
                place = Some(taken.ok_or("too many connections of one source without a certificate")?);
            }
        }
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
        drop((place, certified));
        done
    }
}

/// What connections of this certificate are counted as. One that proves nothing any more takes no place of the name's present
/// owner.
pub(crate) fn counts_as(proven: &Proven, subject: &Subject, service: &Service) -> String {
    match proven.identity(service) {
        Ok(_) => subject.to_string(),
        Err(_) => format!("{subject}, refused"),
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

#[cfg(test)]
mod tests {
    //! Lines about connections that were refused.

    use super::*;

    #[test]
    fn refused_connections_are_a_line_a_minute() {
        let (mut refused, now) = (Refusals::default(), Instant::now());
        let lines = (0..1_000).filter_map(|n| refused.count(now + REFUSALS_TOLD * n / 400));
        assert_eq!(lines.collect::<Vec<_>>(), [1, 400, 400]);
    }
}
