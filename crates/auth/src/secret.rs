//! Secrets that are handed over once: made at random, shown as text, kept as a hash. None is ever stored or logged.

use base64ct::{Base64UrlUnpadded, Encoding};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use zeroize::Zeroizing;

/// The bytes of a secret.
const LENGTH: usize = 32;

/// Something that who knows it may do once: an invite's or a token's secret.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; LENGTH]>);

/// The kernel gave no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRandom;

impl Secret {
    /// A new one.
    pub fn fresh() -> Result<Secret, NoRandom> {
        let mut bytes = Zeroizing::new([0; LENGTH]);
        random(&mut *bytes)?;
        Ok(Secret(bytes))
    }

    /// From its text; none where it cannot be one.
    pub fn parse(text: &str) -> Option<Secret> {
        let mut bytes = Zeroizing::new([0; LENGTH]);
        let read = Base64UrlUnpadded::decode(text, &mut *bytes).ok()?;
        (read.len() == LENGTH).then_some(Secret(bytes))
    }

    /// As it is handed over.
    pub fn text(&self) -> Zeroizing<String> {
        Zeroizing::new(Base64UrlUnpadded::encode_string(&*self.0))
    }

    /// What is kept of it. A plain hash does: nobody guesses 256 random bits.
    pub fn hash(&self) -> String {
        Base64UrlUnpadded::encode_string(digest(&SHA256, &*self.0).as_ref())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Fills `out` from the kernel's random numbers.
pub fn random(out: &mut [u8]) -> Result<(), NoRandom> {
    SystemRandom::new().fill(out).map_err(|_| NoRandom)
}

/// A short name that nothing else has, for documents that have no other: 80 random bits.
pub fn fresh_id() -> Result<String, NoRandom> {
    let mut bytes = [0; 10];
    random(&mut bytes)?;
    Ok(fleetgate_policy::text::hex(&bytes))
}

/// Whether two are the same, in a time that does not depend on where they differ.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    let differing = a.iter().zip(b).fold(0, |sum, (x, y)| sum | (x ^ y));
    std::hint::black_box(differing) == 0 && a.len() == b.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_its_text_and_nothing_else_is() {
        let secret = Secret::fresh().unwrap();
        let text = secret.text();
        assert_eq!(text.len(), 43);
        assert_eq!(Secret::parse(&text).unwrap().hash(), secret.hash());
        assert_ne!(Secret::fresh().unwrap().hash(), secret.hash());
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        for bad in [
            "",
            "abc",
            &text[1..],
            &format!("{}=", *text),
            &format!("{}A", *text),
            "ä",
        ] {
            assert!(Secret::parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_the_same() {
        assert!(same(b"abc", b"abc") && same(b"", b""));
        assert!(!same(b"abc", b"abd") && !same(b"abc", b"ab") && !same(b"", b"a"));
    }
}
