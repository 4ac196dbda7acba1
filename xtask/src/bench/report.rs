//! What a benchmark leaves behind: rows and promises, as a table for people and as JSON for everything else. The
//! JSON has one form for all benchmarks, so that SPECIFICATION.md, plots and checks read one thing.

use super::{Goal, Promised};
use crate::figures;
use crate::shell::{Result, heading, output, root, target, write};
use serde_json::{Value, json};
use std::process::Command;

/// One subject of one case.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was done.
    pub case: String,
    /// By whom.
    pub subject: String,
    /// How often.
    pub n: usize,
    /// The middle of the samples.
    pub median: f64,
    /// What nine of ten samples stay below.
    pub p90: f64,
    /// Of `median` and `p90`.
    pub unit: &'static str,
}

/// A promise after it was measured.
#[derive(Clone, Debug)]
pub struct Promise {
    /// Its name.
    pub name: &'static str,
    /// What was measured.
    pub ratio: f64,
    /// What it has to be.
    pub goal: Goal,
    /// Whether it is.
    pub holds: bool,
}

impl Row {
    /// The row of these samples.
    pub fn of(case: &str, subject: &str, unit: &'static str, mut samples: Vec<f64>) -> Row {
        samples.sort_by(f64::total_cmp);
        Row {
            case: case.to_owned(),
            subject: subject.to_owned(),
            n: samples.len(),
            median: quantile(&samples, 0.5),
            p90: quantile(&samples, 0.9),
            unit,
        }
    }

    /// The row in the table.
    pub fn line(&self) -> String {
        format!(
            "{:<34} {:<30} n={:<6} median {:>11} p90 {:>11} {}",
            self.case,
            self.subject,
            self.n,
            figure(self.median),
            figure(self.p90),
            self.unit
        )
    }

    fn json(&self) -> Value {
        json!({"case": self.case, "subject": self.subject, "n": self.n,
               "median": self.median, "p90": self.p90, "unit": self.unit})
    }
}

impl Promise {
    /// Judges `ratio`.
    pub fn of(promised: &Promised, ratio: f64) -> Promise {
        let holds = match promised.goal {
            Goal::AtMost(goal) => ratio <= goal,
            Goal::AtLeast(goal) => ratio >= goal,
        };
        Promise {
            name: promised.name,
            ratio,
            goal: promised.goal,
            holds,
        }
    }

    fn line(&self) -> String {
        let goal = match self.goal {
            Goal::AtMost(goal) => format!("at most {goal}"),
            Goal::AtLeast(goal) => format!("at least {goal}"),
        };
        let verdict = if self.holds { "holds" } else { "MISSED" };
        format!(
            "{verdict:<7} {:<60} {:>8} ({goal})",
            self.name,
            figure(self.ratio)
        )
    }

    fn json(&self) -> Value {
        let (Goal::AtMost(goal) | Goal::AtLeast(goal)) = self.goal;
        json!({"name": self.name, "ratio": self.ratio, "goal": goal, "holds": self.holds})
    }
}

/// Prints the promises and writes `target/bench/NAME.json`, and its plots.
pub fn finish(name: &str, quick: bool, rows: &[Row], promises: &[Promise]) -> Result {
    let (commit, machine) = (commit(), machine());
    let date = output(Command::new("date").args(["-u", "+%F"]))?;
    heading("promises");
    for promise in promises {
        println!("{}", promise.line());
    }
    println!("\n{machine}\ncommit {commit}");
    let report = json!({
        "bench": name, "date": date.trim(), "quick": quick, "commit": commit, "machine": machine,
        "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "promises": promises.iter().map(Promise::json).collect::<Vec<_>>(),
    });
    let path = target().join("bench").join(format!("{name}.json"));
    write(&path, format!("{report:#}\n").as_bytes())?;
    println!("written: {}", path.display());
    for (plot, svg) in figures::plots(name, report) {
        let path = target().join("bench").join(format!("{plot}.svg"));
        write(&path, svg.as_bytes())?;
        println!("written: {}", path.display());
    }
    Ok(())
}

/// The value below which a share `q` of the sorted samples lies; 0 of none.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return 0.0;
    };
    let at = q * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// Four digits that mean something, whatever the size.
fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn commit() -> String {
    let git = |args: &[&str]| output(Command::new("git").current_dir(root()).args(args));
    let Ok(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_ok_and(|s| !s.is_empty());
    format!("{}{}", commit.trim(), if changed { " with changes" } else { "" })
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let field = |file: &str, key: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = text
            .lines()
            .find(|l| l.starts_with(key))
            .unwrap_or_default()
            .to_owned();
        line.split_once([':', '='])
            .map(|(_, v)| v.trim().trim_matches('"').to_owned())
    };
    let text = |file: &str| {
        std::fs::read_to_string(file)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let memory = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    let memory: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
    let load = text("/proc/loadavg")
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_owned();
    format!(
        "{cores} cores, {}, {} GB, Linux {}, {}, load {load}",
        field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        (memory + (1 << 19)) >> 20,
        text("/proc/sys/kernel/osrelease"),
        field("/etc/os-release", "PRETTY_NAME").unwrap_or_else(|| "unknown system".to_owned()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ninetieths() {
        for (samples, median, p90) in [
            (vec![], 0.0, 0.0),
            (vec![7.0], 7.0, 7.0),
            (vec![3.0, 1.0], 2.0, 2.8),
            ((1..=11).rev().map(f64::from).collect(), 6.0, 10.0),
        ] {
            let row = Row::of("case", "subject", "ms", samples);
            assert!(
                (row.median - median).abs() < 1e-9 && (row.p90 - p90).abs() < 1e-9,
                "{row:?}"
            );
        }
    }

    #[test]
    fn a_goal_has_a_side() {
        let at_most = Promised {
            name: "cost",
            goal: Goal::AtMost(1.3),
        };
        let at_least = Promised {
            name: "yield",
            goal: Goal::AtLeast(1.2),
        };
        for (promised, ratio, holds) in [
            (&at_most, 1.3, true),
            (&at_most, 1.31, false),
            (&at_least, 1.2, true),
            (&at_least, 1.19, false),
        ] {
            let promise = Promise::of(promised, ratio);
            assert_eq!(promise.holds, holds, "{}", promise.line());
        }
    }

    #[test]
    fn the_json_has_the_house_form() {
        let row = Row::of("cold true", "ours", "ms", vec![1.0]);
        assert_eq!(
            row.json().to_string(),
            r#"{"case":"cold true","subject":"ours","n":1,"median":1.0,"p90":1.0,"unit":"ms"}"#
        );
        let promise = Promise::of(
            &Promised {
                name: "cold true, of sshd",
                goal: Goal::AtMost(0.3),
            },
            0.25,
        );
        assert_eq!(
            promise.json().to_string(),
            r#"{"name":"cold true, of sshd","ratio":0.25,"goal":0.3,"holds":true}"#
        );
    }
}
