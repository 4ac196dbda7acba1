//! Recordings on their way to the cluster. The monitor hands over a file to be read, and says how much of it counts; a stream
//! that a proxy opened asks how much is kept, and sends what is not, a part of each recording in turn. One part waits for
//! room at most, so a slow cluster costs no memory. What a stream could not finish goes to another one.

use crate::monitor_socket::MonitorSocket;
use crate::request::{Recording, Request};
use crate::text::c_string;
use fleetgate_policy::cluster::MAX_RECEIPT;
use fleetgate_proto::v1::{RecordingKept, RecordingPart};
use fleetgate_sys::{Errno, file};
use fleetgate_wire::node::tunnel::{FromTunnel, MAX_UPLOADS, UploadAnswer};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep_until;
use tonic::codegen::tokio_stream::Stream;
use tonic::{Status, Streaming};

/// The most bytes of one part: a block of a recording, about. Sessions on the same connection have their turns between.
const PART: usize = 64 << 10;
/// The most streams that have their turn.
const MAX_STREAMS: usize = 64;
/// So long an answer is waited for when all was sent.
const ANSWER: Duration = Duration::from_secs(60);

/// What a stream needs of the tunnel.
pub(crate) struct StreamContext {
    pub requests: mpsc::Sender<Request>,
    pub monitor: Arc<MonitorSocket>,
    /// Who has opened it.
    pub proxy: Arc<str>,
    /// True: no more.
    pub leave: watch::Receiver<bool>,
}

/// What the tunnel's loop has of recordings: those that no stream has, and where to give them.
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<Recording>,
    streams: VecDeque<mpsc::Sender<Recording>>,
}

impl Outbox {
    /// A stream is there.
    pub(crate) fn opened(&mut self, stream: mpsc::Sender<Recording>) {
        self.streams.retain(|stream| !stream.is_closed());
        // Each proxy has one; one that opens more loses its own before others'.
        self.streams.truncate(MAX_STREAMS - 1);
        self.streams.push_back(stream);
        self.give();
    }

    /// To be sent by any stream, to each in turn.
    pub(crate) fn send(&mut self, recording: Recording) {
        // The monitor has given no more, unless it was mistaken: then the oldest are not waited for.
        self.waiting.truncate(2 * MAX_UPLOADS);
        self.waiting.push_back(recording);
        self.give();
    }

    /// Nothing is sent any more.
    pub(crate) fn close(&mut self) {
        self.waiting.clear();
        self.streams.clear();
    }

    fn give(&mut self) {
        while let Some(recording) = self.waiting.pop_front() {
            let Some(stream) = self.streams.pop_front() else {
                return self.waiting.push_front(recording);
            };
            match stream.try_send(recording) {
                Ok(()) => self.streams.push_back(stream),
                // A stream whose task has ended, or one that has as many as all of them can be.
                Err(e) => self.waiting.push_front(e.into_inner()),
            }
        }
    }
}

/// Parts for a proxy.
pub(crate) struct Parts(mpsc::Receiver<RecordingPart>);

impl Stream for Parts {
    type Item = Result<RecordingPart, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|part| part.map(Ok))
    }
}

/// Serves one stream in a task of its own.
pub(crate) fn serve(answers: Streaming<RecordingKept>, context: StreamContext) -> Parts {
    let (to_proxy, parts) = mpsc::channel(1);
    tokio::spawn(async move {
        let (to_stream, mut given) = mpsc::channel(2 * MAX_UPLOADS);
        if context
            .requests
            .send(Request::Recordings(to_stream))
            .await
            .is_err()
        {
            return;
        }
        let mut sending = Sending::default();
        carry(&mut sending, answers, &to_proxy, &mut given, &context).await;
        given.close();
        let rest = std::iter::from_fn(|| given.try_recv().ok());
        for recording in sending.into_recordings().chain(rest).collect::<Vec<_>>() {
            let _ = context.requests.send(Request::Unsent(recording)).await;
        }
    });
    Parts(parts)
}

async fn carry(
    sending: &mut Sending,
    mut answers: Streaming<RecordingKept>,
    to_proxy: &mpsc::Sender<RecordingPart>,
    given: &mut mpsc::Receiver<Recording>,
    context: &StreamContext,
) {
    let mut leave = context.leave.clone();
    loop {
        let due = sending.due();
        let mut said = tokio::select! {
            recording = given.recv() => match recording {
                Some(recording) => {
                    sending.add(recording, Instant::now());
                    None
                }
                None => return,
            },
            answer = answers.message() => match answer {
                Ok(Some(kept)) => sending.hear(&kept, Instant::now()),
                _ => return,
            },
            room = to_proxy.reserve(), if sending.has_part() => match (room, sending.next(Instant::now())) {
                (Ok(room), Some(Ok(part))) => {
                    room.send(part);
                    None
                }
                (Ok(_), Some(Err(word))) => Some(word),
                (Ok(_), None) => None,
                (Err(_), _) => return,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => sending.expire(Instant::now()),
            _ = leave.wait_for(|leave| *leave) => return,
        };
        if let Some(FromTunnel::Uploaded { proxy, .. }) = &mut said {
            *proxy = c_string(&context.proxy);
        }
        if let Some(word) = said
            && context.monitor.say(&word).await.is_err()
        {
            return;
        }
    }
}

/// The recordings of one stream. It reads their files, and has no clock.
#[derive(Default)]
struct Sending(VecDeque<Upload>);

struct Upload {
    recording: Recording,
    state: State,
    /// When it was last sent something, or heard of.
    since: Instant,
}

enum State {
    /// How much is kept is to be asked.
    New,
    /// It was asked.
    Asked,
    /// What begins there is to be sent.
    From(u64),
    /// All was sent.
    Sent,
}

impl Sending {
    fn add(&mut self, recording: Recording, now: Instant) {
        // The monitor says more of one that it gave before.
        self.0
            .retain(|upload| upload.recording.session != recording.session);
        self.0.push_back(Upload {
            recording,
            state: State::New,
            since: now,
        });
    }

    fn has_part(&self) -> bool {
        self.0.iter().any(Upload::has_part)
    }

    /// The next part, of each recording in turn; or why one cannot be read.
    fn next(&mut self, now: Instant) -> Option<Result<RecordingPart, FromTunnel>> {
        let at = self.0.iter().position(Upload::has_part)?;
        let mut upload = self.0.remove(at)?;
        upload.since = now;
        let part = match upload.part() {
            Ok(part) => part,
            Err(e) => return Some(Err(upload.wait(0, &format!("reading it: {e}")))),
        };
        self.0.push_back(upload);
        Some(Ok(part))
    }

    /// What the cluster says of a recording; for the monitor, if that ends it.
    fn hear(&mut self, kept: &RecordingKept, now: Instant) -> Option<FromTunnel> {
        let at = self
            .0
            .iter()
            .position(|upload| upload.recording.session[..] == kept.session[..])?;
        let upload = &mut self.0[at];
        let Recording {
            signed,
            length,
            whole,
            ..
        } = upload.recording;
        let answer = if !kept.refused.is_empty() {
            upload.refused(&kept.refused)
        } else if kept.wait > 0 {
            upload.wait(kept.wait, &kept.why)
        } else if kept.whole || !whole && kept.offset >= signed {
            let receipt = kept.receipt.get(..MAX_RECEIPT).unwrap_or(&kept.receipt).to_vec();
            upload.answer(UploadAnswer::Kept { receipt })
        } else if kept.offset > length {
            upload.refused("the cluster has more of it than this machine")
        } else {
            upload.since = now;
            // Later answers say how much of what was sent is kept, and change nothing about what comes next.
            if matches!(upload.state, State::Asked) {
                upload.state = State::From(kept.offset);
            }
            return None;
        };
        self.0.remove(at);
        Some(answer)
    }

    /// When somebody has waited for too long: for an answer, or for a proxy that reads nothing. There it would take a place from
    /// the others.
    fn due(&self) -> Option<Instant> {
        self.0.iter().map(|upload| upload.since + ANSWER).min()
    }

    /// One that has.
    fn expire(&mut self, now: Instant) -> Option<FromTunnel> {
        let is_late = |upload: &Upload| upload.since + ANSWER <= now;
        let at = self.0.iter().position(is_late)?;
        let upload = self.0.remove(at)?;
        Some(upload.wait(0, "the cluster does not answer"))
    }

    fn into_recordings(self) -> impl Iterator<Item = Recording> {
        self.0.into_iter().map(|upload| upload.recording)
    }
}

impl Upload {
    fn has_part(&self) -> bool {
        matches!(self.state, State::New | State::From(_))
    }

    fn part(&mut self) -> Result<RecordingPart, Errno> {
        let mut part = RecordingPart {
            session: self.recording.session.to_vec().into(),
            ..RecordingPart::default()
        };
        let State::From(at) = self.state else {
            self.state = State::Asked;
            return Ok(part);
        };
        let left = self.recording.length.saturating_sub(at);
        let mut bytes = vec![0; usize::try_from(left).unwrap_or(PART).min(PART)];
        // Nothing is left of one that is kept to its end, and of which the cluster does not know that it is whole.
        if !bytes.is_empty() {
            let got = file::read_at(self.recording.file.raw(), &mut bytes, at)?;
            if got == 0 {
                return Err(Errno::ENODATA);
            }
            bytes.truncate(got);
        }
        let end = at + bytes.len() as u64;
        self.state = match end < self.recording.length {
            true => State::From(end),
            false => State::Sent,
        };
        part.offset = at;
        part.whole = self.recording.whole && end == self.recording.length;
        part.bytes = bytes.into();
        Ok(part)
    }

    fn answer(&self, answer: UploadAnswer) -> FromTunnel {
        FromTunnel::Uploaded {
            session: self.recording.session,
            proxy: Default::default(),
            answer,
        }
    }

    fn refused(&self, why: &str) -> FromTunnel {
        self.answer(UploadAnswer::Refused { why: c_string(why) })
    }

    fn wait(&self, seconds: u32, why: &str) -> FromTunnel {
        let why = c_string(why);
        self.answer(UploadAnswer::Wait { seconds, why })
    }
}

#[cfg(test)]
mod tests {
    //! Files that are read as if a cluster answered.

    use super::*;
    use fleetgate_sys::Fd;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn recording(session: u8, bytes: &[u8], signed: u64, whole: bool) -> Recording {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fleetgate-upload-{}-{number}", std::process::id()));
        let mut file = std::fs::File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(&path)
            .expect("a file");
        std::fs::remove_file(&path).expect("there");
        file.write_all(bytes).expect("room");
        Recording {
            session: [session; 16],
            signed,
            length: bytes.len() as u64,
            whole,
            file: Fd::from(OwnedFd::from(file)),
        }
    }

    fn kept(session: u8, offset: u64) -> RecordingKept {
        RecordingKept {
            session: vec![session; 16].into(),
            offset,
            ..RecordingKept::default()
        }
    }

    fn sent(sending: &mut Sending, now: Instant) -> Option<(u8, u64, usize, bool)> {
        let part = sending.next(now)?.expect("it can be read");
        Some((part.session[0], part.offset, part.bytes.len(), part.whole))
    }

    fn answer(word: Option<FromTunnel>) -> Option<UploadAnswer> {
        match word? {
            FromTunnel::Uploaded { answer, .. } => Some(answer),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_not_kept_is_sent_in_turn_and_the_answer_to_all_of_it_ends_it() {
        let (mut sending, now) = (Sending::default(), Instant::now());
        sending.add(recording(1, &[7; 2 * PART + 5], 0, true), now);
        sending.add(recording(2, &[8; 100], 90, false), now);
        assert_eq!(sent(&mut sending, now), Some((1, 0, 0, false)), "it asks");
        assert_eq!(sent(&mut sending, now), Some((2, 0, 0, false)));
        assert_eq!(sent(&mut sending, now), None, "until it knows");
        assert_eq!(sending.hear(&kept(1, PART as u64 - 1), now), None);
        assert_eq!(sending.hear(&kept(2, 10), now), None);
        assert_eq!(sent(&mut sending, now), Some((1, PART as u64 - 1, PART, false)));
        assert_eq!(sent(&mut sending, now), Some((2, 10, 90, false)));
        // A word about what was sent is no reason to send it again.
        assert_eq!(sending.hear(&kept(1, PART as u64), now), None);
        assert_eq!(sent(&mut sending, now), Some((1, 2 * PART as u64 - 1, 6, true)));
        assert_eq!(sent(&mut sending, now), None);
        assert_eq!(sending.hear(&kept(2, 89), now), None, "the signature covers more");
        let receipt = Vec::new();
        assert_eq!(
            answer(sending.hear(&kept(2, 90), now)),
            Some(UploadAnswer::Kept { receipt }),
            "it runs, and needs none"
        );
        assert_eq!(
            sending.hear(&kept(1, 2 * PART as u64 + 5), now),
            None,
            "not whole"
        );
        let all = RecordingKept {
            whole: true,
            receipt: vec![5; 1000].into(),
            ..kept(1, 2 * PART as u64 + 5)
        };
        let receipt = vec![5; MAX_RECEIPT];
        assert_eq!(
            answer(sending.hear(&all, now)),
            Some(UploadAnswer::Kept { receipt }),
            "no longer than any is"
        );
        assert_eq!(
            sending.hear(&all, now),
            None,
            "nothing is asked about it any more"
        );
        assert_eq!(sending.into_recordings().count(), 0);
    }

    #[test]
    fn one_that_is_kept_but_for_the_word_that_it_is_whole_gets_that() {
        let (mut sending, now) = (Sending::default(), Instant::now());
        sending.add(recording(1, &[7; 10], 0, true), now);
        assert_eq!(sent(&mut sending, now), Some((1, 0, 0, false)));
        assert_eq!(sending.hear(&kept(1, 10), now), None);
        assert_eq!(sent(&mut sending, now), Some((1, 10, 0, true)));
        assert_eq!(sent(&mut sending, now), None);
    }

    #[test]
    fn refusals_silence_and_files_that_were_cut_end_one_and_no_other() {
        let (mut sending, now) = (Sending::default(), Instant::now());
        for session in 1..=5 {
            let mut recording = recording(session, &[7; 10], 0, true);
            recording.length += u64::from(session == 4);
            sending.add(recording, now);
            assert!(sent(&mut sending, now).is_some());
        }
        let no = RecordingKept {
            refused: "never".into(),
            ..kept(1, 0)
        };
        let why = c"never".into();
        assert_eq!(
            answer(sending.hear(&no, now)),
            Some(UploadAnswer::Refused { why })
        );
        let later = RecordingKept {
            wait: 9,
            why: "full".into(),
            ..kept(2, 0)
        };
        let (seconds, why) = (9, c"full".into());
        assert_eq!(
            answer(sending.hear(&later, now)),
            Some(UploadAnswer::Wait { seconds, why })
        );
        assert!(matches!(
            answer(sending.hear(&kept(3, 11), now)),
            Some(UploadAnswer::Refused { .. })
        ));
        // The file is shorter than the monitor said.
        assert_eq!(sending.hear(&kept(4, 10), now), None);
        let word = sending.next(now).and_then(Result::err);
        assert!(matches!(answer(word), Some(UploadAnswer::Wait { .. })));
        assert_eq!(sending.due(), Some(now + ANSWER));
        assert_eq!(sending.expire(now + ANSWER / 2), None);
        let late = sending.expire(sending.due().expect("one waits"));
        assert!(matches!(
            answer(late),
            Some(UploadAnswer::Wait { seconds: 0, .. })
        ));
        assert_eq!(sending.into_recordings().count(), 0);
    }

    #[test]
    fn recordings_wait_for_a_stream_and_go_to_each_in_turn() {
        let mut outbox = Outbox::default();
        outbox.send(recording(1, &[7], 0, true));
        let (gone, _) = mpsc::channel(4);
        outbox.opened(gone);
        let (first, mut of_first) = mpsc::channel(4);
        outbox.opened(first);
        let (second, mut of_second) = mpsc::channel(4);
        outbox.opened(second);
        for session in 2..=4 {
            outbox.send(recording(session, &[7], 0, true));
        }
        let got = |from: &mut mpsc::Receiver<Recording>| {
            std::iter::from_fn(|| from.try_recv().ok())
                .map(|recording| recording.session[0])
                .collect::<Vec<_>>()
        };
        assert_eq!(got(&mut of_first), [1, 2, 4]);
        assert_eq!(got(&mut of_second), [3]);
        outbox.close();
        assert!(of_first.try_recv().is_err());
    }
}
