//! What stays in the directory: recordings go when they are old, and when there are too many. Where the node is in a cluster,
//! those go first that the cluster has, and what it has not got goes last.

use super::delivered::{self, DELIVERED, Delivery};
use super::{INDEX, RECORDING, TAIL, children, session};
use fleetgate_sys::clock;
use fleetgate_wire::common::SessionId;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Recordings that ended so many days ago, or later, are not removed for want of room: who could fill the directory could
/// otherwise be rid of what he did before. Where they alone are too many, nothing more can be recorded. What the cluster has
/// may go at once.
pub const KEPT_DAYS: i64 = 7;
/// The most recordings, whatever their size: each takes an inode.
pub const MAX_RECORDINGS: u64 = 1_000_000;

/// How much may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Recordings that ended so many days ago are removed; 0: none for its age.
    pub keep_days: u32,
    /// The rest has at most so many bytes; 0: any.
    pub max_size: u64,
    /// The most recordings.
    pub max_count: u64,
    /// What is not delivered to the cluster waits.
    pub is_sending: bool,
}

/// What was removed, and what is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// So many recordings were removed.
    pub removed: u64,
    /// Their bytes.
    pub removed_bytes: u64,
    /// Of the removed ones, those that the cluster does not have and was to have.
    pub undelivered: u64,
    /// So many bytes are left.
    pub bytes: u64,
    /// More is left than may be.
    pub is_full: bool,
    /// Of what is left, what the cluster is still to get.
    pub waiting: Waiting,
    /// The oldest of those, as many as were asked for.
    pub next: Vec<(SessionId, PathBuf)>,
}

/// Recordings that have ended and are not delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the first of them ended, Unix seconds.
    pub since: Option<i64>,
}

impl Waiting {
    /// One more.
    pub(super) fn add(&mut self, bytes: u64, ended: i64) {
        self.count += 1;
        self.bytes += bytes;
        self.since = Some(self.since.map_or(ended, |since| since.min(ended)));
    }
}

/// One that has ended.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Ended {
    at: i64,
    size: u64,
    day: usize,
    session: SessionId,
    delivery: Option<bool>,
}

/// Removes what is too old or too much. Answers with at most `want` recordings that are to be sent, but for those that `knows`
/// has.
pub fn keep_within(root: &Path, bounds: &Bounds, want: usize, knows: &dyn Fn(&SessionId) -> bool) -> Kept {
    let now = clock::wall().sec;
    let days = children(root);
    let mut kept = Kept::default();
    let (mut ended, mut left) = look(&days, bounds, &mut kept.bytes);
    ended.sort();
    let days_ago = |days: i64| now - days * 86_400;
    let is_old = |one: &Ended| bounds.keep_days > 0 && one.at < days_ago(bounds.keep_days.into());
    let is_delivered = |one: &Ended| one.delivery == Some(true);
    let may_go = |one: &Ended| one.at < days_ago(KEPT_DAYS);
    let is_full =
        |bytes: u64, left: u64| bounds.max_size > 0 && bytes > bounds.max_size || left > bounds.max_count;
    // The order in which they go: for their age, then what the cluster has, then all others.
    for turn in 0..3 {
        ended.retain(|one| {
            let goes = match turn {
                0 => is_old(one),
                1 => is_delivered(one) && is_full(kept.bytes, left),
                _ => may_go(one) && is_full(kept.bytes, left),
            };
            let path = days[one.day]
                .join(super::name(&one.session))
                .with_extension(RECORDING);
            if !goes || fs::remove_file(&path).is_err() {
                return true;
            }
            let index = path.with_extension(INDEX);
            let index_size = fs::symlink_metadata(&index).map_or(0, |facts| facts.size());
            let _ = fs::remove_file(&index);
            kept.removed += 1;
            kept.removed_bytes += one.size + index_size;
            kept.undelivered += u64::from(bounds.is_sending && !is_delivered(one));
            kept.bytes = kept.bytes.saturating_sub(one.size + index_size);
            left -= 1;
            false
        });
    }
    kept.is_full = is_full(kept.bytes, left);
    for one in ended
        .iter()
        .filter(|one| bounds.is_sending && one.delivery.is_none())
    {
        kept.waiting.add(one.size, one.at);
        if kept.next.len() < want && !knows(&one.session) {
            let path = days[one.day].join(super::name(&one.session));
            kept.next.push((one.session, path.with_extension(RECORDING)));
        }
    }
    remove_empty(&days);
    kept
}

/// All that have ended, and how many recordings there are; the bytes of all files are added to `bytes`.
fn look(days: &[PathBuf], bounds: &Bounds, bytes: &mut u64) -> (Vec<Ended>, u64) {
    let (mut ended, mut count) = (Vec::new(), 0);
    for (day, directory) in days.iter().enumerate() {
        let delivered = match bounds.is_sending {
            true => delivered::of(directory),
            false => Default::default(),
        };
        let first = ended.len();
        let mut running = BTreeSet::new();
        for path in children(directory) {
            let Ok(facts) = fs::symlink_metadata(&path) else {
                continue;
            };
            *bytes += facts.size();
            let named = path.file_stem().and_then(|name| session(name.to_str()?));
            let (Some(session), Some(ending)) = (named, path.extension()) else {
                continue;
            };
            if ending == TAIL {
                running.insert(session);
            }
            if ending == RECORDING {
                count += 1;
                ended.push(Ended {
                    at: facts.mtime(),
                    size: facts.size(),
                    day,
                    session,
                    delivery: delivered.get(&session).map(|d| *d == Delivery::Kept),
                });
            }
        }
        let mut place = 0;
        ended.retain(|one| {
            place += 1;
            place <= first || !running.contains(&one.session)
        });
    }
    (ended, count)
}

/// Days that have nothing left; others are not empty, which the kernel says. Today's may be about to have something.
fn remove_empty(days: &[PathBuf]) {
    let today = clock::rfc3339(clock::wall(), 0);
    for day in days {
        if day
            .file_name()
            .is_some_and(|name| name.as_bytes() == &today.as_bytes()[..10])
        {
            continue;
        }
        let list = day.join(DELIVERED);
        if children(day) == [list.clone()] {
            let _ = fs::remove_file(list);
        }
        let _ = fs::remove_dir(day);
    }
}
