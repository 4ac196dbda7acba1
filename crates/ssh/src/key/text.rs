//! Keys as text: base64, and the lines of `.pub` files. It knows nothing of options: `authorized_keys` does.

use super::KeyError;
use base64ct::{Base64, Base64Unpadded, Encoding};

/// Decodes base64 with its padding, as OpenSSH writes it.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, KeyError> {
    Base64::decode_vec(text).map_err(|_| KeyError::Text("its base64 is broken"))
}

/// Encodes with padding.
pub(super) fn encode(bytes: &[u8]) -> String {
    Base64::encode_string(bytes)
}

/// Encodes without, as in fingerprints.
pub(super) fn encode_unpadded(bytes: &[u8]) -> String {
    Base64Unpadded::encode_string(bytes)
}

/// `type base64 [comment]` → type, base64, comment.
pub(super) fn line(text: &str) -> Result<(&str, &str, &str), KeyError> {
    let text = text.trim_matches([' ', '\t', '\r', '\n']);
    let (kind, rest) = text
        .split_once([' ', '\t'])
        .ok_or(KeyError::Text("a key is its type and its base64"))?;
    let rest = rest.trim_start_matches([' ', '\t']);
    let (base64, comment) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    Ok((kind, base64, comment.trim_matches([' ', '\t'])))
}
