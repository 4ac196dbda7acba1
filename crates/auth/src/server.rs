//! Where the service is reached: TLS on an address, for the name `auth.fleetgate`, and a unix socket for this machine's
//! administrators. It answers nothing itself.

use crate::audit::DEFAULT_SIZE;
use crate::clock::{Clock, MachineClock};
use crate::connections::{Refusals, Remote, administered};
use crate::error::{Refused, Result};
use crate::init::open_audit;
use crate::service::Service;
use crate::tls_identity::TlsIdentity;
use crate::{export, metrics};
use fleetgate_archive::{Archive, Retention, Settings};
use fleetgate_export::Sink;
use fleetgate_net::tls;
use fleetgate_store::{Address, Error as StoreError, Store};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// The unix socket's name below the directory.
pub const SOCKET: &str = "auth.sock";
/// The most connections by TLS at once, but for [`RESERVED`].
pub const MAX_CONNECTIONS: usize = 4096;
/// The most connections by the unix socket at once.
pub const MAX_LOCAL: usize = 64;
/// The most TLS handshakes of one source at once, of those that one proxy passes on or of others. One more ends the oldest, so
/// that a proxy on auth's own machine, whose handshake takes a moment, is not shut out by a user there who begins many and
/// finishes none.
pub const HANDSHAKES_OF_ONE: usize = 64;
/// How long connections may take to end when the service stops.
const LEAVING: Duration = Duration::from_secs(5);
/// How often it is looked whether the last answer has ended.
const CLOSING: Duration = Duration::from_millis(5);
/// How long the service waits when it cannot accept a connection: for want of descriptors, for the most part.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How long it waits for the store of an auth service that is just ending.
const PREDECESSOR: Duration = Duration::from_secs(3);

/// How the service runs.
#[derive(Clone)]
pub struct Config {
    /// Where the audit log and the socket are: what `init` made.
    pub directory: PathBuf,
    /// Where the state is.
    pub state: Address,
    /// Where TLS is served.
    pub listen: SocketAddr,
    /// How large the audit log may be.
    pub audit_size: u64,
    /// Where its events go.
    pub exports: Vec<Sink>,
    /// Where recordings are kept, if not below `directory`.
    pub recordings: Option<PathBuf>,
    /// For how long, and how many bytes of them.
    pub retention: Retention,
    /// Where whole ones go, if anywhere.
    pub store: Option<fleetgate_archive::settings::Store>,
    /// Where metrics are served; loopback only. None: nowhere.
    pub metrics: Option<SocketAddr>,
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
            state: Address::in_directory(directory),
            listen: SocketAddr::from(([127, 0, 0, 1], 3025)),
            audit_size: DEFAULT_SIZE,
            exports: Vec::new(),
            recordings: None,
            retention: Retention::default(),
            store: None,
            metrics: None,
            clock: Arc::new(MachineClock),
            connections: MAX_CONNECTIONS,
            handshakes: HANDSHAKES_OF_ONE,
        }
    }

    /// Where recordings are kept.
    pub fn recordings(&self) -> PathBuf {
        let below = || self.directory.join(fleetgate_archive::DIRECTORY);
        self.recordings.clone().unwrap_or_else(below)
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
async fn open_store(state: &Address) -> std::result::Result<Arc<dyn Store>, StoreError> {
    let begun = std::time::Instant::now();
    loop {
        match state.open() {
            Err(StoreError::Locked(_)) if begun.elapsed() < PREDECESSOR => {
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
        if !config.state.exists() {
            return Err(Refused::unavailable(format!(
                "there is no state in {}: `fleetgate init` makes a cluster, `fleetgate restore BACKUP` brings one back",
                config.state
            )));
        }
        // Memory for passwords is large and given back: from the heap it would leave holes that never go.
        fleetgate_sys::heap::keep_large_apart();
        let store = open_store(&config.state).await?;
        let audit = open_audit(&config.directory, config.audit_size, config.clock.clone())?;
        let clock = config.clock.clone();
        let archive = Archive::open(Settings {
            directory: config.recordings(),
            retention: config.retention,
            store: config.store.clone(),
            now: Arc::new(move || clock.seconds()),
        });
        let archive = archive.map_err(|e| Refused::unavailable(e.to_string()))?;
        let (service, beside) = Service::open(store, audit, config.clock.clone(), Some(archive)).await?;
        let mut beside = beside.start();
        if let Some(archive) = service.archive.clone() {
            let (service, moving) = (service.clone(), archive.clone());
            beside.spawn(async move {
                service.keep_recordings(archive).await;
                "looks after recordings"
            });
            beside.spawn(async move {
                moving.move_to_store().await;
                "moves recordings to the object store"
            });
        }
        export::start(&config.exports, service.ledger.audit(), &mut beside).await;
        if let Some(address) = config.metrics {
            beside.spawn(metrics::serve(address, &service, &config.exports));
        }
        let shown = TlsIdentity::new(service.clone()).await?;
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
        let config = &self.config;
        let remote = Arc::new(Remote::new(
            self.service.clone(),
            config.connections,
            config.handshakes,
        ));
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
