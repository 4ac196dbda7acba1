//! What the proxy's SSH asks of the rest of the proxy: who somebody is, whether he may, and the way to a node. `ssh -J`
//! comes in here, and so do sessions on nodes without fleetgate, whose SSH ends at the proxy. All of it runs beside the
//! other tasks on the same thread.

use crate::auth;
use crate::carried::{Carried, sending};
use crate::dial::{self, User};
use crate::gate::Gate;
use crate::mux::Begun;
use crate::places::Place;
use crate::ssh::door::Caller;
use crate::ssh::terminate::{self, AgentFrames, Host, Later, Shown, Told};
use crate::ssh::{Reaching, Ways, jump};
use crate::state::{Known, SKEW, now};
use crate::steps::Steps;
use fleetgate_net::dial as tcp;
use fleetgate_policy::cluster::{Allowed, Identity, Name, SSH_EXTENSION, Target};
use fleetgate_proto::v1::frame::Kind;
use fleetgate_proto::v1::{Dial, Frame, Via};
use fleetgate_ssh::codec::Reader;
use fleetgate_ssh::key::{Certificate, HostKey, KeyType, Presented, PublicKey, UserCheck};
use serde_json::{Map, Value, json};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;

/// What is on its way between a session on a node without fleetgate and its user, each way.
pub const BETWEEN: usize = 64 * 1024;

/// What comes here from the other tasks. It is bounded by the places of strangers and of sessions.
pub(crate) enum Local {
    /// A connection that begins with `S`.
    Ssh(Begun<TcpStream>, SocketAddr, Place<IpAddr>),
    /// A session on a node without fleetgate.
    Plain(DuplexStream, SocketAddr, Arc<Known>, Option<AgentFrames>),
}

/// Serves what comes, until the proxy ends.
pub(crate) async fn run(gate: Arc<Gate>, mut local: UnboundedReceiver<Local>) {
    while let Some(local) = local.recv().await {
        let gate = gate.clone();
        match local {
            Local::Ssh(stream, source, place) => _ = spawn_local(jumps(gate, stream, source, place)),
            Local::Plain(stream, source, node, agent) => {
                _ = spawn_local(plain(gate, stream, source, node, agent))
            }
        }
    }
}

async fn jumps<S>(gate: Arc<Gate>, stream: S, source: SocketAddr, place: Place<IpAddr>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // The place stays taken as long as the connection: SSH has no moment at which this side could give it back.
    let _place = place;
    let why = jump::serve(stream, source, Rc::new(Jumps(gate))).await;
    tracing::debug!(address = %source, "a jump has ended: {why}");
}

async fn plain<S>(
    gate: Arc<Gate>,
    stream: S,
    source: SocketAddr,
    node: Arc<Known>,
    agent: Option<AgentFrames>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = node.node.name.clone();
    let host = Plain { gate, node, source };
    let why = terminate::serve(stream, source, Rc::new(host), agent).await;
    tracing::debug!(address = %source, node = name, "a session at a plain sshd has ended: {why}");
}

/// `ssh -J`.
struct Jumps(Arc<Gate>);

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
            Some(user) => match locked(&self.0, &identity, user) {
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

    fn refused(&self, source: SocketAddr, why: &str) {
        tell(
            &self.0,
            "jump_refused",
            json!({ "source": source.to_string(), "reason": why }),
        );
    }

    fn ended(&self, identity: &Identity, certificate: &Certificate) -> Pin<Box<dyn Future<Output = String>>> {
        let (gate, identity) = (self.0.clone(), identity.clone());
        let expires = certificate.expires(SKEW);
        Box::pin(async move {
            let mut view = gate.view.subscribe();
            let over = async {
                match expires {
                    Some(at) => dial::until(at).await,
                    None => std::future::pending().await,
                }
            };
            let locks = async {
                loop {
                    let words = identity.user().and_then(|user| locked(&gate, &identity, user));
                    if let Some(words) = words {
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
                () = gate.left() => "the proxy stops".to_owned(),
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
    let entry = dial::admit(&gate, &user, &first);
    steps.ended("decide", 0);
    let entry = entry.map_err(|denied| {
        let reason = denied.words;
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
        reason
    })?;
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
    let (send, sent) = sending(Frame {
        kind: Some(Kind::Dial(first)),
    });
    let read = dial::session(&tunnel, node, sent)
        .await
        .map_err(|denied| denied.words)?;
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
        let address = self.node.node.address.clone();
        Box::pin(async move {
            tcp::connect(&address, tcp::DEADLINE)
                .await
                .map_err(|e| e.to_string())
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
        let presented = Presented::parse(key).map_err(|e| e.to_string())?;
        if node
            .host_keys
            .iter()
            .any(|known| *known == *presented.key().blob())
        {
            return Ok(());
        }
        let Presented::Certificate(certificate) = presented else {
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
        let (event, fields) = match event {
            Told::In => ("login_accepted", json!({})),
            Told::Refused(why) => ("login_refused", json!({ "reason": why })),
            Told::Began { kind, command } => (
                "session_started",
                json!({ "kind": kind, "command": String::from_utf8_lossy(&command[..command.len().min(4096)]) }),
            ),
            Told::Ended(code) => ("session_ended", json!({ "code": code })),
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
            let leaving = gate.clone();
            tokio::select! {
                refusal = dial::until_refused(gate, user, node, login, Some(0)) => refusal.words,
                () = leaving.left() => "the proxy stops".to_owned(),
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

/// The words of the lock on a user, his roles or his device, if there is one.
fn locked(gate: &Gate, identity: &Identity, user: &Name) -> Option<String> {
    let view = gate.view.borrow();
    let targets = std::iter::once(Target::User(user.clone()))
        .chain(identity.device.clone().map(Target::Device))
        .chain(identity.roles.iter().cloned().map(Target::Role));
    let lock = targets
        .into_iter()
        .find_map(|target| view.state.locks.on(&target, now(), identity.issued).cloned());
    lock.map(|lock| lock.refusal().words)
}

fn tell(gate: &Gate, event: &str, fields: Value) {
    let fields: Map<String, Value> = match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    gate.audit.tell(event, &fields);
}
