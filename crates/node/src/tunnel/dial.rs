//! One proxy: dialled, served, and dialled again when it is gone, each with waits of its own, so that what happens to one
//! does nothing to the sessions of another.

use super::desk::Ask;
use super::line::Line;
use super::service::{Bounded, Serving, name};
use fleetgate_net::backoff::{Backoff, random};
use fleetgate_net::h2::{self, Caller, Routes, Tuning};
use fleetgate_net::{dial, tls};
use fleetgate_policy::cluster::Subject;
use fleetgate_wire::node::tunnel::{FromTunnel, Proxy};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Notify, mpsc, oneshot, watch};

/// A connection that lived for so long worked: the next wait is short again.
const SETTLED: Duration = Duration::from_secs(10);

/// What every dialled connection needs.
#[derive(Clone)]
pub(super) struct Dialling {
    pub desk: mpsc::Sender<Ask>,
    pub line: Arc<Line>,
    pub node: Arc<str>,
    pub documents: Arc<Mutex<()>>,
    pub gone: Arc<Notify>,
    /// TLS as it is now: certificates change while connections last.
    pub client: watch::Receiver<tls::Client>,
    /// True: no more.
    pub leave: watch::Receiver<bool>,
}

/// Holds a connection to `proxy` until it is told to leave.
pub(super) async fn keep(proxy: Proxy, mut dialling: Dialling) {
    let shown = shown(&proxy);
    let mut backoff = Backoff::RECONNECT;
    let mut last = String::new();
    while !*dialling.leave.borrow() {
        let mut connected = None;
        let why = once(&proxy, &shown, &mut dialling, &mut connected).await;
        if *dialling.leave.borrow() {
            return;
        }
        if connected.is_some_and(|since: Instant| since.elapsed() >= SETTLED) {
            backoff.worked();
        }
        // The same reason again is no news.
        if connected.is_some() || why != last {
            let word = FromTunnel::Lost {
                proxy: name(&shown),
                why: name(&why),
            };
            let _ = dialling.line.say(&word).await;
        }
        last = why;
        tokio::select! {
            () = tokio::time::sleep(backoff.failed(random())) => {}
            _ = dialling.leave.changed() => {}
        }
    }
}

/// One connection from its beginning to its end; why it ended.
async fn once(
    proxy: &Proxy,
    shown: &str,
    dialling: &mut Dialling,
    connected: &mut Option<Instant>,
) -> String {
    let Some(addresses) = addresses(proxy, dialling).await else {
        return "the node ends".to_owned();
    };
    if addresses.is_empty() {
        return format!("{shown} has no address: is the name right?");
    }
    let io = match dial::any(shown, addresses, dial::DEADLINE).await {
        Ok(io) => io,
        Err(e) => return e.to_string(),
    };
    let client = dialling.client.borrow_and_update().clone();
    let (stream, peer) = match client.connect(tls::PROXY, io).await {
        Ok(connected) => connected,
        Err(e) => return e.to_string(),
    };
    if peer.alpn.as_deref() != Some(tls::TUNNEL) {
        return format!("{shown} takes no nodes: is it a proxy of this cluster?");
    }
    *connected = Some(Instant::now());
    let word = FromTunnel::Connected { proxy: name(shown) };
    let _ = dialling.line.say(&word).await;
    let serving = Serving {
        desk: dialling.desk.clone(),
        line: dialling.line.clone(),
        node: dialling.node.clone(),
        proxy: match peer.identity.as_ref().map(|identity| &identity.subject) {
            Some(Subject::Proxy(name)) => name.as_str().into(),
            _ => shown.into(),
        },
        leave: dialling.leave.clone(),
        gone: dialling.gone.clone(),
        documents: dialling.documents.clone(),
    };
    let caller = Caller {
        peer: Some(Arc::new(peer)),
        address: None,
    };
    let routes = Arc::new(Routes::new().with(Bounded::new(serving)));
    let mut leave = dialling.leave.clone();
    let leaving = async move {
        // An error: the loop that would tell is gone, and this process with it.
        let _ = leave.wait_for(|leave| *leave).await;
    };
    match h2::serve(stream, caller, routes, Tuning::TUNNEL, leaving).await {
        Ok(()) => "the proxy closed the connection".to_owned(),
        Err(e) => h2::reason(&e),
    }
}

/// The proxy's addresses: those of a name are the monitor's to look up, who has the resolver. None: the end.
async fn addresses(proxy: &Proxy, dialling: &Dialling) -> Option<Vec<SocketAddr>> {
    let host = proxy.host.to_string_lossy();
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Some(vec![SocketAddr::new(ip, proxy.port)]);
    }
    let (answer, answered) = oneshot::channel();
    let ask = Ask::Resolve {
        host: proxy.host.clone(),
        answer,
    };
    dialling.desk.send(ask).await.ok()?;
    let mut found: Vec<SocketAddr> = answered.await.ok()?;
    for address in &mut found {
        address.set_port(proxy.port);
    }
    Some(found)
}

/// As people write it.
pub(super) fn shown(proxy: &Proxy) -> String {
    let host = proxy.host.to_string_lossy();
    match host.contains(':') {
        true => format!("[{host}]:{}", proxy.port),
        false => format!("{host}:{}", proxy.port),
    }
}
