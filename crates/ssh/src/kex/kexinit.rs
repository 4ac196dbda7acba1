//! KEXINIT (RFC 4253 §7.1): written, read, and what two of them agree on. It allocates nothing when reading.

use crate::cipher::{Cipher, Mac};
use crate::codec::{Malformed, Reader, Write};
use crate::info::{Algorithms, ServerOffer};
use crate::key::Algorithm;
use crate::message::KEXINIT;
use crate::method::Method;
use crate::settings::{Role, Settings};
use fleetgate_policy::text::is_unseen;

/// A marker among the methods: the sender reads EXT_INFO (RFC 8308 §2.1).
const EXT_INFO_C: &str = "ext-info-c";
const EXT_INFO_S: &str = "ext-info-s";
/// A marker: strict key exchange (OpenSSH's PROTOCOL §1.10).
const STRICT_C: &str = "kex-strict-c-v00@openssh.com";
const STRICT_S: &str = "kex-strict-s-v00@openssh.com";

/// One, as received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KexInit<'a> {
    pub(crate) cookie: [u8; 16],
    pub(crate) kex: Names<'a>,
    pub(crate) host_key: Names<'a>,
    /// From client to server, from server to client.
    pub(crate) ciphers: [Names<'a>; 2],
    pub(crate) macs: [Names<'a>; 2],
    pub(crate) compression: [Names<'a>; 2],
    /// A guessed first message follows.
    pub(crate) follows: bool,
}

/// A name-list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Names<'a>(&'a [u8]);

/// What a client's and a server's KEXINIT agree on.
#[derive(Debug)]
pub(crate) struct Agreement {
    pub(crate) algorithms: Algorithms,
    /// The peer reads EXT_INFO.
    pub(crate) ext_info: bool,
    /// Both would begin with the same method and host key algorithm, so a guess was right (RFC 4253 §7).
    pub(crate) guess_right: bool,
}

impl<'a> Names<'a> {
    /// Each of them.
    pub(crate) fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        self.0.split(|&b| b == b',').filter(|n| !n.is_empty())
    }

    fn has(self, name: &[u8]) -> bool {
        self.iter().any(|n| n == name)
    }

    /// Called on the client's list: its first name that the server's has too. A marker is no method.
    pub(crate) fn agreed(self, server: Names<'_>) -> Option<&'a [u8]> {
        self.iter().find(|n| !is_marker(n) && server.has(n))
    }
}

impl KexInit<'_> {
    /// A server's lists, as far as they are known here.
    pub(crate) fn offer(&self) -> ServerOffer {
        let known = |name: &[u8]| Algorithm::parse(std::str::from_utf8(name).ok()?);
        ServerOffer {
            kex: self.kex.iter().filter_map(method).collect(),
            best_kex: self.kex.iter().next().and_then(method),
            best_host_key: self.host_key.iter().next().and_then(known),
        }
    }
}

impl<'a> KexInit<'a> {
    /// Of a payload.
    pub(crate) fn parse(payload: &'a [u8]) -> Result<KexInit<'a>, Malformed> {
        let mut r = Reader::new(payload);
        if r.u8("message number")? != KEXINIT {
            return Err(Malformed::Invalid("message number"));
        }
        let mut cookie = [0; 16];
        cookie.copy_from_slice(r.bytes(16, "cookie")?);
        let mut names = |what| r.string(what).map(Names);
        let init = KexInit {
            cookie,
            kex: names("key exchange methods")?,
            host_key: names("host key algorithms")?,
            ciphers: [names("ciphers")?, names("ciphers")?],
            macs: [names("MACs")?, names("MACs")?],
            compression: [names("compression")?, names("compression")?],
            follows: {
                names("languages")?;
                names("languages")?;
                r.bool("first_kex_packet_follows")?
            },
        };
        r.u32("reserved field")?;
        r.end()?;
        Ok(init)
    }
}

/// Our KEXINIT's payload. The markers stand in the first one only: later ones cannot change what they say.
pub(crate) fn write(
    settings: &Settings,
    role: Role,
    cookie: [u8; 16],
    first: bool,
    follows: bool,
) -> Vec<u8> {
    let mut kex: Vec<&str> = settings.kex.iter().map(|m| m.name()).collect();
    let mut host_keys: Vec<&str> = Vec::new();
    match role {
        Role::Client => host_keys.extend(settings.host_key_algorithms.iter().map(String::as_str)),
        Role::Server => {
            for key in &settings.host_keys {
                if !host_keys.contains(&key.algorithm.as_str()) {
                    host_keys.push(&key.algorithm);
                }
            }
        }
    }
    if first {
        let (ext_info, strict) = markers(role);
        kex.push(ext_info);
        kex.extend(settings.strict.then_some(strict));
    }
    let ciphers: Vec<&str> = settings.ciphers.iter().map(|c| c.name()).collect();
    let macs: Vec<&str> = settings.macs.iter().map(|m| m.name()).collect();
    let mut payload = Vec::with_capacity(1024);
    payload.put_u8(KEXINIT);
    payload.put(&cookie);
    payload.put_names(&kex);
    payload.put_names(&host_keys);
    for _ in 0..2 {
        payload.put_names(&ciphers);
    }
    for _ in 0..2 {
        payload.put_names(&macs);
    }
    for _ in 0..2 {
        payload.put_names(&["none"]);
    }
    payload.put_names(&[]);
    payload.put_names(&[]);
    payload.put_bool(follows);
    payload.put_u32(0);
    payload
}

/// What both agree on. The error names what there is nothing in common of, with the peer's list.
pub(crate) fn agree(role: Role, ours: &KexInit<'_>, theirs: &KexInit<'_>) -> Result<Agreement, String> {
    let (client, server) = match role {
        Role::Client => (ours, theirs),
        Role::Server => (theirs, ours),
    };
    let none = |what: &str, list: Names<'_>| {
        let mut list: String = String::from_utf8_lossy(list.0)
            .chars()
            .filter(|c| !is_unseen(*c))
            .collect();
        if list.len() > 300 {
            list.truncate(list.floor_char_boundary(300));
            list.push('…');
        }
        format!("there is no {what} in common; the peer offers {list}")
    };
    let kex = client
        .kex
        .agreed(server.kex)
        .and_then(method)
        .ok_or_else(|| none("key exchange method", theirs.kex))?;
    let host_key = client
        .host_key
        .agreed(server.host_key)
        .ok_or_else(|| none("host key algorithm", theirs.host_key))?;
    let cipher = |i: usize| -> Result<(Cipher, Option<Mac>), String> {
        let cipher = client.ciphers[i]
            .agreed(server.ciphers[i])
            .and_then(|n| Cipher::named(std::str::from_utf8(n).ok()?))
            .ok_or_else(|| none("cipher", theirs.ciphers[i]))?;
        if cipher.authenticates() {
            return Ok((cipher, None));
        }
        let mac = client.macs[i]
            .agreed(server.macs[i])
            .and_then(|n| Mac::named(std::str::from_utf8(n).ok()?))
            .ok_or_else(|| none("MAC", theirs.macs[i]))?;
        Ok((cipher, Some(mac)))
    };
    let (to_server, to_client) = (cipher(0)?, cipher(1)?);
    for list in theirs.compression {
        if !list.has(b"none") {
            return Err(none("compression", list));
        }
    }
    let (incoming, outgoing) = match role {
        Role::Client => (to_client, to_server),
        Role::Server => (to_server, to_client),
    };
    let ((_, our_strict), (ext_info, strict)) = match role {
        Role::Client => (markers(Role::Client), markers(Role::Server)),
        Role::Server => (markers(Role::Server), markers(Role::Client)),
    };
    let strict = ours.kex.has(our_strict.as_bytes()) && theirs.kex.has(strict.as_bytes());
    Ok(Agreement {
        guess_right: client.kex.iter().next() == server.kex.iter().next()
            && client.host_key.iter().next() == server.host_key.iter().next(),
        ext_info: theirs.kex.has(ext_info.as_bytes()),
        algorithms: Algorithms {
            kex,
            host_key: String::from_utf8_lossy(host_key).into_owned(),
            cipher_in: incoming.0,
            mac_in: incoming.1,
            cipher_out: outgoing.0,
            mac_out: outgoing.1,
            strict,
        },
    })
}

/// What each side puts behind its methods.
fn markers(role: Role) -> (&'static str, &'static str) {
    match role {
        Role::Client => (EXT_INFO_C, STRICT_C),
        Role::Server => (EXT_INFO_S, STRICT_S),
    }
}

fn method(name: &[u8]) -> Option<Method> {
    Method::named(std::str::from_utf8(name).ok()?)
}

fn is_marker(name: &[u8]) -> bool {
    [EXT_INFO_C, EXT_INFO_S, STRICT_C, STRICT_S]
        .iter()
        .any(|m| m.as_bytes() == name)
}
