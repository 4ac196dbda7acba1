//! The payload: chunks of 64 KB, each sealed by itself with its number, the last one marked. So none is left out, moved or added.

use super::{Key, TAG, aead};
use ring::aead::{Aad, Nonce};

/// The length of what stands before the chunks.
pub(super) const NONCE: usize = 16;
const CHUNK: usize = 64 << 10;

/// Appends the chunks of `plain`.
pub(super) fn seal(key: &Key, plain: &[u8], out: &mut Vec<u8>) {
    let key = aead(key);
    let count = plain.len().div_ceil(CHUNK).max(1);
    for number in 0..count {
        let chunk = &plain[number * CHUNK..plain.len().min((number + 1) * CHUNK)];
        let start = out.len();
        out.extend_from_slice(chunk);
        let nonce = nonce(number, number + 1 == count);
        let tag = key
            .seal_in_place_separate_tag(nonce, Aad::empty(), &mut out[start..])
            .expect("a chunk is not too long");
        out.extend_from_slice(tag.as_ref());
    }
}

/// Puts what is in the chunks into `plain`; nothing where one of them is not right.
pub(super) fn open(key: &Key, sealed: &[u8], plain: &mut Vec<u8>) -> Option<()> {
    let key = aead(key);
    plain.clear();
    plain.reserve_exact(sealed.len());
    let count = sealed.len().div_ceil(CHUNK + TAG);
    for (number, chunk) in sealed.chunks(CHUNK + TAG).enumerate() {
        let start = plain.len();
        plain.extend_from_slice(chunk);
        let nonce = nonce(number, number + 1 == count);
        let len = key
            .open_in_place(nonce, Aad::empty(), &mut plain[start..])
            .ok()?
            .len();
        // Nothing at all is one chunk that is empty; behind another one there is none.
        if len == 0 && number > 0 {
            return None;
        }
        plain.truncate(start + len);
    }
    (count > 0).then_some(())
}

/// Eleven bytes of the chunk's number, the highest first, and whether it is the last.
fn nonce(number: usize, is_last: bool) -> Nonce {
    let mut nonce = [0; 12];
    nonce[3..11].copy_from_slice(&(number as u64).to_be_bytes());
    nonce[11] = u8::from(is_last);
    Nonce::assume_unique_for_key(nonce)
}
