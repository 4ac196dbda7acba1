//! A node without fleetgate: a plain sshd that trusts the cluster's user CA. The user's SSH ends here, at a host
//! certificate in the node's name, and a second connection is opened with a certificate for exactly this login, which
//! lives for minutes. Everything that SSH carries is passed on between the two; what the user's roles do not allow is
//! refused here, and sessions are told to the audit log, because the sshd can do neither.

mod agent;
mod host;
mod relay;

pub use agent::AgentFrames;

use super::door::{Answered, Caller, Door, GRACE, cookie, settings};
use super::end::{Bytes, End};
use fleetgate_policy::Permits;
use fleetgate_policy::cluster::Identity;
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{Event, Reason};
use fleetgate_ssh::key::{Certificate, HostKey, PrivateKey, PublicKey};
use std::future::Future;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;

/// How long the sshd may take until somebody is logged in there.
const REACH: Duration = Duration::from_secs(30);
/// How long a peer may take to read our last words.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// An answer that takes its time.
pub type Later<T> = Pin<Box<dyn Future<Output = Result<T, String>>>>;

/// What the proxy does for a connection to such a node.
pub trait Host {
    /// The node's name.
    fn name(&self) -> &str;
    /// The proxy's key with a host certificate in the node's name.
    fn host_key(&self) -> Later<Arc<HostKey>>;
    /// Whether this certificate lets its user in there under this name, and what he may do.
    fn check(&self, certificate: &Certificate, login: &str) -> Result<(Identity, Permits), String>;
    /// A connection to the sshd.
    fn connect(&self) -> Later<TcpStream>;
    /// A certificate for this key and the caller's login, a blob.
    fn sign(&self, caller: &Caller, key: &PublicKey) -> Later<Vec<u8>>;
    /// Whether this is the node's host key or certificate.
    fn trusts(&self, key: &[u8]) -> Result<(), String>;
    /// For the audit log.
    fn tell(&self, caller: Option<&Caller>, event: Told<'_>);
    /// Comes when somebody must not be in any more, with a sentence that says why.
    fn ended(&self, caller: &Caller) -> Pin<Box<dyn Future<Output = String>>>;
}

/// What is told of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// Somebody is in.
    In,
    /// A try that was refused.
    Refused(&'a str),
    /// A shell (none), or a command or subsystem.
    Began {
        /// `shell`, `exec`, `sftp` or `subsystem`.
        kind: &'a str,
        /// The command line or the subsystem's name.
        command: &'a [u8],
    },
    /// Its exit code; none: it has none to tell.
    Ended(Option<u32>),
    /// A request that no role allows.
    Denied(&'a str),
}

/// Serves one connection until it ends; the words say why, for the log.
pub async fn serve(
    stream: impl Bytes,
    source: SocketAddr,
    host: Rc<dyn Host>,
    agent: Option<AgentFrames>,
) -> String {
    let key = match host.host_key().await {
        Ok(key) => key,
        Err(why) => return why,
    };
    let core = Connection::server(settings(&key).into(), cookie());
    let mut user = User {
        end: End::new(core, stream),
        door: Door::new(key, source),
        host,
        permits: None,
    };
    let why = user.serve(agent).await;
    user.end.last_words(LAST_WORDS).await;
    why
}

/// The user's side.
struct User<S> {
    end: End<S>,
    door: Door,
    host: Rc<dyn Host>,
    permits: Option<Permits>,
}

impl<S: Bytes> User<S> {
    async fn serve(&mut self, agent: Option<AgentFrames>) -> String {
        let caller = match tokio::time::timeout(GRACE, poll_fn(|cx| self.poll_login(cx))).await {
            Ok(Ok(caller)) => caller,
            Ok(Err(why)) => return why,
            Err(_) => return self.leave(Reason::ByApplication, "nobody logged in in time".to_owned()),
        };
        self.host.tell(Some(&caller), Told::In);
        let ended = self.host.ended(&caller);
        let node = self.host.name().to_owned();
        let served = async {
            let reached = tokio::time::timeout(REACH, host::log_in(&*self.host, &caller)).await;
            let mut target = match reached {
                Ok(Ok(target)) => target,
                Ok(Err(why)) => return Err(format!("{node}: {why}")),
                Err(_) => return Err(format!("{node} did not answer within {} s", REACH.as_secs())),
            };
            let permits = self.permits.take().unwrap_or_else(Permits::all);
            let told = self.host.clone();
            let relay = relay::Relay::new(permits, agent, &*told, &caller);
            let why = relay.run(&mut self.end, &mut target, &mut self.door).await;
            target
                .core
                .disconnect(Reason::ByApplication, "the user's connection ended");
            target.last_words(LAST_WORDS).await;
            Ok(why)
        };
        let done = tokio::select! {
            done = served => done,
            why = ended => Err(why),
        };
        match done {
            Ok(why) => {
                self.end.core.disconnect(Reason::ByApplication, &why);
                why
            }
            Err(why) => self.leave(Reason::ByApplication, why),
        }
    }

    fn poll_login(&mut self, cx: &mut Context<'_>) -> Poll<Result<Caller, String>> {
        loop {
            while let Some(event) = self.end.core.poll().map_err(|e| e.to_string())? {
                match event {
                    Event::SignExchange(exchange) => self.door.sign(&mut self.end.core, &exchange)?,
                    Event::Auth(request) => {
                        let request = request.to_vec();
                        let (host, mut permits) = (self.host.clone(), None);
                        let allowed = std::cell::RefCell::new(&mut permits);
                        let check = |certificate: &_, login: &str| {
                            let (identity, may) = host.check(certificate, login)?;
                            **allowed.borrow_mut() = Some(may);
                            Ok(identity)
                        };
                        match self.door.decide(&mut self.end.core, &request, &check) {
                            Answered::In(caller) => {
                                self.permits = permits;
                                return Poll::Ready(Ok(caller));
                            }
                            Answered::Not(Some(why)) => host.tell(None, Told::Refused(&why)),
                            Answered::Not(None) => {}
                            Answered::Enough => {
                                let why = "too many tries".to_owned();
                                return Poll::Ready(Err(self.leave(Reason::NoMoreAuthMethods, why)));
                            }
                        }
                    }
                    _ => {}
                }
            }
            match self.end.poll_move(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Poll::Ready(Err(format!("the connection was lost: {e}"))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn leave(&mut self, reason: Reason, why: String) -> String {
        self.end.core.disconnect(reason, &why);
        why
    }
}

/// A key for one login.
fn fresh_key() -> Result<PrivateKey, String> {
    PrivateKey::generate(fleetgate_ssh::key::KeyType::Ed25519, "")
        .map(|(key, _)| key)
        .map_err(|e| format!("no key could be made: {e}"))
}
