//! USERAUTH_REQUEST: read without copying, and written. It never shows a password in Debug.

use super::CONNECTION;
use crate::codec::{Malformed, Reader, Write};
use crate::message::USERAUTH_REQUEST;
use std::fmt;
use zeroize::Zeroizing;

/// One try to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Who.
    pub user: &'a [u8],
    /// To what: `ssh-connection`.
    pub service: &'a str,
    /// How.
    pub method: Method<'a>,
}

/// How a user wants to prove who he is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Method<'a> {
    /// Not at all; the refusal lists the methods.
    None,
    /// password (RFC 4252 §8).
    Password {
        /// The password.
        password: &'a [u8],
        /// The one to replace it with.
        new: Option<&'a [u8]>,
    },
    /// publickey and publickey-hostbound-v00@openssh.com.
    PublicKey(PublicKey<'a>),
    /// keyboard-interactive (RFC 4256).
    KeyboardInteractive {
        /// A hint, a list of names.
        submethods: &'a [u8],
    },
    /// Some other method.
    Other {
        /// Its name.
        name: &'a str,
        /// Its own fields.
        payload: &'a [u8],
    },
}

/// A key, and the proof of having it unless this only asks whether it would do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey<'a> {
    /// The signature algorithm.
    pub algorithm: &'a str,
    /// The key or certificate, a blob.
    pub key: &'a [u8],
    /// Hostbound: the server's host key, as the client saw it. To be compared with the one that was used.
    pub host_key: Option<&'a [u8]>,
    /// The signature, a blob.
    pub signature: Option<&'a [u8]>,
    /// The request up to its signature.
    signed: &'a [u8],
}

/// A publickey request that waits for its signature.
pub struct UnsignedRequest {
    session_id: usize,
    bytes: Vec<u8>,
}

const PASSWORD: &str = "password";
const PUBLICKEY: &str = "publickey";
const HOSTBOUND: &str = "publickey-hostbound-v00@openssh.com";
const KEYBOARD_INTERACTIVE: &str = "keyboard-interactive";

impl<'a> Request<'a> {
    /// Reads a USERAUTH_REQUEST, its message number included.
    pub fn parse(payload: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let mut r = Reader::new(payload);
        if r.u8("number")? != USERAUTH_REQUEST {
            return Err(Malformed::Invalid("number"));
        }
        let user = r.string("user")?;
        let service = r.text("service")?;
        let method = match r.text("method")? {
            "none" => {
                r.end()?;
                Method::None
            }
            PASSWORD => {
                let change = r.bool("change flag")?;
                let password = r.string("password")?;
                let new = change.then(|| r.string("new password")).transpose()?;
                r.end()?;
                Method::Password { password, new }
            }
            PUBLICKEY => Method::PublicKey(PublicKey::parse(r, payload, false)?),
            HOSTBOUND => Method::PublicKey(PublicKey::parse(r, payload, true)?),
            KEYBOARD_INTERACTIVE => {
                r.string("language")?;
                let submethods = r.string("submethods")?;
                r.end()?;
                Method::KeyboardInteractive { submethods }
            }
            name => Method::Other {
                name,
                payload: r.rest(),
            },
        };
        Ok(Request {
            user,
            service,
            method,
        })
    }

    /// A request that asks which methods there are.
    pub fn none(user: &[u8]) -> Zeroizing<Vec<u8>> {
        begin(user, "none", 0)
    }

    /// A request by password; with a new one to replace it.
    pub fn password(user: &[u8], password: &[u8], new: Option<&[u8]>) -> Zeroizing<Vec<u8>> {
        let more = 1 + 4 + password.len() + new.map_or(0, |n| 4 + n.len());
        let mut out = begin(user, PASSWORD, more);
        out.put_bool(new.is_some());
        out.put_string(password);
        if let Some(new) = new {
            out.put_string(new);
        }
        out
    }

    /// A request that asks whether a key would do.
    pub fn query(user: &[u8], algorithm: &str, key: &[u8]) -> Zeroizing<Vec<u8>> {
        let mut out = begin(user, PUBLICKEY, 9 + algorithm.len() + key.len());
        out.put_bool(false);
        out.put_string(algorithm);
        out.put_string(key);
        out
    }

    /// A request with a signature, which is yet to be made. With the server's host key it is bound to that (hostbound),
    /// which only a server that said so by ext-info understands.
    pub fn unsigned(
        session_id: &[u8],
        user: &[u8],
        algorithm: &str,
        key: &[u8],
        host_key: Option<&[u8]>,
    ) -> UnsignedRequest {
        let mut bytes = Vec::new();
        bytes.put_string(session_id);
        let session_id = bytes.len();
        let method = if host_key.is_some() { HOSTBOUND } else { PUBLICKEY };
        bytes.put(&begin(user, method, 0));
        bytes.put_bool(true);
        bytes.put_string(algorithm);
        bytes.put_string(key);
        if let Some(host_key) = host_key {
            bytes.put_string(host_key);
        }
        UnsignedRequest { session_id, bytes }
    }

    /// A request to be asked questions.
    pub fn keyboard_interactive(user: &[u8], submethods: &str) -> Zeroizing<Vec<u8>> {
        let mut out = begin(user, KEYBOARD_INTERACTIVE, 8 + submethods.len());
        out.put_string("");
        out.put_string(submethods);
        out
    }
}

impl<'a> PublicKey<'a> {
    fn parse(mut r: Reader<'a>, payload: &'a [u8], hostbound: bool) -> Result<PublicKey<'a>, Malformed> {
        let has_signature = r.bool("signature flag")?;
        // OpenSSH's PROTOCOL: a hostbound request always has a signature; the query is the plain one.
        if hostbound && !has_signature {
            return Err(Malformed::Invalid("signature flag"));
        }
        let algorithm = r.text("algorithm")?;
        let key = r.string("key")?;
        let host_key = hostbound.then(|| r.string("host key")).transpose()?;
        let signed = &payload[..payload.len() - r.rest().len()];
        let signature = has_signature.then(|| r.string("signature")).transpose()?;
        r.end()?;
        Ok(PublicKey {
            algorithm,
            key,
            host_key,
            signature,
            signed,
        })
    }

    /// What the signature is over (RFC 4252 §7): the session's id and the request up to the signature, as received.
    pub fn signed_data(&self, session_id: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + session_id.len() + self.signed.len());
        out.put_string(session_id);
        out.put(self.signed);
        out
    }
}

impl UnsignedRequest {
    /// What to sign.
    pub fn to_sign(&self) -> &[u8] {
        &self.bytes
    }

    /// The request with its signature, a blob.
    pub fn signed(self, signature: &[u8]) -> Vec<u8> {
        let mut bytes = self.bytes;
        bytes.drain(..self.session_id);
        bytes.put_string(signature);
        bytes
    }
}

impl fmt::Debug for Method<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::None => f.write_str("none"),
            Method::Password { .. } => f.write_str(PASSWORD),
            Method::PublicKey(key) => key.fmt(f),
            Method::KeyboardInteractive { .. } => f.write_str(KEYBOARD_INTERACTIVE),
            Method::Other { name, .. } => f.write_str(name),
        }
    }
}

impl fmt::Debug for PublicKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = if self.host_key.is_some() {
            HOSTBOUND
        } else {
            PUBLICKEY
        };
        let signed = if self.signature.is_some() {
            "signed"
        } else {
            "query"
        };
        write!(f, "{method}({}, {signed})", self.algorithm)
    }
}

/// The fields that every request begins with, and room for `more` bytes: what holds a password is never moved.
fn begin(user: &[u8], method: &str, more: usize) -> Zeroizing<Vec<u8>> {
    let size = 1 + 12 + user.len() + CONNECTION.len() + method.len() + more;
    let mut out = Zeroizing::new(Vec::with_capacity(size));
    out.put_u8(USERAUTH_REQUEST);
    out.put_string(user);
    out.put_string(CONNECTION);
    out.put_string(method);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &[u8] = b"ann";

    #[test]
    fn what_is_written_is_read() {
        let unsigned = Request::unsigned(b"id", USER, "ssh-ed25519", b"blob", None);
        let plain_data = unsigned.to_sign().to_vec();
        let plain = unsigned.signed(b"sig");
        let unsigned = Request::unsigned(b"id", USER, "ssh-ed25519", b"blob", Some(b"host"));
        let bound_data = unsigned.to_sign().to_vec();
        let bound = unsigned.signed(b"sig");

        for (payload, shown) in [
            (Request::none(USER).to_vec(), "none"),
            (Request::password(USER, b"secret", None).to_vec(), "password"),
            (Request::password(USER, b"old", Some(b"new")).to_vec(), "password"),
            (
                Request::query(USER, "ssh-rsa", b"blob").to_vec(),
                "publickey(ssh-rsa, query)",
            ),
            (plain.clone(), "publickey(ssh-ed25519, signed)"),
            (
                bound.clone(),
                "publickey-hostbound-v00@openssh.com(ssh-ed25519, signed)",
            ),
            (
                Request::keyboard_interactive(USER, "pam").to_vec(),
                "keyboard-interactive",
            ),
        ] {
            let request = Request::parse(&payload).expect(shown);
            assert_eq!((request.user, request.service), (USER, "ssh-connection"));
            assert_eq!(format!("{:?}", request.method), shown);
            // Cut anywhere it is refused, and so it is with a byte too many.
            for cut in 0..payload.len() {
                assert!(Request::parse(&payload[..cut]).is_err(), "{shown} cut at {cut}");
            }
            let long = [&payload[..], &[0]].concat();
            assert_eq!(Request::parse(&long), Err(Malformed::Trailing), "{shown}");
        }

        for (payload, data) in [(plain, plain_data), (bound, bound_data)] {
            let Method::PublicKey(key) = Request::parse(&payload).unwrap().method else {
                panic!("not a key")
            };
            assert_eq!(key.signed_data(b"id"), data);
            assert_eq!(key.signature, Some(&b"sig"[..]));
            assert_ne!(key.signed_data(b"another"), data);
        }
        match Request::parse(&Request::password(USER, b"old", Some(b"new")))
            .unwrap()
            .method
        {
            Method::Password { password, new } => {
                assert_eq!((password, new), (&b"old"[..], Some(&b"new"[..])))
            }
            other => panic!("{other:?}"),
        };
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let request = |method: &str, fields: &[u8]| {
            let mut out = begin(USER, method, 0).to_vec();
            out.put(fields);
            out
        };
        let mut other_number = request("none", b"");
        other_number[0] = 51;
        let mut bad_service = request("none", b"");
        bad_service[12] = 0xff;
        for (payload, wrong) in [
            (other_number, Malformed::Invalid("number")),
            (bad_service, Malformed::Invalid("service")),
            (vec![50, 0xff, 0xff, 0xff, 0xff], Malformed::Short("user")),
            (request("none", b"x"), Malformed::Trailing),
            (
                request("password", &[1, 0, 0, 0, 0]),
                Malformed::Short("new password"),
            ),
            (
                request("publickey", &[0, 0, 0, 0, 1, 0xff]),
                Malformed::Invalid("algorithm"),
            ),
            (
                request("publickey", &[1, 0, 0, 0, 0, 0, 0, 0, 0]),
                Malformed::Short("signature"),
            ),
            (
                request(HOSTBOUND, &[0, 0, 0, 0, 0, 0, 0, 0, 0]),
                Malformed::Invalid("signature flag"),
            ),
            (
                request(HOSTBOUND, &[1, 0, 0, 0, 0, 0, 0, 0, 0]),
                Malformed::Short("host key"),
            ),
        ] {
            assert_eq!(Request::parse(&payload), Err(wrong));
        }
    }

    #[test]
    fn a_method_that_is_not_known_is_handed_on_whole() {
        let mut payload = begin(USER, "hostbased", 3).to_vec();
        payload.put(&[1, 2, 3]);
        let Method::Other { name, payload } = Request::parse(&payload).unwrap().method else {
            panic!("known")
        };
        assert_eq!((name, payload), ("hostbased", &[1, 2, 3][..]));
    }

    #[test]
    fn a_password_is_not_shown() {
        let payload = Request::password(USER, b"hunter2", Some(b"hunter3"));
        let shown = format!("{:?}", Request::parse(&payload).unwrap());
        assert!(!shown.contains("hunter"), "{shown}");
        assert!(shown.contains("password"), "{shown}");
    }
}
