//! A connection below logins and channels: version lines, packets, key exchanges, and the messages that belong to none
//! of the others (RFC 4253 §11, RFC 8308, ping@openssh.com). What it does not deal with it hands on, as a position in
//! the inbox.

use crate::codec::{Malformed, Reader, Write};
use crate::event::{End, Exchange, Reason};
use crate::info::ConnectionInfo;
use crate::kex::read_extensions;
use crate::kex::state::{Kex, Progress, Transport};
use crate::message::{
    DEBUG, DISCONNECT, EXT_INFO, IGNORE, KEXINIT, NEWKEYS, PING, PONG, SERVICE_ACCEPT, SERVICE_REQUEST,
    UNIMPLEMENTED,
};
use crate::settings::{Role, Settings};
use crate::transport::{Inbox, Outbox, Outgoing, version};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Output beside channel data (answers, window adjusts, PONGs) that may wait before nothing more is read.
pub(crate) const ANSWERS_MAX: usize = 64 * 1024;
/// Key exchanges before the login: each costs the host a signature, and nobody needs a second one so early.
const EXCHANGES_BEFORE_LOGIN: u32 = 8;
/// No more packets by one key, whatever the settings say: a sequence number may not come again (RFC 4344 §3.1).
const PACKETS_MAX: u64 = 1 << 31;
/// Numbers of the messages of a key exchange.
const KEX_MESSAGES: std::ops::RangeInclusive<u8> = KEXINIT..=49;
/// Numbers of the connection protocol's messages (RFC 4250 §4.1.2).
const CONNECTION_MESSAGES: std::ops::RangeInclusive<u8> = 80..=127;

pub(crate) struct Link {
    pub(crate) settings: Arc<Settings>,
    pub(crate) inbox: Inbox,
    pub(crate) out: Outgoing,
    pub(crate) kex: Kex,
    pub(crate) info: ConnectionInfo,
    /// Ours, without CR LF.
    pub(crate) version: String,
    /// Bytes of lines before the peer's version line.
    greeting: usize,
    /// The peer's version line came.
    greeted: bool,
    /// The owner was asked for a cookie.
    asked_for_cookie: bool,
    own_exchanges: OwnExchanges,
    pub(crate) clock: Clock,
    end: Option<End>,
}

/// When key exchanges that we begin are allowed, after the first. OpenSSH's client and server both end a connection
/// whose other side begins one during the login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnExchanges {
    /// From the end of the login on.
    AfterLogin,
    /// Once the connection has moved to another process.
    AfterMove,
    /// Now.
    Allowed,
}

/// The owner's time, and what is measured by it. Nothing is before the first tick.
#[derive(Default)]
pub(crate) struct Clock {
    pub(crate) now: Option<Duration>,
    /// Of the last key exchange.
    pub(crate) keys: Duration,
    /// How old the keys were when the connection was moved here.
    pub(crate) age: Duration,
    /// Of the last packet, or of the last question whether the peer lives.
    pub(crate) heard: Duration,
    /// Such questions without an answer.
    pub(crate) unanswered: u32,
}

/// What there is next.
pub(crate) enum Next {
    /// Nothing until more is read or the owner answers.
    Nothing,
    /// A payload for logins or channels, of this number, at this position in the inbox.
    Packet(u8, Range<usize>),
    Sign(Box<Exchange>),
    HostKey,
    Established,
    CookieWanted,
    Alive,
}

impl Link {
    pub(crate) fn new(settings: Arc<Settings>, role: Role, cookie: Option<[u8; 16]>) -> Link {
        let version = version::ours(&settings.software);
        let mut link = Link::bare(settings, Kex::new(role, cookie), version);
        link.out.raw(format!("{}\r\n", link.version).as_bytes());
        let (kex, mut transport) = link.parts();
        kex.begin(&mut transport);
        link
    }

    /// Without anything sent: also where a connection is moved to.
    pub(crate) fn bare(settings: Arc<Settings>, kex: Kex, version: String) -> Link {
        Link {
            inbox: Inbox::new(settings.limits.max_packet),
            out: Outgoing::new(settings.limits.max_buffered),
            settings,
            kex,
            info: ConnectionInfo::default(),
            version,
            greeting: 0,
            greeted: false,
            asked_for_cookie: false,
            own_exchanges: OwnExchanges::AfterLogin,
            clock: Clock::default(),
            end: None,
        }
    }

    /// Version lines and login are behind it: a connection that was moved here.
    pub(crate) fn moved_here(&mut self) {
        self.greeted = true;
        self.inbox.wipe = false;
        self.own_exchanges = OwnExchanges::Allowed;
    }

    /// The connection moves to another process after the login.
    pub(crate) fn will_move(&mut self) {
        self.own_exchanges = OwnExchanges::AfterMove;
    }

    /// The login is over. There are no passwords to wipe any more.
    pub(crate) fn logged_in(&mut self) {
        self.inbox.wipe = false;
        if self.own_exchanges == OwnExchanges::AfterLogin {
            self.own_exchanges = OwnExchanges::Allowed;
        }
    }

    /// Whether reading on makes sense.
    pub(crate) fn reads(&self) -> bool {
        self.end.is_none() && !self.kex.waits_for_owner() && !self.overfull()
    }

    /// So many bytes were read to the inbox.
    pub(crate) fn received(&mut self, n: usize) {
        self.inbox.received(n);
        self.info.bytes_in += n as u64;
    }

    /// So many bytes of the output were written.
    pub(crate) fn sent(&mut self, n: usize) {
        self.out.sent(n);
        self.info.bytes_out += n as u64;
        self.info.packets_out = self.out.total_packets;
        self.rekey_if_due();
    }

    /// No key exchange is under way, and the connection goes on.
    pub(crate) fn may_move(&self) -> bool {
        self.end.is_none() && !self.kex.first() && self.kex.idle() && !self.out.holding()
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// What there is next. After an error there is nothing more, ever.
    pub(crate) fn next(&mut self) -> Result<Next, End> {
        if let Some(end) = &self.end {
            return Err(end.clone());
        }
        match self.advance() {
            Ok(next) => Ok(next),
            Err(end) => Err(self.fail(end)),
        }
    }

    /// Ends the connection; the peer is told why.
    pub(crate) fn fail(&mut self, end: End) -> End {
        if let Some(end) = &self.end {
            return end.clone();
        }
        if let End::Ours { reason, text } = &end {
            let mut payload = Vec::with_capacity(64 + text.len());
            payload.put_u8(DISCONNECT);
            payload.put_u32(*reason as u32);
            payload.put_string(text);
            payload.put_string("");
            self.out.close(&payload);
        } else {
            self.out.shut();
        }
        self.end = Some(end.clone());
        end
    }

    fn advance(&mut self) -> Result<Next, End> {
        loop {
            self.rekey_if_due();
            if let Some(end) = &self.end {
                return Err(end.clone());
            }
            if self.kex.wants_cookie() && !self.asked_for_cookie {
                self.asked_for_cookie = true;
                return Ok(Next::CookieWanted);
            }
            if self.out.held() > self.settings.limits.max_buffered + ANSWERS_MAX {
                return Err(End::protocol(
                    "too much waits for the end of a key exchange that the peer does not go on with",
                ));
            }
            if !self.reads() || !self.greeted()? {
                return Ok(Next::Nothing);
            }
            let Some((number, range)) = self.inbox.packet()? else {
                return Ok(Next::Nothing);
            };
            self.heard();
            self.info.packets_in += 1;
            self.check_place(number)?;
            match number {
                DISCONNECT | EXT_INFO | PING => {
                    let payload = self.inbox.lent(range).to_vec();
                    let name = match number {
                        DISCONNECT => "DISCONNECT",
                        EXT_INFO => "EXT_INFO",
                        _ => "PING",
                    };
                    self.own(number, &payload)
                        .map_err(|e| End::malformed(name, e))??;
                }
                IGNORE | DEBUG | UNIMPLEMENTED => {}
                PONG => {
                    self.clock.unanswered = 0;
                    return Ok(Next::Alive);
                }
                _ if KEX_MESSAGES.contains(&number) => match self.exchange(number, range)? {
                    Progress::None => {}
                    Progress::Sign(exchange) => return Ok(Next::Sign(exchange)),
                    Progress::HostKey => return Ok(Next::HostKey),
                    Progress::Done => {
                        self.clock.keys = self.clock.now.unwrap_or_default();
                        self.asked_for_cookie = false;
                        if self.info.exchanges == 1 {
                            self.info.extensions.expected = self.kex.ext_info();
                            return Ok(Next::Established);
                        }
                    }
                },
                SERVICE_REQUEST | SERVICE_ACCEPT | 50..=127 => return Ok(Next::Packet(number, range)),
                _ => self.unimplemented(),
            }
        }
    }

    /// Answers a message of a kind that we do not know (RFC 4253 §11.4).
    pub(crate) fn unimplemented(&mut self) {
        let sequence = self.inbox.sequence.wrapping_sub(1);
        self.out.packet(|p| {
            p.put_u8(UNIMPLEMENTED);
            p.put_u32(sequence);
        });
    }

    /// Where there are messages that may not come now.
    fn check_place(&self, number: u8) -> Result<(), End> {
        let general = matches!(number, DISCONNECT | IGNORE | UNIMPLEMENTED | DEBUG);
        let of_kex = KEX_MESSAGES.contains(&number);
        if self.kex.strict_first() {
            if number != DISCONNECT && !of_kex {
                return Err(End::protocol(format!(
                    "message {number} came during a strict key exchange"
                )));
            }
        } else if self.kex.first() {
            if !general && !of_kex {
                return Err(End::protocol(format!(
                    "message {number} came before there were keys"
                )));
            }
        } else if self.kex.peer_is_bound() && !general && !of_kex && !CONNECTION_MESSAGES.contains(&number) {
            // RFC 4253 §7.1 allows no messages of channels here either. asyncssh up to 2.10 sends them when it asks for new
            // keys, and OpenSSH's sshd takes them; they are sealed by the old keys as those before.
            return Err(End::protocol(format!(
                "message {number} came during a key exchange"
            )));
        }
        if self.kex.first() && self.inbox.packets > u64::from(self.settings.limits.packets_before_keys) {
            return Err(End::protocol("too many packets came before there were keys"));
        }
        Ok(())
    }

    /// The peer's version line is there.
    fn greeted(&mut self) -> Result<bool, End> {
        if !self.greeted {
            let limits = &self.settings.limits;
            if let Some(line) = version::theirs(&mut self.inbox, self.kex.role(), limits, &mut self.greeting)?
            {
                self.info.peer_version = line;
                self.greeted = true;
            }
        }
        Ok(self.greeted)
    }

    fn exchange(&mut self, number: u8, range: Range<usize>) -> Result<Progress, End> {
        // Copied: a message of the exchange may change the keys of the inbox that it stands in.
        let payload = self.inbox.lent(range).to_vec();
        if number == KEXINIT && self.inbox.wipe && self.info.exchanges >= EXCHANGES_BEFORE_LOGIN {
            return Err(End::protocol("too many key exchanges before the login"));
        }
        if number == NEWKEYS && payload.len() != 1 {
            return Err(End::malformed("NEWKEYS", Malformed::Trailing));
        }
        let (kex, mut transport) = self.parts();
        kex.receive(number, payload, &mut transport)
    }

    /// Messages that end here.
    fn own(&mut self, number: u8, payload: &[u8]) -> Result<Result<(), End>, Malformed> {
        let mut r = Reader::new(payload);
        r.u8("message number")?;
        match number {
            DISCONNECT => {
                let reason = r.u32("reason")?;
                let text = version::printable(r.string("description")?);
                return Ok(Err(End::Theirs { reason, text }));
            }
            PING => {
                let data = r.string("data")?;
                r.end()?;
                self.out.packet(|p| {
                    p.put_u8(PONG);
                    p.put_string(data);
                });
            }
            _ => read_extensions(&mut r, &mut self.info.extensions)?,
        }
        Ok(Ok(()))
    }

    /// The owner's time. Keys that are too old are replaced, a silent peer is asked whether it lives; true where it is
    /// to be asked by a request, since it does not know ping@openssh.com.
    pub(crate) fn tick(&mut self, now: Duration) -> bool {
        if self.clock.now.is_none() {
            (self.clock.keys, self.clock.heard) = (now.saturating_sub(self.clock.age), now);
        }
        self.clock.now = Some(now);
        self.rekey_if_due();
        let Some(keepalive) = self.settings.keepalive.filter(|_| !self.kex.first()) else {
            return false;
        };
        if self.end.is_some() || now.saturating_sub(self.clock.heard) < keepalive.after {
            return false;
        }
        if self.clock.unanswered >= keepalive.unanswered {
            self.fail(End::ours(
                Reason::ConnectionLost,
                format!(
                    "the peer does not answer; it was asked {} times",
                    self.clock.unanswered
                ),
            ));
            return false;
        }
        self.clock.unanswered += 1;
        self.clock.heard = now;
        if !self.info.extensions.ping {
            return true;
        }
        self.out.packet(|p| {
            p.put_u8(PING);
            p.put_string("");
        });
        false
    }

    /// When the next tick is wanted.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        if self.end.is_some() || self.kex.first() {
            return None;
        }
        self.clock.now?;
        let keys = self
            .clock
            .keys
            .checked_add(self.settings.rekey.time)
            .filter(|_| self.kex.idle() && self.own_exchanges == OwnExchanges::Allowed);
        let alive = self
            .settings
            .keepalive
            .and_then(|k| self.clock.heard.checked_add(k.after));
        keys.into_iter().chain(alive).min()
    }

    fn heard(&mut self) {
        self.clock.unanswered = 0;
        self.clock.heard = self.clock.now.unwrap_or_default();
    }

    /// Replaces the keys where that is due and allowed.
    fn rekey_if_due(&mut self) {
        if !self.kex.idle() || self.kex.first() || self.end.is_some() {
            return;
        }
        let rekey = &self.settings.rekey;
        let packets = rekey.packets.min(PACKETS_MAX);
        let due = self.inbox.bytes >= rekey.bytes
            || self.out.bytes >= rekey.bytes
            || self.inbox.packets >= packets
            || self.out.packets >= packets
            || self
                .clock
                .now
                .is_some_and(|now| now.saturating_sub(self.clock.keys) >= rekey.time);
        if due && self.own_exchanges == OwnExchanges::Allowed {
            self.begin_exchange();
        } else if due && self.inbox.packets.max(self.out.packets) >= PACKETS_MAX {
            self.fail(End::protocol("too many packets came before the login was over"));
        }
    }

    pub(crate) fn rekey(&mut self) {
        if self.own_exchanges == OwnExchanges::Allowed || self.kex.role() == Role::Client {
            self.begin_exchange();
        }
    }

    fn begin_exchange(&mut self) {
        if self.kex.idle() && !self.kex.first() && self.end.is_none() {
            let (kex, mut transport) = self.parts();
            kex.begin(&mut transport);
        }
    }

    pub(crate) fn signed(&mut self, signature: &[u8], next_cookie: [u8; 16]) {
        self.exchange_by(|kex, transport| kex.signed(signature, next_cookie, transport));
    }

    pub(crate) fn cookie(&mut self, cookie: [u8; 16]) {
        self.asked_for_cookie &= self.end.is_some();
        self.exchange_by(|kex, transport| kex.give_cookie(cookie, transport));
    }

    pub(crate) fn trust_host(&mut self, yes: bool) {
        self.exchange_by(|kex, transport| kex.trust(yes, transport));
    }

    /// An answer of the owner's takes the exchange on, or ends the connection.
    fn exchange_by(&mut self, answer: impl FnOnce(&mut Kex, &mut Transport<'_>) -> Result<(), End>) {
        if self.end.is_none() {
            let (kex, mut transport) = self.parts();
            if let Err(end) = answer(kex, &mut transport) {
                self.fail(end);
            }
        }
    }

    /// More waits to be sent than the peer may make us hold.
    fn overfull(&self) -> bool {
        self.out.unsent().len() > self.settings.limits.max_buffered + ANSWERS_MAX
    }

    fn parts(&mut self) -> (&mut Kex, Transport<'_>) {
        (
            &mut self.kex,
            Transport {
                settings: &self.settings,
                inbox: &mut self.inbox,
                out: &mut self.out,
                info: &mut self.info,
                version: &self.version,
            },
        )
    }
}
