//! The last result of each check, and what is counted over all of them. What a check said is kept only as far as the page of
//! metrics needs it. It makes the page, and serves it to nobody.

use super::perfdata::{self, Item};
use super::schedule::Target;
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
    /// Its state.
    pub state: State,
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
    state: State,
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

/// The last results.
#[derive(Debug, Default)]
pub struct Results {
    last: BTreeMap<Target, Option<Last>>,
    runs: [u64; 4],
    counts: Counts,
    items: usize,
    /// The page, until something changes.
    page: Option<Rc<str>>,
}

impl Results {
    /// These are checked from now on. The results of others are forgotten.
    pub fn set(&mut self, wanted: &BTreeMap<Target, u64>) {
        self.last.retain(|target, _| wanted.contains_key(target));
        for target in wanted.keys() {
            if !self.last.contains_key(target) {
                self.last.insert(target.clone(), None);
            }
        }
        let kept = self.last.values().flatten();
        self.items = kept.map(|last| last.items.len()).sum();
        self.page = None;
    }

    /// A check has ended. False: it is not wanted any more, and its result is nobody's.
    pub fn add(&mut self, result: &CheckResult) -> bool {
        let Some(place) = self.last.get_mut(&result.target) else {
            return false;
        };
        self.items -= place.as_ref().map_or(0, |last| last.items.len());
        let mut items = perfdata::parse(&result.output);
        items.truncate(MAX_ALL_ITEMS - self.items);
        items.shrink_to_fit();
        self.items += items.len();
        *place = Some(Last {
            state: result.state,
            time: result.time,
            ended: result.ended,
            items,
        });
        self.runs[state_index(result.state)] += 1;
        self.page = None;
        true
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
        let mut page = Page::with_capacity(4096 + (self.last.len() + self.items) * PAGE_PART);
        page.family(
            "check_targets",
            "gauge",
            "Checks that there are: a service on a node each.",
        );
        page.value("check_targets", &[], self.last.len());
        /// A family: its name, its help, and its value for a check.
        type Gauge = (&'static str, &'static str, fn(&Last) -> f64);
        let gauges: [Gauge; 3] = [
            (
                "check_state",
                "The check's last state: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.",
                |last| last.state.code().into(),
            ),
            ("check_seconds", "How long the check took.", |last| {
                last.time.as_secs_f64()
            }),
            (
                "check_last_run_timestamp_seconds",
                "When the check last ended, in seconds since 1970.",
                |last| Duration::from_millis(last.ended).as_secs_f64(),
            ),
        ];
        for (name, help, value) in gauges {
            page.family(name, "gauge", help);
            for (target, last) in self.ended() {
                page.value(name, &place(target), value(last));
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
            "Checks that ended, by their state.",
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
        self.last
            .iter()
            .filter_map(|(target, last)| Some((target, last.as_ref()?)))
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
            state: State::of_code(code),
            output: output.to_vec(),
            is_cut: false,
            time: Duration::from_millis(250),
            ended: 1_800_000_000_500,
        }
    }

    fn wanted(nodes: &[&str]) -> BTreeMap<Target, u64> {
        let targets = nodes.iter().map(|node| result(node, "load", 0, b"").target);
        targets.map(|target| (target, 60_000)).collect()
    }

    #[test]
    fn the_page_has_the_last_results_and_forgets_who_is_gone() {
        let mut results = Results::default();
        results.set(&wanted(&["web1", "web2", "new"]));
        assert!(results.add(&result("web1", "load", 2, b"BAD|load=1")));
        assert!(results.add(&result(
            "web1",
            "load",
            1,
            b"WARN|load=17.5s;15;30 'a \"b\"\\'=1e300"
        )));
        assert!(results.add(&result("web2", "load", 0, b"OK")));
        assert!(!results.add(&result("gone", "load", 0, b"OK")));
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
            results.add(&result("web1", "load", 0, &output));
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
                results.add(&result(name, "load", 0, format!("OK|{many}").as_bytes()));
                assert!(results.items <= MAX_ALL_ITEMS);
            }
        }
        assert_eq!(results.items, MAX_ALL_ITEMS);
    }
}
