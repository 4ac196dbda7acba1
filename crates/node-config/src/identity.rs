//! Who this node is in its cluster: what `fleetgate join` writes below the state directory, and what each renewal writes
//! anew. Files are root's alone, and written whole or not at all. Whom to believe is not here but in the signed state.
//!
//! ```text
//! STATE_DIRECTORY/cluster/identity.json   who the node is, whom it dials, its certificates
//!                         tls.key         its TLS key, PKCS #8, DER; made once
//! ```

use base64ct::{Base64, Encoding};
use fleetgate_net::x509::Key;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Below the state directory.
pub const DIRECTORY: &str = "cluster";
/// Who it is.
const IDENTITY: &str = "identity.json";
/// Its TLS key.
const TLS_KEY: &str = "tls.key";
/// The longest of these files.
const MAX_FILE: u64 = 1 << 20;

/// Who the node is in its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeIdentity {
    /// The cluster's name.
    pub cluster: String,
    /// The node's name there.
    pub node: String,
    /// Whom to dial, `host:port`, until a state names others.
    pub proxies: Vec<String>,
    /// Its TLS certificate, and those between it and an authority, DER.
    #[serde(with = "lines")]
    pub tls_chain: Vec<Vec<u8>>,
    /// Its SSH host certificates, blobs.
    #[serde(with = "lines")]
    pub host_certificates: Vec<Vec<u8>>,
    /// Labels that its token gave it: they hold whatever its configuration says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Why it cannot be read or written: a sentence that names the file.
#[derive(Debug, PartialEq, Eq)]
pub struct IdentityError(String);

impl std::fmt::Display for IdentityError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for IdentityError {}

impl NodeIdentity {
    /// What stands below this state directory; none: the machine did not join.
    pub fn load(state_directory: &Path) -> Result<Option<NodeIdentity>, IdentityError> {
        let path = state_directory.join(DIRECTORY).join(IDENTITY);
        let Some(text) = read(&path)? else { return Ok(None) };
        serde_json::from_slice(&text).map(Some).map_err(|e| {
            IdentityError(format!(
                "{}: {e}: it is not as `fleetgate join` writes it; join again",
                path.display()
            ))
        })
    }

    /// Writes it.
    pub fn save(&self, state_directory: &Path) -> Result<(), IdentityError> {
        let path = state_directory.join(DIRECTORY).join(IDENTITY);
        let mut text =
            serde_json::to_vec_pretty(self).map_err(|e| IdentityError(format!("{}: {e}", path.display())))?;
        text.push(b'\n');
        replace(&path, &text)
    }
}

/// Whether the machine joined a cluster, however much of what it was given can still be read.
pub fn is_joined(state_directory: &Path) -> bool {
    state_directory.join(DIRECTORY).join(IDENTITY).exists()
}

/// The TLS key (PKCS #8) of this state directory; none: there is none.
pub fn load_tls_key(state_directory: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, IdentityError> {
    let path = state_directory.join(DIRECTORY).join(TLS_KEY);
    if let Ok(about) = std::fs::symlink_metadata(&path) {
        fleetgate_base::own::secret(&path, &about).map_err(|e| IdentityError(e.into()))?;
    }
    read(&path)
}

/// Writes the TLS key.
pub fn save_tls_key(state_directory: &Path, pkcs8: &[u8]) -> Result<(), IdentityError> {
    replace(&state_directory.join(DIRECTORY).join(TLS_KEY), pkcs8)
}

/// Where a node that runs keeps what it learns. A machine that leaves its cluster loses the directory, and one that joins
/// anew has another key in it: what is learned for the one before is not written there any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    state_directory: PathBuf,
    tls_public: Vec<u8>,
}

impl Home {
    /// Of the node with this TLS key.
    pub fn of(state_directory: &Path, key: &Key) -> Home {
        Home {
            state_directory: state_directory.to_owned(),
            tls_public: key.public().spki().to_vec(),
        }
    }

    /// The state directory, as long as this node's key stands in it.
    pub fn directory(&self) -> Result<&Path, IdentityError> {
        let stands = load_tls_key(&self.state_directory)?.and_then(|key| Key::from_pkcs8(&key).ok());
        match stands.is_some_and(|key| key.public().spki() == self.tls_public) {
            true => Ok(&self.state_directory),
            false => Err(IdentityError(format!(
                "{}: the machine left the cluster or joined anew, and this node was not told: reload it",
                self.place("").display()
            ))),
        }
    }

    /// Whether it is still this node's. What cannot be read says nothing: only another key does, or none.
    pub fn is_there(&self) -> bool {
        match load_tls_key(&self.state_directory) {
            Ok(Some(key)) => Key::from_pkcs8(&key).map_or(true, |key| key.public().spki() == self.tls_public),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// The place of one of its files.
    pub fn place(&self, file: &str) -> PathBuf {
        self.state_directory.join(DIRECTORY).join(file)
    }

    /// Replaces one of its files.
    pub fn replace(&self, file: &str, bytes: &[u8]) -> Result<(), IdentityError> {
        self.directory()?;
        replace(&self.place(file), bytes)
    }
}

/// Puts a file of these bytes at `path`, mode 0600: whole and on the disk, or as it was before.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
    let failed = |e: std::io::Error| IdentityError(format!("{}: {e}", path.display()));
    let directory = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed)?;
    let mut new = PathBuf::from(path);
    new.as_mut_os_string().push(format!(".{}", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)
        .map_err(failed)?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&new, path))
        .and_then(|()| std::fs::File::open(directory)?.sync_all())
        .map_err(failed)
}

/// A whole file, if it is there.
pub fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, IdentityError> {
    let failed = |e: std::io::Error| IdentityError(format!("{}: {e}", path.display()));
    let file = match std::fs::File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed)?,
    };
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(IdentityError(format!(
            "{}: larger than {MAX_FILE} bytes",
            path.display()
        )));
    }
    Ok(Some(bytes))
}

/// Byte strings as base64.
mod lines {
    use super::{Base64, Encoding};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(all: &[Vec<u8>], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(|one| Base64::encode_string(one)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Vec<u8>>, D::Error> {
        Vec::<String>::deserialize(from)?
            .iter()
            .map(|one| Base64::decode_vec(one).map_err(|_| D::Error::custom("what is not base64")))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn what_is_written_is_read_and_nobody_elses() {
        let state = std::env::temp_dir().join(format!("fleetgate-identity-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&state);
        assert_eq!(NodeIdentity::load(&state), Ok(None));
        assert_eq!(load_tls_key(&state), Ok(None));
        let identity = NodeIdentity {
            cluster: "home".into(),
            node: "web1".into(),
            proxies: vec!["proxy.example:443".into()],
            tls_chain: vec![vec![0x30, 0, 255], vec![]],
            host_certificates: Vec::new(),
            labels: [("env".to_owned(), "prod".to_owned())].into(),
        };
        identity.save(&state).expect("written");
        save_tls_key(&state, b"key").expect("written");
        assert_eq!(NodeIdentity::load(&state), Ok(Some(identity)));
        assert_eq!(
            load_tls_key(&state).expect("read").as_deref(),
            Some(&b"key".to_vec())
        );
        for name in [IDENTITY, TLS_KEY] {
            let meta = std::fs::metadata(state.join(DIRECTORY).join(name)).expect("there");
            assert_eq!(meta.mode() & 0o777, 0o600, "{name}");
        }
        let key = state.join(DIRECTORY).join(TLS_KEY);
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o666)).expect("set");
        let error = load_tls_key(&state).expect_err("others may read it").to_string();
        assert!(error.contains("chmod 600"), "{error}");
        for bad in [&b"{}"[..], b"", &[b' '; MAX_FILE as usize + 1]] {
            std::fs::write(state.join(DIRECTORY).join(IDENTITY), bad).expect("written");
            let error = NodeIdentity::load(&state).expect_err("not good").to_string();
            assert!(error.contains(IDENTITY), "{error}");
        }
        std::fs::remove_dir_all(&state).expect("clean");
    }

    #[test]
    fn nothing_is_written_where_another_node_stands_by_now() {
        let state = std::env::temp_dir().join(format!("fleetgate-home-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&state);
        let (first, second) = (Key::generate(), Key::generate());
        let home = Home::of(&state, &first);
        let refused = |when: &str| {
            let error = home.replace("note", b"x").expect_err(when).to_string();
            assert!(error.contains("reload"), "{when}: {error}");
            assert!(!home.place("note").exists(), "{when}");
        };
        refused("it did not join");
        assert!(!state.exists());
        save_tls_key(&state, first.pkcs8()).expect("written");
        home.replace("note", b"x").expect("it is at home");
        assert!(home.place("note").exists());
        std::fs::remove_dir_all(&state).expect("clean");
        refused("it left");
        save_tls_key(&state, second.pkcs8()).expect("written");
        refused("it joined anew");
        std::fs::remove_dir_all(&state).expect("clean");
    }
}
