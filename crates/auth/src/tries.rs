//! How failed logins count: for each user and each origin of a try by itself, so that nobody locks somebody else out. Tries
//! from where the user never logged in from are counted together as well; when there are too many of them they are slowed
//! down. It does not know who is right.

use crate::buffers::Line;
use crate::cache::{self, StateCache};
use crate::caller::{Caller, Origin};
use crate::documents::{Known, KnownSource, Tries};
use crate::error::{Refused, Result};
use crate::service::Service;
use crate::validity::SKEW;
use fleetgate_policy::cluster::Name;
use fleetgate_store::Step;
use std::time::Duration;

/// Logins that may fail one after the other before the next has to wait.
pub const FREE_TRIES: u32 = 5;
/// The longest wait, in seconds.
pub const MAX_WAIT: u64 = 300;
/// After so long without a try all is forgotten, in seconds.
pub const FORGOTTEN: u64 = 3600;
/// The most pairs of user and origin whose failures are kept; the oldest one goes.
pub const MAX_TRIED: usize = 16_384;
/// The most sources that are remembered of a user; the oldest one goes.
pub const MAX_KNOWN: usize = 8;
/// How long a source is remembered after the last login from it, in seconds.
pub const KNOWN_FOR: u64 = 90 * 86_400;
/// How long a try is held that is slowed.
pub const SLOWED: Duration = Duration::from_secs(4);
/// The most entries of a user that are removed with his password.
const FORGET_AT_ONCE: usize = 32;

impl Service {
    /// Counts a try as failed until it has succeeded, so that many at once are no more than one after the other. Names that
    /// nobody has count like others. Answers in which line the try waits for its turn.
    pub(crate) async fn count_try(&self, name: &Name, origin: &Origin) -> Result<Line> {
        let known = self.is_known(name, origin);
        if !known {
            let before = self.tries(name, origin);
            self.may_try(&before)?;
            self.slow_down(name).await?;
        }
        loop {
            let steps = self.plan_try(name, origin)?;
            if self.ledger.attempt(steps, Vec::new()).await? {
                break;
            }
        }
        Ok(match (known, origin) {
            (false, Origin::Source(source)) => Line::Source(*source),
            _ => Line::Known(format!("{name} {origin}")),
        })
    }

    /// What a success changes: its origin begins anew, and its source is known from now on.
    pub(crate) fn succeeded(&self, name: &Name, origin: &Origin, caller: &Caller) -> Vec<Step> {
        let now = self.now();
        let mut known = {
            let cache = self.cache();
            let stored = cache.known.get(name.as_str());
            stored.map_or(Known::default(), |s| s.document.clone())
        };
        let source = Origin::of(caller).to_string();
        known
            .sources
            .retain(|k| k.source != source && now < k.last.saturating_add(KNOWN_FOR));
        known.sources.insert(0, KnownSource { source, last: now });
        known.sources.truncate(MAX_KNOWN);
        vec![
            Step::delete(key(name, origin)),
            cache::put(cache::key(&["known", name.as_str()]), &known),
        ]
    }

    /// Whether the user has logged in from there, or has proven who he is already.
    fn is_known(&self, name: &Name, origin: &Origin) -> bool {
        let Origin::Source(_) = origin else {
            return true;
        };
        let (now, text, cache) = (self.now(), origin.to_string(), self.cache());
        let known = cache.known.get(name.as_str());
        known.is_some_and(|known| {
            let mut sources = known.document.sources.iter();
            sources.any(|k| k.source == text && now < k.last.saturating_add(KNOWN_FOR))
        })
    }

    fn tries(&self, name: &Name, origin: &Origin) -> Tries {
        let cache = self.cache();
        let stored = cache.tries.get(&entry(name, origin));
        stored.map_or(Tries::default(), |s| s.document)
    }

    fn may_try(&self, before: &Tries) -> Result<()> {
        match wait(before, self.now()) {
            0 => Ok(()),
            seconds => Err(Refused::later(
                "too many logins as this user have failed from here",
                seconds,
            )),
        }
    }

    /// Holds a try for a user for whom many have failed.
    async fn slow_down(&self, name: &Name) -> Result<()> {
        if self.unslowed.take(name, self.ledger.uptime()).is_ok() {
            return Ok(());
        }
        let _held = self.slowed.take(name.clone()).ok_or_else(|| {
            Refused::later(
                "very many logins as this user are failing, from many places: log in from where you did before, or with \
                 an enrolled device, or",
                SLOWED.as_secs(),
            )
        })?;
        tokio::time::sleep(SLOWED).await;
        Ok(())
    }

    fn plan_try(&self, name: &Name, origin: &Origin) -> Result<Vec<Step>> {
        let (now, cache) = (self.now(), self.cache());
        let stored = cache.tries.get(&entry(name, origin));
        let before = stored.map_or(Tries::default(), |s| s.document);
        self.may_try(&before)?;
        let failed = match now.saturating_sub(before.last) < FORGOTTEN {
            true => before.failed.saturating_add(1),
            false => 1,
        };
        let tries = Tries { failed, last: now };
        let mut steps = vec![cache::replace(
            key(name, origin),
            stored.map(|s| s.revision),
            &tries,
        )];
        if stored.is_none() && cache.tries.len() >= MAX_TRIED {
            let oldest = cache.tries.iter().min_by_key(|(_, tries)| tries.document.last);
            steps.extend(oldest.map(|(entry, _)| Step::delete(cache::key(&["tries", entry]))));
        }
        Ok(steps)
    }
}

/// Forgets what was tried as this user, and from where he has logged in.
pub fn forget(cache: &StateCache, name: &Name) -> Vec<Step> {
    let prefix = format!("{name}/");
    let entries = cache.tries.range(prefix.clone()..);
    let entries = entries.take_while(|(entry, _)| entry.starts_with(&prefix));
    let mut steps: Vec<Step> = entries
        .take(FORGET_AT_ONCE)
        .map(|(entry, _)| Step::delete(cache::key(&["tries", entry])))
        .collect();
    steps.push(Step::delete(cache::key(&["known", name.as_str()])));
    steps
}

/// Seconds until the next try. A last try that lies in the future says that the clock was set back since: how long ago it was
/// is not known, so the next one need not wait, and counts from now.
pub fn wait(tries: &Tries, now: u64) -> u64 {
    if tries.last > now.saturating_add(SKEW) {
        return 0;
    }
    let since = now.saturating_sub(tries.last);
    if tries.failed < FREE_TRIES || since >= FORGOTTEN {
        return 0;
    }
    let wait = 1u64
        .checked_shl(tries.failed - FREE_TRIES)
        .unwrap_or(MAX_WAIT)
        .min(MAX_WAIT);
    wait.saturating_sub(since)
}

fn entry(name: &Name, origin: &Origin) -> String {
    format!("{name}/{origin}")
}

fn key(name: &Name, origin: &Origin) -> fleetgate_store::Key {
    cache::key(&["tries", &entry(name, origin)])
}
