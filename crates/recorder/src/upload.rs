//! Which recordings the tunnel is to send to the cluster, and when: those that have ended in the order in which they are found,
//! and running ones whenever a new signature stands. It has no clock and touches no file. One recording that the cluster does
//! not take holds up no other.

use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::tunnel::{MAX_UPLOADS, UploadAnswer};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most recordings that are known at once, beside those that run. There may be many more in the directory: they are
/// looked for when these are done.
pub const MAX_KNOWN: usize = 1024;
/// How long one waits that was not kept: at first, and at most.
const WAIT: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(600));

/// The longest that all wait because none was kept: some may be kept never, and others are not to wait for them.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// All of one node.
#[derive(Default)]
pub struct Uploads {
    all: BTreeMap<SessionId, Upload>,
    running: VecDeque<SessionId>,
    ended: VecDeque<SessionId>,
    /// It is the turn of one that has ended.
    is_turn_of_ended: bool,
    /// There is a tunnel.
    is_sending: bool,
    /// The tunnel has so many.
    offered: usize,
    /// So many in a row were not kept.
    waits: usize,
    /// Nothing is sent before: the cluster takes nothing now.
    pause: Duration,
}

/// How much of a recording counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Its last signature covers so many bytes, and ends at `length`.
    Signed {
        /// Covered.
        signed: u64,
        /// To be sent.
        length: u64,
    },
    /// All of it.
    Whole,
}

/// What the tunnel is to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The session.
    pub session: SessionId,
    /// Where its recording is.
    pub path: PathBuf,
    /// How much of it.
    pub extent: Extent,
}

/// Whether a receipt proves that the cluster has all of the recording of this session in this file; else why not.
pub type Check<'a> = &'a dyn Fn(&SessionId, &Path, &[u8]) -> Result<(), Doubt>;

/// Why a recording does not count as kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// There is no such file any more: it went by age or size meanwhile.
    Gone,
    /// The file cannot be read, which is this machine's fault.
    Unreadable(String),
    /// The receipt is not right.
    Receipt(String),
}

/// What is to be remembered of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The cluster has all of it.
    Kept(SessionId, PathBuf),
    /// The cluster will never take it.
    Refused(SessionId, PathBuf, String),
    /// A proxy says that the cluster has it, and nothing proves that: why. It is sent again later. Said once of each.
    Unproven(SessionId, Doubt),
}

struct Upload {
    path: PathBuf,
    extent: Extent,
    state: State,
    /// So many times in a row it was not kept.
    tries: u32,
    /// More of it is there than the tunnel was told.
    has_more: bool,
    /// It was said that no receipt proves that it is kept.
    is_told: bool,
}

#[derive(PartialEq, Eq)]
enum State {
    /// It is in one of the queues.
    Waiting,
    /// The tunnel has it.
    Offered,
    /// It comes into a queue then.
    Later(Duration),
    /// It runs, and the cluster takes nothing of it.
    Refused,
}

impl Uploads {
    /// There is a tunnel, which has nothing yet; or there is none.
    pub fn begin(&mut self, is_sending: bool) {
        self.is_sending = is_sending;
        (self.offered, self.waits, self.pause) = (0, 0, Duration::ZERO);
        let offered = self.all.iter_mut().filter(|(_, of)| of.state == State::Offered);
        let offered: Vec<SessionId> = offered.map(|(session, _)| *session).collect();
        for session in offered {
            self.queue(session);
        }
    }

    /// There is more of this recording.
    pub fn grew(&mut self, session: SessionId, path: PathBuf, extent: Extent) {
        let is_whole = extent == Extent::Whole;
        if let Some(upload) = self.all.get_mut(&session) {
            upload.extent = extent;
            upload.has_more = true;
            if is_whole && upload.state == State::Refused {
                self.all.remove(&session);
            }
            return;
        }
        let upload = Upload {
            path,
            extent,
            state: State::Waiting,
            tries: 0,
            has_more: false,
            is_told: false,
        };
        self.all.insert(session, upload);
        self.queue(session);
    }

    /// So many more may be found.
    pub fn room(&self) -> usize {
        match self.is_sending {
            true => MAX_KNOWN.saturating_sub(self.all.len()),
            false => 0,
        }
    }

    /// Whether this one is known.
    pub fn knows(&self, session: &SessionId) -> bool {
        self.all.contains_key(session)
    }

    /// Whether none waits for its turn: it is worth a look for more.
    pub fn is_idle(&self) -> bool {
        self.ended.is_empty() && self.offered < MAX_UPLOADS
    }

    fn queue(&mut self, session: SessionId) {
        if let Some(upload) = self.all.get_mut(&session) {
            upload.state = State::Waiting;
            match upload.extent {
                Extent::Whole => self.ended.push_back(session),
                Extent::Signed { .. } => self.running.push_back(session),
            }
        }
    }

    /// The next one for the tunnel.
    pub fn next(&mut self, now: Duration) -> Option<Offer> {
        if !self.is_sending || self.offered >= MAX_UPLOADS || now < self.pause {
            return None;
        }
        let is_due = |upload: &Upload| matches!(upload.state, State::Later(due) if due <= now);
        let due = self.all.iter().filter(|(_, upload)| is_due(upload));
        for session in due.map(|(session, _)| *session).collect::<Vec<_>>() {
            self.queue(session);
        }
        let session = match !self.is_turn_of_ended {
            true => self.ended.pop_front().or_else(|| self.running.pop_front()),
            false => self.running.pop_front().or_else(|| self.ended.pop_front()),
        }?;
        self.is_turn_of_ended = !self.is_turn_of_ended;
        let upload = self.all.get_mut(&session)?;
        upload.state = State::Offered;
        upload.has_more = false;
        self.offered += 1;
        Some(Offer {
            session,
            path: upload.path.clone(),
            extent: upload.extent,
        })
    }

    /// When there is one for the tunnel that is not for it now.
    pub fn due(&self) -> Option<Duration> {
        if !self.is_sending || self.offered >= MAX_UPLOADS {
            return None;
        }
        let waits = !self.ended.is_empty() || !self.running.is_empty();
        let later = self.all.values().filter_map(|upload| match upload.state {
            State::Later(due) => Some(due.max(self.pause)),
            _ => None,
        });
        later.chain(waits.then_some(self.pause)).min()
    }

    /// The tunnel says what came of one. That all of it is kept, a proxy alone says: it counts only with a receipt that `check`
    /// finds right. Without one the recording waits as if the cluster had not taken it, and is asked about again.
    pub fn answered(
        &mut self,
        session: &SessionId,
        answer: UploadAnswer,
        now: Duration,
        check: Check<'_>,
    ) -> Option<Outcome> {
        let upload = self
            .all
            .get_mut(session)
            .filter(|of| of.state == State::Offered)?;
        self.offered = self.offered.saturating_sub(1);
        match answer {
            UploadAnswer::Kept { receipt } => {
                let is_whole = upload.extent == Extent::Whole && !upload.has_more;
                if is_whole && let Err(doubt) = check(session, &upload.path, &receipt) {
                    if doubt == Doubt::Gone {
                        self.all.remove(session);
                        return None;
                    }
                    let is_new = !std::mem::replace(&mut upload.is_told, true);
                    self.wait(session, now, Duration::ZERO);
                    return is_new.then_some(Outcome::Unproven(*session, doubt));
                }
                (self.waits, self.pause) = (0, Duration::ZERO);
                upload.tries = 0;
                if upload.has_more {
                    self.queue(*session);
                    return None;
                }
                let upload = self.all.remove(session)?;
                is_whole.then_some(Outcome::Kept(*session, upload.path))
            }
            UploadAnswer::Refused { why } => {
                self.waits = 0;
                upload.state = State::Refused;
                let (path, is_whole) = (upload.path.clone(), upload.extent == Extent::Whole);
                if is_whole {
                    self.all.remove(session);
                }
                Some(Outcome::Refused(
                    *session,
                    path,
                    why.to_string_lossy().into_owned(),
                ))
            }
            UploadAnswer::Wait { seconds, .. } => {
                self.wait(session, now, Duration::from_secs(seconds.into()));
                None
            }
        }
    }

    /// One was not kept, and waits for at least so long.
    fn wait(&mut self, session: &SessionId, now: Duration, least: Duration) {
        let Some(upload) = self.all.get_mut(session) else {
            return;
        };
        let wait = upload.later(now, least);
        self.waits += 1;
        // Not one of them, and then none at all.
        if self.waits >= MAX_UPLOADS {
            self.waits = 0;
            self.pause = now + wait.min(MAX_PAUSE);
        }
    }

    /// One that was to be sent cannot be read; `is_gone`: it is not there any more.
    pub fn unreadable(&mut self, session: &SessionId, is_gone: bool, now: Duration) {
        if let Some(upload) = self.all.get_mut(session) {
            self.offered = self.offered.saturating_sub(1);
            upload.later(now, Duration::ZERO);
            if is_gone {
                self.all.remove(session);
            }
        }
    }
}

impl Upload {
    /// It waits, for at least so long. How long.
    fn later(&mut self, now: Duration, least: Duration) -> Duration {
        let grown = WAIT.0.saturating_mul(1 << self.tries.min(16));
        let wait = grown.max(least).min(WAIT.1);
        self.tries += 1;
        self.state = State::Later(now + wait);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn session(number: usize) -> SessionId {
        u128::try_from(number).expect("small").to_be_bytes()
    }

    fn whole(uploads: &mut Uploads, number: usize) {
        uploads.grew(session(number), number.to_string().into(), Extent::Whole);
    }

    fn signed(uploads: &mut Uploads, number: usize, signed: u64) {
        let length = signed + 300;
        uploads.grew(
            session(number),
            number.to_string().into(),
            Extent::Signed { signed, length },
        );
    }

    fn offered(uploads: &mut Uploads, now: Duration) -> Vec<u8> {
        std::iter::from_fn(|| uploads.next(now))
            .map(|offer| offer.session[15])
            .collect()
    }

    fn kept() -> UploadAnswer {
        UploadAnswer::Kept {
            receipt: b"right".to_vec(),
        }
    }

    /// The answer to one, where a receipt is right that says so.
    fn answered(
        uploads: &mut Uploads,
        number: usize,
        answer: UploadAnswer,
        now: Duration,
    ) -> Option<Outcome> {
        let check = |of: &SessionId, path: &Path, receipt: &[u8]| {
            assert_eq!((of, path), (&session(number), Path::new(&number.to_string())));
            match receipt {
                b"right" => Ok(()),
                b"gone" => Err(Doubt::Gone),
                _ => Err(Doubt::Receipt("it is none".to_owned())),
            }
        };
        uploads.answered(&session(number), answer, now, &check)
    }

    fn wait(seconds: u32) -> UploadAnswer {
        UploadAnswer::Wait {
            seconds,
            why: c"full".into(),
        }
    }

    #[test]
    fn running_and_ended_ones_take_turns_and_nothing_is_sent_without_a_tunnel() {
        let mut uploads = Uploads::default();
        for number in 1..=3 {
            whole(&mut uploads, number);
            signed(&mut uploads, 10 + number, 100);
        }
        assert_eq!((offered(&mut uploads, NOW), uploads.due()), (vec![], None));
        uploads.begin(true);
        assert_eq!(offered(&mut uploads, NOW), [1, 11, 2, 12, 3, 13]);
        // The next tunnel gets all that the last one had not finished.
        assert_eq!(answered(&mut uploads, 11, kept(), NOW), None);
        let outcome = answered(&mut uploads, 2, kept(), NOW);
        assert_eq!(outcome, Some(Outcome::Kept(session(2), "2".into())));
        uploads.begin(false);
        assert!(offered(&mut uploads, NOW).is_empty());
        uploads.begin(true);
        assert_eq!(offered(&mut uploads, NOW), [1, 12, 3, 13]);
        assert_eq!(answered(&mut uploads, 2, kept(), NOW), None, "it is done");
    }

    #[test]
    fn a_running_one_is_sent_again_when_it_grew_and_ends_whole() {
        let mut uploads = Uploads::default();
        uploads.begin(true);
        signed(&mut uploads, 1, 100);
        assert_eq!(offered(&mut uploads, NOW), [1]);
        signed(&mut uploads, 1, 200);
        signed(&mut uploads, 1, 300);
        assert!(offered(&mut uploads, NOW).is_empty(), "one at a time");
        assert_eq!(answered(&mut uploads, 1, kept(), NOW), None);
        let next = uploads.next(NOW).expect("more");
        assert_eq!(
            next.extent,
            Extent::Signed {
                signed: 300,
                length: 600
            }
        );
        whole(&mut uploads, 1);
        assert_eq!(answered(&mut uploads, 1, kept(), NOW), None);
        assert_eq!(uploads.next(NOW).expect("more").extent, Extent::Whole);
        assert!(answered(&mut uploads, 1, kept(), NOW).is_some());
        assert!(!uploads.knows(&session(1)));
    }

    #[test]
    fn one_that_is_not_kept_waits_longer_each_time_and_holds_up_no_other() {
        let mut uploads = Uploads::default();
        uploads.begin(true);
        whole(&mut uploads, 1);
        let (mut now, mut waits) = (NOW, Vec::new());
        for _ in 0..12 {
            assert_eq!(offered(&mut uploads, now), [1]);
            answered(&mut uploads, 1, wait(5), now);
            whole(&mut uploads, 2);
            assert_eq!(offered(&mut uploads, now), [2]);
            assert!(answered(&mut uploads, 2, kept(), now).is_some());
            let due = uploads.due().expect("later");
            waits.push((due - now).as_secs());
            now = due;
        }
        assert_eq!((waits[0], waits[2], waits[11]), (5, 8, 600));
        assert!(waits.is_sorted(), "{waits:?}");
    }

    #[test]
    fn where_nothing_is_kept_all_of_them_wait() {
        let mut uploads = Uploads::default();
        uploads.begin(true);
        for number in 1..=100 {
            whole(&mut uploads, number);
        }
        let first = offered(&mut uploads, NOW);
        assert_eq!(first.len(), MAX_UPLOADS);
        for number in first {
            answered(&mut uploads, number.into(), wait(30), NOW);
        }
        assert!(offered(&mut uploads, NOW).is_empty());
        assert_eq!(uploads.due(), Some(NOW + Duration::from_secs(30)));
        assert_eq!(
            offered(&mut uploads, NOW + Duration::from_secs(30)).len(),
            MAX_UPLOADS
        );
    }

    #[test]
    fn what_is_refused_is_not_sent_again_also_while_it_runs() {
        let mut uploads = Uploads::default();
        uploads.begin(true);
        signed(&mut uploads, 1, 100);
        whole(&mut uploads, 2);
        assert_eq!(offered(&mut uploads, NOW), [2, 1]);
        for number in [1, 2] {
            let no = UploadAnswer::Refused { why: c"no".into() };
            let refused = Outcome::Refused(session(number), number.to_string().into(), "no".to_owned());
            assert_eq!(answered(&mut uploads, number, no, NOW), Some(refused));
        }
        signed(&mut uploads, 1, 200);
        assert_eq!((offered(&mut uploads, NOW), uploads.due()), (vec![], None));
        whole(&mut uploads, 1);
        assert!(!uploads.knows(&session(1)));
    }

    #[test]
    fn a_word_without_a_receipt_keeps_nothing_and_is_told_once() {
        let mut uploads = Uploads::default();
        uploads.begin(true);
        whole(&mut uploads, 1);
        let (mut now, mut waits, mut told) = (NOW, Vec::new(), 0);
        for receipt in ["", "of another recording", "", "made up", "", "", "", "", "", ""] {
            assert_eq!(offered(&mut uploads, now), [1], "it is asked about again");
            let receipt = receipt.into();
            match answered(&mut uploads, 1, UploadAnswer::Kept { receipt }, now) {
                Some(Outcome::Unproven(of, why)) => {
                    assert_eq!((of, why), (session(1), Doubt::Receipt("it is none".to_owned())));
                    told += 1;
                }
                other => assert_eq!(other, None),
            }
            assert!(uploads.knows(&session(1)));
            // It holds up no other.
            whole(&mut uploads, 2);
            assert_eq!(offered(&mut uploads, now), [2]);
            assert!(answered(&mut uploads, 2, kept(), now).is_some());
            let due = uploads.due().expect("later");
            waits.push((due - now).as_secs());
            now = due;
        }
        assert_eq!((waits[0], waits[1], waits[9], told), (2, 4, 600, 1));
        // An honest proxy, or a key that this machine knows by now.
        assert_eq!(offered(&mut uploads, now), [1]);
        let outcome = answered(&mut uploads, 1, kept(), now);
        assert_eq!(outcome, Some(Outcome::Kept(session(1), "1".into())));
        // It went by age while it was sent: nobody's fault.
        whole(&mut uploads, 3);
        assert_eq!(offered(&mut uploads, now), [3]);
        let receipt = "gone".into();
        assert_eq!(
            answered(&mut uploads, 3, UploadAnswer::Kept { receipt }, now),
            None
        );
        assert!(!uploads.knows(&session(3)));
    }

    #[test]
    fn a_proxy_that_says_so_of_all_makes_all_of_them_wait() {
        let mut uploads = Uploads::default();
        uploads.begin(true);
        for number in 1..=100 {
            whole(&mut uploads, number);
        }
        for number in offered(&mut uploads, NOW) {
            let lie = UploadAnswer::Kept { receipt: Vec::new() };
            assert!(answered(&mut uploads, number.into(), lie, NOW).is_some());
        }
        assert!(offered(&mut uploads, NOW).is_empty());
        assert_eq!(
            (uploads.due(), uploads.room()),
            (Some(NOW + WAIT.0), MAX_KNOWN - 100)
        );
    }

    #[test]
    fn of_one_that_runs_no_receipt_is_wanted() {
        let mut uploads = Uploads::default();
        uploads.begin(true);
        signed(&mut uploads, 1, 100);
        assert_eq!(offered(&mut uploads, NOW), [1]);
        // It ends meanwhile: this answer is about what was signed before.
        whole(&mut uploads, 1);
        let receipt = Vec::new();
        assert_eq!(
            answered(&mut uploads, 1, UploadAnswer::Kept { receipt }, NOW),
            None
        );
        assert_eq!(offered(&mut uploads, NOW), [1]);
        assert!(answered(&mut uploads, 1, kept(), NOW).is_some());
    }

    #[test]
    fn as_many_are_known_as_there_is_room_for_and_one_that_is_gone_is_forgotten() {
        let mut uploads = Uploads::default();
        assert_eq!(uploads.room(), 0, "nobody would send them");
        uploads.begin(true);
        assert_eq!((uploads.room(), uploads.is_idle()), (MAX_KNOWN, true));
        whole(&mut uploads, 1);
        whole(&mut uploads, 2);
        assert_eq!((uploads.room(), uploads.is_idle()), (MAX_KNOWN - 2, false));
        assert_eq!(offered(&mut uploads, NOW), [1, 2]);
        uploads.unreadable(&session(1), true, NOW);
        uploads.unreadable(&session(2), false, NOW);
        assert_eq!(uploads.room(), MAX_KNOWN - 1);
        assert_eq!(offered(&mut uploads, NOW + WAIT.0), [2]);
    }
}
