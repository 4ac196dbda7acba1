//! What the proxy's SSH asks of the rest of the proxy: who somebody is, whether he may, and the way to a node. `ssh -J`
//! comes in here, and so do sessions on nodes without fleetgate, whose SSH ends at the proxy. All of it runs beside the
//! other tasks on the same thread.

use crate::auth;
use crate::carried::{Carried, sending};
use crate::dial::{self, User};
use crate::gate::{Gate, Guest};
use crate::mux::Begun;
use crate::ssh::door::{Caller, GRACE};
use crate::ssh::terminate::{self, AgentFrames, Host, Later, Shown, Told};
use crate::ssh::{Reaching, Ways, jump};
use crate::state::{Known, SKEW, now};
use crate::steps::Steps;
use crate::strangers::Place;
use fleetgate_net::dial as tcp;
use fleetgate_policy::cluster::{Allowed, Identity, Name, SSH_EXTENSION};
use fleetgate_policy::strangers::Offence;
use fleetgate_proto::v1::denied::Reason as Why;
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::{Denied, Dial, Frame, Via};
use fleetgate_ssh::codec::Reader;
use fleetgate_ssh::key::{Certificate, HostKey, KeyOrCertificate, KeyType, PublicKey, UserCheck};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::task::spawn_local;

/// What is on its way between a session on a node without fleetgate and its user, each way.
pub const BETWEEN: usize = 64 * 1024;

/// What comes here from the other tasks. It is bounded by the places of strangers and of sessions.
pub(crate) enum Local {
    /// A connection that begins with `S`.
    Ssh(Begun<TcpStream>, SocketAddr, Place, Guest),
    /// A session on a node without fleetgate; who hears why it has ended.
    Plain(
        DuplexStream,
        SocketAddr,
        Arc<Known>,
        Option<AgentFrames>,
        oneshot::Sender<String>,
    ),
}

/// Serves what comes, until the proxy ends.
pub(crate) async fn run(gate: Arc<Gate>, mut local: UnboundedReceiver<Local>) {
    while let Some(local) = local.recv().await {
        let gate = gate.clone();
        match local {
            Local::Ssh(stream, source, place, guest) => {
                _ = spawn_local(jumps(gate, stream, source, place, guest))
            }
            Local::Plain(stream, source, node, agent, leave) => {
                _ = spawn_local(async move {
                    let why = plain(gate, stream, source, node, agent).await;
                    // Nobody waits for it where the client has left.
                    let _ = leave.send(why);
                })
            }
        }
    }
}

async fn jumps<S>(gate: Arc<Gate>, stream: S, source: SocketAddr, place: Place, _guest: Guest)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let gives_way = place.given_up();
    let began = Instant::now();
    let jumps = Rc::new(Jumps(gate.clone(), RefCell::new(Some(place))));
    let why = tokio::select! {
        why = jump::serve(stream, source, jumps.clone()) => why,
        () = gives_way => "its place went to another source".to_owned(),
    };
    if jumps.1.borrow().is_some() && began.elapsed() >= GRACE {
        gate.strangers.offend(source.ip(), Offence::TooLate);
    }
    tracing::debug!(address = %source, "a jump has ended: {why}");
}

async fn plain<S>(
    gate: Arc<Gate>,
    stream: S,
    source: SocketAddr,
    node: Arc<Known>,
    agent: Option<AgentFrames>,
) -> String
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = node.node.name.clone();
    let host = Plain { gate, node, source };
    let why = terminate::serve(stream, source, Rc::new(host), agent).await;
    tracing::debug!(address = %source, node = name, "a session at a plain sshd has ended: {why}");
    why
}

/// `ssh -J`; the place among strangers until somebody is in.
struct Jumps(Arc<Gate>, RefCell<Option<Place>>);

impl Ways for Jumps {
    fn host_key(&self) -> Arc<HostKey> {
        self.0.host_key.borrow().clone()
    }

    fn check_user(&self, certificate: &Certificate, _name: &str) -> Result<Identity, String> {
        // The names in a certificate are accounts on nodes; who may log in where the nodes decide. Here its holder is
        // whom the identity names.
        let any: Vec<&str> = certificate.principals().iter().map(String::as_str).collect();
        let identity = shown(&self.0, certificate, &any, IpAddr::from([0, 0, 0, 0]))?;
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

    fn reach(&self, caller: &Rc<Caller>, node: &str) -> Reaching {
        let (gate, caller, node) = (self.0.clone(), caller.clone(), node.to_owned());
        Box::pin(async move { reach(gate, &caller, &node).await })
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
        tell(
            &self.0,
            "jump_refused",
            json!({ "source": source.to_string(), "reason": why }),
        );
    }

    fn ended(&self, identity: &Identity, certificate: &Certificate) -> Pin<Box<dyn Future<Output = String>>> {
        let (gate, identity) = (self.0.clone(), identity.clone());
        let expires = certificate.expires(SKEW);
        let certified = gate.certified(&identity);
        Box::pin(async move {
            let _certified = match certified {
                Ok(held) => held,
                Err(why) => return why,
            };
            let mut view = gate.view.subscribe();
            let over = async {
                match expires {
                    Some(at) => dial::until(at).await,
                    None => std::future::pending().await,
                }
            };
            let locks = async {
                loop {
                    if let Some(words) = gate.locked(&identity) {
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
                () = gate.stopped() => "the proxy stops".to_owned(),
            }
        })
    }
}

async fn reach(gate: Arc<Gate>, caller: &Caller, node: &str) -> Result<crate::ssh::Stream, String> {
    let user = user(caller);
    // Which account it will be is said inside, to the node: here any that the user may have there opens the way.
    let mut first = Dial {
        node: node.to_owned(),
        via: Some(Via {
            source: caller.source.to_string(),
            proxy: gate.name.to_string(),
            user: user.identity.user().map(ToString::to_string).unwrap_or_default(),
        }),
        ..Dial::default()
    };
    let mut steps = Steps::begin(&gate, &mut first);
    let entry = dial::enter(&gate, &user, &first).await;
    steps.ended("decide", 0);
    let refused = |denied: Denied| {
        let reason = denied.words;
        if gate.strangers.has_line(caller.source.ip(), "dial_denied", true) {
            tell(
                &gate,
                "dial_denied",
                json!({
                    "user": user.identity.user().map(Name::as_str),
                    "node": node,
                    "source": caller.source.to_string(),
                    "reason": reason,
                }),
            );
        }
        reason
    };
    let entry = entry.map_err(refused)?;
    tell(
        &gate,
        "dial",
        json!({
            "user": user.identity.user().map(Name::as_str),
            "node": node,
            "source": caller.source.to_string(),
            "by": "jump",
        }),
    );
    let tunnel = match entry.way {
        dial::Way::Tunnel(tunnel) => tunnel,
        dial::Way::Plain(known) => {
            let (here, there) = duplex(BETWEEN);
            let place = entry.place;
            let source = caller.source;
            spawn_local(async move {
                let _place = place;
                plain(gate, there, source, known, None).await;
            });
            return Ok(Box::new(here));
        }
    };
    let mut tunnel = tunnel;
    let (send, read) = loop {
        let (send, sent) = sending(Frame {
            kind: Some(Kind::Dial(first.clone())),
        });
        match dial::session(&tunnel, &entry.name, node, sent).await {
            Ok(read) => break (send, read),
            Err(failed) => match dial::newer(&gate, &first, &tunnel, failed.node_leaves).await {
                Some(newer) => tunnel = newer,
                None if failed.denied.reason() == Why::Busy => return Err(refused(failed.denied)),
                None => return Err(failed.denied.words),
            },
        }
    };
    steps.ended("open a stream", 1);
    Ok(Box::new(Carried::new(send, read, steps, entry.place)))
}

/// A node without fleetgate.
struct Plain {
    gate: Arc<Gate>,
    node: Arc<Known>,
    source: SocketAddr,
}

impl Host for Plain {
    fn name(&self) -> &str {
        &self.node.node.name
    }

    fn host_key(&self) -> Later<Shown> {
        let (gate, node) = (self.gate.clone(), self.node.node.name.clone());
        Box::pin(async move {
            let identity = gate.identity.borrow().clone();
            let public = identity.host_key(None)?.public().blob().to_vec();
            let (certificate, cookie) = auth::sign_host(&gate, node, public).await?;
            let key = identity.host_key(Some(&certificate)).map(Arc::new)?;
            Ok(Shown { key, cookie })
        })
    }

    fn check(&self, certificate: &Certificate, login: &str) -> Result<Identity, String> {
        let identity = shown(&self.gate, certificate, &[login], self.source.ip())?;
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
        let (gate, address) = (self.gate.clone(), self.node.node.address.clone());
        let name = Name::parse(&self.node.node.name);
        Box::pin(async move {
            let connected = tcp::connect(&address, tcp::DEADLINE).await;
            if let Ok(name) = name {
                gate.reachable.note(&name, connected.is_ok());
            }
            connected.map_err(|e| e.to_string())
        })
    }

    fn sign(&self, caller: &Caller, key: &PublicKey) -> Later<Vec<u8>> {
        let (gate, node) = (self.gate.clone(), self.node.node.name.clone());
        let (login, key) = (caller.name.clone(), key.blob().to_vec());
        let proof = caller.proof.clone();
        Box::pin(async move { auth::sign_login(&gate, node, login, key, &proof).await })
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
        let trust = &self.gate.view.borrow().state.trust.host_ca;
        certificate
            .check_host(&node.name, now(), SKEW, |ca| {
                trust.iter().any(|known| known == ca.blob())
            })
            .map_err(|e| format!("the certificate of the sshd of {}: {e}", node.name))
    }

    fn tell(&self, caller: Option<&Caller>, event: Told<'_>) {
        let strangers = &self.gate.strangers;
        if matches!(event, Told::Refused(_)) && !strangers.has_line(self.source.ip(), "login_refused", true) {
            return;
        }
        let (event, fields) = match event {
            Told::In => ("login_accepted", json!({})),
            Told::Refused(why) => ("login_refused", json!({ "reason": why })),
            Told::Began {
                session,
                kind,
                command,
            } => (
                "session_started",
                json!({ "session": session, "kind": kind, "command": String::from_utf8_lossy(&command[..command.len().min(4096)]) }),
            ),
            Told::Ended { session, code } => ("session_ended", json!({ "session": session, "code": code })),
            Told::Denied(what) => ("denied", json!({ "what": what })),
            Told::Out(why) => ("connection_ended", json!({ "reason": why })),
        };
        let who = json!({
            "node": self.node.node.name,
            "user": caller.and_then(|caller| caller.identity.user()).map(Name::as_str),
            "login": caller.map(|caller| caller.name.as_str()),
            "source": self.source.to_string(),
        });
        let (Value::Object(mut all), Value::Object(fields)) = (who, fields) else {
            return;
        };
        all.extend(fields);
        self.gate.audit.tell(event, &all);
    }

    fn ordered(&self, session: &str) -> Pin<Box<dyn Future<Output = String>>> {
        let (mut view, session) = (self.gate.view.subscribe(), session.to_owned());
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
        let (gate, node, login) = (
            self.gate.clone(),
            self.node.node.name.clone(),
            caller.name.clone(),
        );
        let user = user(caller);
        Box::pin(async move {
            let Ok(node) = Name::parse(&node) else {
                return "the node's name is none".to_owned();
            };
            let stopping = gate.clone();
            tokio::select! {
                refusal = dial::until_refused(gate, user, node, login) => refusal.words,
                () = stopping.stopped() => "the proxy stops".to_owned(),
            }
        })
    }
}

impl Plain {
    fn decide(&self, user: &User, login: &str) -> Result<Allowed, String> {
        let node = Name::parse(&self.node.node.name)?;
        // As it is registered now; the address was taken when the connection was.
        let labels = dial::labels_of(&self.gate, &node).unwrap_or_default();
        let view = self.gate.view.borrow();
        dial::decision(&view, user, &node, &labels, login).map_err(|no| no.words)
    }
}

fn user(caller: &Caller) -> User {
    User::by_ssh(&caller.identity, &caller.certificate, caller.source)
}

/// Who a certificate says it is, if it holds here for one of these names.
fn shown(gate: &Gate, certificate: &Certificate, names: &[&str], source: IpAddr) -> Result<Identity, String> {
    let view = gate.view.borrow();
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
    Identity::parse(bytes)
}

fn tell(gate: &Gate, event: &str, fields: Value) {
    let fields: Map<String, Value> = match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    gate.audit.tell(event, &fields);
}
