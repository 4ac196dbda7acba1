//! The text before an age file's payload: for whom it is, and a code over that. A reader takes one form of it and no other, and
//! passes over stanzas of other types, as the specification asks.

use super::Key;
use base64ct::{Base64Unpadded, Encoding};
use ring::hmac;

const VERSION: &[u8] = b"age-encryption.org/v1\n";
const X25519: &[u8] = b"X25519";
/// 32 bytes in base64, without padding.
const WORD: usize = 43;
/// What a stanza for a key takes.
pub(super) const STANZA: usize = "-> X25519 \n\n".len() + 2 * WORD;
/// The longest line of a stanza's body; a shorter one ends it.
const COLUMNS: usize = 64;
/// The most stanzas of a file: each is tried with each key.
const MAX_STANZAS: usize = 64;

/// The file key, wrapped for one recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stanza {
    pub(super) share: [u8; 32],
    pub(super) body: [u8; 32],
}

/// A header as it was read.
pub(super) struct Header<'a> {
    pub(super) stanzas: Vec<Stanza>,
    /// What the code is over.
    covered: &'a [u8],
    code: [u8; 32],
    /// What stands behind the header.
    pub(super) payload: &'a [u8],
}

/// Appends a header; `key` is for its code.
pub(super) fn write(stanzas: &[Stanza], key: &Key, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(VERSION);
    for stanza in stanzas {
        out.extend_from_slice(b"-> X25519 ");
        put(&stanza.share, out);
        out.push(b'\n');
        put(&stanza.body, out);
        out.push(b'\n');
    }
    out.extend_from_slice(b"---");
    let code = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &**key), &out[start..]);
    out.push(b' ');
    put(code.as_ref(), out);
    out.push(b'\n');
}

fn put(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(Base64Unpadded::encode_string(bytes).as_bytes());
}

impl<'a> Header<'a> {
    /// Nothing where it is none.
    pub(super) fn parse(file: &'a [u8]) -> Option<Header<'a>> {
        let mut rest = file.strip_prefix(VERSION)?;
        let mut stanzas = Vec::new();
        let mut count = 0;
        loop {
            if let Some(behind) = rest.strip_prefix(b"---") {
                let covered = &file[..file.len() - behind.len()];
                let (code, payload) = line(behind.strip_prefix(b" ")?)?;
                return Some(Header {
                    stanzas,
                    covered,
                    code: word(code)?,
                    payload,
                });
            }
            count += 1;
            if count > MAX_STANZAS {
                return None;
            }
            let (arguments, behind) = line(rest.strip_prefix(b"-> ")?)?;
            let mut arguments = arguments.split(|byte| *byte == b' ');
            let is_word = |argument: &[u8]| !argument.is_empty() && argument.iter().all(u8::is_ascii_graphic);
            if !arguments.clone().all(is_word) {
                return None;
            }
            let is_ours = arguments.next()? == X25519;
            let (first, behind) = line(behind)?;
            rest = behind;
            if is_ours {
                let (share, None) = (word(arguments.next()?)?, arguments.next()) else {
                    return None;
                };
                let body = word(first)?;
                stanzas.push(Stanza { share, body });
                continue;
            }
            let mut last = first;
            while last.len() == COLUMNS {
                (last, rest) = line(rest)?;
            }
            if last.len() > COLUMNS {
                return None;
            }
        }
    }

    /// Whether its code is made with this key.
    pub(super) fn is_made_with(&self, key: &Key) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &**key);
        hmac::verify(&key, self.covered, &self.code).is_ok()
    }
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// 32 bytes.
fn word(text: &[u8]) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let decoded =
        Base64Unpadded::decode(text.get(..WORD).filter(|_| text.len() == WORD)?, &mut bytes).ok()?;
    (decoded.len() == bytes.len()).then_some(bytes)
}
