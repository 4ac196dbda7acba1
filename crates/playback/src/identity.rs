//! Files with private keys, as `age-keygen` writes them: a key a line, between comments. Who reads a recording that is encrypted
//! brings one. Nothing of a key is in any error.

use crate::source::Item;
use crate::store::{Entry, StoreError};
use fleetgate_policy::bech32;
use fleetgate_record::Fault;
use fleetgate_record::age::Identity;
pub use fleetgate_record::age::Keys;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The longest file.
const MAX: u64 = 64 << 10;
/// The most keys: each is tried with each block.
const MAX_KEYS: usize = 32;

/// Keys, and whether others than their owner may read the file.
#[derive(Debug)]
pub struct IdentityFile {
    /// The keys of the file.
    pub identities: Vec<Identity>,
    /// The file's mode lets its group or everybody read it.
    pub is_exposed: bool,
}

/// Reads a file. An error is a sentence.
pub fn read(path: &Path) -> Result<IdentityFile, String> {
    let mut text = String::new();
    let mode = File::open(path)
        .and_then(|file| {
            let mode = file.metadata()?.permissions().mode();
            match file.take(MAX + 1).read_to_string(&mut text)? as u64 > MAX {
                true => Err(io::ErrorKind::FileTooLarge.into()),
                false => Ok(mode),
            }
        })
        .map_err(|e| {
            let path = path.display();
            format!("the keys in {path} cannot be read: {e}: give a file with private keys, as `age-keygen -o FILE` writes it")
        })?;
    Ok(IdentityFile {
        identities: parse(&text).map_err(|why| format!("{}: {why}", path.display()))?,
        is_exposed: mode & 0o077 != 0,
    })
}

/// The keys of all these files.
pub fn keys(files: impl IntoIterator<Item = IdentityFile>) -> Keys {
    Keys::new(files.into_iter().flat_map(|file| file.identities).collect())
}

/// Whether one of these keys opens what is encrypted of a recording. Without keys, or where nothing is encrypted, it is true: then
/// there is nothing to say about a key. All blocks of one recording are encrypted for the same recipients, so the first one tells.
pub fn opens(entry: &Entry, keys: &Keys) -> Result<bool, StoreError> {
    if keys.is_empty() {
        return Ok(true);
    }
    let mut source = entry.open_with(keys)?;
    let failed = |e| StoreError::Io(entry.path.clone(), e);
    while let Some(item) = source.next_item().map_err(failed)? {
        // The first block is never encrypted.
        if matches!(item, Item::Frame(_)) && source.blocks() > 1 {
            return Ok(true);
        }
    }
    Ok(source.fault().is_none_or(|fault| fault.fault != Fault::OtherKey))
}

fn parse(text: &str) -> Result<Vec<Identity>, String> {
    let mut identities = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let why = match bech32::decode("age-secret-key-", line) {
            Some(key) if identities.len() < MAX_KEYS => {
                identities.push(Identity::new(key));
                continue;
            }
            Some(_) => format!("there are more than {MAX_KEYS} keys"),
            None if line.starts_with("age1") => {
                "this is a public key, and a private one opens recordings: it begins with AGE-SECRET-KEY-1"
                    .to_owned()
            }
            None if line.starts_with("age-encryption.org/") || line.starts_with("-----BEGIN AGE") => {
                "the file is encrypted: `age -d` writes the keys that are in it".to_owned()
            }
            None if line.starts_with("-----BEGIN") || line.starts_with("AGE-PLUGIN-") => {
                "only keys of age itself open recordings (`age-keygen`): no SSH keys, and none of plugins"
                    .to_owned()
            }
            None => {
                "there is no key of age: it begins with AGE-SECRET-KEY-1, as `age-keygen -o FILE` writes it"
                    .to_owned()
            }
        };
        return Err(format!("line {}: {why}", number + 1));
    }
    match identities.is_empty() {
        true => Err("there is no key in it: `age-keygen -o FILE` makes one".to_owned()),
        false => Ok(identities),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "AGE-SECRET-KEY-16KT6RRED5N7GFDY8VCWS4DA2CJZ7R6D6PRVAYR5Q4TQLL7V87P7S824KNZ";
    const PUBLIC: &str = "age1dc3xeggyp2p9556c0r8nplujq2tga0rguvtcp9hz97kwywghd4pqycqsp2";

    #[test]
    fn what_age_keygen_writes_is_read_and_what_is_wrong_is_named_without_the_key() {
        let file = format!("# created: 2026-11-29T13:33:49Z\n# public key: {PUBLIC}\n{SECRET}\n");
        let keys = parse(&file).expect("keys");
        assert_eq!(Some(keys[0].recipient()), bech32::decode("age", PUBLIC));
        let wrong = SECRET.replace("16KT6", "16KT7");
        for (text, says) in [
            ("", "there is no key in it"),
            ("# nothing", "there is no key in it"),
            (PUBLIC, "line 1: this is a public key"),
            (&format!("\n{wrong}"), "line 2: there is no key of age"),
            ("age-encryption.org/v1\n", "line 1: the file is encrypted"),
            ("-----BEGIN OPENSSH PRIVATE KEY-----", "no SSH keys"),
            (
                &format!("{SECRET}\n").repeat(33),
                "line 33: there are more than 32",
            ),
        ] {
            let why = parse(text).expect_err(text);
            assert!(why.contains(says) && !why.contains("6RRED5"), "{why}");
        }
    }
}
