//! `fleetgate doctor`: what is wrong with this host, thing by thing, with the remedy.

use crate::flags::Outcome;
use crate::print;
use fleetgate_base::exit;
use fleetgate_node::doctor::{Finding, Grade, examine};
use serde_json::json;
use std::path::Path;

/// Prints the findings; the exit code is 1 when one of them is wrong.
pub fn run(config: &Path, as_json: bool) -> Outcome {
    let findings = examine(config);
    print(&if as_json {
        document(&findings)
    } else {
        table(&findings)
    })?;
    let wrong = findings.iter().any(|f| f.grade == Grade::Wrong);
    Ok(if wrong { exit::REFUSED } else { 0 })
}

fn document(findings: &[Finding]) -> String {
    let rows: Vec<_> = findings
        .iter()
        .map(|f| json!({ "what": f.what, "grade": f.grade.name(), "found": f.found, "remedy": f.remedy }))
        .collect();
    format!("{:#}\n", json!({ "findings": rows }))
}

fn table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|f| f.what.len()).max().unwrap_or(0);
    let mut text = String::new();
    for f in findings {
        text += &format!("{:<5}  {:<width$}  {}\n", f.grade.name(), f.what, f.found);
        if !f.remedy.is_empty() {
            text += &format!("{:<5}  {:<width$}  -> {}\n", "", "", f.remedy);
        }
    }
    text
}
