//! The signed state on the disk: what `fleetgate join` put there first, and the newest since. Whole or not at all, and
//! root's alone. Whether it is signed rightly is not asked here.

use crate::identity::{DIRECTORY, replace};
use base64ct::{Base64, Encoding};
use fleetgate_policy::cluster::MAX_STATE;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};

/// Its file, below the state directory's `cluster`.
const STATE: &str = "state.json";
/// The longest: base64 takes four bytes for three.
pub const MAX_SIGNED: usize = MAX_STATE / 3 * 4 + (64 << 10);

/// A state and its signature, as they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
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

impl Signed {
    /// What stands below this state directory; none: there is none.
    pub fn load(state_directory: &Path) -> Result<Option<Signed>, String> {
        let path = place(state_directory);
        let failed = |why: String| format!("{}: {why}", path.display());
        let file = match std::fs::File::open(&path) {
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
        Ok(Some(Signed {
            document: bytes(&text.document)?,
            signature: bytes(&text.signature)?,
        }))
    }

    /// Writes it.
    pub fn save(&self, state_directory: &Path) -> Result<(), String> {
        let text = Text {
            document: Base64::encode_string(&self.document),
            signature: Base64::encode_string(&self.signature),
        };
        let mut text = serde_json::to_vec(&text).map_err(|e| e.to_string())?;
        text.push(b'\n');
        replace(&place(state_directory), &text).map_err(|e| e.to_string())
    }
}

fn place(state_directory: &Path) -> PathBuf {
    state_directory.join(DIRECTORY).join(STATE)
}

/// Writes states on a thread of its own: a disk that is slow holds up no login.
#[derive(Debug)]
pub struct StateWriter(Sender<Signed>);

impl StateWriter {
    /// Into this state directory.
    pub fn start(state_directory: PathBuf) -> Result<StateWriter, std::io::Error> {
        let (send, receive) = channel::<Signed>();
        std::thread::Builder::new()
            .name("state".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                while let Ok(mut newest) = receive.recv() {
                    // Only the last one counts.
                    while let Ok(newer) = receive.try_recv() {
                        newest = newer;
                    }
                    if let Err(why) = newest.save(&state_directory) {
                        tracing::error!("the cluster's state is not kept for the next start: {why}");
                    }
                }
            })?;
        Ok(StateWriter(send))
    }

    /// Writes this one soon.
    pub fn write(&self, signed: Signed) {
        // The thread ends with the last who may tell it something.
        let _ = self.0.send(signed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_is_named() {
        let directory = std::env::temp_dir().join(format!("fleetgate-state-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        assert_eq!(Signed::load(&directory), Ok(None));
        let signed = Signed {
            document: b"{}".to_vec(),
            signature: vec![0, 255],
        };
        signed.save(&directory).expect("written");
        assert_eq!(Signed::load(&directory), Ok(Some(signed)));
        let path = place(&directory);
        for (text, part) in [
            (&b"{}"[..], "missing field `document`"),
            (b"{\"document\":\"*\",\"signature\":\"\"}", "join again"),
            (&vec![b' '; MAX_SIGNED + 1], "longer than"),
        ] {
            std::fs::write(&path, text).expect("written");
            let error = Signed::load(&directory).expect_err("damaged");
            assert!(error.contains("state.json: ") && error.contains(part), "{error}");
        }
        std::fs::remove_dir_all(&directory).expect("clean");
    }
}
