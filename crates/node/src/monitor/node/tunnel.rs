//! The tunnel's side: what comes by a proxy arrives like anything else, and what the tunnel asks for is done where the
//! node needs it. A word that no honest tunnel says ends it.

use super::Node;
use super::ends::quoted;
use crate::monitor::arrivals::{Arrived, address};
use crate::monitor::audit::{Batch, Shipping};
use crate::monitor::cluster::{Signed, StateWriter, removed_words};
use crate::monitor::names::Lane;
use crate::monitor::seats::{Seat, SeatId};
use crate::monitor::settings::offer;
use crate::monitor::timers::now;
use crate::monitor::tunnel::{MAX_STATED, Tunnel, Via, keys, proxies, renewal, signed_statement};
use fleetgate_net::tls::client_handshake_hash;
use fleetgate_policy::cluster::{Locks, MAX_STATE, Target};
use fleetgate_proto::signed;
use fleetgate_proto::v1::AuditBatch;
use fleetgate_sys::{Fd, clock, stream};
use fleetgate_wire::common::Endpoint;
use fleetgate_wire::names::{About, Found};
use fleetgate_wire::node::tunnel::{
    Credentials, Facts, FromTunnel, Label, LockedProxy, MAX_FIRST, MAX_LOCKED, Settings, Ticket, ToTunnel,
    Vouched,
};
use fleetgate_wire::node::{Blob, Ends};
use prost::Message;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A tunnel that lived for so long is started again at once.
const SETTLED: Duration = Duration::from_secs(10);
/// The first wait of one that did not, doubled each time.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(4));
/// How long a node that was removed waits before it asks a proxy again whether it still is.
const REMOVED: Duration = Duration::from_secs(60);
/// What a sign of freshness costs of the budget for documents.
const FRESH_COSTS: u64 = 4096;

impl Node {
    /// The first start, and all that belongs to it.
    pub(in crate::monitor) fn open_tunnel(&mut self) {
        let Some(tunnel) = &mut self.tunnel else { return };
        if let Some(cluster) = &self.tools.cluster
            && !cluster.state().proxies.is_empty()
        {
            tunnel.proxies = proxies(&cluster.state().proxies);
        }
        let watched =
            self.tools
                .wakes
                .watch(&tunnel.bell, fleetgate_sys::poll::READ, tunnel.wake(keys::AUDIT));
        match self.tools.audit.file() {
            None => tracing::warn!("the audit log is standard output: the cluster keeps nothing of it"),
            Some(log) => {
                let shipping = Shipping::new(log, tunnel.home.clone(), tunnel.deliver());
                if watched.is_err() || !self.tools.audit.ship(Some(shipping)) {
                    tracing::error!("the audit log is not sent on: the cluster keeps nothing of it");
                }
            }
        }
        self.keep_states();
        self.start_tunnel();
        self.plan_renewal(false);
    }

    /// States that come are kept for the next start from now on.
    pub(super) fn keep_states(&mut self) {
        let Some(tunnel) = &self.tunnel else { return };
        match StateWriter::start(tunnel.home.clone()) {
            Ok(writer) => self.tools.state_writer = Some(writer),
            Err(e) => tracing::error!("a newer state is not kept for the next start: {e}"),
        }
    }

    pub(super) fn tunnel_woken(&mut self, id: u64) {
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

    fn start_tunnel(&mut self) {
        let settings = self.settings();
        let Some((tunnel, settings)) = self.tunnel.as_mut().zip(settings) else {
            return;
        };
        if self.draining || tunnel.seat.is_some() {
            return;
        }
        tunnel.since = now();
        tunnel.ports = settings.proxies.iter().map(|proxy| proxy.port).collect();
        tunnel.pieces.clear();
        tunnel.stated.clear();
        match self.seats.start(Seat::Tunnel, &self.tools.wakes) {
            Ok(seat) => {
                tunnel.seat = Some(seat);
                let batch = tunnel.batch.clone();
                self.tell_tunnel(&ToTunnel::Begin { settings });
                if let Some(batch) = batch {
                    self.ship(&batch);
                }
            }
            Err(e) => {
                tracing::error!("the tunnel is not started: {e}");
                self.tunnel_again(BACKOFF.1);
            }
        }
    }

    /// It died: its sessions end by their sockets, and it is started again, later and later if it keeps dying.
    pub(super) fn tunnel_gone(&mut self, seat: SeatId) {
        self.parted.retain(|parted| *parted != seat);
        let Some(tunnel) = &mut self.tunnel else { return };
        tunnel.leaving.retain(|leaving| *leaving != seat);
        if tunnel.seat != Some(seat) {
            return;
        }
        tunnel.seat = None;
        tunnel.wanted.clear();
        let lived = now().saturating_sub(tunnel.since);
        tunnel.backoff = match lived >= SETTLED {
            true => Duration::ZERO,
            false => (tunnel.backoff * 2).clamp(BACKOFF.0, BACKOFF.1),
        };
        let backoff = tunnel.backoff;
        self.tunnel_again(backoff);
    }

    fn tunnel_again(&mut self, wait: Duration) {
        let Some(tunnel) = &mut self.tunnel else { return };
        if let Some(timer) = tunnel.again.take() {
            self.tools.timers.cancel(timer);
        }
        tunnel.again = Some(self.tools.timers.after(wait, tunnel.wake(keys::START)));
    }

    /// No more sessions come by it; those that are there go on.
    pub(super) fn drain_tunnel(&mut self) {
        if let Some(tunnel) = &mut self.tunnel
            && let Some(seat) = tunnel.seat.take()
        {
            tunnel.leaving.push(seat);
            let word = ToTunnel::Drain;
            self.seats.say(seat, &word, Vec::new(), &self.tools.wakes);
        }
    }

    fn tell_tunnel(&mut self, word: &ToTunnel) {
        if let Some(seat) = self.tunnel.as_ref().and_then(|tunnel| tunnel.seat) {
            self.seats.say(seat, word, Vec::new(), &self.tools.wakes);
        }
    }

    /// A frame of a tunnel's.
    pub(super) fn tunnel_says(&mut self, seat: SeatId, frame: &[u8]) {
        let word = match fleetgate_wire::decode::<FromTunnel>(frame) {
            Ok(word) => word,
            Err(e) => return self.violated(Seat::Tunnel, seat, None, &e.to_string()),
        };
        if let Err(why) = self.tunnel_asks(seat, word) {
            self.violated(Seat::Tunnel, seat, None, why);
        }
    }

    /// An error is what no honest tunnel asks for.
    fn tunnel_asks(&mut self, seat: SeatId, word: FromTunnel) -> Result<(), &'static str> {
        let Some(tunnel) = &mut self.tunnel else {
            return Ok(());
        };
        // One that was told to leave has sessions, and nothing else to say.
        let is_leaving = tunnel.seat != Some(seat);
        match word {
            FromTunnel::State { .. } | FromTunnel::Fresh { .. } | FromTunnel::Renewed { .. }
                if is_leaving => {}
            FromTunnel::Ready => {
                // A node without a port of its own serves from here on.
                if self.seats.is_there(self.lobby.seat) {
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
                let word = ToTunnel::Signed { ticket, signature };
                self.seats.say(seat, &word, Vec::new(), &self.tools.wakes);
            }
            FromTunnel::Resolve { host } => {
                if !tunnel.proxies.iter().any(|proxy| proxy.host == host) {
                    return Err("the address of what is no proxy");
                }
                let asked = (host, seat);
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
                self.tunnelled(seat, ticket, &vouched, &first);
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
    fn tunnelled(&mut self, seat: SeatId, ticket: Ticket, vouched: &Vouched, first: &[u8]) {
        let taken = pair(first).and_then(|(ours, theirs)| {
            let peer = &vouched.source;
            let arrived = Arrived {
                source: address(peer),
                ends: Ends {
                    peer: peer.clone(),
                    local: NOWHERE,
                },
                socket: ours,
                via: Some(Via {
                    proxy: quoted(&vouched.proxy),
                    user: quoted(&vouched.user),
                    seat,
                    ticket,
                }),
            };
            if !self.seats.is_there(self.lobby.seat) || self.draining {
                return Err("the node takes no connections now".to_owned());
            }
            self.arrived(arrived).map(|number| (number, theirs))
        });
        let (word, fds) = match taken {
            Ok((number, theirs)) => {
                if vouched.explain || !vouched.trace.is_empty() {
                    self.tools.steps.watch(number, seat, ticket);
                }
                (ToTunnel::Session { ticket }, vec![theirs])
            }
            Err(why) => {
                let why = CString::new(why).unwrap_or_default();
                (ToTunnel::NotTaken { ticket, why }, Vec::new())
            }
        };
        self.seats.say(seat, &word, fds, &self.tools.wakes);
    }

    /// A document of the cluster's state. An error: too many of them.
    fn state_came(&mut self, document: &[u8], signature: &[u8]) -> Result<(), &'static str> {
        let (Some(tunnel), Some(cluster)) = (&mut self.tunnel, &mut self.tools.cluster) else {
            return Ok(());
        };
        let known = cluster.signed();
        if known.document == document && known.signature == signature {
            // Another proxy's copy.
            self.leave_if_removed();
            return Ok(());
        }
        if !tunnel.documents.spend(document.len() as u64 + FRESH_COSTS, now()) {
            return Err("documents without end");
        }
        let before = cluster.state().serial;
        self.cluster_state(Signed {
            document: document.to_vec(),
            signature: signature.to_vec(),
        });
        if self.leave_if_removed() {
            return Ok(());
        }
        if self
            .tools
            .cluster
            .as_ref()
            .is_some_and(|c| c.state().serial != before)
        {
            self.follow_state();
        }
        Ok(())
    }

    /// A node that was removed is closed by every proxy behind the state that says so. It says so once, and asks again
    /// once a minute: who removed it may have taken that back.
    fn leave_if_removed(&mut self) -> bool {
        let Some((tunnel, cluster)) = self.tunnel.as_mut().zip(self.tools.cluster.as_ref()) else {
            return false;
        };
        let is_removed = cluster.is_removed(wall());
        if is_removed && !tunnel.removed {
            tracing::error!(
                "{}",
                removed_words(cluster.node().as_str(), cluster.state().cluster.as_str())
            );
        }
        tunnel.removed = is_removed;
        if is_removed {
            self.drain_tunnel();
            self.tunnel_again(REMOVED);
        }
        is_removed
    }

    /// Dials whom the state names, believes whom it believes, and says that it is known.
    fn follow_state(&mut self) {
        let Some(settings) = self.settings() else { return };
        let Some((tunnel, cluster)) = self.tunnel.as_mut().zip(self.tools.cluster.as_ref()) else {
            return;
        };
        let named = proxies(&cluster.state().proxies);
        if !named.is_empty() && named != tunnel.proxies {
            tunnel.proxies.clone_from(&named);
            // Ports that its sandbox does not know: another seat takes over, and this one ends with its sessions.
            if named.iter().any(|proxy| !tunnel.ports.contains(&proxy.port)) {
                self.drain_tunnel();
                return self.start_tunnel();
            }
            self.tell_tunnel(&ToTunnel::Proxies { proxies: named });
        }
        self.tell_tunnel(&ToTunnel::Credentials {
            credentials: settings.credentials,
        });
        self.tell_tunnel(&ToTunnel::Facts {
            facts: settings.facts,
        });
        self.renew_statements();
    }

    /// The labels changed.
    pub(in crate::monitor) fn tell_facts(&mut self) {
        if let Some(settings) = self.settings() {
            self.tell_tunnel(&ToTunnel::Facts {
                facts: settings.facts,
            });
            self.renew_statements();
        }
    }

    /// What the node says of itself changed: it is signed anew for each proxy.
    fn renew_statements(&mut self) {
        if let Some(stated) = self.tunnel.as_ref().map(|tunnel| tunnel.stated.clone()) {
            self.make_statements(&stated);
        }
    }

    /// Signs what the node says of itself, for each of these proxies.
    fn make_statements(&mut self, proxies: &[CString]) {
        let Some(facts) = self.settings().map(|settings| settings.facts) else {
            return;
        };
        let Some((tunnel, cluster)) = self.tunnel.as_mut().zip(self.tools.cluster.as_ref()) else {
            return;
        };
        let clock = clock::wall();
        let millis = wall() * 1000 + u64::from(clock.nsec / 1_000_000);
        let times = (cluster.state().as_of, millis);
        let mut words = Vec::new();
        for proxy in proxies {
            if !tunnel.statements.spend(1, now()) {
                break;
            }
            let name = proxy.to_string_lossy();
            let message = signed_statement(&tunnel.key, &tunnel.joined.node, &name, &facts, times);
            let proxy = proxy.clone();
            words.push(ToTunnel::Statement { proxy, message });
        }
        for word in &words {
            self.tell_tunnel(word);
        }
    }

    /// As a tunnel is told them.
    fn settings(&self) -> Option<Settings> {
        let (tunnel, cluster) = (self.tunnel.as_ref()?, self.tools.cluster.as_ref()?);
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let blobs = |all: &[Vec<u8>]| -> Vec<Blob> {
            all.iter().map(|bytes| Blob { bytes: bytes.clone() }).collect()
        };
        Some(Settings {
            cluster: text(&tunnel.joined.cluster),
            node: text(&tunnel.joined.node),
            proxies: tunnel.proxies.clone(),
            credentials: Credentials {
                chain: blobs(&tunnel.joined.tls_chain),
                authorities: blobs(&cluster.state().trust.tls_ca),
                locked: locked_proxies(&cluster.state().locks),
            },
            facts: Facts {
                labels: cluster
                    .labels()
                    .iter()
                    .map(|(name, value)| Label {
                        name: text(name),
                        value: text(value),
                    })
                    .collect(),
                version: text(env!("CARGO_PKG_VERSION")),
                address: text(""),
                serial: cluster.state().serial,
            },
        })
    }

    /// One name at a time: what hangs holds up proxies, and no login.
    fn look_up(&mut self) {
        if let Some(tunnel) = &mut self.tunnel
            && tunnel.looking.is_none()
            && let Some((host, seat)) = tunnel.wanted.pop_front()
        {
            let about = About::Host {
                name: host.clone(),
                port: 0,
            };
            tunnel.looking = Some((host, seat));
            let key = tunnel.wake(keys::NAME);
            self.tools.names.ask(Lane::IN, about, key);
        }
    }

    /// A proxy's addresses.
    pub(super) fn proxy_named(&mut self, id: u64, found: Found) {
        let asked = self.tunnel.as_mut().filter(|tunnel| tunnel.about(id).is_some());
        let Some((host, seat)) = asked.and_then(|tunnel| tunnel.looking.take()) else {
            return;
        };
        let found = match found {
            Found::Host { addresses } => addresses,
            _ => Vec::new(),
        };
        let word = ToTunnel::Addresses { host, found };
        self.seats.say(seat, &word, Vec::new(), &self.tools.wakes);
        self.look_up();
    }

    /// Signs audit lines and has them sent.
    fn ship(&mut self, batch: &Batch) {
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

    /// `tried`: it was asked for just now, and the answer may come yet.
    fn plan_renewal(&mut self, tried: bool) {
        let Some(tunnel) = &mut self.tunnel else { return };
        let Some(validity) = tunnel.validity() else { return };
        if let Some(timer) = tunnel.renewal.take() {
            self.tools.timers.cancel(timer);
        }
        // The calendar's clock may be set meanwhile: it is looked at again every hour.
        let left = renewal::due(&validity).saturating_sub(wall());
        let wait = match left {
            0 if tried => renewal::again(&validity),
            left => Duration::from_secs(left.min(3600)),
        };
        tunnel.renewal = Some(self.tools.timers.after(wait, tunnel.wake(keys::RENEW)));
    }

    fn renew(&mut self) {
        let keys = self.offer.keys.public();
        if let Some(tunnel) = &self.tunnel
            && let Some(validity) = tunnel.validity()
            && renewal::due(&validity) <= wall()
        {
            let leaf = tunnel.joined.tls_chain.first().map_or(&[][..], Vec::as_slice);
            let message = renewal::request(&tunnel.key, &keys, leaf);
            self.tell_tunnel(&ToTunnel::Renew { message });
        }
        self.plan_renewal(true);
    }

    /// Newer certificates: checked, written, and shown from now on.
    fn renewed(&mut self, tls_chain: Vec<Vec<u8>>, host_certificates: Vec<Vec<u8>>) {
        let keys = self.offer.keys.public();
        let (Some(tunnel), Some(cluster)) = (&mut self.tunnel, &self.tools.cluster) else {
            return;
        };
        let state = cluster.state();
        let checked = renewal::accept(
            &tunnel.joined,
            &tunnel.key,
            &keys,
            state,
            tls_chain,
            host_certificates,
            wall(),
        );
        let config = self.tools.config.clone();
        let joined = match checked {
            Ok(joined) => joined,
            Err(why) if tunnel.tells() => return tracing::error!("certificates are not renewed: {why}"),
            Err(_) => return,
        };
        let kept = tunnel
            .home
            .directory()
            .and_then(|directory| joined.save(directory));
        if let Err(why) = kept {
            return tracing::error!("newer certificates are not used: {why}");
        }
        tunnel.joined = joined;
        tracing::info!("certificates were renewed");
        match offer(&config, self.tools.user_mode) {
            Ok(offer) => self.offer_this(offer),
            Err(why) => tracing::error!("newer host certificates are not shown: {why}"),
        }
        if let Some(settings) = self.settings() {
            self.tell_tunnel(&ToTunnel::Credentials {
                credentials: settings.credentials,
            });
        }
        self.plan_renewal(true);
    }
}

/// The state's locks on proxies, as the tunnel is told them.
fn locked_proxies(locks: &Locks) -> Vec<LockedProxy> {
    let on_proxies = locks.iter().filter_map(|lock| match &lock.target {
        Target::Proxy(name) => Some((lock.created, name, lock)),
        _ => None,
    });
    let mut newest_first: Vec<_> = on_proxies.collect();
    newest_first.sort_by_key(|(created, ..)| std::cmp::Reverse(*created));
    let told = newest_first.into_iter().take(MAX_LOCKED);
    told.map(|(_, name, lock)| LockedProxy {
        name: CString::new(name.as_str()).unwrap_or_default(),
        serial_before: lock.serial_before.unwrap_or(u64::MAX),
        expires: lock.expires.unwrap_or(u64::MAX),
    })
    .collect()
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

/// Unix seconds.
fn wall() -> u64 {
    u64::try_from(clock::wall().sec).unwrap_or(0)
}
