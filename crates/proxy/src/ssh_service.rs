//! What the proxy's SSH asks of the rest of the proxy: who somebody is, whether he may, and the way to a node. `ssh -J`
//! comes in here, and so do sessions on nodes without fleetgate, whose SSH ends at the proxy. All of it runs beside the
//! other tasks on the same thread.

use crate::auth;
use crate::denial::Why;
use crate::dial;
use crate::dial::access::{User, decision, labels_of, until_refused};
use crate::node_stream::{NodeStream, sending};
use crate::recorder::{FirstFrame, Opening};
use crate::shared::{BETWEEN, Local, Shared, UserConnection};
use crate::ssh::authenticator::{Caller, GRACE};
use crate::ssh::terminate::{self, Host, HostIdentity, Later, RecordedSession, SessionEvent};
use crate::ssh::{JumpAccess, StreamFuture, jump};
use crate::state::{InventoryNode, SKEW, now};
use crate::steps::Steps;
use crate::strangers::StrangerSlot;
use fleetgate_net::dial as tcp;
use fleetgate_policy::Recording;
use fleetgate_policy::cluster::{Allowed, Identity, Name, SSH_EXTENSION};
use fleetgate_policy::strangers::Offence;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::{Denied, Dial, Frame, Via};
use fleetgate_ssh::codec::Reader;
use fleetgate_ssh::key::{Certificate, HostKey, KeyOrCertificate, KeyType, PublicKey, UserCheck};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, duplex};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;

/// Serves what comes, until the proxy ends.
pub(crate) async fn run(shared: Arc<Shared>, mut local: UnboundedReceiver<Local>) {
    while let Some(local) = local.recv().await {
        let shared = shared.clone();
        match local {
            Local::Ssh(stream, source, place, guest) => {
                _ = spawn_local(jumps(shared, stream, source, place, guest))
            }
            Local::Plain(stream, source, node, leave) => {
                _ = spawn_local(async move {
                    let why = plain(shared, stream, source, node).await;
                    // Nobody waits for it where the client has left.
                    let _ = leave.send(why);
                })
            }
        }
    }
}

async fn jumps<S>(
    shared: Arc<Shared>,
    stream: S,
    source: SocketAddr,
    place: StrangerSlot,
    _guest: UserConnection,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let gives_way = place.given_up();
    let began = Instant::now();
    let jumps = Rc::new(Jumps(shared.clone(), RefCell::new(Some(place))));
    let why = tokio::select! {
        why = jump::serve(stream, source, jumps.clone()) => why,
        () = gives_way => "its place went to another source".to_owned(),
    };
    if jumps.1.borrow().is_some() && began.elapsed() >= GRACE {
        shared.strangers.offend(source.ip(), Offence::TooLate);
    }
    tracing::debug!(address = %source, "a jump has ended: {why}");
}

async fn plain<S>(shared: Arc<Shared>, stream: S, source: SocketAddr, node: Arc<InventoryNode>) -> String
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = node.node.name.clone();
    let host = Plain { shared, node, source };
    let why = terminate::serve(stream, source, Rc::new(host)).await;
    tracing::debug!(address = %source, node = name, "a session at a plain sshd has ended: {why}");
    why
}

/// `ssh -J`; the place among strangers until somebody is in.
struct Jumps(Arc<Shared>, RefCell<Option<StrangerSlot>>);

impl JumpAccess for Jumps {
    fn host_key(&self) -> Arc<HostKey> {
        self.0.host_key.borrow().clone()
    }

    fn check_user(&self, certificate: &Certificate, _name: &str) -> Result<Identity, String> {
        // The names in a certificate are accounts on nodes; who may log in where the nodes decide. Here its holder is
        // whom the identity names.
        let any: Vec<&str> = certificate.principals().iter().map(String::as_str).collect();
        let identity = certified_identity(&self.0, certificate, &any, IpAddr::from([0, 0, 0, 0]))?;
        match identity.user() {
            Some(_) => match self.0.locked(&identity) {
                Some(words) => Err(words),
                None => Ok(identity),
            },
            None => Err(format!(
                "the certificate is for {}, and only users come in",
                identity.subject
            )),
        }
    }

    fn reach(&self, caller: &Rc<Caller>, node: &str) -> StreamFuture {
        let (shared, caller, node) = (self.0.clone(), caller.clone(), node.to_owned());
        Box::pin(async move { reach(shared, &caller, &node).await })
    }

    fn entered(&self, source: SocketAddr) {
        self.0.strangers.proven(source.ip());
        self.1.take();
    }

    fn refused(&self, source: SocketAddr, why: &str) {
        self.0.strangers.offend(source.ip(), Offence::WrongKey);
        if !self.0.strangers.has_line(source.ip(), "jump_refused", false) {
            return;
        }
        let fields = json!({ "source": source.to_string(), "reason": why });
        self.0.audit.tell("jump_refused", &[&fields]);
    }

    fn ended(&self, identity: &Identity, certificate: &Certificate) -> Pin<Box<dyn Future<Output = String>>> {
        let (shared, identity) = (self.0.clone(), identity.clone());
        let expires = certificate.expires(SKEW);
        let certified = shared.certified(&identity);
        Box::pin(async move {
            let _certified = match certified {
                Ok(held) => held,
                Err(why) => return why,
            };
            let mut view = shared.view.subscribe();
            let over = async {
                match expires {
                    Some(at) => dial::until(at).await,
                    None => std::future::pending().await,
                }
            };
            let locks = async {
                loop {
                    if let Some(words) = shared.locked(&identity) {
                        return words;
                    }
                    if view.changed().await.is_err() {
                        return "the proxy stops".to_owned();
                    }
                }
            };
            tokio::select! {
                words = locks => words,
                () = over => "the certificate has expired: run fleetgate login".to_owned(),
                () = shared.stopped() => "the proxy stops".to_owned(),
            }
        })
    }
}

async fn reach(shared: Arc<Shared>, caller: &Caller, node: &str) -> Result<crate::ssh::Stream, String> {
    let user = user(caller);
    // Which account it will be is said inside, to the node: here any that the user may have there opens the way.
    let mut first = Dial {
        node: node.to_owned(),
        via: Some(Via {
            source: caller.source.to_string(),
            proxy: shared.name.to_string(),
            user: user.identity.user().map(ToString::to_string).unwrap_or_default(),
        }),
        ..Dial::default()
    };
    let mut steps = Steps::begin(&shared, &mut first);
    let entry = dial::enter(&shared, &user, &first).await;
    steps.ended("decide", 0);
    let refused = |denied: Denied| {
        let reason = denied.words;
        if shared.strangers.has_line(caller.source.ip(), "dial_denied", true) {
            shared.audit.tell(
                "dial_denied",
                &[&json!({
                    "user": user.identity.user().map(Name::as_str),
                    "node": node,
                    "source": caller.source.to_string(),
                    "reason": reason,
                })],
            );
        }
        reason
    };
    let entry = entry.map_err(refused)?;
    shared.audit.tell(
        "dial",
        &[&json!({
            "user": user.identity.user().map(Name::as_str),
            "node": node,
            "source": caller.source.to_string(),
            "by": "jump",
        })],
    );
    let tunnel = match entry.way {
        dial::Route::Tunnel(tunnel) => tunnel,
        dial::Route::Plain(known) => {
            let (here, there) = duplex(BETWEEN);
            let place = entry.place;
            let source = caller.source;
            spawn_local(async move {
                let _place = place;
                plain(shared, there, source, known).await;
            });
            return Ok(Box::new(here));
        }
    };
    let mut tunnel = tunnel;
    let (send, read) = loop {
        let (send, sent) = sending(Frame {
            kind: Some(Kind::Dial(first.clone())),
        });
        match dial::open_session(&tunnel, &entry.name, node, sent).await {
            Ok(read) => break (send, read),
            Err(failed) => match dial::newer(&shared, &first, &tunnel, failed.node_leaves).await {
                Some(newer) => tunnel = newer,
                None if failed.denied.reason() == Why::Busy => return Err(refused(failed.denied)),
                None => return Err(failed.denied.words),
            },
        }
    };
    steps.ended("open a stream", 1);
    Ok(Box::new(NodeStream::new(send, read, steps, entry.place)))
}

/// A node without fleetgate.
struct Plain {
    shared: Arc<Shared>,
    node: Arc<InventoryNode>,
    source: SocketAddr,
}

impl Host for Plain {
    fn name(&self) -> &str {
        &self.node.node.name
    }

    fn host_key(&self) -> Later<HostIdentity> {
        let (shared, node) = (self.shared.clone(), self.node.node.name.clone());
        Box::pin(async move {
            let identity = shared.identity.borrow().clone();
            let public = identity.host_key(None)?.public().blob().to_vec();
            let (certificate, cookie) = auth::sign_host(&shared, node, public).await?;
            let key = identity.host_key(Some(&certificate)).map(Arc::new)?;
            Ok(HostIdentity { key, cookie })
        })
    }

    fn check(&self, certificate: &Certificate, login: &str) -> Result<Identity, String> {
        let identity = certified_identity(&self.shared, certificate, &[login], self.source.ip())?;
        self.decide(&User::by_ssh(&identity, certificate, self.source), login)?;
        Ok(identity)
    }

    fn allowed(&self, caller: &Caller) -> Result<Allowed, String> {
        self.decide(&user(caller), &caller.name)
    }

    fn pinned(&self) -> Vec<KeyType> {
        let keys = self.node.node.host_keys.iter();
        keys.filter_map(|blob| PublicKey::parse(blob).ok())
            .map(|key| key.key_type())
            .collect()
    }

    fn connect(&self) -> Later<TcpStream> {
        let (shared, address) = (self.shared.clone(), self.node.node.address.clone());
        let name = Name::parse(&self.node.node.name);
        Box::pin(async move {
            let connected = tcp::connect(&address, tcp::DEADLINE).await;
            if let Ok(name) = name {
                shared.reachable.note(&name, connected.is_ok());
            }
            connected.map_err(|e| e.to_string())
        })
    }

    fn sign(&self, caller: &Caller, key: &PublicKey) -> Later<Vec<u8>> {
        let (shared, node) = (self.shared.clone(), self.node.node.name.clone());
        let (login, key) = (caller.name.clone(), key.blob().to_vec());
        let proof = caller.proof.clone();
        Box::pin(async move { auth::sign_login(&shared, node, login, key, &proof).await })
    }

    fn trusts(&self, key: &[u8]) -> Result<(), String> {
        let node = &self.node.node;
        let presented = KeyOrCertificate::parse(key).map_err(|e| e.to_string())?;
        if node
            .host_keys
            .iter()
            .any(|known| *known == *presented.key().blob())
        {
            return Ok(());
        }
        let KeyOrCertificate::Certificate(certificate) = presented else {
            return Err(format!(
                "the sshd of {} has the key {}, which is not registered: register the node again if it was changed",
                node.name,
                presented.key().fingerprint()
            ));
        };
        let trust = &self.shared.view.borrow().state.trust.host_ca;
        certificate
            .check_host(&node.name, now(), SKEW, |ca| {
                trust.iter().any(|known| known == ca.blob())
            })
            .map_err(|e| format!("the certificate of the sshd of {}: {e}", node.name))
    }

    fn tell(&self, caller: Option<&Caller>, event: SessionEvent<'_>) -> String {
        let strangers = &self.shared.strangers;
        if matches!(event, SessionEvent::Refused(_))
            && !strangers.has_line(self.source.ip(), "login_refused", true)
        {
            return String::new();
        }
        let (event, fields) = match event {
            SessionEvent::In => ("login_accepted", json!({})),
            SessionEvent::Refused(why) => ("login_refused", json!({ "reason": why })),
            SessionEvent::Began {
                session,
                kind,
                command,
                recording,
            } => (
                "session_started",
                json!({
                    "session": session,
                    "kind": kind,
                    "command": String::from_utf8_lossy(&command[..command.len().min(4096)]),
                    "recording": recording.ok().flatten().map(Recording::name),
                    "recorded": recording.err().map(|_| false),
                    "reason": recording.err(),
                }),
            ),
            SessionEvent::NotRecorded {
                session,
                reason,
                ended,
            } => (
                "not_recorded",
                json!({ "session": session, "reason": reason, "ended": ended }),
            ),
            SessionEvent::Ended { session, code } => {
                ("session_ended", json!({ "session": session, "code": code }))
            }
            SessionEvent::Denied(what) => ("denied", json!({ "what": what })),
            SessionEvent::Out(why) => ("connection_ended", json!({ "reason": why })),
        };
        let line = self.shared.audit.line(event, &[&self.who(caller), &fields]);
        self.shared.audit.write(line.clone());
        line
    }

    fn record(&self, caller: &Caller, session: &RecordedSession<'_>) -> Result<Opening, String> {
        let labels = Name::parse(&self.node.node.name)
            .ok()
            .and_then(|node| labels_of(&self.shared, &node))
            .unwrap_or_default();
        let frame = FirstFrame {
            session: session.session,
            node: &self.node.node.name,
            proxy: self.shared.name.as_str(),
            user: caller.identity.user().map(Name::as_str).unwrap_or_default(),
            login: &caller.name,
            client: &self.source.to_string(),
            kind: session.kind,
            command: session.command,
            terminal: session.terminal,
            recording: session.recording,
            recipients: session.recipients,
            roles: session.roles,
            keep: session.keep,
            labels: &labels,
        };
        self.shared.recorder.begin(&frame, self.who(Some(caller)))
    }

    fn ordered(&self, session: &str) -> Pin<Box<dyn Future<Output = String>>> {
        let (mut view, session) = (self.shared.view.subscribe(), session.to_owned());
        Box::pin(async move {
            loop {
                let order = {
                    let view = view.borrow_and_update();
                    let mut orders = view.state.locks.on_sessions(now());
                    orders
                        .find(|(id, _)| *id == session)
                        .map(|(_, lock)| lock.ended())
                };
                if let Some(words) = order {
                    return words;
                }
                if view.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        })
    }

    fn ended(&self, caller: &Caller) -> Pin<Box<dyn Future<Output = String>>> {
        let (shared, node, login) = (
            self.shared.clone(),
            self.node.node.name.clone(),
            caller.name.clone(),
        );
        let user = user(caller);
        Box::pin(async move {
            let Ok(node) = Name::parse(&node) else {
                return "the node's name is none".to_owned();
            };
            let stopping = shared.clone();
            tokio::select! {
                refusal = until_refused(shared, user, node, login) => refusal.words,
                () = stopping.stopped() => "the proxy stops".to_owned(),
            }
        })
    }
}

impl Plain {
    /// The fields of every audit event.
    fn who(&self, caller: Option<&Caller>) -> Value {
        json!({
            "node": self.node.node.name,
            "user": caller.and_then(|caller| caller.identity.user()).map(Name::as_str),
            "login": caller.map(|caller| caller.name.as_str()),
            "source": self.source.to_string(),
        })
    }

    fn decide(&self, user: &User, login: &str) -> Result<Allowed, String> {
        let node = Name::parse(&self.node.node.name)?;
        // As it is registered now; the address was taken when the connection was.
        let labels = labels_of(&self.shared, &node).unwrap_or_default();
        let view = self.shared.view.borrow();
        decision(&view, user, &node, &labels, login).map_err(|no| no.words)
    }
}

fn user(caller: &Caller) -> User {
    User::by_ssh(&caller.identity, &caller.certificate, caller.source)
}

/// Who a certificate says it is, if it holds here for one of these names.
fn certified_identity(
    shared: &Shared,
    certificate: &Certificate,
    names: &[&str],
    source: IpAddr,
) -> Result<Identity, String> {
    let view = shared.view.borrow();
    let trust = &view.state.trust.user_ca;
    let check = UserCheck {
        trusted: &|ca| trust.iter().any(|known| known == ca.blob()),
        principals: names,
        now: now(),
        skew: SKEW,
        source,
    };
    certificate.check_user(&check).map_err(|e| e.to_string())?;
    let value = certificate
        .extension(SSH_EXTENSION)
        .ok_or("the certificate carries no identity: run fleetgate login")?;
    let bytes = Reader::new(value).string("identity").map_err(|e| e.to_string())?;
    Ok(Identity::parse(bytes)?)
}
