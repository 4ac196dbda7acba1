//! A node without fleetgate: a plain sshd that trusts the cluster's user CA. The user's SSH ends here, at a host
//! certificate in the node's name, and a second connection is opened with a certificate for exactly this login, which
//! lives for minutes. Everything that SSH carries is passed on between the two; what the user's roles do not allow is
//! refused here, and sessions are told to the audit log, because the sshd can do neither.

mod host;
mod pair;
mod programs;
mod recorded;
mod relay;
mod requests;

use super::authenticator::{self, Authenticator, Caller, GRACE, settings};
use super::endpoint::{Bytes, Endpoint};
use crate::recorder::{Opening, Terminal};
use fleetgate_policy::cluster::{Allowed, Identity, Name};
use fleetgate_policy::{Recipient, Recording};
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::Reason;
use fleetgate_ssh::key::{Certificate, HostKey, KeyType, PrivateKey, PublicKey};
use fleetgate_ssh::settings::{HostKeyOffer, Settings};
use std::future::Future;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
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
    /// What the user is shown.
    fn host_key(&self) -> Later<HostIdentity>;
    /// Whether this certificate lets its user in there under this name.
    fn check(&self, certificate: &Certificate, login: &str) -> Result<Identity, String>;
    /// What he may do there, by the state as it is now: it is asked again for each session and each forwarding.
    fn allowed(&self, caller: &Caller) -> Result<Allowed, String>;
    /// A connection to the sshd.
    fn connect(&self) -> Later<TcpStream>;
    /// A certificate for this key and the caller's login, a blob; for what proves that he is here.
    fn sign(&self, caller: &Caller, key: &PublicKey) -> Later<Vec<u8>>;
    /// The types of the host keys by which it is registered, so that it shows one of those; none: it is known by its host
    /// certificate.
    fn pinned(&self) -> Vec<KeyType>;
    /// Whether this is the node's host key or certificate.
    fn trusts(&self, key: &[u8]) -> Result<(), String>;
    /// For the audit log: the line that stands in it, if there is one.
    fn tell(&self, caller: Option<&Caller>, event: SessionEvent<'_>) -> String;
    /// Begins a session's recording.
    fn record(&self, caller: &Caller, session: &RecordedSession<'_>) -> Result<Opening, String>;
    /// Comes when somebody must not be in any more, with a sentence that says why.
    fn ended(&self, caller: &Caller) -> Pin<Box<dyn Future<Output = String>>>;
    /// Comes when an administrator ordered the end of this one session, with a sentence that says so.
    fn ordered(&self, session: &str) -> Pin<Box<dyn Future<Output = String>>>;
}

/// What a user's key exchange is made with.
pub struct HostIdentity {
    /// The proxy's key with a host certificate in the node's name.
    pub key: Arc<HostKey>,
    /// By which auth knows the exchange again.
    pub cookie: [u8; 16],
}

/// What is told of a connection.
#[derive(Clone, Copy, Debug)]
pub enum SessionEvent<'a> {
    /// Somebody is in.
    In,
    /// A try that was refused.
    Refused(&'a str),
    /// A shell (none), or a command or subsystem.
    Began {
        /// Its id: 32 hexadecimal digits that no other session has.
        session: &'a str,
        /// `shell`, `exec`, `sftp` or `subsystem`.
        kind: &'a str,
        /// The command line or the subsystem's name.
        command: &'a [u8],
        /// How much of it is recorded, or why nothing is though a role wants that.
        recording: Result<Option<Recording>, &'a str>,
    },
    /// One that has to be recorded cannot be, or cannot be any more.
    NotRecorded {
        /// Its id.
        session: &'a str,
        /// Why.
        reason: &'a str,
        /// So it was refused or ended.
        ended: bool,
    },
    /// A program's end.
    Ended {
        /// Its id.
        session: &'a str,
        /// Its exit code; none: it has none to tell.
        code: Option<u32>,
    },
    /// A request that no role allows.
    Denied(&'a str),
    /// Who was in is so no more; why.
    Out(&'a str),
}

/// A session that is to be recorded.
#[derive(Clone, Copy, Debug)]
pub struct RecordedSession<'a> {
    /// Its id.
    pub session: [u8; 16],
    /// `shell`, `exec`, `sftp` or `subsystem`.
    pub kind: &'a str,
    /// The command line or the subsystem's name.
    pub command: &'a [u8],
    /// The terminal that it asked for.
    pub terminal: Option<&'a Terminal>,
    /// How much is recorded.
    pub recording: Recording,
    /// For whom the recording is encrypted; nobody: it is readable.
    pub recipients: &'a [Recipient],
    /// The roles that let its user in.
    pub roles: &'a [Name],
    /// For how long the cluster keeps the recording, where a role says so.
    pub keep: Option<Duration>,
}

/// Serves one connection until it ends; the words say why, for the log.
pub async fn serve(stream: impl Bytes, source: SocketAddr, host: Rc<dyn Host>) -> String {
    let HostIdentity { key, cookie } = match host.host_key().await {
        Ok(shown) => shown,
        Err(why) => {
            // Whether the client reads it or not.
            host.tell(None, SessionEvent::Refused(&why));
            return turn_away(stream, why).await;
        }
    };
    let core = Connection::server(settings(&key).into(), cookie);
    let mut user = User {
        end: Endpoint::new(core, stream),
        authenticator: Authenticator::new(key, source),
        host,
    };
    let why = user.serve().await;
    user.end.last_words(LAST_WORDS).await;
    why
}

/// There is no key to go on with: all that can be said is why. One that nobody is shown is offered, also as a certificate's,
/// so that the client has something to agree on and reads what stands behind.
async fn turn_away(stream: impl Bytes, why: String) -> String {
    let blob = fresh_key()
        .map(|key| key.public().blob().to_vec())
        .unwrap_or_default();
    let offered = [host::ALGORITHM, "ssh-ed25519"].map(|algorithm| HostKeyOffer {
        algorithm: algorithm.to_owned(),
        blob: blob.clone(),
    });
    let settings = Settings {
        host_keys: offered.into(),
        ..Settings::default()
    };
    let mut end = Endpoint::new(
        Connection::server(settings.into(), authenticator::cookie()),
        stream,
    );
    end.core.disconnect(Reason::ServiceNotAvailable, &why);
    end.hear_out(LAST_WORDS).await;
    end.last_words(LAST_WORDS).await;
    why
}

/// The user's side.
struct User<S> {
    end: Endpoint<S>,
    authenticator: Authenticator,
    host: Rc<dyn Host>,
}

impl<S: Bytes> User<S> {
    async fn serve(&mut self) -> String {
        let mut caller = match tokio::time::timeout(GRACE, poll_fn(|cx| self.poll_login(cx))).await {
            Ok(Ok(caller)) => caller,
            Ok(Err(why)) => return why,
            Err(_) => return self.leave(Reason::ByApplication, "nobody logged in in time".to_owned()),
        };
        self.host.tell(Some(&caller), SessionEvent::In);
        let why = self.relay(&mut caller).await;
        self.host.tell(Some(&caller), SessionEvent::Out(&why));
        why
    }

    /// From the login to the connection's end.
    async fn relay(&mut self, caller: &mut Caller) -> String {
        let mut ended = self.host.ended(caller);
        // Whoever may no longer be there is lost with the way he came by, too: the reason is the first.
        let reached = tokio::select! {
            biased;
            why = &mut ended => Err(why),
            reached = self.reach(caller) => reached,
        };
        let mut target = match reached {
            Ok(target) => target,
            // By this reason a client knows that nothing was begun.
            Err(why) => return self.leave(Reason::ServiceNotAvailable, why),
        };
        // It was of use once.
        caller.proof = Rc::default();
        let told = self.host.clone();
        let mut relay = relay::Relay::new(&*told, caller);
        let why = tokio::select! {
            biased;
            why = ended => {
                relay.kill(&mut target.core);
                why
            }
            why = relay.run(&mut self.end, &mut target, &mut self.authenticator) => why,
        };
        relay.tell_ends();
        target
            .core
            .disconnect(Reason::ByApplication, "the user's connection ended");
        self.end.core.disconnect(Reason::ByApplication, &why);
        target.last_words(LAST_WORDS).await;
        why
    }

    /// The sshd, with the caller logged in there.
    async fn reach(&self, caller: &Caller) -> Result<Endpoint<TcpStream>, String> {
        let node = self.host.name();
        match tokio::time::timeout(REACH, host::log_in(&*self.host, caller)).await {
            Ok(reached) => reached.map_err(|why| format!("{node}: {why}")),
            Err(_) => Err(format!("{node} did not answer within {} s", REACH.as_secs())),
        }
    }

    fn poll_login(&mut self, cx: &mut Context<'_>) -> Poll<Result<Caller, String>> {
        let host = &self.host;
        let check = |certificate: &_, login: &str| host.check(certificate, login);
        let refused = |why: &str| drop(host.tell(None, SessionEvent::Refused(why)));
        let done = ready!(self.authenticator.poll_login(&mut self.end, &check, &refused, cx));
        Poll::Ready(done.map_err(|e| format!("the connection was lost: {e}"))?)
    }

    fn leave(&mut self, reason: Reason, why: String) -> String {
        self.end.core.disconnect(reason, &why);
        why
    }
}

/// A key for one login.
fn fresh_key() -> Result<PrivateKey, String> {
    PrivateKey::generate(KeyType::Ed25519, "")
        .map(|(key, _)| key)
        .map_err(|e| format!("no key could be made: {e}"))
}
