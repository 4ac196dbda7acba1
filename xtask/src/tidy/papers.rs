//! Rules that hold the documents to the code: the code map's arrows, the reasons for dependencies, the promises.

use super::crates::Metadata;
use super::{File, Finding, text};
use crate::bench::Entry;
use std::collections::BTreeSet;

/// Every rule of this file.
pub fn check(files: &[File], metadata: &Metadata, benches: &[Entry]) -> Vec<Finding> {
    let architecture = text(files, "ARCHITECTURE.md").unwrap_or_default();
    let specification = text(files, "SPECIFICATION.md").unwrap_or_default();
    let ours = metadata
        .packages
        .iter()
        .filter_map(|p| Some((p.name.strip_prefix("fleetgate-")?, &p.uses)));
    let ours: Vec<(&str, &BTreeSet<String>)> = ours.collect();
    let mut findings = arrows(architecture, &ours);
    findings.extend(reasons(architecture, &ours));
    let promised: Vec<&str> = benches.iter().flat_map(|b| b.promises).map(|p| p.name).collect();
    findings.extend(promises(specification, &promised));
    findings.extend(bounds(specification, files));
    findings.extend(events(files));
    findings
}

/// The rows of the table under the heading `## section`, without its header; cells trimmed.
fn table<'a>(document: &'a str, section: &str) -> Vec<Vec<&'a str>> {
    let lines = document
        .lines()
        .skip_while(|l| l.strip_prefix("## ") != Some(section))
        .skip(1);
    let lines = lines
        .take_while(|l| !l.starts_with("## "))
        .filter(|l| l.starts_with('|'));
    let cells = lines.map(|l| l.trim().trim_matches('|').split('|').map(str::trim).collect());
    cells.skip(2).collect()
}

/// A crate uses no crate of ours that stands not in its row of the code map, and each has a row.
fn arrows(architecture: &str, packages: &[(&str, &BTreeSet<String>)]) -> Vec<Finding> {
    let map = table(architecture, "Code map");
    let mut findings = Vec::new();
    for (name, uses) in packages
        .iter()
        .filter(|(name, _)| !matches!(*name, "tests" | "benches"))
    {
        let row = map
            .iter()
            .find(|r| r.first().is_some_and(|c| c.trim_matches('`') == *name));
        let Some(row) = row else {
            findings.push(Finding::new(
                "ARCHITECTURE.md",
                format!("the code map has no row for crate {name}"),
            ));
            continue;
        };
        let allowed: Vec<&str> = row.last().map(|c| c.split(", ").collect()).unwrap_or_default();
        let ours = uses.iter().filter_map(|u| u.strip_prefix("fleetgate-"));
        for used in ours.filter(|u| !allowed.contains(&"all") && !allowed.contains(u)) {
            let rule = format!("uses {used}, the code map allows {}", allowed.join(", "));
            findings.push(Finding::new(format!("crates/{name}"), rule));
        }
    }
    findings
}

/// Each dependency from outside has a reason, and each reason a dependency.
fn reasons(architecture: &str, packages: &[(&str, &BTreeSet<String>)]) -> Vec<Finding> {
    let given: BTreeSet<&str> = table(architecture, "Dependencies, and why")
        .iter()
        .flat_map(|row| row.first().map(|c| c.split(", ")).into_iter().flatten())
        .collect();
    let used = packages
        .iter()
        .flat_map(|(_, uses)| uses.iter().map(String::as_str));
    let used: BTreeSet<&str> = used.filter(|u| !u.starts_with("fleetgate-")).collect();
    let missing = used
        .difference(&given)
        .map(|c| format!("no reason is given for the dependency {c}"));
    let stale = given
        .difference(&used)
        .map(|c| format!("a reason is given for {c}, which nothing uses"));
    missing
        .chain(stale)
        .map(|rule| Finding::new("ARCHITECTURE.md", rule))
        .collect()
}

/// The specification promises what the benchmarks measure, word for word, and nothing else.
fn promises(specification: &str, promised: &[&str]) -> Vec<Finding> {
    let rows = table(specification, "Promises");
    let written: BTreeSet<&str> = rows.iter().filter_map(|r| r.first().copied()).collect();
    let measured: BTreeSet<&str> = promised.iter().copied().collect();
    let unwritten = measured
        .difference(&written)
        .map(|p| format!("the promise {p:?} of a benchmark is not written"));
    let unmeasured = written
        .difference(&measured)
        .map(|p| format!("no benchmark has the promise {p:?}"));
    unwritten
        .chain(unmeasured)
        .map(|rule| Finding::new("SPECIFICATION.md", rule))
        .collect()
}

/// Each bound names tests that hold it, and they exist.
fn bounds(specification: &str, files: &[File]) -> Vec<Finding> {
    let tests = files
        .iter()
        .filter(|f| f.path.ends_with(".rs"))
        .flat_map(|f| f.text.lines());
    let name = |line: &'_ str| {
        Some(
            line.trim_start()
                .trim_start_matches("async ")
                .strip_prefix("fn ")?
                .split('(')
                .next()?
                .to_owned(),
        )
    };
    let tests: BTreeSet<String> = tests.filter_map(name).collect();
    let mut findings = Vec::new();
    for row in table(specification, "Bounds") {
        let held: Vec<&str> = row
            .last()
            .map(|c| c.split('`').skip(1).step_by(2).collect())
            .unwrap_or_default();
        let what = row.first().copied().unwrap_or_default();
        if held.is_empty() {
            findings.push(Finding::new(
                "SPECIFICATION.md",
                format!("{what:?}: no test is named that holds it"),
            ));
        }
        for test in held.iter().filter(|t| !tests.contains(**t)) {
            findings.push(Finding::new(
                "SPECIFICATION.md",
                format!("{what:?}: there is no test {test}"),
            ));
        }
    }
    findings
}

/// The test that holds the events' tables in docs/audit.md and docs/proxy.md to the declared events stands where the
/// papers are read. It needs all programs, which tidy does not build.
fn events(files: &[File]) -> Option<Finding> {
    let (path, test) = (
        "crates/cli/src/admin/audit.rs",
        "fn the_papers_have_a_row_for_each_event_and_its_fields()",
    );
    let stands = text(files, path).is_some_and(|text| text.contains(test));
    (!stands).then(|| {
        Finding::new(
            path,
            format!("docs/audit.md and docs/proxy.md are held by the test `{test}`"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    const MAP: &str = "## Code map\n\n| crate | holds | uses |\n|---|---|---|\n\
        | `sys` | calls | libc |\n| `seal` | images | sys, sha2 |\n| `cli` | all of it | all |\n\
        \n## Dependencies, and why\n\n| crate | for |\n|---|---|\n| libc, sha2 | numbers, digests |\n";

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|n| n.to_string()).collect()
    }

    #[test]
    fn an_arrow_that_the_map_lacks_is_found() {
        let (sys, seal) = (set(&["libc"]), set(&["fleetgate-sys", "sha2"]));
        let good = [("sys", &sys), ("seal", &seal), ("cli", &seal)];
        assert_eq!(arrows(MAP, &good).len(), 0);
        assert_eq!(arrows(MAP, &[("sys", &seal)]).len(), 1, "sys does not use sys");
        assert_eq!(arrows(MAP, &[("launch", &sys)]).len(), 1, "a crate without a row");
    }

    #[test]
    fn a_dependency_without_a_reason_is_found_and_a_reason_without_a_dependency() {
        let all = set(&["libc", "sha2", "fleetgate-sys"]);
        assert_eq!(reasons(MAP, &[("seal", &all)]).len(), 0);
        let more = set(&["libc", "sha2", "rand"]);
        assert_eq!(reasons(MAP, &[("seal", &more)]).len(), 1);
        let less = set(&["libc"]);
        assert_eq!(reasons(MAP, &[("seal", &less)]).len(), 1);
    }

    #[test]
    fn promises_are_the_same_on_both_sides() {
        let text =
            "## Promises\n\n| promise | goal |\n|---|---|\n| launch, of direct exec | 1.3 |\n\n## Bounds\n";
        assert_eq!(promises(text, &["launch, of direct exec"]).len(), 0);
        assert_eq!(promises(text, &[]).len(), 1, "written, not measured");
        assert_eq!(
            promises(text, &["launch, of direct exec", "another"]).len(),
            1,
            "measured, not written"
        );
    }

    #[test]
    fn a_bound_without_a_test_is_found() {
        let text = |held: &str| {
            format!("## Bounds\n\n| what | bound | held by |\n|---|---|---|\n| a frame | 64 KB | {held} |\n")
        };
        let files = sample(
            "crates/wire/tests/a.rs",
            "//! Tests.\n    fn a_frame_is_bounded() {\n",
        );
        assert_eq!(bounds(&text("`a_frame_is_bounded`"), &files).len(), 0);
        assert_eq!(bounds(&text("`a_frame_is_bounded`, `another`"), &files).len(), 1);
        assert_eq!(bounds(&text("nothing"), &files).len(), 1);
    }
}
