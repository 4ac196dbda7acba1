//! The files that a sink's section names: authorities, credentials, headers, keys. They are read once, when the settings
//! are, and what stands in them is in no message.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zeroize::Zeroizing;

/// The longest file that is read.
const FILE_MAX: u64 = 1 << 20;
/// The most headers in a file.
const HEADERS_MAX: usize = 32;
/// The shortest key that signs.
const KEY_MIN: usize = 16;
/// Others than the owner and the group may not read a secret, and nobody but the owner may write it.
const OPEN: u32 = 0o027;
/// Headers that are this program's own to say.
const OURS: [&str; 8] = [
    "connection",
    "content-length",
    "content-type",
    "fleetgate-signature",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// A file that anybody may know.
pub(crate) fn public(path: &Path) -> Result<Vec<u8>, String> {
    Ok(read(path, false)?.to_vec())
}

/// A file that nobody else may read.
pub(crate) fn secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    read(path, true)
}

fn read(path: &Path, is_secret: bool) -> Result<Zeroizing<Vec<u8>>, String> {
    let at = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let file = std::fs::File::open(path).map_err(|e| at(&e))?;
    let about = file.metadata().map_err(|e| at(&e))?;
    if !about.is_file() {
        return Err(at(&"it is no file"));
    }
    if is_secret && about.mode() & OPEN != 0 {
        return Err(at(&format!(
            "others may read or change it: chmod 600 {}",
            path.display()
        )));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(FILE_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| at(&e))?;
    match bytes.len() as u64 {
        0 => Err(at(&"it is empty")),
        length if length > FILE_MAX => Err(at(&format!("it is longer than {FILE_MAX} bytes"))),
        _ => Ok(bytes),
    }
}

/// Headers: a line `Name: value` for each; lines that begin with `#` are comments.
pub(crate) fn headers(path: &Path) -> Result<HeaderMap, String> {
    let bytes = secret(path)?;
    let at = |line: usize, why: &str| format!("{}: line {}: {why}", path.display(), line + 1);
    let mut headers = HeaderMap::new();
    for (number, line) in bytes.split(|b| *b == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let colon = line
            .iter()
            .position(|b| *b == b':')
            .ok_or_else(|| at(number, "it is no header: write NAME: VALUE"))?;
        let name = HeaderName::from_bytes(line[..colon].trim_ascii())
            .map_err(|_| at(number, "what stands before the colon is no name of a header"))?;
        if OURS.contains(&name.as_str()) {
            return Err(at(
                number,
                &format!("`{name}` is set by fleetgate: remove the line"),
            ));
        }
        let mut value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii())
            .map_err(|_| at(number, "the value has characters that no header may have"))?;
        value.set_sensitive(true);
        if headers.len() == HEADERS_MAX {
            return Err(at(number, &format!("there are more than {HEADERS_MAX} headers")));
        }
        headers.append(name, value);
    }
    match headers.is_empty() {
        true => Err(format!(
            "{}: there is no header in it: write NAME: VALUE",
            path.display()
        )),
        false => Ok(headers),
    }
}

/// A key that signs: all of the file but white space around it.
pub(crate) fn signing_key(path: &Path) -> Result<ring::hmac::Key, String> {
    let bytes = secret(path)?;
    let key = bytes.trim_ascii();
    match key.len() >= KEY_MIN {
        true => Ok(ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key)),
        false => Err(format!(
            "{}: the key has fewer than {KEY_MIN} characters: `openssl rand -hex 32` makes one",
            path.display()
        )),
    }
}
