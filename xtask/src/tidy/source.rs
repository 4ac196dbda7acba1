//! Rules about each file by itself.

use super::lexer::{code_only, words};
use super::{File, Finding};

/// The longest Rust file, tests like the rest.
const MAX_RUST_LINES: usize = 600;
/// The longest file of another kind.
const MAX_LINES: usize = 800;
/// How far above an unsafe block its reason may stand: a statement and its comment.
const REASON_WITHIN: usize = 10;
/// Words that promise work instead of doing it, spelled so that this file has none of them.
const UNFINISHED: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
];

/// Every rule over every file.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        findings.extend(length(file));
        findings.extend(finished(file));
        if file.path.ends_with(".rs") {
            findings.extend(header(file));
            findings.extend(unsafe_stays_in_sys(file));
            findings.extend(reasons(file));
        }
    }
    findings
}

/// A file that nobody can hold in the head is two files.
fn length(file: &File) -> Option<Finding> {
    if matches!(file.path.as_str(), "Cargo.lock" | "fuzz/Cargo.lock" | "LICENSE") {
        return None;
    }
    let lines = file.text.lines().count();
    let most = if file.path.ends_with(".rs") {
        MAX_RUST_LINES
    } else {
        MAX_LINES
    };
    (lines > most).then(|| Finding::new(&file.path, format!("{lines} lines, {most} are allowed: split it")))
}

/// Nothing is left for later.
fn finished(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for word in UNFINISHED {
            let stem = word.trim_end_matches('!');
            if words(line, stem).any(|at| line[at..].starts_with(word)) {
                findings.push(Finding::at(
                    &file.path,
                    number,
                    format!("{word}: finish it or leave it out"),
                ));
            }
        }
    }
    findings
}

/// The first lines say what the file is for.
fn header(file: &File) -> Option<Finding> {
    let first = file.text.lines().next().unwrap_or_default();
    let says = first
        .strip_prefix("//!")
        .is_some_and(|rest| rest.trim().len() > 3);
    (!says).then(|| {
        Finding::at(
            &file.path,
            0,
            "starts with `//!` and what it is for and never does",
        )
    })
}

/// One crate to read when memory safety is in question.
fn unsafe_stays_in_sys(file: &File) -> Vec<Finding> {
    if file.path.starts_with("crates/sys/") {
        return Vec::new();
    }
    let code = code_only(&file.text);
    let lines = code.lines().enumerate();
    lines
        .filter(|(_, line)| words(line, "unsafe").next().is_some())
        .map(|(number, _)| {
            Finding::at(
                &file.path,
                number,
                "unsafe outside crates/sys: put a safe function there",
            )
        })
        .collect()
}

/// Each unsafe block says why it may.
fn reasons(file: &File) -> Vec<Finding> {
    let code = code_only(&file.text);
    let source: Vec<&str> = file.text.lines().collect();
    let mut findings = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let opens = words(line, "unsafe").any(|at| {
            let rest = line[at + "unsafe".len()..].trim_start();
            rest.starts_with('{') || rest.starts_with("impl")
        });
        let above = &source[number.saturating_sub(REASON_WITHIN)..=number];
        if opens && !above.iter().any(|l| l.contains("SAFETY:")) {
            findings.push(Finding::at(
                &file.path,
                number,
                "an unsafe block without a `// SAFETY:` line",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    /// How many findings `text` gets at `path`.
    fn found(path: &str, text: &str) -> usize {
        check(&sample(path, text)).len()
    }

    #[test]
    fn a_good_file_has_no_finding() {
        assert_eq!(
            found("crates/wire/src/a.rs", "//! Frames, no I/O.\nfn f() {}\n"),
            0
        );
    }

    #[test]
    fn long_files_are_found() {
        let of = |lines: usize| format!("//! Long.\n{}", "\n".repeat(lines - 1));
        for (path, most) in [
            ("crates/wire/src/a.rs", MAX_RUST_LINES),
            ("tests/tests/node/a.rs", MAX_RUST_LINES),
            ("docs/a.md", MAX_LINES),
        ] {
            assert_eq!(found(path, &of(most)), 0, "{path}");
            assert_eq!(found(path, &of(most + 1)), 1, "{path}");
        }
        assert_eq!(found("Cargo.lock", &of(MAX_LINES + 1)), 0);
    }

    #[test]
    fn unfinished_work_is_found() {
        for word in UNFINISHED {
            assert_eq!(found("Makefile", &format!("# {word} later\n")), 1, "{word}");
            assert_eq!(found("Makefile", &format!("# A{word}\n")), 0, "{word}");
        }
    }

    #[test]
    fn missing_headers_are_found() {
        for text in ["", "fn f() {}\n", "//! x\n", "// not it: a header\n"] {
            assert_eq!(found("tests/tests/a.rs", text), 1, "{text:?}");
        }
    }

    #[test]
    fn unsafe_elsewhere_is_found() {
        let text = "//! Header.\n// SAFETY: none\nfn f() { unsafe { g() } }\n";
        assert_eq!(found("crates/wire/src/a.rs", text), 1);
        assert_eq!(found("crates/sys/src/a.rs", text), 0);
        assert_eq!(
            found(
                "crates/wire/src/a.rs",
                "//! Header.\n// unsafe\n#![forbid(unsafe_code)]\n"
            ),
            0
        );
    }

    #[test]
    fn unsafe_without_a_reason_is_found() {
        let far = "\n".repeat(REASON_WITHIN + 1);
        for (text, findings) in [
            ("//! Header.\nfn f() { unsafe { g() } }\n".to_owned(), 1),
            ("//! Header.\nunsafe impl Send for A {}\n".to_owned(), 1),
            (
                format!("//! Header.\n// SAFETY: far away\n{far}fn f() {{ unsafe {{ g() }} }}\n"),
                1,
            ),
            (
                "//! Header.\n// SAFETY: g asks for nothing.\nfn f() { unsafe { g() } }\n".to_owned(),
                0,
            ),
            ("//! Header.\nunsafe fn f() {}\n".to_owned(), 0),
        ] {
            assert_eq!(found("crates/sys/src/a.rs", &text), findings, "{text}");
        }
    }
}
