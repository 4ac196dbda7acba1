//! Shell scripts are read by shellcheck, where it is installed.

use super::{File, Finding};
use crate::shell::{Result, root};
use std::process::Command;

/// What it may not object to: a script that others are put behind sets and reads what it alone does not (SC2034, SC2154),
/// and `mkdir -p -m` sets the mode of the last folder alone, as is meant (SC2174).
const EXCLUDED: &str = "SC2034,SC2154,SC2174";

/// A finding for each objection.
pub fn check(files: &[File]) -> Result<Vec<Finding>> {
    let scripts: Vec<&str> = files
        .iter()
        .filter(|f| is_script(f))
        .map(|f| f.path.as_str())
        .collect();
    let mut command = Command::new("shellcheck");
    command
        .current_dir(root())
        .args(["--severity", "warning", "--format", "gcc", "--exclude", EXCLUDED])
        .args(scripts);
    match command.output() {
        // 1: it objects; more: it could not do its work.
        Ok(out) if out.status.code().is_some_and(|code| code <= 1) => {
            Ok(findings(&String::from_utf8_lossy(&out.stdout)))
        }
        Ok(out) => Err(format!(
            "shellcheck: {}",
            String::from_utf8_lossy(&out.stderr).trim()
        )),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            println!("shellcheck is not installed: the shell scripts are not read");
            Ok(Vec::new())
        }
        Err(e) => Err(format!("shellcheck: {e}")),
    }
}

/// By its name, or by the program that its first line names.
fn is_script(file: &File) -> bool {
    let first = file.text.lines().next().unwrap_or_default();
    let mut words = first.strip_prefix("#!").unwrap_or_default().split([' ', '/']);
    file.path.ends_with(".sh") || words.any(|word| matches!(word, "sh" | "bash"))
}

/// `FILE:LINE:COLUMN: warning: what [CODE]`, a line each.
fn findings(said: &str) -> Vec<Finding> {
    let finding = |line: &str| {
        let mut words = line.splitn(4, ':');
        let (path, number) = (words.next()?, words.next()?);
        let rule = words.nth(1)?.trim();
        Some(Finding::new(format!("{path}:{number}"), rule))
    };
    said.lines().filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn scripts_are_known_by_name_and_by_their_first_line() {
        for (path, text, is) in [
            ("a.sh", "# words", true),
            ("install", "#!/bin/sh\nset -e\n", true),
            ("install", "#!/usr/bin/env bash\n", true),
            ("install", "#!/bin/sh -e\n", true),
            ("tool", "#!/usr/bin/python3\n", false),
            ("a.rs", "//! Shell.\n", false),
        ] {
            assert_eq!(is_script(&sample(path, text)[0]), is, "{path}: {text}");
        }
    }

    #[test]
    fn objections_are_findings() {
        let said = "tests/a.sh:3:4: warning: n appears unused. [SC2034]\n\nnothing\n";
        let told: Vec<String> = findings(said).iter().map(ToString::to_string).collect();
        assert_eq!(told, ["tests/a.sh:3: warning: n appears unused. [SC2034]"]);
    }
}
