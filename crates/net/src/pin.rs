//! The hash of an authority, and the texts that carry it to whoever does not know the cluster yet: invites for people,
//! tokens for machines. What a secret is good for is the auth service's business.

use base64ct::{Base64UrlUnpadded, Encoding};
use fleetgate_policy::text::hex;
use ring::digest;
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// The shortest and longest secret of an invite or token, in characters.
pub const SECRET: std::ops::RangeInclusive<usize> = 16..=128;

/// SHA-256 of an authority's SubjectPublicKeyInfo. Its text is `sha256:HEX`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pin([u8; 32]);

/// What a [`Ticket`] admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admits {
    /// A person: `fgi1.PIN.SECRET`, printed by `fleetgate user add`.
    User,
    /// A machine: `fgt1.PIN.SECRET`, printed by `fleetgate token add`.
    Machine,
}

/// An invite or token: whom to believe, and a secret to show there. [`Ticket::text`] is the only way to see all of it.
pub struct Ticket {
    /// Who may use it.
    pub admits: Admits,
    /// The authority of the cluster's TLS certificates.
    pub pin: Pin,
    secret: Zeroizing<String>,
}

/// A text that is no pin, invite or token. It says nothing of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadText(&'static str);

impl Pin {
    /// Of a SubjectPublicKeyInfo, DER.
    #[must_use]
    pub fn of(public: &[u8]) -> Pin {
        let digest = digest::digest(&digest::SHA256, public);
        Pin(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    /// The hash itself.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Pin {
    fn from(hash: [u8; 32]) -> Pin {
        Pin(hash)
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex(&self.0))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Pin {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Pin, BadText> {
        const WRONG: BadText = BadText("a pin is \"sha256:\" and 64 hexadecimal digits");
        let hex = text.strip_prefix("sha256:").ok_or(WRONG)?.as_bytes();
        if hex.len() != 64 {
            return Err(WRONG);
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(hex.chunks_exact(2)) {
            let digits = std::str::from_utf8(pair)
                .ok()
                .filter(|d| d.bytes().all(|c| c.is_ascii_hexdigit()));
            *byte = u8::from_str_radix(digits.ok_or(WRONG)?, 16).map_err(|_| WRONG)?;
        }
        Ok(Pin(hash))
    }
}

impl Ticket {
    /// With a secret of letters, digits, `-` and `_`.
    pub fn new(admits: Admits, pin: Pin, secret: &str) -> Result<Ticket, BadText> {
        let of_its_alphabet = secret
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_');
        if !of_its_alphabet || !SECRET.contains(&secret.len()) {
            return Err(BadText(
                "the part behind the last dot is not 16 to 128 letters, digits, '-' and '_': copy the whole text",
            ));
        }
        Ok(Ticket {
            admits,
            pin,
            secret: Zeroizing::new(secret.to_owned()),
        })
    }

    /// What to show to the auth service.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// The text to hand over.
    #[must_use]
    pub fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(5 + 43 + 1 + self.secret.len()));
        text.push_str(self.admits.prefix());
        text.push('.');
        text.push_str(&Base64UrlUnpadded::encode_string(&self.pin.0));
        text.push('.');
        text.push_str(&self.secret);
        text
    }
}

impl Admits {
    fn prefix(self) -> &'static str {
        match self {
            Admits::User => "fgi1",
            Admits::Machine => "fgt1",
        }
    }
}

impl FromStr for Ticket {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Ticket, BadText> {
        const SHAPE: BadText = BadText(
            "an invite has the form fgi1.PIN.SECRET and a token fgt1.PIN.SECRET: copy the whole text",
        );
        let mut parts = text.trim().splitn(3, '.');
        let mut part = || parts.next().ok_or(SHAPE);
        let admits = match part()? {
            "fgi1" => Admits::User,
            "fgt1" => Admits::Machine,
            _ => return Err(SHAPE),
        };
        let mut hash = [0; 32];
        match Base64UrlUnpadded::decode(part()?, &mut hash) {
            Ok(bytes) if bytes.len() == 32 => {}
            _ => {
                return Err(BadText(
                    "its PIN is not 43 characters of base64url: copy the whole text",
                ));
            }
        }
        Ticket::new(admits, Pin(hash), part()?)
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.(secret)", self.admits.prefix(), self.pin)
    }
}

impl fmt::Display for BadText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadText {}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET_TEXT: &str = "abcdefghijklmnopqrstuvwx";

    #[test]
    fn texts_are_read_as_they_are_printed() {
        let pin = Pin::of(b"public key");
        assert_eq!(pin.to_string().parse(), Ok(pin));
        assert_eq!(
            pin.to_string().to_uppercase().replace("SHA256", "sha256").parse(),
            Ok(pin)
        );
        for admits in [Admits::User, Admits::Machine] {
            let ticket = Ticket::new(admits, pin, SECRET_TEXT).unwrap();
            let read: Ticket = format!(" {}\n", ticket.text().as_str()).parse().unwrap();
            assert_eq!((read.admits, read.pin, read.secret()), (admits, pin, SECRET_TEXT));
        }
    }

    #[test]
    fn what_is_none_is_refused_without_its_secret() {
        let good = Ticket::new(Admits::User, Pin::of(b"k"), SECRET_TEXT)
            .unwrap()
            .text();
        assert!(good.parse::<Ticket>().is_ok(), "control");
        for bad in [
            "",
            "fgi1",
            "fgi1.x",
            "fgi2.x.y",
            &good.replace("fgi1", "fgi9"),
            &good[..good.len() - SECRET_TEXT.len()],
            &good.replace(SECRET_TEXT, "short"),
            &good.replace(SECRET_TEXT, "abcdefghijklmnop qrst"),
            &good.replace(SECRET_TEXT, &"x".repeat(129)),
            &good.replacen('.', ".A", 1),
        ] {
            let error = bad.parse::<Ticket>().unwrap_err().to_string();
            assert!(
                error.contains("copy the whole text") && !error.contains(SECRET_TEXT),
                "{bad}: {error}"
            );
        }
        assert!(!format!("{:?}", good.parse::<Ticket>().unwrap()).contains(SECRET_TEXT));
        for bad in [
            "",
            "sha256:",
            "sha256:00",
            "md5:00",
            &format!("sha256:{}", "g".repeat(64)),
        ] {
            assert!(bad.parse::<Pin>().is_err(), "{bad}");
        }
    }
}
