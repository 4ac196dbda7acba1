//! Where a key exchange stands, for either role. It reads and writes the messages of the exchange and changes the keys;
//! the host's signature and the trust in it are its owner's.

use super::exchange::Derivation;
use super::kexinit::{self, Agreed, KexInit, Role};
use super::share::{ClientShare, Secret, respond};
use crate::cipher::Keys;
use crate::codec::{Malformed, Reader, Write};
use crate::event::{End, Exchange, Reason};
use crate::facts::{Chosen, Facts};
use crate::message::{KEX_INIT, KEX_REPLY, KEXINIT, NEWKEYS};
use crate::settings::Settings;
use crate::transport::{Inbox, Outgoing};
use ring::digest::Digest;
use ring::rand::{SecureRandom, SystemRandom};
use std::mem;

/// Key exchanges of one connection, one after the other.
pub(crate) struct Kex {
    role: Role,
    step: Step,
    /// Our KEXINIT of the exchange under way, and the peer's.
    ours: Vec<u8>,
    theirs: Vec<u8>,
    /// What both agree on.
    agreed: Option<Agreed>,
    /// The peer guessed wrong: its next packet does not count (RFC 4253 §7).
    skip: bool,
    /// Client: a share that was sent ahead.
    guess: Option<ClientShare>,
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

enum Step {
    /// None is under way.
    Idle,
    /// Our KEXINIT is sent.
    Sent,
    /// Server: the peer's KEXINIT came, and there is no cookie for ours.
    NoCookie,
    /// Server: KEX_ECDH_INIT is to come.
    Init,
    /// Server: the owner signs.
    Signature(Box<Pending>),
    /// Client: KEX_ECDH_REPLY is to come.
    Reply(Box<ClientShare>),
    /// Client: the owner decides about the host key.
    Trust(Box<Pending>),
    /// NEWKEYS is to come, then these keys count.
    NewKeys(Box<Keys>),
}

/// An exchange whose secret is known.
struct Pending {
    chosen: Chosen,
    secret: Secret,
    hash: Digest,
    host_key: Vec<u8>,
    server_share: Vec<u8>,
}

/// What the exchange works on.
pub(crate) struct Around<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) inbox: &'a mut Inbox,
    pub(crate) out: &'a mut Outgoing,
    pub(crate) facts: &'a mut Facts,
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
            ours: Vec::new(),
            theirs: Vec::new(),
            agreed: None,
            skip: false,
            guess: None,
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
            Step::Trust(pending) => &pending.host_key,
            _ => &self.host_key,
        }
    }

    /// None is under way, and none is to begin.
    pub(crate) fn idle(&self) -> bool {
        matches!(self.step, Step::Idle) && !self.wanted
    }

    /// Nothing more can be read until the owner answers.
    pub(crate) fn waits_for_owner(&self) -> bool {
        matches!(self.step, Step::NoCookie | Step::Signature(_) | Step::Trust(_))
    }

    /// The peer's KEXINIT came: it sends nothing now but messages of the exchange (RFC 4253 §7.1).
    pub(crate) fn peer_is_bound(&self) -> bool {
        !matches!(self.step, Step::Idle | Step::Sent)
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
            && (self.wanted || matches!(self.step, Step::NoCookie))
    }

    /// Begins an exchange, or notes that one is wanted where a cookie is missing.
    pub(crate) fn begin(&mut self, around: &mut Around<'_>) {
        if !matches!(self.step, Step::Idle) {
            return;
        }
        self.wanted = !self.send_kexinit(around);
        if !self.wanted {
            self.step = Step::Sent;
        }
    }

    /// Server: the owner gives a cookie.
    pub(crate) fn give_cookie(&mut self, cookie: [u8; 16], around: &mut Around<'_>) -> Result<(), End> {
        self.cookie = Some(cookie);
        if matches!(self.step, Step::NoCookie) {
            self.wanted = false;
            self.send_kexinit(around);
            return self.agree(around);
        }
        if self.wanted {
            self.begin(around);
        }
        Ok(())
    }

    /// Takes a message of the exchange.
    pub(crate) fn receive(&mut self, payload: &[u8], around: &mut Around<'_>) -> Result<Progress, End> {
        let number = payload[0];
        if number >= KEX_INIT && mem::take(&mut self.skip) {
            return Ok(Progress::None);
        }
        match (mem::replace(&mut self.step, Step::Idle), number) {
            (step @ (Step::Idle | Step::Sent), KEXINIT) => {
                self.theirs = payload.to_vec();
                self.kexinit(matches!(step, Step::Sent), around)?;
                Ok(Progress::None)
            }
            (Step::Init, KEX_INIT) => self.init(payload, around),
            (Step::Reply(share), KEX_REPLY) => self.reply(*share, payload, around),
            (Step::NewKeys(keys), NEWKEYS) if payload.len() == 1 => {
                around.inbox.renew(*keys, self.strict);
                (self.ours, self.theirs) = (Vec::new(), Vec::new());
                self.agreed = None;
                self.established = true;
                around.facts.exchanges += 1;
                Ok(Progress::Done)
            }
            (_, number) => Err(protocol(format!(
                "message {number} has no place here in a key exchange"
            ))),
        }
    }

    /// The peer's KEXINIT is in `theirs`.
    fn kexinit(&mut self, sent: bool, around: &mut Around<'_>) -> Result<(), End> {
        if self.theirs.len() > around.settings.limits.kexinit_max {
            return Err(protocol(format!(
                "a KEXINIT of {} bytes; {} are taken",
                self.theirs.len(),
                around.settings.limits.kexinit_max
            )));
        }
        KexInit::parse(&self.theirs).map_err(|e| End::malformed("KEXINIT", e))?;
        if !sent && !self.send_kexinit(around) {
            self.step = Step::NoCookie;
            return Ok(());
        }
        self.agree(around)
    }

    /// Both KEXINITs are there.
    fn agree(&mut self, around: &mut Around<'_>) -> Result<(), End> {
        let unreadable = |e| End::malformed("KEXINIT", e);
        let ours = KexInit::parse(&self.ours).map_err(unreadable)?;
        let theirs = KexInit::parse(&self.theirs).map_err(unreadable)?;
        let first = self.session_id.is_none();
        let mut agreed = kexinit::agree(self.role, &ours, &theirs).map_err(failed)?;
        if first {
            self.strict = agreed.chosen.strict;
            self.ext_info = agreed.ext_info;
            if around.settings.strict_required && !self.strict {
                return Err(failed(
                    "the peer has no strict key exchange, which is required".into(),
                ));
            }
            if self.strict && around.inbox.sequence != 1 {
                return Err(protocol(
                    "KEXINIT is not the first packet of a strict key exchange".into(),
                ));
            }
        }
        agreed.chosen.strict = self.strict;
        self.skip = theirs.follows && !agreed.guess_right;
        let method = agreed.chosen.kex;
        self.step = match self.role {
            Role::Server => Step::Init,
            Role::Client => {
                let share = match self.guess.take() {
                    Some(share) if agreed.guess_right && share.method() == method => share,
                    _ => {
                        let share = ClientShare::new(method);
                        around.out.now(&init(&share));
                        share
                    }
                };
                Step::Reply(Box::new(share))
            }
        };
        self.agreed = Some(agreed);
        Ok(())
    }

    /// False: there is no cookie.
    fn send_kexinit(&mut self, around: &mut Around<'_>) -> bool {
        let cookie = match self.role {
            Role::Server => self.cookie.take(),
            Role::Client => {
                let mut cookie = [0; 16];
                let filled = SystemRandom::new().fill(&mut cookie);
                filled.expect("the kernel gives random bytes once it has started");
                Some(cookie)
            }
        };
        let Some(cookie) = cookie else { return false };
        let first = self.session_id.is_none();
        let method = around.settings.kex.first().copied();
        let guess = method.filter(|_| first && self.role == Role::Client && around.settings.guess);
        self.ours = kexinit::write(around.settings, self.role, cookie, first, guess.is_some());
        around.out.now(&self.ours);
        around.out.hold();
        if let Some(method) = guess {
            let share = ClientShare::new(method);
            around.out.now(&init(&share));
            self.guess = Some(share);
        }
        true
    }

    /// Server: KEX_ECDH_INIT (RFC 5656 §4).
    fn init(&mut self, payload: &[u8], around: &mut Around<'_>) -> Result<Progress, End> {
        let client_share = one_string(payload).map_err(|e| End::malformed("KEX_ECDH_INIT", e))?;
        let Agreed { chosen, .. } = self
            .agreed
            .take()
            .expect("a server waits for INIT after agreeing");
        let offer = around
            .settings
            .host_keys
            .iter()
            .find(|k| k.algorithm == chosen.host_key);
        let host_key = offer.expect("only what was offered is agreed on").blob.clone();
        let (server_share, secret) = respond(chosen.kex, client_share)
            .map_err(|_| failed("the client's share of the key exchange is invalid".into()))?;
        let exchange = Box::new(Exchange {
            kex: chosen.kex.name().into(),
            host_key_algorithm: chosen.host_key.clone(),
            client_version: around.facts.peer_version.clone(),
            server_version: around.version.as_bytes().to_vec(),
            client_kexinit: mem::take(&mut self.theirs),
            server_kexinit: mem::take(&mut self.ours),
            host_key: host_key.clone(),
            client_share: client_share.to_vec(),
            server_share: server_share.clone(),
            secret: secret.to_vec(),
        });
        self.step = Step::Signature(Box::new(Pending {
            hash: exchange.hash().expect("the method is one of ours"),
            chosen,
            secret,
            host_key,
            server_share,
        }));
        Ok(Progress::Sign(exchange))
    }

    /// Server: the host's signature, and the cookie for the next exchange. True: an answer was owed.
    pub(crate) fn signed(
        &mut self,
        signature: &[u8],
        cookie: [u8; 16],
        ext_info: impl FnOnce(&mut Outgoing),
        around: &mut Around<'_>,
    ) -> bool {
        self.cookie = Some(cookie);
        match mem::replace(&mut self.step, Step::Idle) {
            Step::Signature(pending) => {
                let mut reply = Vec::with_capacity(4096);
                reply.put_u8(KEX_REPLY);
                reply.put_string(&pending.host_key);
                reply.put_string(&pending.server_share);
                reply.put_string(signature);
                around.out.now(&reply);
                self.take_keys(*pending, ext_info, around);
                true
            }
            other => {
                self.step = other;
                false
            }
        }
    }

    /// Client: KEX_ECDH_REPLY.
    fn reply(
        &mut self,
        share: ClientShare,
        payload: &[u8],
        around: &mut Around<'_>,
    ) -> Result<Progress, End> {
        let fields = (|| {
            let mut r = Reader::new(payload);
            r.u8("message number")?;
            let fields = (r.string("host key")?, r.string("share")?, r.string("signature")?);
            r.end()?;
            Ok(fields)
        })();
        let (host_key, server_share, signature) = fields.map_err(|e| End::malformed("KEX_ECDH_REPLY", e))?;
        let Agreed { chosen, .. } = self
            .agreed
            .take()
            .expect("a client waits for REPLY after agreeing");
        let (client_share, secret) = share
            .agree(server_share)
            .map_err(|_| failed("the server's share of the key exchange is invalid".into()))?;
        let exchange = Exchange {
            kex: chosen.kex.name().into(),
            host_key_algorithm: chosen.host_key.clone(),
            client_version: around.version.as_bytes().to_vec(),
            server_version: around.facts.peer_version.clone(),
            client_kexinit: mem::take(&mut self.ours),
            server_kexinit: mem::take(&mut self.theirs),
            host_key: host_key.to_vec(),
            client_share,
            server_share: server_share.to_vec(),
            secret: secret.to_vec(),
        };
        let hash = exchange.hash().expect("the method is one of ours");
        super::host::verify(&chosen.host_key, host_key, hash.as_ref(), signature)?;
        let known = self.host_key == host_key;
        let pending = Pending {
            chosen,
            secret,
            hash,
            host_key: host_key.to_vec(),
            server_share: Vec::new(),
        };
        if known {
            self.take_keys(pending, |_| {}, around);
            return Ok(Progress::None);
        }
        self.step = Step::Trust(Box::new(pending));
        Ok(Progress::HostKey)
    }

    /// Client: the owner decided about the host key. An error where it is not the right one.
    pub(crate) fn trust(
        &mut self,
        yes: bool,
        ext_info: impl FnOnce(&mut Outgoing),
        around: &mut Around<'_>,
    ) -> Result<(), End> {
        match mem::replace(&mut self.step, Step::Idle) {
            Step::Trust(pending) if yes => self.take_keys(*pending, ext_info, around),
            Step::Trust(_) => {
                return Err(End::Ours {
                    reason: Reason::HostKeyNotVerifiable,
                    text: "the host key is not trusted".into(),
                });
            }
            other => self.step = other,
        }
        Ok(())
    }

    /// Our NEWKEYS, and our new keys behind it; the peer's count when its NEWKEYS comes.
    fn take_keys(&mut self, pending: Pending, ext_info: impl FnOnce(&mut Outgoing), around: &mut Around<'_>) {
        let first = self.session_id.is_none();
        let hash = pending.hash.as_ref();
        let session_id = self.session_id.get_or_insert_with(|| hash.to_vec());
        let from = Derivation {
            method: pending.chosen.kex,
            secret: &pending.secret,
            hash,
            session_id,
        };
        let (chosen, client) = (&pending.chosen, self.role == Role::Client);
        let outgoing = from.keys(client, chosen.cipher_out, chosen.mac_out);
        let incoming = from.keys(!client, chosen.cipher_in, chosen.mac_in);
        around.out.now(&[NEWKEYS]);
        around.out.renew(outgoing, self.strict);
        // EXT_INFO is the first message behind the first NEWKEYS, or it is not sent (RFC 8308 §2.4).
        if first && self.ext_info {
            ext_info(around.out);
        }
        around.out.release();
        self.host_key = pending.host_key;
        around.facts.chosen = Some(pending.chosen);
        self.step = Step::NewKeys(Box::new(incoming));
    }
}

fn init(share: &ClientShare) -> Vec<u8> {
    let mut payload = Vec::with_capacity(share.public().len() + 5);
    payload.put_u8(KEX_INIT);
    payload.put_string(share.public());
    payload
}

fn one_string(payload: &[u8]) -> Result<&[u8], Malformed> {
    let mut r = Reader::new(payload);
    r.u8("message number")?;
    let string = r.string("share")?;
    r.end()?;
    Ok(string)
}

fn protocol(text: String) -> End {
    End::Ours {
        reason: Reason::ProtocolError,
        text,
    }
}

fn failed(text: String) -> End {
    End::Ours {
        reason: Reason::KeyExchangeFailed,
        text,
    }
}
