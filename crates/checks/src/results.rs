//! The last result of each check, what its results in a row amount to, and what is counted over all of them. What a check said is
//! kept only as far as the page of metrics needs it. It makes the page, and serves it to nobody.

use super::perfdata::{self, Item};
use super::probe::{Probe, Status, Thresholds};
use super::schedule::{Target, Turns};
use fleetgate_base::scrape::Page;
use fleetgate_check::verdict::State;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// So much of what a check says is kept while it runs, and passed on.
pub const MAX_OUTPUT: usize = 64 << 10;
/// So many items of performance data are kept of all checks together.
const MAX_ALL_ITEMS: usize = 100_000;
/// About what a check takes of the page.
const PAGE_PART: usize = 512;

/// How a check came out.
#[derive(Clone, Debug)]
pub struct CheckResult {
    /// Which one.
    pub target: Target,
    /// Its state. Which one is given away depends on those before, too ([`Status`]).
    pub raw_state: State,
    /// What it printed, and the line that says why, where the state is not its own.
    pub output: Vec<u8>,
    /// The output was longer.
    pub is_cut: bool,
    /// How long it took.
    pub time: Duration,
    /// When it ended, in milliseconds since 1970.
    pub ended: u64,
}

/// What is kept of a result.
#[derive(Debug)]
struct Last {
    raw_state: State,
    status: Status,
    time: Duration,
    ended: u64,
    items: Vec<Item>,
}

/// Numbers that others count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Starts that did not happen.
    pub skipped: u64,
    /// Results that the command file did not take.
    pub dropped: u64,
    /// When the list of nodes was last had, in seconds since 1970; 0: never.
    pub listed: u64,
}

/// What is known of a check.
#[derive(Debug, Default)]
struct Check {
    probe: Probe,
    /// None: it has not ended yet.
    last: Option<Last>,
}

/// The last results.
#[derive(Debug, Default)]
pub struct Results {
    checks: BTreeMap<Target, Check>,
    runs: [u64; 4],
    counts: Counts,
    items: usize,
    /// The page, until something changes.
    page: Option<Rc<str>>,
}

impl Results {
    /// These are checked from now on. The results of others are forgotten, and how many there were in a row.
    pub fn set(&mut self, wanted: &BTreeMap<Target, Turns>) {
        self.checks.retain(|target, _| wanted.contains_key(target));
        for target in wanted.keys() {
            if !self.checks.contains_key(target) {
                self.checks.insert(target.clone(), Check::default());
            }
        }
        let kept = self.checks.values().filter_map(|check| check.last.as_ref());
        self.items = kept.map(|last| last.items.len()).sum();
        self.page = None;
    }

    /// A check has ended. None: it is not wanted any more, and its result is nobody's.
    pub fn add(&mut self, result: &CheckResult, thresholds: Thresholds) -> Option<Status> {
        let check = self.checks.get_mut(&result.target)?;
        let status = check.probe.take(result.raw_state, thresholds);
        self.items -= check.last.as_ref().map_or(0, |last| last.items.len());
        let mut items = perfdata::parse(&result.output);
        items.truncate(MAX_ALL_ITEMS - self.items);
        items.shrink_to_fit();
        self.items += items.len();
        check.last = Some(Last {
            raw_state: result.raw_state,
            status,
            time: result.time,
            ended: result.ended,
            items,
        });
        self.runs[state_index(result.raw_state)] += 1;
        self.page = None;
        Some(status)
    }

    /// The numbers that others count.
    pub fn count(&mut self, counts: Counts) {
        if counts != self.counts {
            self.counts = counts;
            self.page = None;
        }
    }

    /// The page, in Prometheus' text form.
    pub fn page(&mut self) -> Rc<str> {
        let page = self.page.take().unwrap_or_else(|| self.make_page().into());
        self.page = Some(page.clone());
        page
    }

    fn make_page(&self) -> String {
        let mut page = Page::with_capacity(4096 + (self.checks.len() + self.items) * PAGE_PART);
        page.family(
            "check_targets",
            "gauge",
            "Checks that there are: a service on a node each.",
        );
        page.value("check_targets", &[], self.checks.len());
        /// A family: its name, its help, and its value for a check, where there is one.
        type Gauge = (&'static str, &'static str, fn(&Last) -> Option<f64>);
        let gauges: [Gauge; 5] = [
            (
                "check_state",
                "The check's state, by its thresholds: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.",
                |last| last.status.state.map(|state| state.code().into()),
            ),
            (
                "check_raw_state",
                "The state of the check's last run alone.",
                |last| Some(last.raw_state.code().into()),
            ),
            (
                "check_attempt",
                "The last runs in a row that were OK, or were not; counted up to the threshold.",
                |last| Some(last.status.attempt.into()),
            ),
            ("check_seconds", "How long the check took.", |last| {
                Some(last.time.as_secs_f64())
            }),
            (
                "check_last_run_timestamp_seconds",
                "When the check last ended, in seconds since 1970.",
                |last| Some(Duration::from_millis(last.ended).as_secs_f64()),
            ),
        ];
        for (name, help, value) in gauges {
            page.family(name, "gauge", help);
            for (target, last) in self.ended() {
                if let Some(value) = value(last) {
                    page.value(name, &place(target), value);
                }
            }
        }
        page.family(
            "check_perfdata",
            "gauge",
            "The check's performance data, in the plugin's own unit.",
        );
        for (target, last) in self.ended() {
            let [node, service] = place(target);
            for item in &last.items {
                let labels = [
                    node,
                    service,
                    ("label", item.label.as_str()),
                    ("uom", item.unit.as_str()),
                ];
                page.value("check_perfdata", &labels, Number(item.value));
            }
        }
        page.family(
            "check_runs_total",
            "counter",
            "Checks that ended, by the run's own state.",
        );
        for state in STATES {
            let name = state.name().to_ascii_lowercase();
            page.value(
                "check_runs_total",
                &[("state", &name)],
                self.runs[state_index(state)],
            );
        }
        for (name, kind, help, value) in [
            (
                "check_skipped_total",
                "counter",
                "Checks that did not begin at their time: the one before still ran, or the time was over.",
                self.counts.skipped,
            ),
            (
                "check_passive_dropped_total",
                "counter",
                "Results that the external command file did not take.",
                self.counts.dropped,
            ),
            (
                "check_nodes_timestamp_seconds",
                "gauge",
                "When the proxy last said which nodes there are, in seconds since 1970; 0: never.",
                self.counts.listed,
            ),
        ] {
            page.family(name, kind, help);
            page.value(name, &[], value);
        }
        page.text()
    }

    /// Those that have ended at least once.
    fn ended(&self) -> impl Iterator<Item = (&Target, &Last)> {
        self.checks
            .iter()
            .filter_map(|(target, check)| Some((target, check.last.as_ref()?)))
    }
}

const STATES: [State; 4] = [State::Ok, State::Warning, State::Critical, State::Unknown];

fn state_index(state: State) -> usize {
    STATES
        .iter()
        .position(|s| *s == state)
        .unwrap_or(STATES.len() - 1)
}

fn place(target: &Target) -> [(&'static str, &str); 2] {
    [
        ("node", target.node.as_str()),
        ("service", target.service.as_str()),
    ]
}

/// A number, in few characters however large or small it is.
struct Number(f64);

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.abs() {
            0.0 | 1e-6..1e15 => write!(f, "{}", self.0),
            _ => write!(f, "{:e}", self.0),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn result(node: &str, service: &str, code: i32, output: &[u8]) -> CheckResult {
        CheckResult {
            target: Target {
                node: node.to_owned(),
                service: service.to_owned(),
            },
            raw_state: State::of_code(code),
            output: output.to_vec(),
            is_cut: false,
            time: Duration::from_millis(250),
            ended: 1_800_000_000_500,
        }
    }

    fn wanted(nodes: &[&str]) -> BTreeMap<Target, Turns> {
        let turns = Turns {
            interval: 60_000,
            delay: 0,
        };
        let targets = nodes.iter().map(|node| result(node, "load", 0, b"").target);
        targets.map(|target| (target, turns)).collect()
    }

    /// Adds a result that counts at once. False: it is nobody's.
    fn add(results: &mut Results, result: &CheckResult) -> bool {
        results.add(result, Thresholds::ONE).is_some()
    }

    #[test]
    fn the_page_has_the_last_results_and_forgets_who_is_gone() {
        let mut results = Results::default();
        results.set(&wanted(&["web1", "web2", "new"]));
        assert!(add(&mut results, &result("web1", "load", 2, b"BAD|load=1")));
        let output = b"WARN|load=17.5s;15;30 'a \"b\"\\'=1e300";
        assert!(add(&mut results, &result("web1", "load", 1, output)));
        assert!(add(&mut results, &result("web2", "load", 0, b"OK")));
        assert!(!add(&mut results, &result("gone", "load", 0, b"OK")));
        results.count(Counts {
            skipped: 3,
            dropped: 4,
            listed: 5,
        });
        let page = results.page();
        for line in [
            "fleetgate_check_targets 3",
            "fleetgate_check_state{node=\"web1\",service=\"load\"} 1",
            "fleetgate_check_state{node=\"web2\",service=\"load\"} 0",
            "fleetgate_check_seconds{node=\"web1\",service=\"load\"} 0.25",
            "fleetgate_check_last_run_timestamp_seconds{node=\"web1\",service=\"load\"} 1800000000.5",
            "fleetgate_check_perfdata{node=\"web1\",service=\"load\",label=\"load\",uom=\"s\"} 17.5",
            "fleetgate_check_perfdata{node=\"web1\",service=\"load\",label=\"a \\\"b\\\"\\\\\",uom=\"\"} 1e300",
            "fleetgate_check_runs_total{state=\"ok\"} 1",
            "fleetgate_check_runs_total{state=\"warning\"} 1",
            "fleetgate_check_runs_total{state=\"critical\"} 1",
            "fleetgate_check_runs_total{state=\"unknown\"} 0",
            "fleetgate_check_skipped_total 3",
            "fleetgate_check_passive_dropped_total 4",
            "fleetgate_check_nodes_timestamp_seconds 5",
        ] {
            assert!(page.lines().any(|l| l == line), "{line} is missing:\n{page}");
        }
        assert!(!page.contains("\"new\"") && !page.contains("\"gone\""), "{page}");
        results.set(&wanted(&["web2"]));
        assert!(!results.page().contains("web1"));
        assert_eq!(results.items, 0);
    }

    #[test]
    fn the_page_has_the_state_that_counts_and_the_last_runs_own() {
        let thresholds = Thresholds {
            failure: 2,
            success: 1,
        };
        let mut results = Results::default();
        results.set(&wanted(&["web1"]));
        let bad = result("web1", "load", 2, b"BAD");
        let has = |results: &mut Results, lines: &[(&str, Option<&str>)]| {
            let page = results.page();
            for (name, value) in lines {
                let head = format!("fleetgate_check_{name}{{node=\"web1\",service=\"load\"}} ");
                let found = page.lines().find_map(|line| line.strip_prefix(&head));
                assert_eq!(found, *value, "{name}");
            }
        };
        // Nobody knows yet.
        let status = results.add(&bad, thresholds).expect("wanted");
        assert_eq!(status.state, None);
        has(
            &mut results,
            &[("state", None), ("raw_state", Some("2")), ("attempt", Some("1"))],
        );
        results.add(&result("web1", "load", 0, b"OK"), thresholds);
        results.add(&bad, thresholds);
        has(
            &mut results,
            &[
                ("state", Some("0")),
                ("raw_state", Some("2")),
                ("attempt", Some("1")),
            ],
        );
        results.add(&bad, thresholds);
        has(&mut results, &[("state", Some("2")), ("attempt", Some("2"))]);
        // A node that was forgotten has lost its count.
        results.set(&wanted(&[]));
        assert_eq!(results.add(&bad, thresholds), None);
        results.set(&wanted(&["web1"]));
        let status = results.add(&bad, thresholds).expect("wanted");
        assert_eq!((status.state, status.attempt), (None, 1));
    }

    #[test]
    fn hostile_output_never_breaks_the_page() {
        let mut results = Results::default();
        results.set(&wanted(&["web1"]));
        let many: String = (0..100_000).map(|n| format!("l{n}=1 ")).collect();
        for output in [
            &b"OK|'a\nfleetgate_check_state{node=\"other\"} 0'=1"[..],
            b"OK|\"x\"=1 \\=2 'a\"} 5'=3 {=4 '#'=6",
            b"OK|'\x00\xff\xc2\x85\xe2\x80\xa8'=1",
            many.as_bytes(),
        ] {
            let output = [b"OK|", output].concat();
            assert!(add(&mut results, &result("web1", "load", 0, &output)));
            let page = results.page();
            assert!(page.len() < 64 << 10, "{}", page.len());
            for line in page.lines() {
                let is_right = line.starts_with("# ")
                    || line.strip_prefix("fleetgate_check_").is_some_and(|rest| {
                        let (labels, value) = rest.rsplit_once(' ').expect("a value");
                        value.parse::<f64>().is_ok() && !labels.contains("other\"")
                    });
                assert!(is_right, "{line:?}");
            }
        }
    }

    #[test]
    fn items_of_all_checks_are_bounded() {
        let names: Vec<String> = (0..MAX_ALL_ITEMS / perfdata::MAX_ITEMS + 10)
            .map(|n| format!("n{n}"))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut results = Results::default();
        results.set(&wanted(&names));
        let many: String = (0..perfdata::MAX_ITEMS).map(|n| format!("l{n}=1 ")).collect();
        for _ in 0..2 {
            for name in &names {
                let output = format!("OK|{many}");
                assert!(add(&mut results, &result(name, "load", 0, output.as_bytes())));
                assert!(results.items <= MAX_ALL_ITEMS);
            }
        }
        assert_eq!(results.items, MAX_ALL_ITEMS);
    }
}
