//! The signed state on the disk: what `fleetgate join` put there first, and the newest since. Whole or not at all, and
//! root's alone. Whether it is signed rightly is not asked here.

use super::error::ClusterError;
use crate::identity::{DIRECTORY, Home, IdentityError, replace};
use base64ct::{Base64, Encoding};
use fleetgate_policy::cluster::MAX_STATE;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};

/// Its file, below the state directory's `cluster`.
const STATE: &str = "state.json";
/// That of the last sign that it still holds.
const FRESH: &str = "fresh.json";
/// The longest: base64 takes four bytes for three.
pub const MAX_SIGNED: usize = MAX_STATE / 3 * 4 + (64 << 10);

/// A state and its signature, as they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedState {
    /// The document.
    pub document: Vec<u8>,
    /// An SSH signature blob.
    pub signature: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    document: String,
    signature: String,
}

impl SignedState {
    /// What stands below this state directory; none: there is none.
    pub fn load(state_directory: &Path) -> Result<Option<SignedState>, ClusterError> {
        SignedState::read(&place(state_directory, STATE))
    }

    /// The last sign that it still holds.
    pub fn load_fresh(state_directory: &Path) -> Result<Option<SignedState>, ClusterError> {
        SignedState::read(&place(state_directory, FRESH))
    }

    fn read(path: &Path) -> Result<Option<SignedState>, ClusterError> {
        let failed = |why: String| ClusterError(format!("{}: {why}", path.display()));
        let file = match std::fs::File::open(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| failed(e.to_string()))?,
        };
        let mut text = Vec::new();
        file.take(MAX_SIGNED as u64 + 1)
            .read_to_end(&mut text)
            .map_err(|e| failed(e.to_string()))?;
        if text.len() > MAX_SIGNED {
            return Err(failed(format!("longer than {MAX_SIGNED} bytes")));
        }
        let bad = "it is not as a node writes it; join again";
        let text: Text = serde_json::from_slice(&text).map_err(|e| failed(format!("{e}: {bad}")))?;
        let bytes = |text: &str| Base64::decode_vec(text).map_err(|e| failed(format!("{e}: {bad}")));
        Ok(Some(SignedState {
            document: bytes(&text.document)?,
            signature: bytes(&text.signature)?,
        }))
    }

    /// Writes it.
    pub fn save(&self, state_directory: &Path) -> Result<(), ClusterError> {
        self.write(|text| replace(&place(state_directory, STATE), text))
    }

    fn write(&self, to: impl FnOnce(&[u8]) -> Result<(), IdentityError>) -> Result<(), ClusterError> {
        let text = Text {
            document: Base64::encode_string(&self.document),
            signature: Base64::encode_string(&self.signature),
        };
        let mut text = serde_json::to_vec(&text).map_err(|e| e.to_string())?;
        text.push(b'\n');
        to(&text).map_err(|e| ClusterError(e.to_string()))
    }
}

/// What another process of the same node learns, as it writes it: the files are read when they are others than before.
#[derive(Debug)]
pub struct StateFiles {
    home: Home,
    state: Option<FileMark>,
}

/// Which file it is, and as of when: each state is a file of its own.
type FileMark = (u64, u64, i64, i64, u64);

/// What stands there now.
#[derive(Debug, PartialEq, Eq)]
pub enum StateChange {
    /// A state that may be another one.
    State(SignedState),
    /// Nothing new.
    None,
    /// The machine left its cluster: there is none.
    Gone,
}

impl StateFiles {
    /// Of this node. What stands there already counts as new.
    pub fn new(home: Home) -> StateFiles {
        StateFiles { home, state: None }
    }

    /// What stands there now. A file that cannot be read is an error once, until it is another one.
    pub fn look(&mut self) -> Result<StateChange, ClusterError> {
        let mark = match std::fs::symlink_metadata(self.home.place(STATE)) {
            Ok(meta) => Some((
                meta.dev(),
                meta.ino(),
                meta.mtime(),
                meta.mtime_nsec(),
                meta.len(),
            )),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(ClusterError(format!("{}: {e}", self.home.place(STATE).display()))),
        };
        if mark.is_none() {
            return Ok(StateChange::Gone);
        }
        if mark == self.state {
            return Ok(StateChange::None);
        }
        self.state = mark;
        let state = SignedState::read(&self.home.place(STATE))?;
        Ok(state.map_or(StateChange::None, StateChange::State))
    }

    /// Whether the machine is still this node, and did not join anew.
    pub fn is_ours(&self) -> bool {
        self.home.is_there()
    }

    /// The last sign that the state still holds, if there is a readable one.
    pub fn fresh(&self) -> Option<SignedState> {
        SignedState::read(&self.home.place(FRESH)).ok().flatten()
    }
}

fn place(state_directory: &Path, file: &str) -> PathBuf {
    state_directory.join(DIRECTORY).join(file)
}

/// Writes states on a thread of its own: a disk that is slow holds up no login.
#[derive(Debug)]
pub struct StateWriter(Sender<(&'static str, SignedState)>);

impl StateWriter {
    /// Into this node's directory.
    pub fn start(home: Home) -> Result<StateWriter, std::io::Error> {
        let (send, receive) = channel::<(&'static str, SignedState)>();
        std::thread::Builder::new()
            .name("state".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                while let Ok(one) = receive.recv() {
                    // Of each file only the last one counts.
                    let mut newest = BTreeMap::from([one]);
                    newest.extend(receive.try_iter());
                    for (file, signed) in newest {
                        if let Err(why) = signed.write(|text| home.replace(file, text)) {
                            tracing::error!("the cluster's state is not kept for the next start: {why}");
                        }
                    }
                }
            })?;
        Ok(StateWriter(send))
    }

    /// Writes this one soon.
    pub fn write(&self, signed: SignedState) {
        // The thread ends with the last who may tell it something.
        let _ = self.0.send((STATE, signed));
    }

    /// Writes this sign that it still holds soon.
    pub fn write_fresh(&self, signed: SignedState) {
        let _ = self.0.send((FRESH, signed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::save_tls_key;
    use fleetgate_net::x509::Key;

    #[test]
    fn what_is_written_is_read_and_damage_is_named() {
        let directory = std::env::temp_dir().join(format!("fleetgate-state-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        assert_eq!(SignedState::load(&directory), Ok(None));
        let signed = SignedState {
            document: b"{}".to_vec(),
            signature: vec![0, 255],
        };
        signed.save(&directory).expect("written");
        assert_eq!(SignedState::load(&directory), Ok(Some(signed)));
        let key = Key::generate();
        save_tls_key(&directory, key.pkcs8()).expect("written");
        let writer = StateWriter::start(Home::of(&directory, &key)).expect("a thread");
        let numbered = |n: u8| SignedState {
            document: vec![n],
            signature: Vec::new(),
        };
        for n in 0..9 {
            writer.write(numbered(n));
            writer.write_fresh(numbered(n + 100));
        }
        let is_last = |kept: Result<Option<SignedState>, ClusterError>, n| kept == Ok(Some(numbered(n)));
        for _ in 0..1000 {
            let both = is_last(SignedState::load(&directory), 8)
                && is_last(SignedState::load_fresh(&directory), 108);
            if both {
                break;
            }
            let _ = fleetgate_sys::poll::poll(&mut [], Some(10));
        }
        assert!(is_last(SignedState::load(&directory), 8));
        assert!(is_last(SignedState::load_fresh(&directory), 108));
        let mut files = StateFiles::new(Home::of(&directory, &key));
        assert_eq!(files.look(), Ok(StateChange::State(numbered(8))));
        assert_eq!(files.look(), Ok(StateChange::None));
        numbered(9).save(&directory).expect("written");
        assert_eq!(files.look(), Ok(StateChange::State(numbered(9))));
        assert_eq!(files.fresh(), Some(numbered(108)));
        let mut others = StateFiles::new(Home::of(&directory, &Key::generate()));
        assert_eq!(others.look(), Ok(StateChange::State(numbered(9))));
        assert!(files.is_ours() && !others.is_ours());
        let path = place(&directory, STATE);
        for (text, part) in [
            (&b"{}"[..], "missing field `document`"),
            (b"{\"document\":\"*\",\"signature\":\"\"}", "join again"),
            (&vec![b' '; MAX_SIGNED + 1], "longer than"),
        ] {
            std::fs::write(&path, text).expect("written");
            let error = SignedState::load(&directory).expect_err("damaged");
            assert_eq!(files.look(), Err(error.clone()));
            assert_eq!(files.look(), Ok(StateChange::None), "said once");
            let error = error.to_string();
            assert!(error.contains("state.json: ") && error.contains(part), "{error}");
        }
        std::fs::remove_dir_all(&directory).expect("clean");
    }
}
