//! The loop of the tunnel: hears the monitor and the connections' tasks, and has all that must be known to both. A
//! session's bytes do not come by here.

use crate::dial::{DialContext, LockedProxies, keep};
use crate::monitor_socket::{MonitorFrame, MonitorSigner, MonitorSocket};
use crate::pending::{Controls, Pending};
use crate::recordings::Outbox;
use crate::request::{AcceptedSession, Recording, Request};
use crate::text::c_string;
use fleetgate_net::backoff::random;
use fleetgate_net::tls::{self, Believe, Credentials, Trust};
use fleetgate_proto::v1::{AuditBatch, FromNode, NodeFacts, Renew, Span, Spans, Statement, from_node};
use fleetgate_sys::Fd;
use fleetgate_wire::node::tunnel::{self, FromTunnel, NodeDescription, Proxy, Settings, Ticket, ToTunnel};
use fleetgate_worker::start::WorkerEnd;
use prost::Message;
use std::collections::HashMap;
use std::ffi::CString;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, Notify, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

/// Requests of the connections' tasks that wait for the loop.
const REQUESTS: usize = 64;

pub(crate) struct EventLoop {
    monitor: Arc<MonitorSocket>,
    asks: mpsc::Receiver<Request>,
    ask: mpsc::Sender<Request>,
    node: Arc<str>,
    documents: Arc<Mutex<()>>,
    client: watch::Sender<tls::Client>,
    locked: watch::Sender<LockedProxies>,
    leave: watch::Sender<bool>,
    /// What proxies say is heard.
    hears: watch::Sender<bool>,
    dials: JoinSet<()>,
    dialled: Vec<(Proxy, AbortHandle)>,
    tickets: Ticket,
    arriving: HashMap<Ticket, PendingSession>,
    explaining: HashMap<Ticket, mpsc::Sender<Spans>>,
    resolving: HashMap<CString, Vec<oneshot::Sender<Vec<SocketAddr>>>>,
    controls: Controls,
    /// One of them ended.
    gone: Arc<Notify>,
    facts: NodeFacts,
    renew: Option<Pending>,
    audit: Option<Pending>,
    recordings: Outbox,
}

struct PendingSession {
    explains: bool,
    answer: oneshot::Sender<Result<AcceptedSession, String>>,
}

/// Serves until the monitor ends it; to be called inside the runtime.
pub(crate) async fn serve(socket: Fd, settings: Settings) -> WorkerEnd {
    let begun = async {
        let monitor = MonitorSocket::new(socket)?;
        let mut event_loop = EventLoop::new(monitor, settings)?;
        event_loop.monitor.say(&FromTunnel::Ready).await?;
        event_loop.run().await
    };
    let Err(ended) = begun.await;
    ended
}

impl EventLoop {
    fn new(monitor: Arc<MonitorSocket>, settings: Settings) -> Result<EventLoop, WorkerEnd> {
        let (ask, asks) = mpsc::channel(REQUESTS);
        let client = client(&monitor, &settings.credentials)?;
        let mut event_loop = EventLoop {
            monitor,
            asks,
            ask,
            node: settings.node.to_string_lossy().into(),
            documents: Arc::default(),
            client: watch::channel(client).0,
            locked: watch::channel(settings.credentials.locked.into()).0,
            leave: watch::channel(false).0,
            hears: watch::channel(true).0,
            dials: JoinSet::new(),
            dialled: Vec::new(),
            tickets: 0,
            arriving: HashMap::new(),
            explaining: HashMap::new(),
            resolving: HashMap::new(),
            controls: Vec::new(),
            gone: Arc::default(),
            facts: facts(settings.facts),
            renew: None,
            audit: None,
            recordings: Outbox::default(),
        };
        event_loop.dial(settings.proxies);
        Ok(event_loop)
    }

    async fn run(&mut self) -> Result<std::convert::Infallible, WorkerEnd> {
        let (monitor, gone) = (self.monitor.clone(), self.gone.clone());
        loop {
            let due = [&self.renew, &self.audit].into_iter().flatten();
            let due = due.filter_map(Pending::due).min();
            tokio::select! {
                heard = monitor.hear() => self.obey(heard?).await?,
                Some(ask) = self.asks.recv() => self.asked(ask).await?,
                () = until(due) => self.carry().await?,
                Some(_) = self.dials.join_next() => {}
                () = gone.notified() => {
                    self.controls.retain(|(_, control)| !control.is_closed());
                    self.carry().await?;
                }
            }
            let leaving = *self.leave.borrow();
            if leaving && self.dials.is_empty() {
                return Err(WorkerEnd::Quietly);
            }
        }
    }

    async fn obey(&mut self, (word, fds): MonitorFrame) -> Result<(), WorkerEnd> {
        match word {
            ToTunnel::Begin { .. } => return Err(WorkerEnd::Because("a second beginning".to_owned())),
            // Nobody waits for it any more.
            ToTunnel::Signed { .. } => {}
            ToTunnel::Addresses { host, found } => {
                let found: Vec<SocketAddr> = found.iter().map(SocketAddr::from).collect();
                for answer in self.resolving.remove(&host).unwrap_or_default() {
                    let _ = answer.send(found.clone());
                }
            }
            ToTunnel::Session { ticket } => {
                let Some(socket) = fds.into_iter().next() else {
                    return Err(WorkerEnd::Because("a session came without a socket".to_owned()));
                };
                self.taken(ticket, socket)?;
            }
            ToTunnel::NotTaken { ticket, why } => {
                if let Some(arriving) = self.arriving.remove(&ticket) {
                    let _ = arriving.answer.send(Err(why.to_string_lossy().into_owned()));
                }
            }
            ToTunnel::Spans { ticket, spans } => {
                if let Some(to) = self.explaining.remove(&ticket) {
                    // One lot of them; the session may be gone.
                    let _ = to.try_send(Spans {
                        spans: spans.into_iter().map(span).collect(),
                    });
                }
            }
            ToTunnel::Facts { facts: new } => {
                self.facts = facts(new);
                self.post_facts();
            }
            ToTunnel::Proxies { proxies } => self.dial(proxies),
            ToTunnel::Credentials { credentials } => {
                let client = client(&self.monitor, &credentials)?;
                self.client.send_replace(client);
                self.locked.send_replace(credentials.locked.into());
            }
            ToTunnel::Renew { message } => {
                let renew = Renew::decode(message.as_slice()).map_err(WorkerEnd::at("a request to renew"))?;
                self.renew = Some(Pending::new(from_node::Kind::Renew(renew)));
                self.carry().await?;
            }
            ToTunnel::Audit { message } => {
                let batch = AuditBatch::decode(message.as_slice()).map_err(WorkerEnd::at("audit records"))?;
                self.audit = Some(Pending::new(from_node::Kind::Audit(batch)));
                self.carry().await?;
            }
            ToTunnel::Statement { proxy, message } => {
                let statement =
                    Statement::decode(message.as_slice()).map_err(WorkerEnd::at("a statement"))?;
                // The stream that it is for was opened before the monitor was asked for it, and may wait among the requests.
                for _ in 0..REQUESTS {
                    let Ok(request) = self.asks.try_recv() else { break };
                    self.asked(request).await?;
                }
                let proxy = proxy.to_string_lossy();
                for (_, control) in self.controls.iter().filter(|(name, _)| **name == *proxy) {
                    // One that does not read gets the next.
                    let _ = control.try_send(post(from_node::Kind::Statement(statement.clone())));
                }
            }
            ToTunnel::Upload {
                session,
                signed,
                length,
                whole,
            } => {
                let Some(file) = fds.into_iter().next() else {
                    return Err(WorkerEnd::Because("a recording came without its file".to_owned()));
                };
                self.recordings.send(Recording {
                    session,
                    signed,
                    length,
                    whole,
                    file,
                });
            }
            ToTunnel::Drain { follows } => {
                if !follows {
                    // A control stream that goes on would keep its connection.
                    self.hears.send_replace(false);
                    self.controls.clear();
                }
                self.leave.send_replace(true);
                self.renew = None;
                self.audit = None;
                self.recordings.close();
            }
        }
        Ok(())
    }

    async fn asked(&mut self, ask: Request) -> Result<(), WorkerEnd> {
        match ask {
            Request::Arrived {
                vouched,
                first,
                explains,
                answer,
            } => {
                self.tickets += 1;
                let ticket = self.tickets;
                self.arriving.insert(ticket, PendingSession { explains, answer });
                let word = FromTunnel::Arrived {
                    ticket,
                    vouched,
                    first,
                };
                self.monitor.say(&word).await?;
            }
            Request::Resolve { host, answer } => {
                let waiting = self.resolving.entry(host.clone()).or_default();
                waiting.push(answer);
                if waiting.len() == 1 {
                    self.monitor.say(&FromTunnel::Resolve { host }).await?;
                }
            }
            Request::Control(proxy, control) => {
                if *self.leave.borrow() {
                    return Ok(());
                }
                let _ = control.try_send(post(from_node::Kind::Facts(self.facts.clone())));
                self.controls.push((proxy, control));
                self.carry().await?;
            }
            Request::Left(control) => {
                self.controls.retain(|(_, known)| !known.same_channel(&control));
                for pending in [&mut self.renew, &mut self.audit].into_iter().flatten() {
                    pending.take_from(&control);
                }
                self.carry().await?;
            }
            Request::Kept(position) => {
                if let Some(Pending { post, .. }) = &self.audit
                    && let Some(from_node::Kind::Audit(batch)) = &post.kind
                    && batch.log == position.log
                    && batch.offset + batch.lines.len() as u64 <= position.offset
                {
                    self.audit = None;
                }
            }
            Request::Unkept(position) => {
                if let Some(pending) = &mut self.audit
                    && let Some(from_node::Kind::Audit(batch)) = &pending.post.kind
                    && (batch.log.as_str(), batch.offset) == (position.log.as_str(), position.offset)
                    && let Some(proxy) = pending.failed(Instant::now(), random())
                {
                    self.tell_unkept(&proxy).await?;
                }
            }
            Request::Renewed => self.renew = None,
            Request::Recordings(_) | Request::Unsent(_) if *self.leave.borrow() => {}
            Request::Recordings(stream) => self.recordings.opened(stream),
            Request::Unsent(recording) => self.recordings.send(recording),
        }
        Ok(())
    }

    fn taken(&mut self, ticket: Ticket, socket: Fd) -> Result<(), WorkerEnd> {
        let Some(PendingSession { explains, answer }) = self.arriving.remove(&ticket) else {
            return Ok(());
        };
        let socket = std::os::unix::net::UnixStream::from(OwnedFd::from(socket));
        let socket = UnixStream::from_std(socket).map_err(WorkerEnd::at("watching a session's socket"))?;
        let spans = explains.then(|| {
            self.explaining.retain(|_, to| !to.is_closed());
            let (to, spans) = mpsc::channel(1);
            self.explaining.insert(ticket, to);
            spans
        });
        // Whoever asked may be gone: then the socket is closed here, and the monitor sees that.
        let _ = answer.send(Ok(AcceptedSession { socket, spans }));
        Ok(())
    }

    /// Holds a connection to each of these from now on, and to no other.
    fn dial(&mut self, proxies: Vec<Proxy>) {
        self.dialled.retain(|(proxy, task)| {
            let stays = proxies.contains(proxy);
            if !stays {
                task.abort();
            }
            stays
        });
        for proxy in proxies {
            if self.dialled.iter().any(|(known, _)| *known == proxy) {
                continue;
            }
            let dialling = DialContext {
                requests: self.ask.clone(),
                monitor: self.monitor.clone(),
                node: self.node.clone(),
                documents: self.documents.clone(),
                gone: self.gone.clone(),
                client: self.client.subscribe(),
                locked: self.locked.subscribe(),
                leave: self.leave.subscribe(),
                hears: self.hears.subscribe(),
            };
            let task = self.dials.spawn(keep(proxy.clone(), dialling));
            self.dialled.push((proxy, task));
        }
    }

    fn post_facts(&mut self) {
        for (_, control) in &self.controls {
            // One that does not read gets what is there when it does, or is gone.
            let _ = control.try_send(post(from_node::Kind::Facts(self.facts.clone())));
        }
    }

    /// Gives what is pending to a proxy that takes it, if nobody has it.
    async fn carry(&mut self) -> Result<(), WorkerEnd> {
        let now = Instant::now();
        if let Some(renew) = &mut self.renew {
            renew.give(&self.controls, now, random());
        }
        let silent = self.audit.as_mut();
        match silent.and_then(|audit| audit.give(&self.controls, now, random())) {
            Some(proxy) => self.tell_unkept(&proxy).await,
            None => Ok(()),
        }
    }

    /// Has the monitor log that this proxy did not have the batch kept.
    async fn tell_unkept(&self, proxy: &str) -> Result<(), WorkerEnd> {
        let Some(from_node::Kind::Audit(batch)) = self.audit.as_ref().and_then(|a| a.post.kind.as_ref())
        else {
            return Ok(());
        };
        let word = FromTunnel::AuditUnkept {
            proxy: c_string(proxy),
            log: c_string(&batch.log),
            offset: batch.offset,
        };
        self.monitor.say(&word).await
    }
}

/// Waits until then; without a time for ever.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

fn post(kind: from_node::Kind) -> FromNode {
    FromNode { kind: Some(kind) }
}

/// TLS with these certificates, whose key the monitor has.
fn client(monitor: &Arc<MonitorSocket>, from: &tunnel::Credentials) -> Result<tls::Client, WorkerEnd> {
    let trust =
        Trust::new(from.authorities.iter().map(|a| &a.bytes)).map_err(WorkerEnd::at("authorities"))?;
    let signer = Arc::new(MonitorSigner::new(monitor.clone()));
    let credentials = Credentials::remote(signer, from.chain.iter().map(|c| &c.bytes))
        .map_err(WorkerEnd::at("the node's certificate"))?;
    tls::Client::new(&Believe::Trust(trust), Some(&credentials), &[tls::TUNNEL]).map_err(WorkerEnd::at("TLS"))
}

fn facts(from: NodeDescription) -> NodeFacts {
    let text = |text: &CString| text.to_string_lossy().into_owned();
    NodeFacts {
        labels: from
            .labels
            .iter()
            .map(|l| (text(&l.name), text(&l.value)))
            .collect(),
        version: text(&from.version),
        address: text(&from.address),
        serial: from.serial,
    }
}

fn span(from: tunnel::Span) -> Span {
    Span {
        name: from.name.to_string_lossy().into_owned(),
        place: from.place.to_string_lossy().into_owned(),
        start: from.start,
        end: from.end,
        ..Span::default()
    }
}

#[cfg(test)]
mod tests {
    //! The order in which the loop hears the monitor and the connections' tasks.

    use super::*;
    use fleetgate_net::x509::{Authority, Key, Leaf};
    use fleetgate_sys::socket;
    use fleetgate_wire::node::Blob;

    /// Of a node that dials nobody, with the monitor's end of its socket.
    fn tunnel() -> (EventLoop, Fd) {
        let authority = Authority::generate("home", 0..u64::MAX >> 32).expect("made");
        let leaf = authority.issue(&Leaf {
            public: Key::generate().public().spki(),
            names: &[],
            client: true,
            server: false,
            identity: None,
            validity: 0..u64::MAX >> 32,
        });
        let blob = |bytes: &[u8]| Blob {
            bytes: bytes.to_vec(),
        };
        let settings = Settings {
            cluster: c"home".into(),
            node: c"web1".into(),
            proxies: Vec::new(),
            credentials: tunnel::Credentials {
                chain: vec![blob(&leaf.expect("issued"))],
                authorities: vec![blob(authority.certificate().der())],
                locked: Vec::new(),
            },
            facts: NodeDescription {
                labels: Vec::new(),
                version: c"1".into(),
                address: c"".into(),
                serial: 1,
            },
        };
        let (ours, theirs) = socket::pair().expect("a pair");
        let monitor = MonitorSocket::new(ours).expect("in a runtime");
        let Ok(tunnel) = EventLoop::new(monitor, settings) else {
            panic!("a tunnel")
        };
        (tunnel, theirs)
    }

    fn statement(proxy: &std::ffi::CStr) -> MonitorFrame {
        let message = Statement::default().encode_to_vec();
        let proxy = proxy.into();
        (ToTunnel::Statement { proxy, message }, Vec::new())
    }

    fn statements(words: &mut mpsc::Receiver<FromNode>) -> usize {
        std::iter::from_fn(|| words.try_recv().ok())
            .filter(|word| matches!(word.kind, Some(from_node::Kind::Statement(_))))
            .count()
    }

    #[tokio::test]
    async fn a_statement_reaches_its_proxy_also_when_the_monitor_is_heard_first() {
        let (mut tunnel, _monitor) = tunnel();
        let (to_first, mut first) = mpsc::channel(8);
        let (to_second, mut second) = mpsc::channel(8);
        // The stream was opened and the monitor has signed for it, before the loop has had its turn.
        for (proxy, to) in [("p2", to_second), ("p1", to_first)] {
            let opened = tunnel.ask.try_send(Request::Control(proxy.into(), to));
            assert!(opened.is_ok(), "there is room");
        }
        assert!(tunnel.obey(statement(c"p1")).await.is_ok());
        assert_eq!((statements(&mut first), statements(&mut second)), (1, 0));
        // Control: the loop has heard of both.
        assert!(tunnel.obey(statement(c"p2")).await.is_ok());
        assert_eq!((statements(&mut first), statements(&mut second)), (0, 1));
    }
}
