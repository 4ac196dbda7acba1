//! Audit lines about strangers: in each window the first few events of a source and kind have a line each, the rest one sum
//! with their number and the times of the first and the last. So a log grows by a bounded amount however many strangers come.

use crate::address::Network;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// How long is summed.
pub const WINDOW: Duration = Duration::from_secs(60);
/// Sources with a sum of their own in one window; all others share one of each kind.
pub const MAX_SUMMED: usize = 64;
/// So many times the lines of strangers are those of people whom the service knows.
const LINES_OF_KNOWN: u32 = 10;
/// So many times the lines of one source are the lines of all.
const LINES_OF_ALL: u64 = 10;

/// What was not written down line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum<T> {
    /// Whose; none: of several sources.
    pub source: Option<Network>,
    /// What happened.
    pub what: &'static str,
    /// How often.
    pub count: u64,
    /// When first.
    pub first: T,
    /// When last.
    pub last: T,
}

/// Lines of strangers and, apart from them, lines of people whom the service knows, so that strangers use up none of theirs.
#[derive(Debug)]
pub struct Lines<T> {
    strangers: Sums<T>,
    known: Sums<T>,
}

/// One window's. `T` is a time of day.
#[derive(Debug)]
pub struct Sums<T> {
    lines: u32,
    ends: Option<Duration>,
    lines_of: HashMap<(Network, &'static str), u32>,
    lines_in_all: u64,
    sums: BTreeMap<(Network, &'static str), Sum<T>>,
    sources: usize,
    others: BTreeMap<&'static str, Sum<T>>,
}

impl<T: Copy> Lines<T> {
    /// So many lines for each source of strangers, kind and window.
    pub fn new(lines: u32) -> Lines<T> {
        Lines {
            strangers: Sums::new(lines),
            known: Sums::new(lines.saturating_mul(LINES_OF_KNOWN)),
        }
    }

    /// So many from now on.
    pub fn set_lines(&mut self, lines: u32) {
        self.strangers.set_lines(lines);
        self.known.set_lines(lines.saturating_mul(LINES_OF_KNOWN));
    }

    /// Whether this has a line of its own. If not it was added to a sum. `is_known`: the service knows who it is.
    pub fn has_line(
        &mut self,
        source: Network,
        what: &'static str,
        is_known: bool,
        at: T,
        now: Duration,
    ) -> bool {
        let sums = match is_known {
            true => &mut self.known,
            false => &mut self.strangers,
        };
        sums.has_line(source, what, at, now)
    }

    /// When the first window is over; none: nothing happened.
    pub fn ends(&self) -> Option<Duration> {
        [self.strangers.ends(), self.known.ends()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The sums of the windows that are over.
    pub fn take_due(&mut self, now: Duration) -> Vec<Sum<T>> {
        let both = [&mut self.strangers, &mut self.known].into_iter();
        let due = both.filter(|sums| sums.ends().is_some_and(|end| end <= now));
        due.flat_map(Sums::take).collect()
    }

    /// The sums of all windows.
    pub fn take(&mut self) -> Vec<Sum<T>> {
        self.take_due(Duration::MAX)
    }
}

impl<T: Copy> Sums<T> {
    /// So many lines for each source, kind and window.
    pub fn new(lines: u32) -> Sums<T> {
        Sums {
            lines,
            ends: None,
            lines_of: HashMap::new(),
            lines_in_all: 0,
            sums: BTreeMap::new(),
            sources: 0,
            others: BTreeMap::new(),
        }
    }

    /// So many from now on.
    pub fn set_lines(&mut self, lines: u32) {
        self.lines = lines;
    }

    /// Whether this has a line of its own. If not it was added to a sum.
    pub fn has_line(&mut self, source: Network, what: &'static str, at: T, now: Duration) -> bool {
        self.ends.get_or_insert(now + WINDOW);
        if self.lines_in_all < LINES_OF_ALL * u64::from(self.lines) {
            let lines = self.lines_of.entry((source, what)).or_default();
            if *lines < self.lines {
                *lines += 1;
                self.lines_in_all += 1;
                return true;
            }
        }
        let is_there = self
            .sums
            .range((source, "")..)
            .next()
            .is_some_and(|((s, _), _)| *s == source);
        if !is_there && self.sources < MAX_SUMMED {
            self.sources += 1;
        } else if !is_there {
            let sum = self.others.entry(what);
            sum.or_insert_with(|| Sum::none(None, what, at)).add(at);
            return false;
        }
        let sum = self.sums.entry((source, what));
        sum.or_insert_with(|| Sum::none(Some(source), what, at)).add(at);
        false
    }

    /// When this window is over; none: nothing happened in it.
    pub fn ends(&self) -> Option<Duration> {
        self.ends
    }

    /// What there is to be written down of this window, which is over.
    pub fn take(&mut self) -> Vec<Sum<T>> {
        let done = std::mem::replace(self, Sums::new(self.lines));
        done.sums.into_values().chain(done.others.into_values()).collect()
    }
}

impl<T: Copy> Sum<T> {
    fn none(source: Option<Network>, what: &'static str, at: T) -> Sum<T> {
        Sum {
            source,
            what,
            count: 0,
            first: at,
            last: at,
        }
    }

    fn add(&mut self, at: T) {
        self.count += 1;
        self.last = at;
    }
}
