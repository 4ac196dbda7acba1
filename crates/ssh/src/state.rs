//! A connection as bytes, so that it can go on in another process: after the login, with no key exchange under way and
//! no channel open. What was read and not dealt with and what was not sent go along. The reader takes bytes of any
//! kind: what it does not understand is an error, and it holds no more than the bytes are long.
//!
//! The bytes hold keys. They are wiped when they are dropped.

use crate::auth;
use crate::channel::Channels;
use crate::cipher::{Cipher, Keys, Mac, Secrets};
use crate::codec::{Malformed, Reader, Write, number};
use crate::connection::{Connection, Login};
use crate::info::{Algorithms, ConnectionInfo, Extensions};
use crate::kex::state::Kex;
use crate::link::Link;
use crate::method::Method;
use crate::settings::{Role, Settings};
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// The form below; another one is refused.
const FORM: u32 = 0xf1ee_0001;
/// A whole state: the largest inbox, the largest output by the default limits, and what is small beside them.
pub(crate) const STATE_MAX: usize = 4 * 1024 * 1024;
/// All but what was read and what was not sent.
const SMALL: usize = 32 * 1024;
/// Signature algorithms that a server told us.
const SIG_ALGS_MAX: u32 = 64;

impl Connection {
    /// All of it as bytes, what was read and not dealt with and what was not sent included. It holds keys. None where
    /// there are no keys yet: [`may_move`](Connection::may_move) says when to ask.
    pub fn freeze(mut self) -> Option<Zeroizing<Vec<u8>>> {
        let Connection { link, channels, .. } = &mut self;
        // Never grown: what a growing vector leaves behind is not wiped.
        let len = SMALL + link.inbox.unread().len() + link.out.unsent().len();
        let mut out = Zeroizing::new(Vec::with_capacity(len));
        out.put_u32(FORM);
        out.put_bool(link.kex.role() == Role::Server);
        out.put_string(&link.version);
        write_info(&mut out, &link.info)?;
        out.put_string(link.kex.session_id().unwrap_or_default());
        out.put_bool(link.kex.strict());
        out.put_string(link.kex.host_key());
        let age = link
            .clock
            .now
            .map_or(link.clock.age, |now| now.saturating_sub(link.clock.keys));
        out.put_u64(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let (inbox, outgoing) = (&mut link.inbox, &mut link.out);
        let counts = (inbox.sequence, inbox.bytes, inbox.packets);
        write_keys(&mut out, inbox.keys.secrets()?, counts);
        let counts = (outgoing.sequence, outgoing.bytes, outgoing.packets);
        write_keys(&mut out, outgoing.keys.secrets()?, counts);
        out.put_string(inbox.unread());
        out.put_string(outgoing.unsent());
        let mut state = Vec::new();
        channels.encode(&mut state);
        out.put_string(state);
        Some(out)
    }

    /// A connection from what [`freeze`](Connection::freeze) made.
    pub fn thaw(bytes: &[u8], settings: Arc<Settings>) -> Result<Connection, Malformed> {
        if bytes.len() > STATE_MAX {
            return Err(Malformed::Invalid("length"));
        }
        let mut r = Reader::new(bytes);
        if r.u32("form")? != FORM {
            return Err(Malformed::Invalid("form"));
        }
        let role = if flag(&mut r, "role")? {
            Role::Server
        } else {
            Role::Client
        };
        let version = line(&mut r)?;
        let info = read_info(&mut r)?;
        let session_id = r.string("session id")?;
        if !matches!(session_id.len(), 32 | 48) {
            return Err(Malformed::Invalid("session id"));
        }
        let strict = flag(&mut r, "strict")?;
        let host_key = r.string("host key")?;
        let age = Duration::from_millis(r.u64("age of the keys")?);
        let incoming = read_keys(&mut r)?;
        let outgoing = read_keys(&mut r)?;
        let unread = r.string("unread input")?;
        let unsent = r.string("unsent output")?;
        let channels = Channels::decode(r.string("channels")?, role, &settings.limits)?;
        r.end()?;

        let kex = Kex::resumed(role, session_id.to_vec(), strict, host_key.to_vec());
        let mut link = Link::bare(settings, kex, version);
        link.moved_here();
        link.info = info;
        link.clock.age = age;
        link.inbox.renew(incoming.keys, false);
        link.inbox.sequence = incoming.sequence;
        (link.inbox.bytes, link.inbox.packets) = (incoming.bytes, incoming.packets);
        link.inbox.put(unread);
        link.out.renew(outgoing.keys, false);
        link.out.sequence = outgoing.sequence;
        (link.out.bytes, link.out.packets) = (outgoing.bytes, outgoing.packets);
        link.out.total_packets = link.info.packets_out;
        link.out.raw(unsent);
        Ok(Connection {
            link,
            login: match role {
                Role::Client => Login::Client(auth::Client::logged_in()),
                Role::Server => Login::Server(auth::Server::logged_in()),
            },
            channels,
        })
    }
}

/// One direction.
struct Direction {
    keys: Keys,
    sequence: u32,
    bytes: u64,
    packets: u64,
}

fn write_keys(out: &mut Vec<u8>, secrets: &Secrets, (sequence, bytes, packets): (u32, u64, u64)) {
    out.put_string(secrets.cipher.name());
    out.put_string(secrets.mac.map_or("", Mac::name));
    out.put_string(&*secrets.key);
    out.put_string(&*secrets.iv);
    out.put_string(&*secrets.mac_key);
    out.put_u32(sequence);
    out.put_u64(bytes);
    out.put_u64(packets);
}

fn read_keys(r: &mut Reader<'_>) -> Result<Direction, Malformed> {
    let secrets = Secrets {
        cipher: cipher(r)?,
        mac: mac(r)?,
        key: Zeroizing::new(r.string("key")?.to_vec()),
        iv: Zeroizing::new(r.string("IV")?.to_vec()),
        mac_key: Zeroizing::new(r.string("MAC key")?.to_vec()),
    };
    Ok(Direction {
        keys: Keys::new(secrets).ok_or(Malformed::Invalid("key"))?,
        sequence: r.u32("sequence number")?,
        bytes: r.u64("bytes")?,
        packets: r.u64("packets")?,
    })
}

fn write_info(out: &mut Vec<u8>, info: &ConnectionInfo) -> Option<()> {
    out.put_string(&info.peer_version);
    let agreed = info.algorithms.as_ref()?;
    out.put_string(agreed.kex.name());
    out.put_string(&agreed.host_key);
    out.put_string(agreed.cipher_in.name());
    out.put_string(agreed.mac_in.map_or("", Mac::name));
    out.put_string(agreed.cipher_out.name());
    out.put_string(agreed.mac_out.map_or("", Mac::name));
    out.put_bool(agreed.strict);
    let said = &info.extensions;
    for flag in [said.expected, said.ping, said.channel_mirror, said.hostbound] {
        out.put_bool(flag);
    }
    out.put_bool(said.server_sig_algs.is_some());
    let listed = said.server_sig_algs.as_deref().unwrap_or_default();
    out.put_u32(number(listed.len()));
    for algorithm in listed {
        out.put_string(algorithm);
    }
    for count in [info.bytes_in, info.bytes_out, info.packets_in, info.packets_out] {
        out.put_u64(count);
    }
    out.put_u32(info.exchanges);
    Some(())
}

fn read_info(r: &mut Reader<'_>) -> Result<ConnectionInfo, Malformed> {
    let peer_version = line(r)?.into_bytes();
    let agreed = Algorithms {
        kex: Method::named(r.text("kex")?).ok_or(Malformed::Invalid("kex"))?,
        host_key: r.text("host key algorithm")?.to_owned(),
        cipher_in: cipher(r)?,
        mac_in: mac(r)?,
        cipher_out: cipher(r)?,
        mac_out: mac(r)?,
        strict: flag(r, "strict")?,
    };
    let mut said = Extensions {
        expected: flag(r, "extensions")?,
        ping: flag(r, "extensions")?,
        channel_mirror: flag(r, "extensions")?,
        hostbound: flag(r, "extensions")?,
        server_sig_algs: None,
    };
    let told = flag(r, "signature algorithms")?;
    let count = r.u32("signature algorithms")?;
    if count > SIG_ALGS_MAX || (count > 0 && !told) {
        return Err(Malformed::Invalid("signature algorithms"));
    }
    let algorithms: Result<Vec<String>, Malformed> = (0..count)
        .map(|_| Ok(r.text("signature algorithms")?.to_owned()))
        .collect();
    said.server_sig_algs = Some(algorithms?).filter(|_| told);
    Ok(ConnectionInfo {
        peer_version,
        algorithms: Some(agreed),
        offered: None,
        share_held: None,
        extensions: said,
        bytes_in: r.u64("bytes")?,
        bytes_out: r.u64("bytes")?,
        packets_in: r.u64("packets")?,
        packets_out: r.u64("packets")?,
        exchanges: r.u32("exchanges")?,
    })
}

/// A version line. Those that are not UTF-8 were refused when they came.
fn line(r: &mut Reader<'_>) -> Result<String, Malformed> {
    let line = r.text("version line")?;
    if !line.starts_with("SSH-") || line.chars().any(char::is_control) {
        return Err(Malformed::Invalid("version line"));
    }
    Ok(line.to_owned())
}

fn cipher(r: &mut Reader<'_>) -> Result<Cipher, Malformed> {
    Cipher::named(r.text("cipher")?).ok_or(Malformed::Invalid("cipher"))
}

fn mac(r: &mut Reader<'_>) -> Result<Option<Mac>, Malformed> {
    match r.text("MAC")? {
        "" => Ok(None),
        name => Mac::named(name).map(Some).ok_or(Malformed::Invalid("MAC")),
    }
}

/// 0 or 1: a state has one form.
fn flag(r: &mut Reader<'_>, what: &'static str) -> Result<bool, Malformed> {
    match r.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed::Invalid(what)),
    }
}
