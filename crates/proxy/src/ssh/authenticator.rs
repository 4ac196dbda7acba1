//! The server's side of an SSH login at the proxy: signs key exchanges with the proxy's host key and takes certificates
//! of the cluster, nothing else. What somebody may do once he is in is not decided here.

use super::endpoint::{Bytes, Endpoint};
use fleetgate_policy::cluster::Identity;
use fleetgate_ssh::Connection;
use fleetgate_ssh::auth::{Method, PublicKey, Request};
use fleetgate_ssh::event::{AuthAnswer, Event, Exchange, Reason};
use fleetgate_ssh::key::{Algorithm, Certificate, HostKey, KeyOrCertificate, verify_touched};
use fleetgate_ssh::settings::{HostKeyOffer, Settings};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use zeroize::Zeroizing;

/// The software in the proxy's version line.
const SOFTWARE: &str = concat!("OpenSSH_compatible_fleetgate_", env!("CARGO_PKG_VERSION"));

/// How long somebody has to log in.
pub const GRACE: Duration = Duration::from_secs(60);
/// Tries to log in, of one connection.
pub const TRIES: u32 = 6;

/// Who is in.
#[derive(Clone, Debug)]
pub struct Caller {
    /// By the certificate's extension.
    pub identity: Identity,
    /// The name that was given to SSH.
    pub name: String,
    /// The certificate that it was proven by.
    pub certificate: Rc<Certificate>,
    /// From where.
    pub source: SocketAddr,
    /// By which whoever does not trust this proxy may see that he is here.
    pub proof: Rc<Proof>,
}

/// How a login was proven: what the user's client and this proxy agreed on, and what his key signed over it.
#[derive(Default)]
pub struct Proof {
    /// The first key exchange, encoded. It holds its secret.
    pub exchange: Zeroizing<Vec<u8>>,
    /// The USERAUTH_REQUEST as it came.
    pub request: Vec<u8>,
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof")
    }
}

/// Whether a certificate, whose holder proved to have its key, lets this name in here; the words are for the audit log.
pub type Check<'a> = &'a dyn Fn(&Certificate, &str) -> Result<Identity, String>;

/// What became of a request.
enum AuthResult {
    /// Somebody is in.
    In(Caller),
    /// Not yet; the core was answered. The words, for the audit log, of a try that counts.
    Not(Option<String>),
    /// Too often.
    Enough,
}

/// One connection's.
pub struct Authenticator {
    key: Arc<HostKey>,
    source: SocketAddr,
    session: Vec<u8>,
    host: Vec<u8>,
    exchange: Zeroizing<Vec<u8>>,
    tries: u32,
}

/// What the core of a connection to the proxy is set to.
pub fn settings(key: &HostKey) -> Settings {
    let offers = key.algorithms().into_iter().filter_map(|algorithm| {
        Some(HostKeyOffer {
            algorithm: algorithm.to_owned(),
            blob: key.blob(algorithm)?.to_vec(),
        })
    });
    let mut settings = Settings {
        software: SOFTWARE.into(),
        host_keys: offers.collect(),
        ..Settings::default()
    };
    // What a stalled leg may hold of its client, each.
    settings.limits.window = super::WINDOW;
    settings.limits.max_channels = super::MAX_CHANNELS;
    settings
}

/// The first line that a connection with these settings sends.
pub fn version_line() -> String {
    format!("SSH-2.0-{SOFTWARE}\r\n")
}

/// Random bytes for a KEXINIT.
pub fn cookie() -> [u8; 16] {
    let mut cookie = [0; 16];
    // The kernel's generator does not fail once it is up, and a cookie of zeroes would harm nobody.
    let _ = SystemRandom::new().fill(&mut cookie);
    cookie
}

impl Authenticator {
    /// For a connection from this address.
    pub fn new(key: Arc<HostKey>, source: SocketAddr) -> Authenticator {
        Authenticator {
            key,
            source,
            session: Vec::new(),
            host: Vec::new(),
            exchange: Zeroizing::default(),
            tries: 0,
        }
    }

    /// Who knocks.
    pub fn source(&self) -> SocketAddr {
        self.source
    }

    /// Signs.
    pub fn sign(&mut self, core: &mut Connection, exchange: &Exchange) -> Result<(), String> {
        let hash = exchange.hash().ok_or("the key exchange's method is not known")?;
        let signature = self
            .key
            .sign(&exchange.host_key_algorithm, hash.as_ref())
            .map_err(|e| format!("the host key does not sign: {e}"))?;
        if self.session.is_empty() {
            self.session = hash.as_ref().to_vec();
            self.host.clone_from(&exchange.host_key);
            self.exchange = exchange.encode();
        }
        core.signed(&signature, cookie());
        Ok(())
    }

    /// Moves the connection until somebody is in, or nobody will be: then the words say why. `refused` hears of each try that
    /// counts. The outer error is the stream's end.
    pub fn poll_login(
        &mut self,
        end: &mut Endpoint<impl Bytes>,
        check: Check<'_>,
        refused: &dyn Fn(&str),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Result<Caller, String>>> {
        loop {
            if let Some(done) = self.take_events(&mut end.core, check, refused).transpose() {
                return Poll::Ready(Ok(done));
            }
            ready!(end.poll_move(cx))?;
        }
    }

    fn take_events(
        &mut self,
        core: &mut Connection,
        check: Check<'_>,
        refused: &dyn Fn(&str),
    ) -> Result<Option<Caller>, String> {
        while let Some(event) = core.poll().map_err(|e| e.to_string())? {
            match event {
                Event::SignExchange(exchange) => self.sign(core, &exchange)?,
                Event::Auth(request) => {
                    let request = request.to_vec();
                    match self.decide(core, &request, check) {
                        AuthResult::In(caller) => return Ok(Some(caller)),
                        AuthResult::Not(Some(why)) => refused(&why),
                        AuthResult::Not(None) => {}
                        AuthResult::Enough => {
                            let why = "too many tries";
                            core.disconnect(Reason::NoMoreAuthMethods, why);
                            return Err(why.to_owned());
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Decides about a USERAUTH_REQUEST.
    fn decide(&mut self, core: &mut Connection, request: &[u8], check: Check<'_>) -> AuthResult {
        let (answer, answered, words) = self.answer(request, check);
        if let Some(words) = words {
            core.banner(format!("{words}\r\n").as_bytes());
        }
        core.answer_auth(answer);
        match answered {
            AuthResult::Not(Some(_)) if self.tries >= TRIES => AuthResult::Enough,
            answered => answered,
        }
    }

    /// The answer, and what is shown before it: why somebody who has the key is not let in.
    fn answer(&mut self, payload: &[u8], check: Check<'_>) -> (AuthAnswer, AuthResult, Option<String>) {
        let reject = || AuthAnswer::Reject {
            methods: vec!["publickey".to_owned()],
            partial: false,
        };
        let refused = |why: String| (reject(), AuthResult::Not(Some(why)), None);
        let request = match Request::parse(payload) {
            Ok(request) => request,
            Err(e) => return refused(format!("the request cannot be read: {e}")),
        };
        let key = match &request.method {
            Method::PublicKey(key) => key,
            Method::None => return (reject(), AuthResult::Not(None), None),
            _ => {
                self.tries += 1;
                return refused("the proxy takes certificates of the cluster, nothing else".to_owned());
            }
        };
        let name = String::from_utf8_lossy(request.user).into_owned();
        match self.key(key, &name, check) {
            Ok(Some(mut caller)) => {
                caller.proof = Rc::new(Proof {
                    exchange: std::mem::take(&mut self.exchange),
                    request: payload.to_vec(),
                });
                (AuthAnswer::Accept, AuthResult::In(caller), None)
            }
            Ok(None) => {
                let answer = AuthAnswer::KeyOk {
                    algorithm: key.algorithm.as_bytes().to_vec(),
                    key: key.key.to_vec(),
                };
                (answer, AuthResult::Not(None), None)
            }
            Err(AuthRefusal { why, proven }) => {
                self.tries += 1;
                let words = proven.then(|| why.clone());
                (reject(), AuthResult::Not(Some(why)), words)
            }
        }
    }

    /// Nobody: a key was asked about, and is to sign. Who may come in is said to who has signed, and to nobody else.
    fn key(&self, key: &PublicKey<'_>, name: &str, check: Check<'_>) -> Result<Option<Caller>, AuthRefusal> {
        let presented = KeyOrCertificate::parse(key.key).map_err(|e| e.to_string())?;
        if !Algorithm::parse(key.algorithm).is_some_and(|a| presented.fits(&a)) {
            // A stranger's word, which goes into a log.
            let algorithm: String = key.algorithm.chars().take(64).collect();
            return Err(format!("the algorithm {algorithm:?} does not fit the key").into());
        }
        if key.host_key.is_some_and(|k| k != self.host) {
            return Err("it is bound to another host key than this session's"
                .to_owned()
                .into());
        }
        let KeyOrCertificate::Certificate(certificate) = presented else {
            return Err(format!(
                "the key {} has no certificate: run `fleetgate login`",
                presented.key().fingerprint()
            )
            .into());
        };
        let Some(signature) = key.signature else {
            return Ok(None);
        };
        let data = key.signed_data(&self.session);
        let touch = fleetgate_ssh::key::Touch::NONE;
        verify_touched(certificate.key(), key.algorithm, &data, signature, touch)
            .map_err(|e| e.to_string())?;
        let identity = check(&certificate, name).map_err(|why| AuthRefusal { why, proven: true })?;
        Ok(Some(Caller {
            identity,
            name: name.to_owned(),
            certificate: Rc::new(*certificate),
            source: self.source,
            proof: Rc::default(),
        }))
    }
}

/// Why a key lets nobody in.
struct AuthRefusal {
    why: String,
    /// Whoever shows it has it.
    proven: bool,
}

impl From<String> for AuthRefusal {
    fn from(why: String) -> AuthRefusal {
        AuthRefusal { why, proven: false }
    }
}
