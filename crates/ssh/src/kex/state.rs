//! Where a key exchange stands, for either role. It reads and writes the messages of the exchange and changes the keys;
//! the host's signature and the trust in it are its owner's.

use super::exchange::Derivation;
use super::ext_info::send_extensions;
use super::kexinit::{self, KexInit};
use super::share::{ClientShare, Secret, respond};
use crate::cipher::Keys;
use crate::codec::{Write, read_message};
use crate::event::{End, Exchange, Reason};
use crate::info::{Algorithms, ConnectionInfo};
use crate::message::{KEX_INIT, KEX_REPLY, KEXINIT, NEWKEYS};
use crate::method::Method;
use crate::random;
use crate::settings::{FirstShare, Role, Settings};
use crate::transport::{Inbox, Outgoing};
use ring::digest::Digest;
use std::mem;

/// Key exchanges of one connection, one after the other.
pub(crate) struct Kex {
    role: Role,
    step: Step,
    /// The peer guessed wrong: its next packet does not count (RFC 4253 §7).
    skip: bool,
    /// Server: for the next KEXINIT.
    cookie: Option<[u8; 16]>,
    /// An exchange is to begin as soon as there is a cookie.
    wanted: bool,
    session_id: Option<Vec<u8>>,
    /// The first exchange is done.
    established: bool,
    /// Agreed on in the first exchange, and kept.
    strict: bool,
    /// The peer reads EXT_INFO: said in its first KEXINIT.
    ext_info: bool,
    /// The host key of the last exchange; a client asks its owner about another one only.
    host_key: Vec<u8>,
}

/// Where the exchange stands. Each step holds what the next message needs, so no message can find it missing.
enum Step {
    /// None is under way.
    Idle,
    /// Our KEXINIT is sent.
    Offered(Offer),
    /// Server: the peer's KEXINIT came, and there is no cookie for ours.
    NoCookie(Vec<u8>),
    /// Server: KEX_ECDH_INIT is to come.
    Init(Box<Negotiation>),
    /// Server: the owner signs for this share.
    Signature(Box<(SharedSecret, Vec<u8>)>),
    /// Client: KEX_ECDH_REPLY is to come.
    Reply(Box<(Negotiation, ClientShare)>),
    /// Client: the owner decides about the host key.
    Trust(Box<SharedSecret>),
    /// NEWKEYS is to come, then these keys count.
    NewKeys(Box<Keys>),
}

/// What we sent to begin an exchange.
struct Offer {
    /// The payload.
    kexinit: Vec<u8>,
    /// Client: a share that was sent ahead.
    ahead: Option<ClientShare>,
    /// It was marked as a guess.
    is_guess: bool,
}

/// Both KEXINITs, and what they agree on.
struct Negotiation {
    ours: Vec<u8>,
    theirs: Vec<u8>,
    algorithms: Algorithms,
}

/// An exchange whose secret is known.
struct SharedSecret {
    algorithms: Algorithms,
    secret: Secret,
    hash: Digest,
    host_key: Vec<u8>,
}

/// The connection's parts that an exchange reads and changes.
pub(crate) struct Transport<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) inbox: &'a mut Inbox,
    pub(crate) out: &'a mut Outgoing,
    pub(crate) info: &'a mut ConnectionInfo,
    /// Ours, without CR LF.
    pub(crate) version: &'a str,
}

/// What came of a message.
pub(crate) enum Progress {
    /// Nothing to tell.
    None,
    /// Server: sign this.
    Sign(Box<Exchange>),
    /// Client: is this [`Kex::host_key`] the right one?
    HostKey,
    /// New keys count in both directions.
    Done,
}

impl Kex {
    pub(crate) fn new(role: Role, cookie: Option<[u8; 16]>) -> Kex {
        Kex {
            role,
            step: Step::Idle,
            skip: false,
            cookie,
            wanted: false,
            session_id: None,
            established: false,
            strict: false,
            ext_info: false,
            host_key: Vec::new(),
        }
    }

    /// Of a connection that was moved here.
    pub(crate) fn resumed(role: Role, session_id: Vec<u8>, strict: bool, host_key: Vec<u8>) -> Kex {
        Kex {
            session_id: Some(session_id),
            established: true,
            strict,
            host_key,
            ..Kex::new(role, None)
        }
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    pub(crate) fn session_id(&self) -> Option<&[u8]> {
        self.session_id.as_deref()
    }

    pub(crate) fn strict(&self) -> bool {
        self.strict
    }

    /// The peer's first KEXINIT speaks of EXT_INFO.
    pub(crate) fn ext_info(&self) -> bool {
        self.ext_info
    }

    pub(crate) fn host_key(&self) -> &[u8] {
        &self.host_key
    }

    /// The host key that the owner is asked about.
    pub(crate) fn host_key_in_question(&self) -> &[u8] {
        match &self.step {
            Step::Trust(shared) => &shared.host_key,
            _ => &self.host_key,
        }
    }

    /// None is under way, and none is to begin.
    pub(crate) fn idle(&self) -> bool {
        matches!(self.step, Step::Idle) && !self.wanted
    }

    /// Nothing more can be read until the owner answers.
    pub(crate) fn waits_for_owner(&self) -> bool {
        matches!(self.step, Step::NoCookie(_) | Step::Signature(_) | Step::Trust(_))
    }

    /// The peer's KEXINIT came: it sends nothing now but messages of the exchange (RFC 4253 §7.1).
    pub(crate) fn peer_is_bound(&self) -> bool {
        !matches!(self.step, Step::Idle | Step::Offered(_))
    }

    /// The first one is not done, and it is strict: nothing but its messages may come.
    pub(crate) fn strict_first(&self) -> bool {
        self.strict && self.first()
    }

    /// The first exchange is not done.
    pub(crate) fn first(&self) -> bool {
        !self.established
    }

    /// A cookie is wanted from the owner.
    pub(crate) fn wants_cookie(&self) -> bool {
        self.role == Role::Server
            && self.cookie.is_none()
            && (self.wanted || matches!(self.step, Step::NoCookie(_)))
    }

    /// Begins an exchange, or notes that one is wanted where a cookie is missing.
    pub(crate) fn begin(&mut self, transport: &mut Transport<'_>) {
        if matches!(self.step, Step::Idle) {
            let cookie = self.next_cookie();
            self.wanted = cookie.is_none();
            if let Some(cookie) = cookie {
                self.step = Step::Offered(self.send_kexinit(cookie, transport));
            }
        }
    }

    /// Server: the owner gives a cookie.
    pub(crate) fn give_cookie(&mut self, cookie: [u8; 16], transport: &mut Transport<'_>) -> Result<(), End> {
        match mem::replace(&mut self.step, Step::Idle) {
            Step::NoCookie(theirs) => {
                self.wanted = false;
                let offer = self.send_kexinit(cookie, transport);
                return self.negotiate(offer, theirs, transport);
            }
            step => self.step = step,
        }
        self.cookie = Some(cookie);
        if self.wanted {
            self.begin(transport);
        }
        Ok(())
    }

    /// Takes a message of the exchange.
    pub(crate) fn receive(
        &mut self,
        number: u8,
        payload: Vec<u8>,
        transport: &mut Transport<'_>,
    ) -> Result<Progress, End> {
        if number >= KEX_INIT && mem::take(&mut self.skip) {
            return Ok(Progress::None);
        }
        match (mem::replace(&mut self.step, Step::Idle), number) {
            (Step::Idle, KEXINIT) => {
                check_kexinit(&payload, transport.settings)?;
                match self.next_cookie() {
                    Some(cookie) => {
                        let offer = self.send_kexinit(cookie, transport);
                        self.negotiate(offer, payload, transport)?;
                    }
                    None => self.step = Step::NoCookie(payload),
                }
                Ok(Progress::None)
            }
            (Step::Offered(offer), KEXINIT) => {
                check_kexinit(&payload, transport.settings)?;
                self.negotiate(offer, payload, transport)?;
                Ok(Progress::None)
            }
            (Step::Init(negotiation), KEX_INIT) => self.respond(*negotiation, &payload, transport),
            (Step::Reply(sent), KEX_REPLY) => {
                let (negotiation, share) = *sent;
                self.conclude(negotiation, share, &payload, transport)
            }
            (Step::NewKeys(keys), NEWKEYS) if payload.len() == 1 => {
                transport.inbox.renew(*keys, self.strict);
                self.established = true;
                transport.info.exchanges += 1;
                Ok(Progress::Done)
            }
            (_, number) => Err(End::protocol(format!(
                "message {number} has no place here in a key exchange"
            ))),
        }
    }

    /// Both KEXINITs are there.
    fn negotiate(&mut self, offer: Offer, theirs: Vec<u8>, transport: &mut Transport<'_>) -> Result<(), End> {
        let parse = |payload| KexInit::parse(payload).map_err(|e| End::malformed("KEXINIT", e));
        let (our_init, their_init) = (parse(&offer.kexinit)?, parse(&theirs)?);
        if self.role == Role::Client && self.session_id.is_none() {
            transport.info.offered = Some(their_init.offer());
        }
        let mut agreement = kexinit::agree(self.role, &our_init, &their_init).map_err(failed)?;
        if self.session_id.is_none() {
            self.strict = agreement.algorithms.strict;
            self.ext_info = agreement.ext_info;
            if transport.settings.strict_required && !self.strict {
                return Err(failed("the peer has no strict key exchange, which is required"));
            }
            if self.strict && transport.inbox.sequence != 1 {
                return Err(End::protocol(
                    "KEXINIT is not the first packet of a strict key exchange",
                ));
            }
        }
        agreement.algorithms.strict = self.strict;
        self.skip = their_init.follows && !agreement.guess_right;
        let method = agreement.algorithms.kex;
        let negotiation = Negotiation {
            algorithms: agreement.algorithms,
            ours: offer.kexinit,
            theirs,
        };
        self.step = match self.role {
            Role::Server => Step::Init(Box::new(negotiation)),
            Role::Client => {
                let holds = |share: &ClientShare| {
                    share.method() == method && (agreement.guess_right || !offer.is_guess)
                };
                transport.info.share_held = offer.ahead.as_ref().map(holds).or(transport.info.share_held);
                let share = match offer.ahead {
                    Some(share) if holds(&share) => share,
                    // The server reads it as a share of the method that was agreed on, and cannot be told otherwise.
                    Some(_) if !offer.is_guess => {
                        return Err(failed("the server takes other methods than it did before"));
                    }
                    _ => send_share(method, transport.out),
                };
                Step::Reply(Box::new((negotiation, share)))
            }
        };
        Ok(())
    }

    /// For our next KEXINIT. None: a server's owner has to give one.
    fn next_cookie(&mut self) -> Option<[u8; 16]> {
        match self.role {
            Role::Server => self.cookie.take(),
            Role::Client => Some(random::bytes()),
        }
    }

    fn send_kexinit(&self, cookie: [u8; 16], transport: &mut Transport<'_>) -> Offer {
        let settings = transport.settings;
        let first = self.session_id.is_none();
        let ahead = match settings.first_share {
            _ if !first || self.role == Role::Server => None,
            FirstShare::Waits => None,
            FirstShare::Guessed => settings.kex.first().copied(),
            FirstShare::Known(method) => Some(method),
        };
        let is_guess = ahead.is_some() && settings.first_share == FirstShare::Guessed;
        let kexinit = kexinit::write(settings, self.role, cookie, first, is_guess);
        transport.out.now(&kexinit);
        transport.out.hold();
        Offer {
            kexinit,
            ahead: ahead.map(|method| send_share(method, transport.out)),
            is_guess,
        }
    }

    /// Server: KEX_ECDH_INIT (RFC 5656 §4).
    fn respond(
        &mut self,
        negotiation: Negotiation,
        payload: &[u8],
        transport: &mut Transport<'_>,
    ) -> Result<Progress, End> {
        let client_share =
            read_message(payload, |r| r.string("share")).map_err(|e| End::malformed("KEX_ECDH_INIT", e))?;
        let Negotiation { algorithms, .. } = negotiation;
        let mut offers = transport.settings.host_keys.iter();
        let offer = offers
            .find(|k| k.algorithm == algorithms.host_key)
            .ok_or_else(|| failed(format!("there is no host key for {}", algorithms.host_key)))?;
        let (server_share, secret) = respond(algorithms.kex, client_share)
            .map_err(|_| failed("the client's share of the key exchange is invalid"))?;
        let exchange = Box::new(Exchange {
            kex: algorithms.kex.name().into(),
            host_key_algorithm: algorithms.host_key.clone(),
            client_version: transport.info.peer_version.clone(),
            server_version: transport.version.as_bytes().to_vec(),
            client_kexinit: negotiation.theirs,
            server_kexinit: negotiation.ours,
            host_key: offer.blob.clone(),
            client_share: client_share.to_vec(),
            server_share: server_share.clone(),
            secret: secret.to_vec(),
        });
        let shared = SharedSecret {
            hash: exchange.hash_by(algorithms.kex),
            algorithms,
            secret,
            host_key: offer.blob.clone(),
        };
        self.step = Step::Signature(Box::new((shared, server_share)));
        Ok(Progress::Sign(exchange))
    }

    /// Server: the host's signature, and the cookie for the next exchange.
    pub(crate) fn signed(
        &mut self,
        signature: &[u8],
        cookie: [u8; 16],
        transport: &mut Transport<'_>,
    ) -> Result<(), End> {
        self.cookie = Some(cookie);
        match mem::replace(&mut self.step, Step::Idle) {
            Step::Signature(wanted) => {
                let (shared, server_share) = *wanted;
                let mut reply = Vec::with_capacity(4096);
                reply.put_u8(KEX_REPLY);
                reply.put_string(&shared.host_key);
                reply.put_string(&server_share);
                reply.put_string(signature);
                transport.out.now(&reply);
                self.take_keys(shared, transport)?;
            }
            other => self.step = other,
        }
        Ok(())
    }

    /// Client: KEX_ECDH_REPLY.
    fn conclude(
        &mut self,
        negotiation: Negotiation,
        share: ClientShare,
        payload: &[u8],
        transport: &mut Transport<'_>,
    ) -> Result<Progress, End> {
        let (host_key, server_share, signature) = read_message(payload, |r| {
            Ok((r.string("host key")?, r.string("share")?, r.string("signature")?))
        })
        .map_err(|e| End::malformed("KEX_ECDH_REPLY", e))?;
        let Negotiation { algorithms, .. } = negotiation;
        let (client_share, secret) = share
            .agree(server_share)
            .map_err(|_| failed("the server's share of the key exchange is invalid"))?;
        let exchange = Exchange {
            kex: algorithms.kex.name().into(),
            host_key_algorithm: algorithms.host_key.clone(),
            client_version: transport.version.as_bytes().to_vec(),
            server_version: transport.info.peer_version.clone(),
            client_kexinit: negotiation.ours,
            server_kexinit: negotiation.theirs,
            host_key: host_key.to_vec(),
            client_share,
            server_share: server_share.to_vec(),
            secret: secret.to_vec(),
        };
        let hash = exchange.hash_by(algorithms.kex);
        super::host::verify(&algorithms.host_key, host_key, hash.as_ref(), signature)?;
        let known = self.host_key == host_key;
        let shared = SharedSecret {
            algorithms,
            secret,
            hash,
            host_key: host_key.to_vec(),
        };
        if known {
            self.take_keys(shared, transport)?;
            return Ok(Progress::None);
        }
        self.step = Step::Trust(Box::new(shared));
        Ok(Progress::HostKey)
    }

    /// Client: the owner decided about the host key. An error where it is not the right one.
    pub(crate) fn trust(&mut self, yes: bool, transport: &mut Transport<'_>) -> Result<(), End> {
        match mem::replace(&mut self.step, Step::Idle) {
            Step::Trust(shared) if yes => self.take_keys(*shared, transport),
            Step::Trust(_) => Err(End::ours(
                Reason::HostKeyNotVerifiable,
                "the host key is not trusted",
            )),
            other => {
                self.step = other;
                Ok(())
            }
        }
    }

    /// Our NEWKEYS, and our new keys behind it; the peer's count when its NEWKEYS comes.
    fn take_keys(&mut self, shared: SharedSecret, transport: &mut Transport<'_>) -> Result<(), End> {
        let first = self.session_id.is_none();
        let hash = shared.hash.as_ref();
        let session_id = self.session_id.get_or_insert_with(|| hash.to_vec());
        let from = Derivation {
            method: shared.algorithms.kex,
            secret: &shared.secret,
            hash,
            session_id,
        };
        let (algorithms, client) = (&shared.algorithms, self.role == Role::Client);
        let keys = |to_server, cipher, mac| {
            from.keys(to_server, cipher, mac)
                .ok_or_else(|| failed("the keys do not fit the cipher"))
        };
        let outgoing = keys(client, algorithms.cipher_out, algorithms.mac_out)?;
        let incoming = keys(!client, algorithms.cipher_in, algorithms.mac_in)?;
        transport.out.now(&[NEWKEYS]);
        transport.out.renew(outgoing, self.strict);
        // EXT_INFO is the first message behind the first NEWKEYS, or it is not sent (RFC 8308 §2.4).
        if first && self.ext_info {
            send_extensions(transport.settings, self.role, transport.out);
        }
        transport.out.release();
        self.host_key = shared.host_key;
        transport.info.algorithms = Some(shared.algorithms);
        self.step = Step::NewKeys(Box::new(incoming));
        Ok(())
    }
}

/// The peer's KEXINIT is of a size that is taken, and can be read.
fn check_kexinit(payload: &[u8], settings: &Settings) -> Result<(), End> {
    let max = settings.limits.kexinit_max;
    if payload.len() > max {
        return Err(End::protocol(format!(
            "a KEXINIT of {} bytes; {max} are taken",
            payload.len()
        )));
    }
    KexInit::parse(payload).map_err(|e| End::malformed("KEXINIT", e))?;
    Ok(())
}

/// Sends the client's half of a method.
fn send_share(method: Method, out: &mut Outgoing) -> ClientShare {
    let share = ClientShare::new(method);
    let mut payload = Vec::with_capacity(share.public().len() + 5);
    payload.put_u8(KEX_INIT);
    payload.put_string(share.public());
    out.now(&payload);
    share
}

fn failed(text: impl Into<String>) -> End {
    End::ours(Reason::KeyExchangeFailed, text)
}
