//! Delivers recordings to auth: those that this process makes as far as they are signed, and whole ones of any process that
//! has ended. Auth says how much of each it has, so nothing of this is kept anywhere. What auth has whole is removed here.
//!
//! All go by one stream, a few at a time, and each by itself: one that auth cannot take now, or never, holds up no other.

use crate::auth;
use crate::recorder::housekeeping::{put_aside, remove};
use crate::recorder::{Recorder, Running, Signed, Spool, lock};
use crate::shared::Shared;
use bytes::Bytes;
use fleetgate_net::backoff::Backoff;
use fleetgate_net::h2;
use fleetgate_proto::v1::{RecordingFrom, RecordingKept, RecordingPart};
use fleetgate_recorder::directory;
use fleetgate_sys::file::flags::O_NOFOLLOW;
use fleetgate_sys::{Fd, lock as flock};
use fleetgate_wire::common::SessionId;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;
use tonic::Code;
use tonic::codegen::tokio_stream::Stream;

/// One part.
pub const PART: usize = 256 << 10;
/// Parts that are on their way between the files and the connection.
const PARTS: usize = 4;
/// Recordings at once.
pub const AT_ONCE: usize = 8;
/// Answers about one recording that its task has not looked at: more than there are parts on their way.
const ANSWERS: usize = 64;
/// So often what auth has not is sent anew, at once.
const TRIES: u32 = 2;
/// So long auth may say nothing of one that it was sent.
const PATIENCE: Duration = Duration::from_secs(30);
/// When it is tried again with one that auth cannot take, or that another process has.
const LATER: Duration = Duration::from_secs(60);

/// One to deliver.
#[derive(Clone, Debug)]
struct Item {
    session: SessionId,
    path: PathBuf,
    /// So much of it; none: all, and that is the whole.
    signed: Option<Signed>,
}

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Auth has all of it.
    Whole(u64),
    /// Auth has so much of one that goes on.
    Kept(u64),
    /// Auth will never take it.
    Refused(String),
    /// Not now.
    Later(Duration, String),
}

/// What is known of those that are not delivered.
#[derive(Default)]
struct Progress {
    /// How much auth has of those that are being made.
    kept: BTreeMap<SessionId, u64>,
    /// Not to be tried before.
    later: BTreeMap<SessionId, Instant>,
}

/// Delivers. It does not end.
pub(crate) async fn run(shared: Arc<Shared>) {
    let recorder = shared.recorder.clone();
    let spool = recorder.spool();
    let (mut progress, mut backoff) = (Progress::default(), Backoff::RECONNECT);
    let mut is_told = false;
    loop {
        while progress.next(spool, |_| false).is_none() {
            progress.wait(spool).await;
        }
        match deliver(&shared, &recorder, &mut progress).await {
            Ok(()) => {
                backoff.worked();
                is_told = false;
            }
            Err(why) => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!("recordings wait until auth takes them: {why}");
                }
                auth::pause(&shared, &mut backoff).await;
            }
        }
    }
}

impl Progress {
    /// Waits until there may be something.
    async fn wait(&self, spool: &Spool) {
        let soonest = self.later.values().min().copied();
        tokio::select! {
            () = spool.news.notified() => {}
            () = tokio::time::sleep_until(soonest.unwrap_or_else(Instant::now).into()), if soonest.is_some() => {}
        }
    }

    /// What is to be delivered next, and is not under way.
    fn next(&mut self, spool: &Spool, is_under_way: impl Fn(&SessionId) -> bool) -> Option<Item> {
        let now = Instant::now();
        self.later.retain(|_, until| *until > now);
        let may = |session: &SessionId| !self.later.contains_key(session) && !is_under_way(session);
        let ended = lock(&spool.ended).iter().find_map(|path| {
            let session = session_of(path).filter(|session| may(session))?;
            let path = path.clone();
            Some(Item {
                session,
                path,
                signed: None,
            })
        });
        if ended.is_some() {
            return ended;
        }
        let running = lock(&spool.running);
        self.kept.retain(|session, _| running.contains_key(session));
        running.iter().find_map(|(session, Running { path, signed })| {
            let is_new = signed.covered > self.kept.get(session).copied().unwrap_or_default();
            (is_new && may(session)).then(|| Item {
                session: *session,
                path: path.clone(),
                signed: Some(*signed),
            })
        })
    }

    /// Notes what became of one.
    fn note(&mut self, recorder: &Recorder, item: Item, outcome: Outcome) {
        let spool = recorder.spool();
        let Item { session, path, .. } = item;
        match outcome {
            Outcome::Kept(offset) => _ = self.kept.insert(session, offset),
            Outcome::Whole(length) => {
                lock(&spool.ended).remove(&path);
                remove(&path);
                spool.shrinks(length);
            }
            Outcome::Refused(why) => {
                tracing::error!("{}: auth refuses this recording: {why}", path.display());
                if lock(&spool.ended).remove(&path) {
                    put_aside(&path);
                } else {
                    self.kept.insert(session, u64::MAX);
                }
            }
            Outcome::Later(pause, why) => {
                tracing::debug!("{}: auth does not have this recording yet: {why}", path.display());
                self.later.insert(session, Instant::now() + pause);
            }
        }
    }
}

fn session_of(path: &Path) -> Option<SessionId> {
    directory::session(path.file_stem()?.to_str()?)
}

/// By one stream, until there is nothing more to deliver.
async fn deliver(shared: &Shared, recorder: &Recorder, progress: &mut Progress) -> Result<(), String> {
    let (send, sent) = mpsc::channel(PARTS);
    let first = RecordingFrom::default();
    send.send(first).await.map_err(|e| e.to_string())?;
    // Its own connection is made when there is a way to auth at all.
    let mut auth = shared.auth.subscribe();
    auth.wait_for(Option::is_some).await.map_err(|e| e.to_string())?;
    let mut service = crate::recordings::service(shared).await?;
    let answers = match timeout(PATIENCE, service.recordings(Outgoing(sent))).await {
        Ok(Ok(answers)) => answers,
        Ok(Err(status)) if status.code() == Code::Unimplemented => {
            return Err("it is older than this proxy, and keeps none: upgrade auth".to_owned());
        }
        Ok(Err(status)) => return Err(h2::words(&status)),
        Err(_) => return Err("it does not answer".to_owned()),
    };
    let mut answers = answers.into_inner();
    let spool = recorder.spool();
    let mut tasks: JoinSet<(Item, Outcome)> = JoinSet::new();
    let mut under_way: BTreeMap<SessionId, Sender<RecordingKept>> = BTreeMap::new();
    loop {
        while tasks.len() < AT_ONCE
            && let Some(item) = progress.next(spool, |session| under_way.contains_key(session))
        {
            let (to_task, kept) = mpsc::channel(ANSWERS);
            under_way.insert(item.session, to_task);
            let send = send.clone();
            tasks.spawn(async move {
                let outcome = Delivery::new(&item, send, kept).run(&item).await;
                (item, outcome)
            });
        }
        if tasks.is_empty() {
            return Ok(());
        }
        tokio::select! {
            answer = answers.message() => match answer {
                Ok(Some(answer)) => {
                    let session = SessionId::try_from(&answer.session[..]).ok();
                    if let Some(to_task) = session.and_then(|session| under_way.get(&session)) {
                        let _ = to_task.try_send(answer);
                    }
                }
                Ok(None) => return Err("it ended the stream".to_owned()),
                Err(status) => return Err(h2::words(&status)),
            },
            Some(Ok((item, outcome))) = tasks.join_next() => {
                under_way.remove(&item.session);
                // Removing one file is no work to speak of.
                progress.note(recorder, item, outcome);
            }
            () = progress.wait(spool), if tasks.len() < AT_ONCE => {}
        }
    }
}

/// The delivery of one recording.
struct Delivery {
    session: Bytes,
    send: Sender<RecordingFrom>,
    kept: Receiver<RecordingKept>,
}

impl Delivery {
    fn new(item: &Item, send: Sender<RecordingFrom>, kept: Receiver<RecordingKept>) -> Delivery {
        Delivery {
            session: Bytes::copy_from_slice(&item.session),
            send,
            kept,
        }
    }

    async fn run(mut self, item: &Item) -> Outcome {
        let opening = item.clone();
        let opened = spawn_blocking(move || open(&opening)).await;
        let (file, length) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(why)) => return Outcome::Later(LATER, why),
            Err(e) => return Outcome::Later(LATER, e.to_string()),
        };
        match self.bring(&file, length, item.signed).await {
            Ok(outcome) | Err(outcome) => outcome,
        }
    }

    /// Asks what auth has, and sends the rest. Each part has one answer; what auth says last counts.
    async fn bring(
        &mut self,
        file: &Arc<File>,
        length: u64,
        signed: Option<Signed>,
    ) -> Result<Outcome, Outcome> {
        self.part(0, Bytes::new(), false).await?;
        let mut last = self.answer().await?;
        for _ in 0..=TRIES {
            match signed {
                None if last.whole => return Ok(Outcome::Whole(length)),
                Some(Signed { covered, .. }) if last.offset >= covered => {
                    return Ok(Outcome::Kept(last.offset));
                }
                _ => {}
            }
            if last.offset > length {
                let why = format!("auth has {} bytes of it, and here are {length}", last.offset);
                return Err(Outcome::Refused(why));
            }
            last = self
                .send_from(file, last.offset, length, signed.is_none())
                .await?;
        }
        Err(Outcome::Later(LATER, "it does not come through".to_owned()))
    }

    /// Sends the rest from there; the last answer.
    async fn send_from(
        &mut self,
        file: &Arc<File>,
        mut offset: u64,
        length: u64,
        is_whole: bool,
    ) -> Result<RecordingKept, Outcome> {
        let mut unanswered = 0_u32;
        loop {
            let from = file.clone();
            let count = usize::try_from(length - offset).unwrap_or(PART).min(PART);
            let read = spawn_blocking(move || {
                let mut bytes = vec![0; count];
                from.read_exact_at(&mut bytes, offset).map(|()| bytes)
            });
            let bytes = match read.await {
                Ok(Ok(bytes)) => bytes,
                Ok(Err(e)) => return Err(Outcome::Later(LATER, e.to_string())),
                Err(e) => return Err(Outcome::Later(LATER, e.to_string())),
            };
            let end = offset + bytes.len() as u64;
            self.part(offset, bytes.into(), is_whole && end == length).await?;
            unanswered += 1;
            offset = end;
            if offset == length {
                break;
            }
            // A refusal is worth no more parts.
            while let Ok(answer) = self.kept.try_recv() {
                check(answer)?;
                unanswered -= 1;
            }
        }
        loop {
            let answer = self.answer().await?;
            unanswered -= 1;
            if unanswered == 0 {
                return Ok(answer);
            }
        }
    }

    async fn part(&mut self, offset: u64, bytes: Bytes, whole: bool) -> Result<(), Outcome> {
        let part = RecordingPart {
            session: self.session.clone(),
            offset,
            bytes,
            whole,
        };
        let from = RecordingFrom {
            source: String::new(),
            part: Some(part),
        };
        let sent = self.send.send(from).await;
        sent.map_err(|_| Outcome::Later(Duration::ZERO, "the stream ended".to_owned()))
    }

    async fn answer(&mut self) -> Result<RecordingKept, Outcome> {
        match timeout(PATIENCE, self.kept.recv()).await {
            Ok(Some(answer)) => check(answer),
            Ok(None) => Err(Outcome::Later(Duration::ZERO, "the stream ended".to_owned())),
            Err(_) => Err(Outcome::Later(LATER, "auth says nothing of it".to_owned())),
        }
    }
}

/// An answer that says how much auth has.
fn check(answer: RecordingKept) -> Result<RecordingKept, Outcome> {
    if !answer.refused.is_empty() {
        return Err(Outcome::Refused(answer.refused));
    }
    match answer.wait {
        0 => Ok(answer),
        seconds => Err(Outcome::Later(Duration::from_secs(seconds.into()), answer.why)),
    }
}

/// The file, and how much of it is to be delivered. A whole one is locked: another process delivers it else.
fn open(item: &Item) -> Result<(Arc<File>, u64), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", item.path.display());
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NOFOLLOW)
        .open(&item.path)
        .map_err(failed)?;
    if let Some(Signed { until, .. }) = item.signed {
        return Ok((Arc::new(file), until));
    }
    let fd = Fd::from(OwnedFd::from(file));
    flock::try_hold(&fd).map_err(|_| "another process has it".to_owned())?;
    let file = File::from(OwnedFd::from(fd));
    let length = file.metadata().map_err(failed)?.len();
    Ok((Arc::new(file), length))
}

/// What goes to auth.
struct Outgoing(Receiver<RecordingFrom>);

impl Stream for Outgoing {
    type Item = RecordingFrom;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<RecordingFrom>> {
        self.0.poll_recv(cx)
    }
}

#[cfg(test)]
mod tests;
