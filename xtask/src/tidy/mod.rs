//! `cargo xtask tidy`: the house rules that a compiler does not know.
//!
//! Each rule is a small function from texts to findings, with a test that shows it a violation. It changes
//! nothing; `cargo fmt` does the one repair that can be made without thinking.

mod crates;
pub mod lexer;
mod papers;
mod scripts;
mod source;

use crate::shell::{Result, cargo, heading, output, read_text, root, run, target};
use crate::{bench, build, figures, graph};
pub use crates::{Metadata, metadata};
use std::fmt;
use std::process::Command;

/// A file of the checkout.
pub struct File {
    /// Its path from the root.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// A rule that does not hold.
#[derive(Debug)]
pub struct Finding {
    place: String,
    rule: String,
}

impl Finding {
    /// A rule that does not hold at a place.
    pub fn new(place: impl Into<String>, rule: impl Into<String>) -> Finding {
        Finding {
            place: place.into(),
            rule: rule.into(),
        }
    }

    fn at(path: &str, line: usize, rule: impl Into<String>) -> Finding {
        Finding::new(format!("{path}:{}", line + 1), rule)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.rule)
    }
}

/// `cargo xtask tidy`
pub fn main(args: &[String]) -> Result {
    if let Some(arg) = args.first() {
        return Err(format!("tidy takes no arguments, not {arg:?}"));
    }
    heading("formatting");
    run(cargo().args(["fmt", "--all", "--check"])).map_err(|e| format!("{e}\n`cargo fmt --all` mends it"))?;
    let fuzz = ["fmt", "--manifest-path", "fuzz/Cargo.toml"];
    run(cargo().args(fuzz).arg("--check"))
        .map_err(|e| format!("{e}\n`cargo {}` mends it", fuzz.join(" ")))?;
    heading("house rules");
    let files = files()?;
    let metadata = metadata()?;
    let mut findings = source::check(&files);
    findings.extend(crates::check(&metadata, &files));
    findings.extend(graph::check(&files, &metadata));
    findings.extend(figures::check(&files));
    findings.extend(papers::check(&files, &metadata, bench::BENCHES));
    findings.extend(scripts::check(&files)?);
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        return Err(format!("{} findings", findings.len()));
    }
    println!("{} files keep them", files.len());
    build::helper_into(&target()).map(|_| ())
}

/// Every text of the checkout that is or would be committed.
pub fn files() -> Result<Vec<File>> {
    let mut git = Command::new("git");
    git.current_dir(root())
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let mut files = Vec::new();
    for path in output(&mut git)?.split_terminator('\0') {
        // Made by a program, of which `cargo xtask proto` speaks.
        if path.starts_with("crates/proto/src/generated/") {
            continue;
        }
        // A file that was deleted and not yet committed so, and what is no text, is of no interest.
        if let Ok(text) = read_text(&root().join(path)) {
            files.push(File {
                path: path.to_owned(),
                text,
            });
        }
    }
    Ok(files)
}

/// The text of one file, for rules about documents.
pub fn text<'a>(files: &'a [File], path: &str) -> Option<&'a str> {
    files.iter().find(|f| f.path == path).map(|f| f.text.as_str())
}

/// Samples for the rules' tests.
#[cfg(test)]
fn sample(path: &str, text: &str) -> Vec<File> {
    vec![File {
        path: path.to_owned(),
        text: text.to_owned(),
    }]
}
