//! `cargo xtask figures`: the one home of measured figures. It writes `docs/performance.md` and its plots from the runs
//! and the list in `docs/figures`, so that a clean clone makes the same page. `cargo xtask tidy` holds the page to them,
//! and every figure that another paper quotes.

mod chart;

use crate::shell::{Result, read_text, root, target, write};
use crate::tidy::{self, File, Finding};
use serde_json::Value;
use std::collections::BTreeMap;

/// Where the runs are, as benchmarks wrote them, the list of figures, the page's text and the plots.
const PLACE: &str = "docs/figures";
const PAGE: &str = "docs/performance.md";
/// The papers that may quote a figure: `0.13<!-- figure: ssh.cold -->`.
const MARK: &str = "<!-- figure: ";

/// One measured figure.
struct Figure {
    /// As every paper has it.
    text: String,
    /// Its value.
    value: f64,
    /// How many samples each subject had.
    n: String,
    /// The promise that it judges, as SPECIFICATION has it.
    promise: Option<String>,
}

/// `cargo xtask figures [NAME...]`: takes over the runs of the named benchmarks, and makes page and plots anew.
pub fn main(args: &[String]) -> Result {
    for name in args {
        let run = read_text(&target().join("bench").join(format!("{name}.json")))?;
        let json: Value = parsed(name, &run)?;
        if json["quick"] == true {
            return Err(format!(
                "{name}.json is of a quick run, which is a sanity check and no figure"
            ));
        }
        write(&root().join(PLACE).join(format!("{name}.json")), run.as_bytes())?;
    }
    for (path, text) in made(&tidy::files()?)? {
        write(&root().join(&path), text.as_bytes())?;
        println!("{path}");
    }
    Ok(())
}

/// The plots of one run; none where something that they show was left out.
pub fn plots(name: &str, run: Value) -> Vec<(&'static str, String)> {
    chart::all(&BTreeMap::from([(name.to_owned(), run)])).unwrap_or_default()
}

/// What of the page, the plots and the quoted figures does not hold, for `cargo xtask tidy`.
pub fn check(files: &[File]) -> Vec<Finding> {
    let checked = || -> Result<Vec<Finding>> {
        let figures = figures(files)?;
        let mut findings = quoted(files, &figures);
        findings.extend(promised(files, &figures));
        for (path, text) in made(files)? {
            if tidy::text(files, &path) != Some(text.as_str()) {
                findings.push(Finding::new(
                    path,
                    "not what its runs make: run `cargo xtask figures`",
                ));
            }
        }
        Ok(findings)
    };
    checked().unwrap_or_else(|error| vec![Finding::new(PLACE, error)])
}

/// The page and the plots, each with its path.
fn made(files: &[File]) -> Result<Vec<(String, String)>> {
    let runs = runs(files)?;
    let template = tidy::text(files, &format!("{PLACE}/page.md")).ok_or("docs/figures/page.md is missing")?;
    let mut made = vec![(PAGE.to_owned(), filled(template, &figures(files)?, &runs)?)];
    for (name, svg) in chart::all(&runs)? {
        made.push((format!("{PLACE}/{name}.svg"), svg));
    }
    Ok(made)
}

fn parsed(name: &str, text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|e| format!("{name}: {e}"))
}

/// The runs by the name of their benchmark.
fn runs(files: &[File]) -> Result<BTreeMap<String, Value>> {
    let mut runs = BTreeMap::new();
    for file in files {
        let name = file
            .path
            .strip_prefix("docs/figures/")
            .and_then(|f| f.strip_suffix(".json"));
        if let Some(name) = name.filter(|n| *n != "list") {
            runs.insert(name.to_owned(), parsed(name, &file.text)?);
        }
    }
    Ok(runs)
}

/// The median of one subject of one case, and its n.
fn median(runs: &BTreeMap<String, Value>, bench: &str, case: &str, subject: &str) -> Result<(f64, u64)> {
    let rows = runs.get(bench).and_then(|run| run["rows"].as_array());
    let row = rows
        .into_iter()
        .flatten()
        .find(|r| r["case"] == case && r["subject"] == subject);
    row.and_then(|r| Some((r["median"].as_f64()?, r["n"].as_u64()?)))
        .ok_or_else(|| format!("docs/figures/{bench}.json has no row for {case:?}, {subject:?}"))
}

/// The figures of `list.json` by name. A figure is a row of a run, or its ratio to another row or to a number. Where the
/// run was not kept, or was quick, the value of an earlier full run stands in the list.
fn figures(files: &[File]) -> Result<BTreeMap<String, Figure>> {
    let runs = runs(files)?;
    let list = tidy::text(files, &format!("{PLACE}/list.json")).ok_or("docs/figures/list.json is missing")?;
    let list = parsed("list.json", list)?;
    let mut figures = BTreeMap::new();
    for (name, entry) in list.as_object().into_iter().flatten() {
        let field = |key: &str| entry[key].as_str();
        let digits = entry["digits"].as_u64().map_or(2, |d| d as usize);
        let full = field("bench")
            .and_then(|b| runs.get(b))
            .is_some_and(|run| run["quick"] != true);
        let earlier = entry["value"].as_f64().filter(|_| !full);
        let (value, n) = if let Some(value) = earlier {
            (value, entry["n"].as_str().unwrap_or_default().to_owned())
        } else {
            let (bench, case, ours) = (field("bench"), field("case"), field("ours"));
            let (Some(bench), Some(case), Some(ours)) = (bench, case, ours) else {
                return Err(format!(
                    "list.json: {name} has neither value nor bench, case and ours"
                ));
            };
            let (ours, n) = median(&runs, bench, case, ours)?;
            let beside = match (entry["of"].as_f64(), field("beside")) {
                (Some(of), _) => of,
                (None, Some(beside)) => median(&runs, bench, case, beside)?.0,
                (None, None) => 1.0,
            };
            (ours / beside, n.to_string())
        };
        figures.insert(
            name.clone(),
            Figure {
                text: format!("{value:.digits$}"),
                value,
                n,
                promise: field("promise").map(str::to_owned),
            },
        );
    }
    Ok(figures)
}

/// The template with every `{{...}}` replaced: `{{NAME}}` is the figure, `{{NAME.n}}` its n, `{{NAME, NAME <= 1.3}}` a
/// goal, with *missed* behind it where a figure misses it, and `{{runs}}` the table of the runs.
fn filled(
    template: &str,
    figures: &BTreeMap<String, Figure>,
    runs: &BTreeMap<String, Value>,
) -> Result<String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (inside, after) = after.split_once("}}").ok_or("page.md: {{ without }}")?;
        out.push_str(before);
        out.push_str(&replacement(inside.trim(), figures, runs)?);
        rest = after;
    }
    Ok(out + rest)
}

fn replacement(
    inside: &str,
    figures: &BTreeMap<String, Figure>,
    runs: &BTreeMap<String, Value>,
) -> Result<String> {
    let find = |name: &str| {
        figures
            .get(name.trim())
            .ok_or_else(|| format!("page.md: there is no figure {name:?}"))
    };
    if inside == "runs" {
        return Ok(table_of(runs));
    }
    for (sign, written) in [("<=", "≤"), (">=", "≥")] {
        let Some((names, goal)) = inside.split_once(sign) else {
            continue;
        };
        let (goal, unit) = goal.trim().split_once(' ').unwrap_or((goal.trim(), ""));
        let bound = bound(goal).ok_or_else(|| format!("page.md: {goal:?} is no number"))?;
        let mut missed = false;
        for name in names.split(',') {
            let value = find(name)?.value;
            missed |= if sign == "<=" {
                value > bound
            } else {
                value < bound
            };
        }
        let unit = if unit.is_empty() {
            String::new()
        } else {
            format!(" {unit}")
        };
        let verdict = if missed { ", *missed*" } else { "" };
        return Ok(format!("{written} {goal}{unit}{verdict}"));
    }
    match inside.strip_suffix(".n") {
        Some(name) => Ok(format!("n {}", find(name)?.n)),
        None => Ok(find(inside)?.text.clone()),
    }
}

/// `1.3`, or `1/3`.
fn bound(goal: &str) -> Option<f64> {
    match goal.split_once('/') {
        Some((part, whole)) => Some(part.parse::<f64>().ok()? / whole.parse::<f64>().ok()?),
        None => goal.parse().ok(),
    }
}

fn table_of(runs: &BTreeMap<String, Value>) -> String {
    let mut out = "| benchmark | date | commit | samples | machine |\n|---|---|---|---|---|\n".to_owned();
    for (name, run) in runs {
        let field = |key: &str| run[key].as_str().unwrap_or("not noted");
        let samples = if run["quick"] == true {
            "a quick run"
        } else {
            "all"
        };
        let (date, commit, machine) = (field("date"), field("commit"), field("machine"));
        out += &format!("| `{name}` | {date} | {commit} | {samples} | {machine} |\n");
    }
    out.trim_end().to_owned()
}

/// A figure that a paper quotes is the page's.
fn quoted(files: &[File], figures: &BTreeMap<String, Figure>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.path.ends_with(".md")) {
        for (number, line) in file.text.lines().enumerate() {
            for (at, _) in line.match_indices(MARK) {
                let name = line[at + MARK.len()..].split(" -->").next().unwrap_or_default();
                let before = line[..at].trim_end_matches(['*', ' ']);
                let quoted = before.rsplit(|c: char| !c.is_ascii_digit() && c != '.').next();
                let rule = match figures.get(name) {
                    None => format!("there is no figure {name:?} in docs/figures/list.json"),
                    Some(f) if quoted != Some(f.text.as_str()) => format!("{name} is {} now", f.text),
                    Some(_) => continue,
                };
                findings.push(Finding::new(format!("{}:{}", file.path, number + 1), rule));
            }
        }
    }
    findings
}

/// What SPECIFICATION has as measured for a promise is the figure that judges it.
fn promised(files: &[File], figures: &BTreeMap<String, Figure>) -> Vec<Finding> {
    let specification = tidy::text(files, "SPECIFICATION.md").unwrap_or_default();
    let mut findings = Vec::new();
    for (name, figure) in figures {
        let Some(promise) = &figure.promise else { continue };
        let start = format!("| {promise} |");
        let line = specification.lines().find(|l| l.starts_with(&start));
        let measured = line.and_then(|l| l.split('|').nth(3)).unwrap_or_default();
        let mut numbers = measured.split(|c: char| !c.is_ascii_digit() && c != '.');
        if !numbers.any(|n| n == figure.text) {
            let rule = format!("{promise:?}: {name} is {} now", figure.text);
            findings.push(Finding::new("SPECIFICATION.md", rule));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"{"cold": {"bench": "ssh", "case": "cold true", "ours": "us", "beside": "sshd", "promise": "cold"},
        "old": {"value": 2.03, "n": "2000"}}"#;
    const RUN: &str = r#"{"bench": "ssh", "rows": [{"case": "cold true", "subject": "us", "n": 60, "median": 13.0},
        {"case": "cold true", "subject": "sshd", "n": 60, "median": 100.0}]}"#;

    fn papers(more: &[(&str, &str)]) -> Vec<File> {
        let own = [("docs/figures/list.json", LIST), ("docs/figures/ssh.json", RUN)];
        let all = own.iter().chain(more);
        all.map(|(path, text)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        })
        .collect()
    }

    #[test]
    fn a_template_is_filled_from_the_runs() {
        let files = papers(&[]);
        let (figures, runs) = (figures(&files).expect("figures"), runs(&files).expect("runs"));
        let fill = |template: &str| filled(template, &figures, &runs);
        assert_eq!(fill("a {{cold}} ({{cold.n}})").expect("filled"), "a 0.13 (n 60)");
        assert_eq!(fill("{{cold <= 0.15}}").expect("filled"), "≤ 0.15");
        assert_eq!(
            fill("{{cold, old <= 1.3 MB}}").expect("filled"),
            "≤ 1.3 MB, *missed*"
        );
        assert_eq!(fill("{{old >= 1.3}}").expect("filled"), "≥ 1.3");
        assert!(
            fill("{{runs}}")
                .expect("filled")
                .contains("| `ssh` | not noted |")
        );
        assert!(fill("{{none}}").is_err() && fill("{{cold").is_err());
    }

    #[test]
    fn a_quoted_figure_that_is_another_now_is_found() {
        let line = |number: &str| format!("It takes **{number}**<!-- figure: cold --> of sshd's.\n");
        let found = |text: &str| {
            let files = papers(&[("README.md", text)]);
            quoted(&files, &figures(&files).expect("figures")).len()
        };
        assert_eq!(found(&line("0.13")), 0);
        assert_eq!(found(&line("0.14")), 1);
        assert_eq!(found("0.13<!-- figure: gone -->"), 1);
    }

    #[test]
    fn a_promise_has_its_figure() {
        let found = |measured: &str| {
            let row = format!("| cold | 0.3 | {measured} | ssh |\n");
            let files = papers(&[("SPECIFICATION.md", &row)]);
            promised(&files, &figures(&files).expect("figures")).len()
        };
        assert_eq!(found("0.13 (n 60)"), 0);
        assert_eq!(found("0.14"), 1);
    }
}
