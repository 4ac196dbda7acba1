//! The exchange hash, and the frame in which all that goes into it is handed to the process that signs. That process is
//! root, so the frame is checked to the last byte. Keys are derived from the hash here too.

use crate::cipher::{Cipher, Keys, Mac, Secrets};
use crate::codec::{Malformed, Reader, Write, number};
use crate::event::Exchange;
use crate::kex::kexinit::KexInit;
use crate::method::Method;
use ring::digest::{Context, Digest};
use zeroize::{Zeroize, Zeroizing};

/// A whole frame: two KEXINITs of 32 KB and what is small beside them.
pub const FRAME_MAX: usize = 80 * 1024;
/// A KEXINIT, whatever the settings say.
const KEXINIT_MAX: usize = 32 * 1024;
/// A version line without CR LF.
const VERSION_MAX: usize = 253;
/// A host key blob or host certificate.
const HOST_KEY_MAX: usize = 8 * 1024;
/// An algorithm's name (RFC 4251 §6).
const NAME_MAX: usize = 64;

impl Exchange {
    /// The exchange hash: what is signed, and of the first exchange the session id. None where the method is unknown.
    pub fn hash(&self) -> Option<Digest> {
        Some(self.hash_by(Method::named(&self.kex)?))
    }

    /// The same where the method is known.
    pub(crate) fn hash_by(&self, method: Method) -> Digest {
        let mut context = Context::new(method.hash());
        for field in [
            &self.client_version,
            &self.server_version,
            &self.client_kexinit,
            &self.server_kexinit,
            &self.host_key,
            &self.client_share,
            &self.server_share,
        ] {
            context.update(&number(field.len()).to_be_bytes());
            context.update(field);
        }
        context.update(&self.secret);
        context.finish()
    }

    /// The cookie of the server's KEXINIT.
    pub fn server_cookie(&self) -> Option<[u8; 16]> {
        Some(KexInit::parse(&self.server_kexinit).ok()?.cookie)
    }

    /// As bytes. They hold the shared secret.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let fields = self.fields();
        let len: usize = fields.iter().map(|f| 4 + f.len()).sum();
        let mut frame = Zeroizing::new(Vec::with_capacity(len));
        for field in fields {
            frame.put_string(field);
        }
        frame
    }

    /// What [`Exchange::encode`] made, from a process that is not trusted: every field is what a key exchange could have
    /// had there, the two KEXINITs agree on its method and its host key algorithm, and every frame has one form.
    pub fn decode(frame: &[u8]) -> Result<Exchange, Malformed> {
        if frame.len() > FRAME_MAX {
            return Err(Malformed::Invalid("length"));
        }
        let mut r = Reader::new(frame);
        let bounded = |r: &mut Reader<'_>, max, what| -> Result<Vec<u8>, Malformed> {
            let bytes = r.string(what)?;
            if bytes.len() > max {
                return Err(Malformed::Invalid(what));
            }
            Ok(bytes.to_vec())
        };
        let name = |r: &mut Reader<'_>, what| {
            String::from_utf8(bounded(r, NAME_MAX, what)?).map_err(|_| Malformed::Invalid(what))
        };
        let exchange = Exchange {
            kex: name(&mut r, "kex")?,
            host_key_algorithm: name(&mut r, "host key algorithm")?,
            client_version: bounded(&mut r, VERSION_MAX, "client version")?,
            server_version: bounded(&mut r, VERSION_MAX, "server version")?,
            client_kexinit: bounded(&mut r, KEXINIT_MAX, "client KEXINIT")?,
            server_kexinit: bounded(&mut r, KEXINIT_MAX, "server KEXINIT")?,
            host_key: bounded(&mut r, HOST_KEY_MAX, "host key")?,
            client_share: bounded(&mut r, FRAME_MAX, "client share")?,
            server_share: bounded(&mut r, FRAME_MAX, "server share")?,
            secret: bounded(&mut r, FRAME_MAX, "secret")?,
        };
        r.end()?;
        exchange.check()?;
        Ok(exchange)
    }

    fn check(&self) -> Result<(), Malformed> {
        let method = Method::named(&self.kex).ok_or(Malformed::Invalid("kex"))?;
        for (line, what) in [
            (&self.client_version, "client version"),
            (&self.server_version, "server version"),
        ] {
            if !line.starts_with(b"SSH-") || !line.iter().all(|b| (0x20..0x7f).contains(b)) {
                return Err(Malformed::Invalid(what));
            }
        }
        let client = KexInit::parse(&self.client_kexinit)?;
        let server = KexInit::parse(&self.server_kexinit)?;
        if client.kex.agreed(server.kex) != Some(self.kex.as_bytes()) {
            return Err(Malformed::Invalid("kex"));
        }
        if client.host_key.agreed(server.host_key) != Some(self.host_key_algorithm.as_bytes()) {
            return Err(Malformed::Invalid("host key algorithm"));
        }
        let lengths = (self.client_share.len(), self.server_share.len());
        if lengths != method.share_lengths() {
            return Err(Malformed::Invalid("share"));
        }
        self.check_secret(method)
    }

    /// The secret has the one form that its method gives it.
    fn check_secret(&self, method: Method) -> Result<(), Malformed> {
        let mut r = Reader::new(&self.secret);
        let mut again = Zeroizing::new(Vec::with_capacity(self.secret.len()));
        let most = match method {
            Method::MlKem768X25519 => {
                let value = r.string("secret")?;
                again.put_string(value);
                if value.len() != 32 {
                    return Err(Malformed::Invalid("secret"));
                }
                32
            }
            Method::Curve25519 | Method::Curve25519Libssh | Method::EcdhP256 => 32,
            Method::EcdhP384 => 48,
        };
        if again.is_empty() {
            let value = r.mpint("secret")?;
            if value.is_empty() || value.len() > most {
                return Err(Malformed::Invalid("secret"));
            }
            again.put_mpint(value);
        }
        if *again != self.secret {
            return Err(Malformed::Invalid("secret"));
        }
        Ok(())
    }

    fn fields(&self) -> [&[u8]; 10] {
        [
            self.kex.as_bytes(),
            self.host_key_algorithm.as_bytes(),
            &self.client_version,
            &self.server_version,
            &self.client_kexinit,
            &self.server_kexinit,
            &self.host_key,
            &self.client_share,
            &self.server_share,
            &self.secret,
        ]
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

/// What keys are derived from.
pub(crate) struct Derivation<'a> {
    pub(crate) method: Method,
    pub(crate) secret: &'a [u8],
    pub(crate) hash: &'a [u8],
    pub(crate) session_id: &'a [u8],
}

impl Derivation<'_> {
    /// One direction's keys (RFC 4253 §7.2). None: the cipher and the MAC do not go together.
    pub(crate) fn keys(&self, client_to_server: bool, cipher: Cipher, mac: Option<Mac>) -> Option<Keys> {
        let letters = if client_to_server { b"ACE" } else { b"BDF" };
        Keys::new(Secrets {
            cipher,
            mac,
            iv: self.bytes(letters[0], cipher.iv_len()),
            key: self.bytes(letters[1], cipher.key_len()),
            mac_key: self.bytes(letters[2], mac.map_or(0, Mac::len)),
        })
    }

    fn bytes(&self, letter: u8, len: usize) -> Zeroizing<Vec<u8>> {
        let algorithm = self.method.hash();
        // Never grown: what a growing vector leaves behind is not wiped.
        let mut out = Zeroizing::new(Vec::with_capacity(len + algorithm.output_len()));
        while out.len() < len {
            let mut context = Context::new(algorithm);
            context.update(self.secret);
            context.update(self.hash);
            if out.is_empty() {
                context.update(&[letter]);
                context.update(self.session_id);
            } else {
                context.update(&out);
            }
            out.put(context.finish().as_ref());
        }
        out.truncate(len);
        out
    }
}
