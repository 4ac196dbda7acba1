//! One strategy of a fallback chain, as far as it is known: not tried, refused, or working. What was proven of an installed
//! file holds while the file stays what it was, which is looked at here. It makes no image and runs none.

use crate::make::check_installed;
use crate::refusal::Refusal;
use crate::report::StrategyReport;
use crate::{Image, Source, Strategy};
use fleetgate_sys::exe::{self, Identity};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Time stamps of files move in steps of up to this (a timer tick, and more on network filesystems).
const STAMP_STEP_NS: i64 = 2_000_000_000;

#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) strategy: Strategy,
    pub(super) places: Vec<Option<PathBuf>>,
    pub(super) standing: Standing,
    pub(super) refusals: Vec<Refusal>,
    /// How long its probe has to stay alive: longer after a watcher was slow to kill.
    pub(super) linger: Duration,
}

#[derive(Debug)]
pub(super) enum Standing {
    Untried,
    Refused,
    Works(WorkingImage),
}

/// A strategy that works.
#[derive(Debug)]
pub(super) struct WorkingImage {
    pub(super) place: Option<PathBuf>,
    /// Where one image serves every launch.
    pub(super) image: Option<Arc<Image>>,
    /// An installed file as it was when its digest was right, and whether it had been left alone long enough by then
    /// for a later change to show in its time stamp.
    pub(super) seen: Option<(Identity, bool)>,
}

impl Candidate {
    pub(super) fn report(&self) -> StrategyReport {
        let reasons = || {
            let all: Vec<String> = self.refusals.iter().map(Refusal::why).collect();
            all.join("; ")
        };
        let (available, why, place) = match &self.standing {
            Standing::Untried => (None, "not tried: a better one works".to_owned(), None),
            Standing::Refused => (Some(false), reasons(), None),
            Standing::Works(held) => {
                let place = held.place.clone();
                let mut why = match &place {
                    Some(place) => format!("`true` runs from it, in {}", place.display()),
                    None => "`true` runs from it".to_owned(),
                };
                if !self.refusals.is_empty() {
                    why = format!("{why} (before that: {})", reasons());
                }
                (Some(true), why, place)
            }
        };
        StrategyReport {
            strategy: self.strategy,
            available,
            why,
            place,
            refusals: self.refusals.clone(),
        }
    }
}

/// Whether the file behind an installed image still is what it was. One fstat when nobody touched it. Losing its name
/// to an upgrade changes the stamp and not the bytes: then the digest is made again, and the strategy stays.
pub(super) fn unchanged(source: &Source, image: &Image, seen: &mut Option<(Identity, bool)>) -> bool {
    let Ok(now) = exe::identity(image.fd()) else {
        return false;
    };
    if *seen == Some((now, true)) {
        return true;
    }
    let settled = is_settled(&now);
    let same = check_installed(source, image.fd()).is_ok();
    *seen = Some((now, settled));
    same
}

/// Whether a change after this moment would show in the stamp.
pub(super) fn is_settled(seen: &Identity) -> bool {
    fleetgate_sys::clock::wall().as_nanos() - seen.changed_ns > STAMP_STEP_NS
}
