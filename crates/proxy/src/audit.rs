//! The proxy's own audit events: written into a file at once, and delivered to auth in signed batches whenever it is
//! there. What auth has on its disk is taken out of the file. Nothing waits for the disk or for auth.
//!
//! ```text
//! STATE_DIRECTORY/audit/NUMBER.jsonl   one log: its number is its name to auth
//!                       position       the log, and up to where auth has it
//! ```

use crate::auth;
use crate::gate::Gate;
use crate::identity::replace;
use fleetgate_proto::signed;
use fleetgate_proto::v1::AuditBatch;
use serde_json::{Map, Value};
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Events that wait for the disk; more are counted and told.
pub const WAITING: usize = 8_192;
/// What is kept of events while auth is away; more are counted and told.
pub const SPOOL_MAX: u64 = 256 << 20;
/// One batch.
pub const BATCH: usize = 256 << 10;
/// A log that is delivered and as long as this is followed by a new one.
const LOG_MAX: u64 = 1 << 20;
/// After auth refused a batch.
const AGAIN: Duration = Duration::from_secs(5);

/// Takes events.
pub(crate) struct Audit {
    to_disk: Sender<String>,
    lost: Arc<AtomicU64>,
    proxy: String,
}

/// What takes them out again; see [`run`].
pub(crate) struct Events {
    from_all: Receiver<String>,
    lost: Arc<AtomicU64>,
}

/// The file.
struct Spool {
    directory: PathBuf,
    file: File,
    number: u64,
    length: u64,
    delivered: u64,
}

/// Both ends.
pub(crate) fn audit(proxy: &str) -> (Audit, Events) {
    let (to_disk, from_all) = mpsc::channel(WAITING);
    let lost = Arc::new(AtomicU64::new(0));
    let audit = Audit {
        to_disk,
        lost: lost.clone(),
        proxy: proxy.to_owned(),
    };
    (audit, Events { from_all, lost })
}

impl Audit {
    /// Writes one down.
    pub(crate) fn tell(&self, event: &str, fields: &Map<String, Value>) {
        if self.to_disk.try_send(self.line(event, fields)).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    fn line(&self, event: &str, fields: &Map<String, Value>) -> String {
        let mut line = Map::new();
        line.insert("time".to_owned(), time().into());
        line.insert("event".to_owned(), event.into());
        line.insert("proxy".to_owned(), self.proxy.as_str().into());
        let known = fields
            .iter()
            .filter(|(_, value)| !value.is_null() && *value != "");
        line.extend(known.map(|(key, value)| (key.clone(), value.clone())));
        let mut line = Value::Object(line).to_string();
        line.push('\n');
        line
    }
}

/// Writes and delivers, until the proxy ends.
pub(crate) async fn run(gate: Arc<Gate>, mut events: Events) {
    let mut spool = match Spool::open(&gate.config.state_directory.join("audit")) {
        Ok(spool) => spool,
        Err(error) => {
            tracing::error!("audit events cannot be kept, and are lost while auth is away: {error}");
            // They are counted, by a queue that is full.
            return std::future::pending().await;
        }
    };
    let mut lines = Vec::new();
    loop {
        let behind = spool.delivered < spool.length;
        tokio::select! {
            got = events.from_all.recv_many(&mut lines, WAITING) => {
                if got == 0 {
                    return;
                }
                write(&gate, &mut spool, &events, &mut lines);
            }
            () = deliver(&gate, &mut spool), if behind => {}
        }
    }
}

fn write(gate: &Gate, spool: &mut Spool, events: &Events, lines: &mut Vec<String>) {
    let lost = events.lost.swap(0, Relaxed);
    if lost > 0 {
        let mut fields = Map::new();
        fields.insert("count".to_owned(), lost.into());
        lines.insert(0, gate.audit.line("audit_lost", &fields));
    }
    let text = lines.concat();
    if let Err(error) = spool.append(text.as_bytes()) {
        events
            .lost
            .fetch_add(lost + lines.len() as u64 - u64::from(lost > 0), Relaxed);
        tracing::error!("audit events are lost: {error}");
    }
    lines.clear();
}

/// One batch. It may be dropped at any await: what was not noted is sent again, and auth knows the offset.
async fn deliver(gate: &Gate, spool: &mut Spool) {
    let batch = match spool.batch() {
        Ok(lines) => lines,
        Err(error) => {
            tracing::error!("audit events cannot be read back: {error}");
            return tokio::time::sleep(AGAIN).await;
        }
    };
    let mut batch = AuditBatch {
        log: spool.number.to_string(),
        offset: spool.delivered,
        lines: batch.into(),
        ..AuditBatch::default()
    };
    let own = gate.identity.borrow().clone();
    batch.certificate = own.credentials.certificate().der().to_vec().into();
    batch.signature = own.key.sign(&signed::audit(own.name.as_str(), &batch)).into();
    match auth::deliver(gate, &own.name, batch).await {
        Some(kept) if kept.log == spool.number.to_string() && kept.offset > spool.delivered => {
            if let Err(error) = spool.note(kept.offset) {
                tracing::error!("how far audit events are delivered cannot be noted: {error}");
            }
        }
        _ => tokio::time::sleep(AGAIN).await,
    }
}

impl Spool {
    fn open(directory: &Path) -> Result<Spool, String> {
        let failed = |e: std::io::Error| format!("{}: {e}", directory.display());
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(failed)?;
        let position = std::fs::read_to_string(directory.join("position")).unwrap_or_default();
        let mut parts = position.split_whitespace().map(|part| part.parse::<u64>().ok());
        let (number, delivered) = match (parts.next().flatten(), parts.next().flatten()) {
            (Some(number), Some(delivered)) => (number, delivered),
            _ => (since_1970().as_secs(), 0),
        };
        let (file, length) = log(directory, number)?;
        Ok(Spool {
            directory: directory.to_owned(),
            file,
            number,
            length,
            // A file that somebody cut is told from its end on.
            delivered: delivered.min(length),
        })
    }

    fn append(&mut self, text: &[u8]) -> Result<(), String> {
        if self.length - self.delivered + text.len() as u64 > SPOOL_MAX {
            return Err(format!("{} MB wait for auth already", SPOOL_MAX >> 20));
        }
        // At its place: what a full disk cut off is written over.
        self.file
            .write_all_at(text, self.length)
            .map_err(|e| format!("{}: {e}", self.directory.display()))?;
        self.length += text.len() as u64;
        Ok(())
    }

    /// Whole lines from where auth has them up to.
    fn batch(&self) -> Result<Vec<u8>, std::io::Error> {
        let left = usize::try_from(self.length - self.delivered).unwrap_or(BATCH);
        let mut bytes = vec![0; left.min(BATCH)];
        self.file.read_exact_at(&mut bytes, self.delivered)?;
        if let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') {
            bytes.truncate(end + 1);
        }
        Ok(bytes)
    }

    fn note(&mut self, delivered: u64) -> Result<(), String> {
        self.delivered = delivered.min(self.length);
        if self.delivered == self.length && self.length >= LOG_MAX {
            let old = self.directory.join(format!("{}.jsonl", self.number));
            let number = self.number + 1;
            (self.file, self.length) = log(&self.directory, number)?;
            (self.number, self.delivered) = (number, 0);
            let _ = std::fs::remove_file(old);
        }
        let position = format!("{} {}\n", self.number, self.delivered);
        replace(&self.directory.join("position"), position.as_bytes())
    }
}

fn log(directory: &Path, number: u64) -> Result<(File, u64), String> {
    let path = directory.join(format!("{number}.jsonl"));
    let open = || {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    };
    open().map_err(|e: std::io::Error| format!("{}: {e}", path.display()))
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// As in every audit line: UTC, milliseconds.
fn time() -> String {
    let now = since_1970();
    let mut text = fleetgate_net::x509::instant(now.as_secs());
    text.truncate(text.len().saturating_sub(1));
    format!("{text}.{:03}Z", now.subsec_millis())
}
