//! The fallback chain of one source. Its strategies are proven by running, kept while they work, left when the image itself fails.
//!
//! Who may move it: nobody but the kernel and the operator's own security software. A death is the image's fault
//! only if the probe, run as root from the same image, dies too; a machine that is short of memory, processes or
//! descriptors proves nothing; a launch-time refusal of one file does not move the chain for the others.

mod candidate;
mod options;
mod outcome;

pub use options::Options;
pub use outcome::{Death, Error, Verdict};

use crate::make::{self, make};
use crate::refusal::{Cause, Failure, Refusal, Step};
use crate::report::{Move, Report, StrategyReport};
use crate::{Image, Source, Strategy, probe};
use candidate::{Candidate, Standing, WorkingImage, is_settled, unchanged};
use fleetgate_sys::{Errno, exe};
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime};

/// The strategies of one source. Shared by reference between threads; no call holds up another one's [`FallbackChain::image`]
/// while a probe runs.
#[derive(Debug)]
pub struct FallbackChain {
    source: Source,
    name: Arc<CStr>,
    options: Options,
    state: Mutex<State>,
    /// Held while something is proven, so that a hundred failing launches make one probe.
    proving: Mutex<()>,
}

#[derive(Debug)]
struct State {
    candidates: Vec<Candidate>,
    current: usize,
    moves: VecDeque<Move>,
    /// When the probe last ran from the current strategy's image and found nothing wrong.
    fine: Option<Instant>,
    climb_at: Option<Instant>,
    climb_wait: Duration,
}

/// Moves that are remembered for the report.
const MOVES: usize = 32;
/// A probe that found nothing wrong speaks for this long.
const FINE_FOR: Duration = Duration::from_secs(1);
/// How long a probe stays alive to be noticed by whoever killed a program: four times as long as that one had lived,
/// within these bounds.
const LINGER: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

impl FallbackChain {
    /// Proves strategy after strategy and stands on the first that works.
    pub fn open(source: Source, options: Options) -> Result<FallbackChain, Error> {
        let mut options = options;
        if options.container {
            options.order.retain(|s| Strategy::CONTAINER.contains(s));
        }
        if let Source::Embedded(e) = &source {
            options.installed.get_or_insert_with(|| e.installed_path());
        }
        let name = options.name.clone().unwrap_or_else(|| match &source {
            Source::Embedded(e) => CString::new(e.name).unwrap_or_default(),
            _ => c"fleetgate-session".to_owned(),
        });
        let candidates = options
            .order
            .iter()
            .map(|&strategy| Candidate {
                strategy,
                places: make::places(
                    strategy,
                    &source,
                    options.installed.as_deref(),
                    &options.directories,
                ),
                standing: Standing::Untried,
                refusals: Vec::new(),
                linger: Duration::ZERO,
            })
            .collect();
        let state = State {
            candidates,
            current: 0,
            moves: VecDeque::new(),
            fine: None,
            climb_at: None,
            climb_wait: options.climb_after,
        };
        let chain = FallbackChain {
            source,
            name: name.into(),
            options,
            state: Mutex::new(state),
            proving: Mutex::new(()),
        };
        for candidate in 0..chain.options.order.len() {
            if chain.prove(candidate) {
                let mut state = chain.state();
                state.current = candidate;
                chain.log_choice(&state);
                drop(state);
                return Ok(chain);
            }
        }
        let refusals = chain.all_refusals(&chain.state());
        Err(Error::NoStrategy {
            source: chain.source.describe(),
            refusals,
        })
    }

    /// An image to launch from: the cached one, or, where root could write to it, a fresh one.
    pub fn image(&self) -> Result<Arc<Image>, Error> {
        loop {
            let (strategy, place) = {
                let mut state = self.state();
                let current = state.current;
                let candidate = &mut state.candidates[current];
                let strategy = candidate.strategy;
                let Standing::Works(held) = &mut candidate.standing else {
                    // The last strategy there is was accused and nothing lies below: it is tried all the same.
                    let place = candidate.places.first().cloned().flatten();
                    drop(state);
                    return self
                        .make_one(strategy, place)
                        .map_err(|f| Error::Make(f.of(strategy)));
                };
                if let Some(image) = &held.image {
                    if strategy != Strategy::Installed || unchanged(&self.source, image, &mut held.seen) {
                        return Ok(image.clone());
                    }
                    let failed = Failure::because(
                        Step::CheckDigest,
                        "the installed file was written to while in use and is another program now",
                    );
                    drop(state);
                    if self.leave(strategy, failed) == Verdict::NoStrategyLeft {
                        return Err(self.no_strategy());
                    }
                    continue;
                }
                (strategy, held.place.clone())
            };
            return self
                .make_one(strategy, place)
                .or_else(|failed| self.make_elsewhere(failed.of(strategy)));
        }
    }

    /// Tells that a program started from `image` died before its work began. The probe decides; see the top.
    pub fn image_failed(&self, image: &Image, death: Death) -> Verdict {
        let _proving = self.proving.lock().unwrap_or_else(PoisonError::into_inner);
        let from = image.strategy();
        {
            let state = self.state();
            let to = state.candidates[state.current].strategy;
            if to != from {
                return Verdict::Moved { from, to };
            }
            let fresh = state.fine.is_some_and(|at| at.elapsed() < FINE_FOR);
            if fresh && !matches!(death, Death::Exec(_)) {
                return Verdict::ImageIsFine;
            }
        }
        let linger = match death {
            Death::Exec(_) => Duration::ZERO,
            Death::Killed { lived, .. } | Death::Exited { lived, .. } => {
                lived.saturating_mul(4).clamp(LINGER.0, LINGER.1)
            }
        };
        let failed = match probe::run(image, &self.options.probe, linger) {
            Ok(()) => {
                self.state().fine = Some(Instant::now());
                return Verdict::ImageIsFine;
            }
            Err(failed) if is_shortage(&failed) => {
                tracing::warn!(
                    image = %self.name.to_string_lossy(), strategy = %from, why = %failed.cause,
                    "a launch failed and so did the probe, for want of something else than the image"
                );
                return Verdict::ImageIsFine;
            }
            Err(failed) => failed,
        };
        if let Some(candidate) = self.state().candidates.iter_mut().find(|r| r.strategy == from) {
            candidate.linger = linger;
        }
        self.leave_proving(from, failed)
    }

    /// Tries the strategies above the current one again, when it is time. To be called now and then by a thread that has
    /// nothing better to do. The move, if there was one.
    pub fn climb(&self) -> Option<Move> {
        let _proving = match self.proving.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let current = {
            let mut state = self.state();
            if state.climb_at.is_none_or(|at| Instant::now() < at) {
                return None;
            }
            // Until it fails again the next try is as far away as this one was.
            state.climb_at = Some(Instant::now() + state.climb_wait);
            state.current
        };
        let to = (0..current).find(|&candidate| self.prove(candidate))?;
        let mut state = self.state();
        let made = self.note_move(&mut state, to, "it works again");
        if to == 0 {
            state.climb_at = None;
        }
        Some(made)
    }

    /// Proves what nobody has tried yet, for a full report. Moves nothing.
    pub fn examine(&self) {
        let _proving = self.proving.lock().unwrap_or_else(PoisonError::into_inner);
        for candidate in 0..self.options.order.len() {
            if matches!(self.state().candidates[candidate].standing, Standing::Untried) {
                self.prove(candidate);
            }
        }
    }

    /// Every strategy and how it stands.
    pub fn report(&self) -> Report {
        let state = self.state();
        let strategies = Strategy::ALL
            .into_iter()
            .map(
                |strategy| match state.candidates.iter().find(|r| r.strategy == strategy) {
                    Some(candidate) => candidate.report(),
                    None => StrategyReport {
                        strategy,
                        available: Some(false),
                        why: if self.options.container {
                            "root inside a container could write to it".to_owned()
                        } else {
                            "not among the strategies asked for".to_owned()
                        },
                        place: None,
                        refusals: Vec::new(),
                    },
                },
            )
            .collect();
        Report {
            name: self.name.to_string_lossy().into_owned(),
            source: self.source.describe(),
            current: state.candidates[state.current].strategy,
            strategies,
            moves: state.moves.iter().cloned().collect(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries every place of a strategy; whether one works. Holds no lock while the probe runs.
    fn prove(&self, candidate: usize) -> bool {
        let (strategy, places, linger) = {
            let state = self.state();
            let candidate = &state.candidates[candidate];
            (candidate.strategy, candidate.places.clone(), candidate.linger)
        };
        let mut refusals = Vec::new();
        let mut works = None;
        if places.is_empty() {
            let why = "only an embedded program has an installed copy to compare with";
            refusals.push(Failure::because(Step::Applies, why).of(strategy));
        }
        for place in places {
            let made =
                self.make_one(strategy, place.clone())
                    .and_then(|image| match self.options.launches_once {
                        true => Ok(image),
                        false => probe::run(&image, &self.options.probe, linger).map(|()| image),
                    });
            match made {
                Ok(image) => {
                    let seen = (strategy == Strategy::Installed)
                        .then(|| exe::identity(image.fd()).ok().map(|i| (i, is_settled(&i))))
                        .flatten();
                    works = Some(WorkingImage {
                        place,
                        image: strategy.is_shared().then_some(image),
                        seen,
                    });
                    break;
                }
                Err(failed) => refusals.push(match (&failed.path, place) {
                    (None, Some(place)) => failed.at(place).of(strategy),
                    _ => failed.of(strategy),
                }),
            }
        }
        for refusal in &refusals {
            tracing::info!(image = %self.name.to_string_lossy(), strategy = %strategy, why = %refusal.why(),
                "not used for executable images");
        }
        let mut state = self.state();
        let candidate = &mut state.candidates[candidate];
        candidate.refusals = refusals;
        candidate.standing = match works {
            Some(held) => Standing::Works(held),
            None => Standing::Refused,
        };
        matches!(candidate.standing, Standing::Works(_))
    }

    fn make_one(&self, strategy: Strategy, place: Option<PathBuf>) -> Result<Arc<Image>, Failure> {
        let fd = make(strategy, &self.source, place.as_deref())?;
        Ok(Arc::new(Image {
            fd,
            strategy,
            name: self.name.clone(),
            place: place.map(Arc::from),
        }))
    }

    /// A per-launch file could not be made in the place that had worked (a full disk, say): the strategy's other places,
    /// then the strategies below, for this launch alone. Nothing moves: a user can fill a disk.
    fn make_elsewhere(&self, first: Refusal) -> Result<Arc<Image>, Error> {
        let below: Vec<(Strategy, Vec<Option<PathBuf>>)> = {
            let state = self.state();
            state.candidates[state.current..]
                .iter()
                .map(|r| (r.strategy, r.places.clone()))
                .collect()
        };
        for (strategy, places) in below {
            for place in places {
                if let Ok(image) = self.make_one(strategy, place) {
                    tracing::warn!(image = %self.name.to_string_lossy(), why = %first, instead = %strategy,
                        "an executable image could not be made where it usually is");
                    return Ok(image);
                }
            }
        }
        Err(Error::Make(first))
    }

    fn leave(&self, from: Strategy, failed: Failure) -> Verdict {
        let _proving = self.proving.lock().unwrap_or_else(PoisonError::into_inner);
        self.leave_proving(from, failed)
    }

    /// Goes down from `from`, unless somebody did so already. The caller holds `proving`.
    fn leave_proving(&self, from: Strategy, failed: Failure) -> Verdict {
        let current = {
            let mut state = self.state();
            let current = state.current;
            let candidate = &mut state.candidates[current];
            if candidate.strategy != from {
                return Verdict::Moved {
                    from,
                    to: candidate.strategy,
                };
            }
            candidate.refusals = vec![failed.clone().of(from)];
            current
        };
        let Some(to) = (current + 1..self.options.order.len()).find(|&candidate| self.prove(candidate))
        else {
            tracing::error!(image = %self.name.to_string_lossy(), strategy = %from, why = %failed.cause,
                "an executable image fails at run time and no other strategy works");
            return Verdict::NoStrategyLeft;
        };
        let mut state = self.state();
        state.candidates[current].standing = Standing::Refused;
        let why = failed.of(from).why();
        let made = self.note_move(&mut state, to, &why);
        let again = state.climb_at.is_some();
        if again {
            state.climb_wait = (state.climb_wait * 2).min(self.options.climb_after * 64);
        }
        state.climb_at = Some(Instant::now() + state.climb_wait);
        Verdict::Moved { from, to: made.to }
    }

    /// Notes and tells a move.
    fn note_move(&self, state: &mut State, to: usize, why: &str) -> Move {
        let made = Move {
            from: state.candidates[state.current].strategy,
            to: state.candidates[to].strategy,
            when: SystemTime::now(),
            why: why.to_owned(),
        };
        tracing::warn!(image = %self.name.to_string_lossy(), from = %made.from, to = %made.to, why,
            "executable images come from another strategy now");
        state.current = to;
        state.fine = None;
        if state.moves.len() == MOVES {
            state.moves.pop_front();
        }
        state.moves.push_back(made.clone());
        made
    }

    fn log_choice(&self, state: &State) {
        let candidate = &state.candidates[state.current];
        tracing::info!(image = %self.name.to_string_lossy(), strategy = %candidate.strategy,
            source = %self.source.describe(), place = ?candidate.report().place, "executable images");
    }

    fn all_refusals(&self, state: &State) -> Vec<Refusal> {
        state
            .candidates
            .iter()
            .flat_map(|r| r.refusals.iter().cloned())
            .collect()
    }

    fn no_strategy(&self) -> Error {
        Error::NoStrategy {
            source: self.source.describe(),
            refusals: self.all_refusals(&self.state()),
        }
    }
}

/// Whether a step failed for want of something that comes back, and that a user can use up.
fn is_shortage(failed: &Failure) -> bool {
    matches!(
        failed.cause,
        Cause::Errno(
            Errno::EAGAIN
                | Errno::ENOMEM
                | Errno::EMFILE
                | Errno::ENFILE
                | Errno::ENOSPC
                | Errno::EDQUOT
                | Errno::EINTR
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<FallbackChain>();
    }

    #[test]
    fn containers_take_two_strategies_only() {
        let options = Options {
            container: true,
            order: vec![Strategy::Plain, Strategy::Tmpfile],
            ..Options::default()
        };
        let error = FallbackChain::open(Source::Itself, options).expect_err("no strategy is left");
        assert!(matches!(error, Error::NoStrategy { refusals, .. } if refusals.is_empty()));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let source = Source::File(PathBuf::from("/nowhere/at/all"));
        let error = FallbackChain::open(source, Options::default()).expect_err("no such file");
        let text = error.to_string();
        assert!(
            text.contains("/nowhere/at/all: No such file or directory (ENOENT)"),
            "{text}"
        );
    }
}
