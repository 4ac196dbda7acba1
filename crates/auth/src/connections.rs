//! The connections of the service: who gets a place among those by TLS, those that a proxy passes on, and those by the unix
//! socket. It answers nothing itself.

use crate::caller::Caller as Proven;
use crate::grpc::{self, GrpcService};
use crate::limits::{Place, Places, Source};
use crate::service::Service;
use crate::shares::{NoPlace, Shares, WhenEven};
use fleetgate_net::h2::{self, Caller, Routes, Tuning, Wire};
use fleetgate_net::relay;
use fleetgate_net::tls::{self, RELAY};
use fleetgate_policy::cluster::Subject;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, watch};

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
/// The most of them from one source (IPv6: one /64) without a certificate.
pub const STRANGERS_OF_ONE: usize = 64;
/// How long a connection without a certificate may last: long enough to type a password.
const STRANGER_LIFE: Duration = Duration::from_secs(600);
/// How long a connection goes on whose certificate proves nothing any more, for what is on its way to the caller.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// What connections by TLS have in common.
pub struct Remote {
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
pub struct Refusals {
    count: u64,
    told: Option<Instant>,
}

impl Refusals {
    /// One more; how many there are to tell of, if it is time.
    pub fn count(&mut self, now: Instant) -> Option<u64> {
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
    /// None yet: at most so many, and so many handshakes of one source at once.
    pub fn new(service: Arc<Service>, connections: usize, handshakes: usize) -> Remote {
        Remote {
            routes: Arc::new(GrpcService::routes(service.clone(), None)),
            handshakes: Shares::new(usize::MAX, handshakes, WhenEven::EndOldest),
            places: Places::new(STRANGERS_OF_ONE),
            certified: Places::new(CERTIFIED_OF_ONE),
            proxies: Places::new(PROXY_OF_ONE),
            passed_on: Places::new((connections / PASSED_ON_SHARE).max(1)),
            beyond: Shares::new(HANDSHAKES_BEYOND, HANDSHAKES_BEYOND, WhenEven::EndOldest),
            reserved: Shares::new(RESERVED, RESERVED_OF_ONE, WhenEven::Refuse),
            known: Mutex::default(),
            refused: Mutex::default(),

            service,
        }
    }

    /// One connection: a caller's, or a proxy's that passes a caller's on.
    pub async fn serve(
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
        let proven = grpc::caller(None, &caller);
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
        let proven = grpc::caller(None, proxy);
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
        let is_proxy = matches!(subject, Some(Subject::Proxy(_)));
        let proven = grpc::caller(None, &caller);
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
            true if is_proxy => Tuning::AUTH_PROXY,
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
pub async fn administered(
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
    let routes = Arc::new(GrpcService::routes(service, Some(uid)));
    if let Err(e) = h2::serve(stream, caller, routes, Tuning::AUTH, stop(stopped)).await {
        tracing::debug!("a connection by the unix socket: {e}");
    }
}

async fn stop(mut stopped: watch::Receiver<bool>) {
    // A sender that is gone has stopped too.
    let _ = stopped.wait_for(|stop| *stop).await;
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
