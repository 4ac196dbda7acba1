//! Counters, and the loopback page that Prometheus reads them from, with `/healthz` and `/readyz` beside it.
//!
//! The page is served by a thread of its own, one request after the other, each bounded in length and time: a client
//! that stalls holds up other readers of the page and nobody else. Counting is an atomic addition. It never listens on
//! anything but loopback, and a name or an address of a user's is never a label.

use crate::{Audit, SessionKind};
use fleetgate_base::scrape::{MAX_REQUEST, Page, Request, is_whole};
use fleetgate_seal::Strategy;
use fleetgate_sys::{Fd, net};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A port that could not be had is tried again after so long.
const AGAIN: Duration = Duration::from_secs(1);
/// One reader has so long, from connecting to the last byte.
const PATIENCE: Duration = Duration::from_secs(2);

/// How a login ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginResult {
    /// In.
    Accepted,
    /// A try that was turned down.
    Refused,
    /// The connection ended before it came to that.
    Abandoned,
}

const LOGIN_RESULTS: [&str; 3] = ["accepted", "refused", "abandoned"];

/// A process of the node's own that is started again when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The lobby.
    Lobby,
    /// A front.
    Front,
    /// The resolver.
    Resolver,
    /// A connection's networking helper.
    Networking,
    /// The tunnel.
    Tunnel,
    /// The recorder.
    Recorder,
    /// The watcher.
    Watcher,
    /// Its guardian.
    Guardian,
}

const PROCESSES: [&str; 8] = [
    "lobby",
    "front",
    "resolver",
    "networking",
    "tunnel",
    "recorder",
    "watcher",
    "guardian",
];

/// All that is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    connections: AtomicU64,
    connections_open: AtomicU64,
    connections_refused: AtomicU64,
    connections_tunnelled: AtomicU64,
    logins: [AtomicU64; 3],
    sessions: [AtomicU64; 4],
    sessions_open: AtomicU64,
    launches: [AtomicU64; Strategy::ALL.len()],
    launches_failed: AtomicU64,
    denied: AtomicU64,
    cluster_serial: AtomicU64,
    cluster_as_of: AtomicU64,
    deaths: [AtomicU64; 8],
    accepts: AtomicBool,
    joined: AtomicBool,
}

impl Metrics {
    /// A connection was accepted.
    pub fn connection_opened(&self) {
        self.connections.fetch_add(1, Relaxed);
        self.connections_open.fetch_add(1, Relaxed);
    }

    /// It ended.
    pub fn connection_ended(&self) {
        self.connections_open.fetch_sub(1, Relaxed);
    }

    /// One was turned away.
    pub fn connection_refused(&self) {
        self.connections_refused.fetch_add(1, Relaxed);
    }

    /// One that was accepted came by a proxy.
    pub fn connection_tunnelled(&self) {
        self.connections_tunnelled.fetch_add(1, Relaxed);
    }

    /// A login, or a try.
    pub fn login(&self, result: LoginResult) {
        self.logins[result as usize].fetch_add(1, Relaxed);
    }

    /// A session runs, launched by this strategy.
    pub fn session_started(&self, kind: SessionKind) {
        self.sessions[kind as usize].fetch_add(1, Relaxed);
        self.sessions_open.fetch_add(1, Relaxed);
    }

    /// It ended.
    pub fn session_ended(&self) {
        self.sessions_open.fetch_sub(1, Relaxed);
    }

    /// A helper was launched by this strategy.
    pub fn launched(&self, strategy: Strategy) {
        if let Some(at) = Strategy::ALL.iter().position(|s| *s == strategy) {
            self.launches[at].fetch_add(1, Relaxed);
        }
    }

    /// A launch came to nothing.
    pub fn launch_failed(&self) {
        self.launches_failed.fetch_add(1, Relaxed);
    }

    /// A request after login was refused.
    pub fn denied(&self) {
        self.denied.fetch_add(1, Relaxed);
    }

    /// The cluster's state that is known: its serial, and when it was last signed.
    pub fn cluster(&self, serial: u64, as_of: u64) {
        self.cluster_serial.store(serial, Relaxed);
        self.cluster_as_of.store(as_of, Relaxed);
    }

    /// Whether connections are accepted, now.
    pub fn accepts(&self, accepts: bool) {
        self.accepts.store(accepts, Relaxed);
    }

    /// Whether the machine has joined a cluster.
    pub fn joined(&self, joined: bool) {
        self.joined.store(joined, Relaxed);
    }

    /// Whether the node does what it is there for, and what keeps it from that.
    pub fn ready(&self) -> Result<(), String> {
        if !self.accepts.load(Relaxed) {
            return Err("no connection is accepted now: see the node's log".to_owned());
        }
        match self.joined.load(Relaxed) && self.cluster_serial.load(Relaxed) == 0 {
            true => {
                Err("the machine has joined a cluster and has no state of it: see the node's log".to_owned())
            }
            false => Ok(()),
        }
    }

    /// A process of the node's own died.
    pub fn died(&self, process: Process) {
        self.deaths[process as usize].fetch_add(1, Relaxed);
    }

    /// The page, in Prometheus' text form 0.0.4.
    pub fn page(&self, audit_lost: u64) -> String {
        let mut page = Page::with_capacity(4096);
        page.family("build_info", "gauge", "The build that runs.");
        page.value("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
        let plain = [
            (
                "connections_total",
                "counter",
                "Connections accepted.",
                &self.connections,
            ),
            (
                "connections_open",
                "gauge",
                "Connections that are open.",
                &self.connections_open,
            ),
            (
                "connections_refused_total",
                "counter",
                "Connections turned away because of a bound.",
                &self.connections_refused,
            ),
            (
                "connections_tunnelled_total",
                "counter",
                "Connections accepted that came by a proxy.",
                &self.connections_tunnelled,
            ),
            (
                "sessions_open",
                "gauge",
                "Sessions that run.",
                &self.sessions_open,
            ),
            (
                "launches_failed_total",
                "counter",
                "Launches that came to nothing.",
                &self.launches_failed,
            ),
            (
                "cluster_state_serial",
                "gauge",
                "The serial of the cluster's state; 0: the machine joined none.",
                &self.cluster_serial,
            ),
            (
                "cluster_state_signed_seconds",
                "gauge",
                "When the cluster's state was last signed, in seconds since 1970.",
                &self.cluster_as_of,
            ),
            (
                "denied_total",
                "counter",
                "Requests that were refused after the login.",
                &self.denied,
            ),
        ];
        for (name, kind, help, value) in plain {
            page.family(name, kind, help);
            page.value(name, &[], value.load(Relaxed));
        }
        let logins = LOGIN_RESULTS.into_iter().zip(&self.logins);
        labelled(
            &mut page,
            "logins_total",
            "Logins and tries, by what came of them.",
            "result",
            logins,
        );
        let sessions = SessionKind::ALL
            .map(SessionKind::name)
            .into_iter()
            .zip(&self.sessions);
        labelled(
            &mut page,
            "sessions_total",
            "Sessions started, by kind.",
            "kind",
            sessions,
        );
        let strategies: Vec<String> = Strategy::ALL.iter().map(Strategy::to_string).collect();
        let launches = strategies.iter().map(String::as_str).zip(&self.launches);
        labelled(
            &mut page,
            "launches_total",
            "Helpers launched, by the strategy that sealed their image.",
            "strategy",
            launches,
        );
        let deaths = PROCESSES.into_iter().zip(&self.deaths);
        labelled(
            &mut page,
            "process_deaths_total",
            "The node's own processes that died.",
            "process",
            deaths,
        );
        page.family(
            "audit_lost_total",
            "counter",
            "Audit events lost to a full queue or disk.",
        );
        page.value("audit_lost_total", &[], audit_lost);
        page.text()
    }
}

/// A family of counters, one for each value of a label.
fn labelled<'a>(
    page: &mut Page,
    name: &str,
    help: &str,
    label: &str,
    values: impl Iterator<Item = (&'a str, &'a AtomicU64)>,
) {
    page.family(name, "counter", help);
    for (of, value) in values {
        page.value(name, &[(label, of)], value.load(Relaxed));
    }
}

/// Why the page is not served.
#[derive(Debug)]
pub enum MetricsError {
    /// The address can be reached from other machines.
    NotLoopback(SocketAddr),
    /// It cannot be listened on.
    Listen(SocketAddr, std::io::Error),
}

impl std::fmt::Display for MetricsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MetricsError::NotLoopback(address) => write!(
                f,
                "metrics are served on loopback only, and {address} is not: use 127.0.0.1:{}",
                address.port()
            ),
            MetricsError::Listen(address, e) => write!(f, "listening on {address} for metrics: {e}"),
        }
    }
}

impl std::error::Error for MetricsError {}

/// Whether the page may be served there.
pub fn check(address: SocketAddr) -> Result<(), MetricsError> {
    match address.ip().to_canonical().is_loopback() {
        true => Ok(()),
        false => Err(MetricsError::NotLoopback(address)),
    }
}

/// The page while it is served. Dropping it gives the port back at once.
pub struct MetricsServer {
    state: Arc<State>,
    thread: Thread,
}

/// What the thread and its owner share.
#[derive(Default)]
struct State {
    ended: AtomicBool,
    /// The listening socket, once there is one.
    listener: Mutex<Option<Fd>>,
}

/// Serves the page on `address`. A port that another program has is told, and tried again until it is free: without
/// metrics a node still lets people in.
pub fn serve(
    address: SocketAddr,
    metrics: Arc<Metrics>,
    audit: Audit,
) -> Result<MetricsServer, MetricsError> {
    check(address)?;
    let state = Arc::<State>::default();
    let thread = std::thread::Builder::new()
        .name("metrics".to_owned())
        .stack_size(256 << 10)
        .spawn({
            let state = state.clone();
            move || state.serve(address, &metrics, &audit)
        })
        .map_err(|e| MetricsError::Listen(address, e))?;
    Ok(MetricsServer {
        state,
        thread: thread.thread().clone(),
    })
}

impl MetricsServer {
    /// Where it is served; none: not yet.
    #[cfg(test)]
    fn address(&self) -> Option<fleetgate_sys::net::Address> {
        net::local(self.state.listener().as_ref()?).ok()
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        let listener = {
            let mut listener = self.state.listener();
            self.state.ended.store(true, Relaxed);
            listener.take()
        };
        // It listens no more from here on, though its thread may be busy with a reader: the port can be had again.
        let _ = listener.map(|listener| net::shut(&listener));
        self.thread.unpark();
    }
}

impl State {
    fn listener(&self) -> MutexGuard<'_, Option<Fd>> {
        self.listener.lock().expect("no panic is survived")
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// The thread's life.
    fn serve(&self, address: SocketAddr, metrics: &Metrics, audit: &Audit) {
        let mut complained = false;
        while !self.has_ended() {
            match self.listen(address) {
                Ok(Some(listener)) => {
                    tracing::info!(%address, "metrics are served");
                    self.answer_readers(&listener, metrics, audit);
                }
                Ok(None) => return,
                Err(e) => {
                    if !complained {
                        complained = true;
                        let e = MetricsError::Listen(address, e);
                        tracing::error!(
                            "metrics are not served: {e}; it is tried again until the port is free"
                        );
                    }
                    std::thread::park_timeout(AGAIN);
                }
            }
        }
    }

    /// Listens, unless the page is not wanted any more.
    fn listen(&self, address: SocketAddr) -> std::io::Result<Option<TcpListener>> {
        let listener = TcpListener::bind(address)?;
        let copy = listener.try_clone()?;
        let mut shared = self.listener();
        if self.has_ended() {
            return Ok(None);
        }
        *shared = Some(Fd::from(std::os::fd::OwnedFd::from(copy)));
        Ok(Some(listener))
    }

    fn answer_readers(&self, listener: &TcpListener, metrics: &Metrics, audit: &Audit) {
        while !self.has_ended() {
            match listener.accept() {
                // A reader that goes away or stalls is not worth a word.
                Ok((reader, _)) => drop(answer(reader, metrics, audit)),
                Err(_) if self.has_ended() => return,
                // No descriptors, say.
                Err(_) => std::thread::park_timeout(AGAIN),
            }
        }
    }
}

/// One request, one answer.
fn answer(mut reader: TcpStream, metrics: &Metrics, audit: &Audit) -> std::io::Result<()> {
    let end = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut chunk = [0; 1024];
    while !is_whole(&request) {
        reader.set_read_timeout(Some(left(end)?))?;
        let got = reader.read(&mut chunk)?;
        if got == 0 || request.len() + got > MAX_REQUEST {
            return Ok(());
        }
        request.extend_from_slice(&chunk[..got]);
    }
    let answer =
        Request::parse(&request).answer_with_health(|| metrics.page(audit.lost()), || metrics.ready());
    let mut rest = answer.as_bytes();
    while !rest.is_empty() {
        reader.set_write_timeout(Some(left(end)?))?;
        let sent = reader.write(rest)?;
        rest = &rest[sent..];
    }
    Ok(())
}

/// How long there is still, or the error that says none.
fn left(end: Instant) -> std::io::Result<Duration> {
    match end.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(std::io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

#[cfg(test)]
mod tests;
