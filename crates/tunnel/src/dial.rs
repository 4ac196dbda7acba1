//! One proxy: dialled, served, and dialled again when it is gone, each with waits of its own, so that what happens to one
//! does nothing to the sessions of another.

use crate::monitor_socket::MonitorSocket;
use crate::request::Request;
use crate::service::{BoundedServer, ServiceContext, Share};
use crate::text::c_string;
use fleetgate_net::backoff::{Backoff, random};
use fleetgate_net::h2::{self, Caller, Routes, Tuning};
use fleetgate_net::{dial, tls};
use fleetgate_policy::cluster::{Name, Subject};
use fleetgate_wire::node::tunnel::{FromTunnel, LockedProxy, Proxy};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Mutex, Notify, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

/// A connection that lived for so long worked: the next wait is the first again.
const SETTLED: Duration = Duration::from_secs(10);

/// How long a proxy that is locked has to tell the state, by which the lock may be over.
const FOR_THE_STATE: Duration = Duration::from_secs(5);

/// The most connections to one proxy that go on for their sessions after the proxy has said that it leaves.
const MAX_LEAVING: usize = 8;

/// Proxies that are locked.
pub(crate) type LockedProxies = Arc<[LockedProxy]>;

/// What every dialled connection needs.
#[derive(Clone)]
pub(crate) struct DialContext {
    pub requests: mpsc::Sender<Request>,
    pub monitor: Arc<MonitorSocket>,
    pub node: Arc<str>,
    pub documents: Arc<Mutex<()>>,
    pub gone: Arc<Notify>,
    /// TLS as it is now: certificates change while connections last.
    pub client: watch::Receiver<tls::Client>,
    /// Proxies that nobody comes in by.
    pub locked: watch::Receiver<LockedProxies>,
    /// True: no more.
    pub leave: watch::Receiver<bool>,
    /// False: proxies say nothing any more that is heard.
    pub hears: watch::Receiver<bool>,
}

/// A connection that is served.
struct ProxyConnection {
    /// Serves it to its end, and says why it ended.
    serving: Pin<Box<dyn Future<Output = String> + Send>>,
    /// Told when the proxy leaves.
    left: Arc<Notify>,
    /// Sessions are taken from it: it is not locked.
    is_served: bool,
}

/// Connections whose proxy has said that it leaves. Each goes on until its last session has ended.
#[derive(Default)]
struct LeavingConnections {
    tasks: JoinSet<String>,
    /// The oldest first.
    handles: VecDeque<AbortHandle>,
}

impl LeavingConnections {
    /// One more. Where there are too many, the oldest ends: a proxy that says nothing but that it leaves costs a bounded
    /// number of descriptors.
    fn add(&mut self, serving: impl Future<Output = String> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.handles.retain(|handle| !handle.is_finished());
        if self.handles.len() >= MAX_LEAVING
            && let Some(oldest) = self.handles.pop_front()
        {
            oldest.abort();
        }
        self.handles.push_back(self.tasks.spawn(serving));
    }

    /// Until all of them have ended.
    async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// How long to wait for the next connection when the proxy says after `lived` that it leaves. One that drains says so of a
/// connection that worked, and the next is made at once. Two machines with one identity take each other's place for ever.
fn wait_after_leaving(lived: Duration, backoff: &mut Backoff, random: u64) -> Duration {
    if lived >= SETTLED {
        backoff.worked();
        return Duration::ZERO;
    }
    backoff.answered();
    backoff.failed(random)
}

/// Holds a connection to `proxy` until it is told to leave. When the proxy drains, the next connection is made at once, and
/// the one before goes on until its last session has ended.
pub(crate) async fn keep(proxy: Proxy, mut dialling: DialContext) {
    let address = address_of(&proxy);
    let mut backoff = Backoff::RECONNECT;
    let mut last = String::new();
    let mut older = LeavingConnections::default();
    let share = Share::default();
    while !*dialling.leave.borrow() {
        let since = Instant::now();
        let (connected, why) = match open(&proxy, &address, &mut dialling, share.clone()).await {
            Err(why) => (false, why),
            Ok(ProxyConnection {
                mut serving,
                left,
                is_served,
            }) => tokio::select! {
                why = &mut serving => (is_served, why),
                () = left.notified() => {
                    older.add(serving);
                    let wait = wait_after_leaving(since.elapsed(), &mut backoff, random());
                    pause(wait, &mut dialling.leave).await;
                    continue;
                }
            },
        };
        if *dialling.leave.borrow() {
            break;
        }
        if connected {
            match since.elapsed() >= SETTLED {
                true => backoff.worked(),
                false => backoff.answered(),
            }
        }
        // The same reason again is no news.
        if connected || why != last {
            let word = FromTunnel::Lost {
                proxy: c_string(&address),
                why: c_string(&why),
            };
            let _ = dialling.monitor.say(&word).await;
        }
        last = why;
        pause(backoff.failed(random()), &mut dialling.leave).await;
    }
    older.finish().await;
}

/// Waits so long, or until it is told to leave.
async fn pause(wait: Duration, leave: &mut watch::Receiver<bool>) {
    tokio::select! {
        () = tokio::time::sleep(wait) => {}
        _ = leave.changed() => {}
    }
}

/// Makes one connection. An error: why there is none.
async fn open(
    proxy: &Proxy,
    address: &str,
    dialling: &mut DialContext,
    share: Share,
) -> Result<ProxyConnection, String> {
    let addresses = addresses(proxy, dialling).await.ok_or("the node ends")?;
    if addresses.is_empty() {
        return Err(format!("{address} has no address: is the name right?"));
    }
    let io = dial::any(address, addresses, dial::DEADLINE)
        .await
        .map_err(|e| e.to_string())?;
    let client = dialling.client.borrow_and_update().clone();
    let (stream, peer) = client.connect(tls::PROXY, io).await.map_err(|e| e.to_string())?;
    if peer.alpn.as_deref() != Some(tls::TUNNEL) {
        return Err(format!(
            "{address} takes no nodes: is it a proxy of this cluster?"
        ));
    }
    let certified = peer
        .identity
        .as_ref()
        .and_then(|identity| match &identity.subject {
            Subject::Proxy(name) => Some((name.clone(), identity.serial)),
            _ => None,
        });
    let mut locks = dialling.locked.clone();
    let is_locked = move |locks: &LockedProxies, certified: &Option<(Name, u64)>| {
        certified
            .as_ref()
            .is_some_and(|(name, serial)| holds(locks, name, *serial))
    };
    let only_state = is_locked(&locks.borrow_and_update(), &certified);
    if !only_state {
        let word = FromTunnel::Connected {
            proxy: c_string(address),
        };
        let _ = dialling.monitor.say(&word).await;
    }
    let left = Arc::new(Notify::new());
    let serving = ServiceContext {
        requests: dialling.requests.clone(),
        monitor: dialling.monitor.clone(),
        node: dialling.node.clone(),
        proxy: certified
            .as_ref()
            .map_or(address, |(name, _)| name.as_str())
            .into(),
        only_state,
        attested: Arc::default(),
        leave: dialling.leave.clone(),
        hears: dialling.hears.clone(),
        gone: dialling.gone.clone(),
        documents: dialling.documents.clone(),
        share,
        left: left.clone(),
    };
    let caller = Caller {
        peer: Some(Arc::new(peer)),
        address: None,
    };
    let routes = Arc::new(Routes::new().with(BoundedServer::new(serving)));
    let mut leave = dialling.leave.clone();
    let leaving = async move {
        // An error: the loop that would tell is gone, and this process with it.
        let _ = leave.wait_for(|leave| *leave).await;
    };
    let serving = Box::pin(async move {
        // A lock ends the connection, and every session on it; one that was there before leaves it a moment for the state.
        let ended = async {
            if only_state {
                tokio::time::sleep(FOR_THE_STATE).await;
            } else if locks
                .wait_for(|locks| is_locked(locks, &certified))
                .await
                .is_err()
            {
                std::future::pending().await
            }
        };
        tokio::select! {
            served = h2::serve(stream, caller, routes, Tuning::TUNNEL, leaving) => match served {
                Ok(()) => "the proxy closed the connection".to_owned(),
                Err(e) => h2::reason(&e),
            },
            () = ended => match &certified {
                Some((name, _)) => format!("the proxy {name} is locked: no session is taken from it"),
                None => "the proxy is locked".to_owned(),
            },
        }
    });
    Ok(ProxyConnection {
        serving,
        left,
        is_served: !only_state,
    })
}

/// Whether one of these locks is on a proxy of this name, with a certificate that was made by the state of this serial.
fn holds(locks: &[LockedProxy], proxy: &Name, serial: u64) -> bool {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    locks.iter().any(|lock| {
        lock.name.as_bytes() == proxy.as_str().as_bytes() && serial < lock.serial_before && now < lock.expires
    })
}

/// The proxy's addresses: those of a name are the monitor's to look up, who has the resolver. None: the end.
async fn addresses(proxy: &Proxy, dialling: &DialContext) -> Option<Vec<SocketAddr>> {
    let host = proxy.host.to_string_lossy();
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Some(vec![SocketAddr::new(ip, proxy.port)]);
    }
    let (answer, answered) = oneshot::channel();
    let ask = Request::Resolve {
        host: proxy.host.clone(),
        answer,
    };
    dialling.requests.send(ask).await.ok()?;
    let mut found: Vec<SocketAddr> = answered.await.ok()?;
    for address in &mut found {
        address.set_port(proxy.port);
    }
    Some(found)
}

/// As people write it.
pub(crate) fn address_of(proxy: &Proxy) -> String {
    let host = proxy.host.to_string_lossy();
    match host.contains(':') {
        true => format!("[{host}]:{}", proxy.port),
        false => format!("{host}:{}", proxy.port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_leaves_at_once_is_dialled_after_a_pause_and_one_that_drains_without() {
        let mut backoff = Backoff::RECONNECT;
        let first = wait_after_leaving(Duration::from_secs(1), &mut backoff, u64::MAX);
        assert_eq!(first, Duration::from_millis(250));
        let mut longest = first;
        for _ in 0..20 {
            longest = wait_after_leaving(Duration::from_secs(1), &mut backoff, u64::MAX);
        }
        assert_eq!(longest, Backoff::ANSWERED / 2);
        let settled = wait_after_leaving(SETTLED, &mut backoff, u64::MAX);
        assert_eq!(settled, Duration::ZERO);
        let again = wait_after_leaving(Duration::from_secs(1), &mut backoff, u64::MAX);
        assert_eq!(again, first, "it worked: waits are short again");
    }
}
