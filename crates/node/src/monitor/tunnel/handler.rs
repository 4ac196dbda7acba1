//! The tunnel's side: what comes by a proxy arrives like anything else, and what the tunnel asks for is done where the
//! node needs it. A message that no honest tunnel sends ends it.

use super::state::FRESH_COSTS;
use crate::config::cluster::Cluster;
use crate::monitor::Monitor;
use crate::monitor::accept::{NewConnection, Via};
use crate::monitor::audit::Batch;
use crate::monitor::connections::quoted;
use crate::monitor::names::Lane;
use crate::monitor::recorder::Answer;
use crate::monitor::timers::now;
use crate::monitor::tunnel::{MAX_STATED, Tunnel, keys};
use crate::monitor::workers::{WorkerId, WorkerKind};
use fleetgate_net::tls::client_handshake_hash;
use fleetgate_policy::cluster::MAX_STATE;
use fleetgate_proto::signed;
use fleetgate_proto::v1::AuditBatch;
use fleetgate_sys::{Fd, stream};
use fleetgate_wire::common::Endpoint;
use fleetgate_wire::names::{About, Found};
use fleetgate_wire::node::tunnel::{FromTunnel, MAX_FIRST, ProxyStatement, Ticket, ToTunnel};
use fleetgate_wire::node::{Blob, ConnectionAddresses};
use prost::Message;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

impl Monitor {
    pub(crate) fn tunnel_woken(&mut self, id: u64) {
        match self.tunnel.as_ref().and_then(|tunnel| tunnel.about(id)) {
            None => {}
            Some(keys::START) => self.start_tunnel(),
            Some(keys::AUDIT) => {
                if let Some(batch) = self.tunnel.as_mut().and_then(Tunnel::delivered) {
                    self.ship(&batch);
                    if let Some(tunnel) = &mut self.tunnel {
                        tunnel.batch = Some(batch);
                    }
                }
            }
            Some(_) => self.renew(),
        }
    }

    /// A frame of a tunnel's.
    pub(crate) fn tunnel_says(&mut self, worker: WorkerId, frame: &[u8]) {
        let message = match fleetgate_wire::decode::<FromTunnel>(frame) {
            Ok(message) => message,
            Err(e) => return self.violated(WorkerKind::Tunnel, worker, None, &e.to_string()),
        };
        if let Err(why) = self.tunnel_asks(worker, message) {
            self.violated(WorkerKind::Tunnel, worker, None, why);
        }
    }

    /// An error is what no honest tunnel asks for.
    fn tunnel_asks(&mut self, worker: WorkerId, message: FromTunnel) -> Result<(), &'static str> {
        let Some(tunnel) = &mut self.tunnel else {
            return Ok(());
        };
        // One that was told to leave has sessions, and nothing else to say.
        let is_leaving = tunnel.worker != Some(worker);
        match message {
            FromTunnel::State { .. } | FromTunnel::Fresh { .. } if is_leaving && !self.draining => {}
            FromTunnel::Renewed { .. } if is_leaving => {}
            FromTunnel::Ready => {
                // A node without a port of its own serves from here on.
                if self.workers.is_there(self.lobby.worker) {
                    self.starter.ready();
                }
            }
            FromTunnel::Sign { ticket, message } => {
                if client_handshake_hash(&message).is_none() {
                    return Err("a signature over what is no TLS client's handshake");
                }
                if !tunnel.signatures.spend(1, now()) {
                    return Err("signatures without end");
                }
                let signature = Some(tunnel.key.sign(&message));
                let message = ToTunnel::Signed { ticket, signature };
                self.workers.say(worker, &message, Vec::new(), &self.tools.wakes);
            }
            FromTunnel::Resolve { host } => {
                if !tunnel.proxies.iter().any(|proxy| proxy.host == host) {
                    return Err("the address of what is no proxy");
                }
                let asked = (host, worker);
                if tunnel.looking.as_ref() != Some(&asked) && !tunnel.wanted.contains(&asked) {
                    tunnel.wanted.push_back(asked);
                }
                self.look_up();
            }
            FromTunnel::Arrived {
                ticket,
                vouched,
                first,
            } => {
                if first.len() > MAX_FIRST {
                    return Err("more first bytes than may be");
                }
                self.tunnelled(worker, ticket, &vouched, &first);
            }
            FromTunnel::State {
                piece,
                signature,
                more,
            } => {
                tunnel.pieces.extend_from_slice(&piece);
                if tunnel.pieces.len() > MAX_STATE {
                    return Err("a state that is longer than any");
                }
                if !more {
                    let document = std::mem::take(&mut tunnel.pieces);
                    return self.state_came(&document, &signature);
                }
            }
            FromTunnel::Fresh { document, signature } => {
                if !tunnel.documents.spend(FRESH_COSTS, now()) {
                    return Err("documents without end");
                }
                self.cluster_fresh(document, signature);
            }
            FromTunnel::Renewed {
                tls_chain,
                host_certificates,
                refused,
            } => {
                let bytes = |all: Vec<Blob>| all.into_iter().map(|blob| blob.bytes).collect();
                match refused.is_empty() {
                    true => self.renewed(bytes(tls_chain), bytes(host_certificates)),
                    false if tunnel.tells() => {
                        tracing::warn!("certificates are not renewed: {}", quoted(&refused))
                    }
                    false => {}
                }
            }
            FromTunnel::AuditKept { log, offset } => {
                let log = log.to_string_lossy();
                let is_ours =
                    |batch: &mut Batch| batch.log == log && batch.offset + batch.lines.len() as u64 == offset;
                if tunnel.batch.take_if(is_ours).is_some() {
                    self.tools.audit.kept(log.into_owned(), offset);
                }
            }
            FromTunnel::AuditUnkept { proxy, log, offset } => {
                if tunnel.tells() {
                    tracing::warn!(
                        proxy = quoted(&proxy),
                        log = quoted(&log),
                        offset,
                        "audit lines are not kept by the cluster yet: they are sent again"
                    );
                }
            }
            FromTunnel::Uploaded {
                session,
                proxy,
                answer,
            } => {
                let answer = Answer {
                    proxy: quoted(&proxy),
                    answer,
                    keys: self.tools.cluster.as_ref().map(Cluster::receipts),
                };
                if !is_leaving && !self.housekeeping.answered(session, answer) {
                    return Err("an answer about a recording that it was not asked about");
                }
            }
            FromTunnel::Attest { proxy } => {
                if !is_leaving {
                    if !tunnel.stated.contains(&proxy) {
                        tunnel.stated.truncate(MAX_STATED - 1);
                        tunnel.stated.insert(0, proxy.clone());
                    }
                    self.make_statements(&[proxy]);
                }
            }
            FromTunnel::Connected { proxy } => {
                if !tunnel.removed && tunnel.tells() {
                    tracing::info!(proxy = quoted(&proxy), "connected to a proxy");
                }
            }
            FromTunnel::Lost { proxy, why } => {
                if tunnel.tells() {
                    tracing::warn!(
                        proxy = quoted(&proxy),
                        "not connected to a proxy: {}",
                        quoted(&why)
                    );
                }
            }
        }
        Ok(())
    }

    /// A session: one end of a socket pair is the connection, the other is the tunnel's. What the client said already is in
    /// it before anybody looks.
    fn tunnelled(&mut self, worker: WorkerId, ticket: Ticket, vouched: &ProxyStatement, first: &[u8]) {
        let taken = pair(first).and_then(|(ours, theirs)| {
            let peer = &vouched.source;
            let arrived = NewConnection {
                source: peer.into(),
                addresses: ConnectionAddresses {
                    peer: peer.clone(),
                    local: NOWHERE,
                },
                socket: ours,
                via: Some(Via {
                    proxy: quoted(&vouched.proxy),
                    user: quoted(&vouched.user),
                    worker,
                    ticket,
                }),
            };
            if !self.workers.is_there(self.lobby.worker) || self.draining {
                return Err("the node takes no connections now".to_owned());
            }
            self.admit_connection(arrived).map(|number| (number, theirs))
        });
        let (message, fds) = match taken {
            Ok((number, theirs)) => {
                if vouched.explain || !vouched.trace.is_empty() {
                    self.tools.spans.watch(number, worker, ticket);
                }
                (ToTunnel::Session { ticket }, vec![theirs])
            }
            Err(why) => {
                let why = CString::new(why).unwrap_or_default();
                (ToTunnel::NotTaken { ticket, why }, Vec::new())
            }
        };
        self.workers.say(worker, &message, fds, &self.tools.wakes);
    }

    /// One name at a time: what hangs holds up proxies, and no login.
    fn look_up(&mut self) {
        if let Some(tunnel) = &mut self.tunnel
            && tunnel.looking.is_none()
            && let Some((host, worker)) = tunnel.wanted.pop_front()
        {
            let about = About::Host {
                name: host.clone(),
                port: 0,
            };
            tunnel.looking = Some((host, worker));
            let key = tunnel.wake(keys::NAME);
            self.tools.names.ask(Lane::IN, about, key);
        }
    }

    /// A proxy's addresses.
    pub(crate) fn proxy_named(&mut self, id: u64, found: Found) {
        let asked = self.tunnel.as_mut().filter(|tunnel| tunnel.about(id).is_some());
        let Some((host, worker)) = asked.and_then(|tunnel| tunnel.looking.take()) else {
            return;
        };
        let found = match found {
            Found::Host { addresses } => addresses,
            _ => Vec::new(),
        };
        let message = ToTunnel::Addresses { host, found };
        self.workers.say(worker, &message, Vec::new(), &self.tools.wakes);
        self.look_up();
    }

    /// Signs audit lines and has them sent.
    pub(super) fn ship(&mut self, batch: &Batch) {
        let Some(tunnel) = &self.tunnel else { return };
        let mut message = AuditBatch {
            log: batch.log.clone(),
            offset: batch.offset,
            lines: batch.lines.clone().into(),
            signature: Vec::new().into(),
            certificate: tunnel
                .joined
                .tls_chain
                .first()
                .cloned()
                .unwrap_or_default()
                .into(),
        };
        message.signature = tunnel
            .key
            .sign(&signed::audit(&tunnel.joined.node, &message))
            .into();
        let message = message.encode_to_vec();
        self.tell_tunnel(&ToTunnel::Audit { message });
    }
}

/// The node's end of a tunnelled connection has no address.
const NOWHERE: Endpoint = Endpoint {
    address: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0],
    scope: 0,
    port: 0,
};

/// A connected pair: ours with `first` to be read from it, and the tunnel's.
fn pair(first: &[u8]) -> Result<(Fd, Fd), String> {
    let made = || {
        let (ours, theirs) = UnixStream::pair()?;
        // Its runtime wants it so; ours is asked each time.
        theirs.set_nonblocking(true)?;
        Ok::<_, std::io::Error>((Fd::from(OwnedFd::from(ours)), Fd::from(OwnedFd::from(theirs))))
    };
    let (ours, theirs) = made().map_err(|e| format!("no socket for it: {e}"))?;
    match first.is_empty() || stream::send_now(theirs.raw(), first) == Ok(first.len()) {
        true => Ok((ours, theirs)),
        false => Err("its first bytes have no room".to_owned()),
    }
}
