//! A stream of parts: who sends them, in which order they are worked off, and what is answered. The bounds of a stream are
//! here; what becomes of a part is the keeper's.

use crate::counts::{add, sub};
use crate::error::Error;
use crate::keeper::Work;
use crate::{Archive, Counts};
use bytes::Bytes;
use fleetgate_record::block::Chain;
use fleetgate_record::signature::{LastKey, NAMESPACE};
use fleetgate_ssh::key::PublicKey;
use fleetgate_ssh::sshsig;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// The most recordings of one stream that come in at once. One more takes the place of one that rests.
pub const MAX_OPEN: usize = 1024;
/// The most bytes of one stream's parts in memory.
pub const MAX_OF_STREAM: usize = 1 << 20;
/// What a part costs beside its bytes.
const PART: usize = 1024;

/// Says whether a proxy may speak for a node of this name.
pub type SpeaksFor = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// A machine that makes recordings, as it is known when a part of it comes.
#[derive(Clone)]
pub struct Maker {
    /// Its name.
    pub name: String,
    /// The keys that its signatures may be of.
    pub keys: Arc<[PublicKey]>,
    /// A node speaks for itself. A proxy makes recordings of sessions on other machines.
    pub speaks_for: Option<SpeaksFor>,
}

/// A piece of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The session.
    pub session: [u8; 16],
    /// Where the bytes belong.
    pub offset: u64,
    /// None: asks how much is kept.
    pub bytes: Bytes,
    /// The recording ends behind them.
    pub whole: bool,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The session.
    pub session: [u8; 16],
    /// Which of it is kept, or why not.
    pub answer: Answer,
}

/// What became of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// So many bytes are on the disk and proven.
    Offset(u64),
    /// All of it is.
    Whole(Whole),
    /// It is not kept and will not be.
    Refused(String),
    /// Not now: try again in so many seconds.
    Wait(u32, String),
}

/// One that is kept to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// So many bytes.
    pub bytes: u64,
    /// So many of them its last signature covers.
    pub length: u64,
    /// The hash over those.
    pub chain: Chain,
}

/// Parts of one machine, by one way.
pub struct Intake {
    archive: Archive,
    stream: u64,
    room: Arc<Semaphore>,
}

/// The room that a part takes in memory.
pub(crate) struct Room {
    counts: Arc<Counts>,
    bytes: u64,
    _of_all: OwnedSemaphorePermit,
    _of_stream: OwnedSemaphorePermit,
}

impl Archive {
    /// Begins to take parts in.
    pub fn intake(&self) -> Intake {
        static STREAMS: AtomicU64 = AtomicU64::new(0);
        Intake {
            archive: self.clone(),
            stream: STREAMS.fetch_add(1, Ordering::Relaxed),
            room: Arc::new(Semaphore::new(MAX_OF_STREAM + PART)),
        }
    }
}

impl Intake {
    /// Takes a part; the answer comes when what it proves is on the disk. Parts are worked off in the order in which they
    /// come. This waits while the stream has as much in memory as it may.
    pub async fn take(&self, maker: &Maker, part: Part) -> Result<oneshot::Receiver<Kept>, Error> {
        let inner = &self.archive.0;
        let bytes = part.bytes.len().min(MAX_OF_STREAM) + PART;
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        // The stream's own room first: who waits for that holds nothing of what all share.
        let of_stream = self.room.clone().acquire_many_owned(permits).await;
        let of_all = inner.in_flight.clone().acquire_many_owned(permits).await;
        let (Ok(of_stream), Ok(of_all)) = (of_stream, of_all) else {
            return Err(Error::Closed);
        };
        add(&inner.counts.in_flight, bytes as u64);
        let room = Room {
            counts: inner.counts.clone(),
            bytes: bytes as u64,
            _of_all: of_all,
            _of_stream: of_stream,
        };
        let (answer, done) = oneshot::channel();
        let work = Work::Part {
            stream: self.stream,
            maker: maker.clone(),
            part,
            room,
            answer,
        };
        inner.work.send(work).await.map_err(|_| Error::Closed)?;
        Ok(done)
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        let (work, stream) = (self.archive.0.work.clone(), self.stream);
        // What it left open is forgotten; where the queue is full, when there is room in it.
        if let Err(tokio::sync::mpsc::error::TrySendError::Full(gone)) = work.try_send(Work::Gone(stream))
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { work.send(gone).await });
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        sub(&self.counts.in_flight, self.bytes);
    }
}

impl Maker {
    /// Whether a signature over a text is right, and of one of its keys.
    pub(crate) fn signed(&self, text: &str, signature: &[u8]) -> Result<(), String> {
        let key = sshsig::verify(signature, NAMESPACE, text.as_bytes()).map_err(|e| e.to_string())?;
        match self.keys.contains(&key) {
            true => Ok(()),
            false => Err(format!(
                "it is of the key {}, which is none of {}",
                key.fingerprint(),
                self.name
            )),
        }
    }

    /// Whether a signature is right, and of a key that the machine is not known to have.
    pub(crate) fn has_not_the_key_of(&self, text: &str, signature: &[u8]) -> bool {
        sshsig::verify(signature, NAMESPACE, text.as_bytes()).is_ok_and(|key| !self.keys.contains(&key))
    }

    /// The keys that a signature may leave out.
    pub(crate) fn last_keys(&self) -> Vec<LastKey> {
        self.keys.iter().map(|key| LastKey::of(key.blob())).collect()
    }

    /// Which node a recording is of that says it is of `claimed`.
    pub(crate) fn node(&self, claimed: &str) -> String {
        match &self.speaks_for {
            None => self.name.clone(),
            Some(speaks_for) if speaks_for(claimed) => claimed.to_owned(),
            Some(_) => String::new(),
        }
    }
}

impl fmt::Debug for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
