//! Recordings that auth keeps, for those who may see them: listed, fetched into a file that has no name, removed. What is in
//! one is the crate `playback`'s business, and who may is auth's.

use crate::connect::AdminEndpoint;
use crate::error::ClientError;
use crate::waiting::BoundedChannel;
use fleetgate_proto::v1::recordings_client::RecordingsClient;
use fleetgate_proto::v1::{DeleteRecordingRequest, ReadRecordingRequest, RecordingEntry, RecordingsRequest};
use fleetgate_sys::exe;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Runtime;

/// The largest recording that is fetched.
pub const MAX_FETCHED: u64 = 16 << 30;
/// The largest message of auth's: a piece of a recording, or what one says of itself.
const MAX_MESSAGE: usize = 1 << 20;
/// The most public keys of one maker.
const MAX_KEYS: usize = 64;

/// A connection to auth for recordings. Several threads may use it at once.
#[derive(Clone)]
pub struct Recordings {
    runtime: Arc<Runtime>,
    client: RecordingsClient<BoundedChannel>,
}

/// A recording that was fetched.
#[derive(Debug)]
pub struct Fetched {
    /// What auth knows about it.
    pub entry: RecordingEntry,
    /// The public keys that its signatures may be of, as auth knows them.
    pub keys: Vec<String>,
    /// Its bytes. Nobody else can open the file, and it is gone when it is closed.
    pub file: File,
}

impl Recordings {
    /// Connects.
    pub fn connect(desk: &AdminEndpoint) -> Result<Recordings, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| ClientError::Unreachable("starting the runtime".to_owned(), e.to_string()))?;
        let client = runtime
            .block_on(desk.recordings())?
            .max_decoding_message_size(MAX_MESSAGE);
        Ok(Recordings {
            runtime: Arc::new(runtime),
            client,
        })
    }

    /// Hands those that fit to `take`, the one that began first first.
    pub fn list(
        &self,
        wanted: RecordingsRequest,
        mut take: impl FnMut(RecordingEntry),
    ) -> Result<(), ClientError> {
        let mut client = self.client.clone();
        self.runtime.block_on(async {
            let mut entries = client.list(wanted).await?.into_inner();
            while let Some(entry) = entries.message().await? {
                take(entry);
            }
            Ok(())
        })
    }

    /// Fetches the recording whose id begins so; where `node` is not empty, that machine's. `purpose` is for the audit event, and
    /// `progress` is told how many bytes are there, and how many there will be at least.
    pub fn fetch(
        &self,
        session: &str,
        node: &str,
        purpose: &str,
        progress: &dyn Fn(u64, u64),
    ) -> Result<Fetched, ClientError> {
        let directory = temporary_directory();
        let mut file = nameless(&directory).map_err(ClientError::file(&directory))?;
        let mut client = self.client.clone();
        let request = ReadRecordingRequest {
            session: session.to_owned(),
            offset: 0,
            purpose: purpose.to_owned(),
            node: node.to_owned(),
        };
        let (entry, keys) = self.runtime.block_on(async {
            let mut parts = client.read(request).await?.into_inner();
            let (mut about, mut written) = (None, 0);
            while let Some(part) = parts.message().await? {
                if let Some(entry) = part.entry
                    && about.is_none()
                {
                    let keys: Vec<String> = part.keys.into_iter().take(MAX_KEYS).collect();
                    about = Some((entry, keys));
                }
                written += part.bytes.len() as u64;
                if written > MAX_FETCHED {
                    return Err(ClientError::Refused(format!(
                        "the recording {session} is larger than {} GB, more than is fetched: play it where it was made, or on \
                         auth's machine with --directory",
                        MAX_FETCHED >> 30
                    )));
                }
                file.write_all(&part.bytes)
                    .map_err(ClientError::file(&directory))?;
                let of = about.as_ref().map_or(0, |(entry, _)| entry.bytes);
                progress(written, of.max(written));
            }
            match about {
                Some((entry, keys)) if written >= entry.bytes => Ok((entry, keys)),
                _ => Err(ClientError::Unreachable(
                    "auth".to_owned(),
                    format!("it stopped after {written} bytes of the recording: try again"),
                )),
            }
        })?;
        Ok(Fetched { entry, keys, file })
    }

    /// Removes one, by its whole id, and where several have that by the machine that made it.
    pub fn delete(&self, session: &str, node: &str) -> Result<RecordingEntry, ClientError> {
        let mut client = self.client.clone();
        let request = DeleteRecordingRequest {
            session: session.to_owned(),
            node: node.to_owned(),
        };
        let deleted = self.runtime.block_on(client.delete(request))?;
        Ok(deleted.into_inner())
    }
}

/// Where large files go that are soon gone: `TMPDIR` where somebody set it; `/tmp` is often memory.
fn temporary_directory() -> PathBuf {
    let large = Path::new("/var/tmp");
    match std::env::var_os("TMPDIR") {
        None if large.is_dir() => large.to_owned(),
        _ => std::env::temp_dir(),
    }
}

/// A file without a name, its owner's alone; where the filesystem has no such files, one whose name is gone at once.
fn nameless(directory: &Path) -> io::Result<File> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    if let Ok(file) = exe::nameless(&path) {
        return Ok(file.into());
    }
    let [high, low] = exe::random();
    let path = directory.join(format!(".fleetgate-{high:016x}{low:016x}"));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_fetched_recording_has_no_name_and_is_nobody_elses() {
        let directory = std::env::temp_dir().join(format!("fleetgate-nameless-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let file = nameless(&directory).expect("a file");
        let data = file.metadata().expect("its data");
        assert_eq!((data.nlink(), data.mode() & 0o777), (0, 0o600));
        assert_eq!(std::fs::read_dir(&directory).expect("read").count(), 0);
        std::fs::remove_dir(&directory).expect("removed");
        assert!(nameless(&directory).is_err(), "the directory is gone");
    }
}
