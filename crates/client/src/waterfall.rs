//! Where the time of a connection went: the client's own steps, and what proxy and node told of theirs, as a picture or
//! as JSON. Clocks differ, so what others tell is laid by its middle into the middle of the wait that it belongs to.

use crate::timings::{Step, Timings};
use fleetgate_policy::text::is_unseen;
use fleetgate_proto::v1::Span;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Characters of a bar's field.
const WIDTH: usize = 40;
/// Names and places are cut beyond this: what others tell is laid out in columns.
const MAX_NAME: usize = 32;

/// One line of the picture.
#[derive(Clone, Debug, PartialEq)]
struct Bar {
    place: String,
    name: String,
    /// Nanoseconds since the client began.
    start: i128,
    length: i128,
    round_trips: u32,
    leg: String,
    requests: Vec<&'static str>,
}

/// All of one connection, on the client's clock.
#[derive(Clone, Debug)]
pub struct Waterfall {
    bars: Vec<Bar>,
    round_trips: BTreeMap<String, u32>,
    total: i128,
}

impl Waterfall {
    /// From the client's own steps and what the others told. `through` a proxy, what goes to the node goes both legs.
    pub fn new(timings: &Timings, spans: &[Span], through: bool) -> Waterfall {
        let steps = timings.steps();
        let begin = steps.first().map_or(0, |s| i128::from(s.start));
        let end = steps.iter().map(|s| i128::from(s.end)).max().unwrap_or(begin);
        let mut round_trips = BTreeMap::new();
        for step in steps.iter().filter(|s| s.round_trips > 0) {
            let legs: &[&str] = match (step.leg, through) {
                ("client-node", true) => &["client-proxy", "proxy-node"],
                (leg, _) => &[leg],
            };
            for leg in legs {
                *round_trips.entry((*leg).to_owned()).or_default() += step.round_trips;
            }
        }
        let mut bars: Vec<Bar> = steps.iter().map(|step| own(step, begin)).collect();
        for place in places(spans) {
            bars.extend(told(spans, &place, steps, begin));
        }
        Waterfall {
            bars,
            round_trips,
            total: end - begin,
        }
    }

    /// As a picture. `ran`: the command did, and ended.
    pub fn text(&self, node: &str, ran: bool) -> String {
        let trips: Vec<String> = self
            .round_trips
            .iter()
            .map(|(leg, n)| format!("{n} {leg}"))
            .collect();
        let mut out = format!(
            "{node}: {} ms until {}; round trips: {}\n",
            milliseconds(self.total),
            if ran { "the command ran" } else { "it failed" },
            if trips.is_empty() {
                "none".to_owned()
            } else {
                trips.join(" + ")
            }
        );
        let widest = |of: fn(&Bar) -> usize| self.bars.iter().map(of).max().unwrap_or(0);
        let (places, names) = (
            widest(|b| b.place.chars().count()),
            widest(|b| b.name.chars().count()),
        );
        for bar in &self.bars {
            let trips = match bar.round_trips {
                0 => String::new(),
                n => format!("{n} {}", bar.leg),
            };
            let _ = write!(
                out,
                "  {:places$}  {:names$}  {:>9} ms  {:14}  |{}|",
                bar.place,
                bar.name,
                milliseconds(bar.length),
                trips,
                self.drawn(bar)
            );
            if !bar.requests.is_empty() {
                let _ = write!(out, "  {}", bar.requests.join(", "));
            }
            out.push('\n');
        }
        out
    }

    /// For programs.
    pub fn json(&self, node: &str) -> Value {
        let ms = |ns: i128| ns as f64 / 1e6;
        let spans: Vec<Value> = self
            .bars
            .iter()
            .map(|b| {
                json!({
                    "place": b.place, "name": b.name, "start_ms": ms(b.start), "ms": ms(b.length),
                    "round_trips": b.round_trips, "leg": b.leg, "requests": b.requests,
                })
            })
            .collect();
        json!({ "node": node, "ms": ms(self.total), "round_trips": self.round_trips, "spans": spans })
    }

    fn drawn(&self, bar: &Bar) -> String {
        let total = self.total.max(1);
        let at = |ns: i128| usize::try_from(ns.clamp(0, total) * WIDTH as i128 / total).unwrap_or(WIDTH);
        let from = at(bar.start).min(WIDTH - 1);
        let to = at(bar.start + bar.length).clamp(from + 1, WIDTH);
        format!(
            "{}{}{}",
            " ".repeat(from),
            "=".repeat(to - from),
            " ".repeat(WIDTH - to)
        )
    }
}

fn own(step: &Step, begin: i128) -> Bar {
    Bar {
        place: "client".into(),
        name: step.name.into(),
        start: i128::from(step.start) - begin,
        length: i128::from(step.end.saturating_sub(step.start)),
        round_trips: step.round_trips,
        leg: step.leg.into(),
        requests: step.requests.clone(),
    }
}

/// Who told something, in the order in which bytes meet them.
fn places(spans: &[Span]) -> Vec<String> {
    let mut places: Vec<String> = Vec::new();
    for span in spans {
        if !places.contains(&span.place) {
            places.push(span.place.clone());
        }
    }
    let rank = |place: &String| {
        ["proxy", "node", "helper"]
            .iter()
            .position(|p| p == place)
            .unwrap_or(3)
    };
    places.sort_by_key(rank);
    places
}

/// What one place told, on the client's clock.
fn told(spans: &[Span], place: &str, steps: &[Step], begin: i128) -> Vec<Bar> {
    let mut own: Vec<&Span> = spans.iter().filter(|s| s.place == place).collect();
    own.sort_by_key(|s| (s.start, s.end));
    let first = own.iter().map(|s| i128::from(s.start)).min().unwrap_or(0);
    let last = own
        .iter()
        .map(|s| i128::from(s.end.max(s.start)))
        .max()
        .unwrap_or(first);
    // The wait that it happened in: for the key exchange, if it fits in there, else from there to the command.
    let waits: Vec<&Step> = steps.iter().filter(|s| s.leg == "client-node").collect();
    let (from, to) = match (waits.first(), waits.last()) {
        (Some(one), Some(_)) if last - first <= i128::from(one.end.saturating_sub(one.start)) => {
            (one.start, one.end)
        }
        (Some(one), Some(all)) => (one.start, all.end),
        _ => (0, 0),
    };
    let ahead = (first + last) / 2 - (i128::from(from) + i128::from(to)) / 2;
    own.iter()
        .map(|span| Bar {
            place: cut(&span.place),
            name: cut(&span.name),
            start: i128::from(span.start) - ahead - begin,
            length: i128::from(span.end.saturating_sub(span.start)),
            round_trips: span.round_trips,
            leg: cut(&span.leg),
            requests: Vec::new(),
        })
        .collect()
}

/// What others call something, as a column takes it.
fn cut(name: &str) -> String {
    name.chars().filter(|c| !is_unseen(*c)).take(MAX_NAME).collect()
}

fn milliseconds(ns: i128) -> String {
    format!("{:.1}", ns as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> u64 {
        1_000_000_000 + n * 1_000_000
    }

    fn ledger() -> Timings {
        Timings::of(vec![
            step("tcp", "client-proxy", 0, 60),
            step("tls", "client-proxy", 60, 120),
            step("key exchange", "client-node", 120, 240),
            step("login and command", "client-node", 240, 360),
        ])
    }

    fn step(name: &'static str, leg: &'static str, start: u64, end: u64) -> Step {
        Step {
            name,
            leg,
            start: ms(start),
            end: ms(end),
            round_trips: 1,
            requests: vec!["asked"],
        }
    }

    fn span(place: &str, name: &str, start: u64, end: u64) -> Span {
        Span {
            place: place.into(),
            name: name.into(),
            start,
            end,
            ..Span::default()
        }
    }

    #[test]
    fn round_trips_are_counted_by_leg() {
        let waterfall = Waterfall::new(&ledger(), &[], true);
        let trips: Vec<_> = waterfall
            .round_trips
            .iter()
            .map(|(l, n)| (l.as_str(), *n))
            .collect();
        assert_eq!(trips, [("client-proxy", 4), ("proxy-node", 2)]);
        let text = waterfall.text("web1", true);
        assert!(
            text.starts_with(
                "web1: 360.0 ms until the command ran; round trips: 4 client-proxy + 2 proxy-node\n"
            ),
            "{text}"
        );
        let direct = Waterfall::new(&Timings::of(vec![step("tcp", "client-node", 0, 1)]), &[], false);
        assert_eq!(direct.round_trips.get("client-node"), Some(&1));
        let value = waterfall.json("web1");
        assert_eq!(value["round_trips"]["client-proxy"], 4);
        assert_eq!(value["spans"][2]["start_ms"], 120.0);
    }

    #[test]
    fn clocks_that_differ_are_laid_over_each_other() {
        // The proxy's clock is a day behind, the node's a year ahead, and one that tells nonsense breaks nothing.
        let spans = [
            span("node", "all", u64::MAX - ms(200), u64::MAX - ms(20)),
            span("proxy", "decide", 5_000_000, 15_000_000),
            span("proxy", "open a stream", 15_000_000, 85_000_000),
            span("helper", "backwards", 10, 5),
        ];
        let waterfall = Waterfall::new(&ledger(), &spans, true);
        let of = |name: &str| waterfall.bars.iter().find(|b| b.name == name).unwrap();
        // 80 ms in the middle of the key exchange's 120: from 140 to 220.
        assert_eq!(
            (of("decide").start, of("decide").length),
            (140_000_000, 10_000_000)
        );
        assert_eq!(of("open a stream").start, 150_000_000);
        // 180 ms are longer than the key exchange: in the middle of 120 to 360.
        assert_eq!((of("all").start, of("all").length), (150_000_000, 180_000_000));
        assert_eq!(of("backwards").length, 0);
        let places: Vec<_> = waterfall.bars.iter().skip(4).map(|b| b.place.as_str()).collect();
        assert_eq!(places, ["proxy", "proxy", "node", "helper"]);
        for line in waterfall.text("web1", true).lines().skip(1) {
            let field = line.split('|').nth(1).unwrap();
            assert_eq!(field.len(), WIDTH, "{line}");
        }
    }
}
