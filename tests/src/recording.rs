//! Recordings of a test's node, read as a stranger would read them.

use crate::service::audited;
use fleetgate_record::age::Keys;
use fleetgate_record::frame::Kind;
use fleetgate_record::reader::{Content, Reader};
use fleetgate_ssh::sshsig;
use serde_json::Value;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Where recordings of these tests are.
pub const RECORDINGS: &str = "/run/test/recordings";

/// Settings of a node that records so much.
pub fn configuration(recording: &str) -> String {
    format!(
        "host_keys = [\"/run/test/host_ed25519\", \"/run/test/host_ecdsa256\", \"/run/test/host_rsa\"]\n\
         authorized_keys = true\npam = \"off\"\naudit_log = \"{}\"\n[recording]\ndirectory = \"{RECORDINGS}\"\n{recording}\n",
        crate::service::AUDIT
    )
}

/// A recording.
#[derive(Debug, Default)]
pub struct Recording {
    /// All frames: kind, time, bytes.
    pub frames: Vec<(Kind, u64, Vec<u8>)>,
    /// How many blocks.
    pub blocks: u64,
    /// So many of them are covered by signatures of the node's first key.
    pub signed: u64,
    /// The hash over all.
    pub chain: String,
    /// The file's length.
    pub length: u64,
}

impl Recording {
    /// Reads a file; every block of it has to be right.
    pub fn read(path: &Path) -> Recording {
        Recording::read_with(path, Keys::default())
    }

    /// The same of one that is encrypted.
    pub fn read_with(path: &Path, keys: Keys) -> Recording {
        let file = File::open(path).expect("a recording");
        let length = file.metadata().expect("facts").len();
        let mut reader = Reader::new(BufReader::new(file))
            .expect("a beginning")
            .with_keys(keys);
        let mut recording = Recording {
            length,
            ..Recording::default()
        };
        let key = std::fs::read_to_string("/run/test/host_ed25519.pub").expect("the node's key");
        while let Some(block) = reader
            .next_block()
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        {
            if let Content::Signature { statement, signature } = &block.content {
                let namespace = fleetgate_record::signature::NAMESPACE;
                let by = sshsig::verify(signature, namespace, statement.text().as_bytes())
                    .expect("a signature that is right");
                assert_eq!(Some(by.line().as_str()), key.rsplit_once(' ').map(|(k, _)| k));
                recording.signed = statement.blocks;
            }
            for frame in block.frames() {
                let frame = frame.expect("a frame");
                recording
                    .frames
                    .push((frame.kind, frame.at, frame.bytes.to_vec()));
            }
        }
        recording.blocks = reader.blocks();
        recording.chain = reader.chain().iter().map(|b| format!("{b:02x}")).collect();
        recording
    }

    /// The recording of this session, once it is whole; what the audit log says of it is so.
    pub fn of(session: &Value) -> Recording {
        let told = audited("the recording is whole", |event| {
            event["event"] == "recorded" && event["session"] == *session
        });
        let recording = Recording::read(&path(session));
        assert_eq!(told["blocks"], recording.blocks);
        assert_eq!(told["bytes"], recording.length);
        assert_eq!(told["chain"], recording.chain);
        assert_eq!(recording.signed + 1, recording.blocks, "the end is signed");
        assert_eq!(recording.frames.last().map(|f| f.0), Some(Kind::End));
        assert!(recording.frames.is_sorted_by_key(|f| f.1));
        recording
    }

    /// All bytes of a kind.
    pub fn text(&self, kind: Kind) -> String {
        let of_kind = self.frames.iter().filter(|f| f.0 == kind);
        let bytes: Vec<u8> = of_kind.flat_map(|f| f.2.clone()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The JSON of the only frame of a kind.
    pub fn json(&self, kind: Kind) -> Value {
        serde_json::from_str(&self.text(kind)).expect("JSON")
    }
}

/// Where the recording of this session is.
pub fn path(session: &Value) -> PathBuf {
    let name = format!("{}.rec", session.as_str().expect("a session"));
    let days = std::fs::read_dir(RECORDINGS).expect("recordings");
    let mut paths = days.flatten().map(|day| day.path().join(&name));
    paths
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{name} is nowhere"))
}

/// The session that began with this command.
pub fn session(command: &str) -> Value {
    audited("the session begins", |event| {
        event["event"] == "session_started" && event["command"] == command
    })["session"]
        .clone()
}
