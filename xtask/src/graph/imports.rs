//! The modules of a crate and which of them imports which, read from the text of its files: `use` trees and paths that
//! begin with `crate` or `super`. Tests are left out. It knows no macros and no re-exports: an import leads to the module
//! whose name the path has.

use crate::tidy::{File, lexer};
use std::collections::{BTreeMap, BTreeSet};

/// A module: the names from the crate's root to it. The root has none.
pub type Path = Vec<String>;

/// A crate's modules.
#[derive(Debug, Default)]
pub struct Modules {
    /// How many lines of product code each has: neither blank nor comment nor test.
    pub lines: BTreeMap<Path, usize>,
    /// Who imports whom.
    pub imports: BTreeSet<(Path, Path)>,
}

/// Modules of one parent of which each imports the next, and the last imports the first, by whatever way.
pub type Circle = BTreeSet<Path>;

/// Reads the modules of the crate in `folder` (`crates/node`).
pub fn read(folder: &str, files: &[File]) -> Modules {
    let source = format!("{folder}/src/");
    let mut texts = BTreeMap::new();
    for file in files {
        let Some(path) = file.path.strip_prefix(&source).and_then(module) else {
            continue;
        };
        texts.insert(path, product(&file.text));
    }
    let mut modules = Modules::default();
    for (path, code) in &texts {
        let lines = code.lines().filter(|l| !l.trim().is_empty()).count();
        modules.lines.insert(path.clone(), lines);
    }
    for (path, code) in &texts {
        for named in named(code) {
            let target = resolve(path, &named, &modules.lines);
            if let Some(target) = target.filter(|t| t != path) {
                modules.imports.insert((path.clone(), target));
            }
        }
    }
    modules
}

impl Modules {
    /// Every circle between modules of one parent. That a module and its own parts know each other is no circle.
    pub fn circles(&self) -> Vec<Circle> {
        let parents: BTreeSet<&[String]> = self
            .lines
            .keys()
            .filter(|p| !p.is_empty())
            .map(|p| &p[..p.len() - 1])
            .collect();
        parents
            .into_iter()
            .flat_map(|parent| self.circles_below(parent))
            .collect()
    }

    fn circles_below(&self, parent: &[String]) -> Vec<Circle> {
        let child = |path: &Path| {
            (path.len() > parent.len() && path.starts_with(parent)).then(|| path[..=parent.len()].to_vec())
        };
        let mut next: BTreeMap<Path, BTreeSet<Path>> = BTreeMap::new();
        for (from, to) in &self.imports {
            if let (Some(from), Some(to)) = (child(from), child(to))
                && from != to
            {
                next.entry(from).or_default().insert(to);
            }
        }
        let reach = |from: &Path| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(at) = open.pop() {
                for to in next.get(&at).into_iter().flatten() {
                    if seen.insert(to.clone()) {
                        open.push(to.clone());
                    }
                }
            }
            seen
        };
        let reached: BTreeMap<&Path, BTreeSet<Path>> = next.keys().map(|k| (k, reach(k))).collect();
        let mut circles: BTreeSet<Circle> = BTreeSet::new();
        for (from, to) in &reached {
            if to.contains(*from) {
                let both = to
                    .iter()
                    .filter(|t| reached.get(t).is_some_and(|r| r.contains(*from)));
                circles.insert(both.cloned().collect());
            }
        }
        circles.into_iter().collect()
    }
}

/// The module of a file below `src/`; a test's file and a program's are none.
fn module(path: &str) -> Option<Path> {
    let path = path.strip_suffix(".rs")?;
    let mut names: Path = path.split('/').map(str::to_owned).collect();
    if names.iter().any(|n| n == "tests" || n == "bin") || path == "main" {
        return None;
    }
    if names.last().is_some_and(|n| n == "mod" || n == "lib") {
        names.pop();
    }
    Some(names)
}

/// The code of a file without comments, strings and the module of its tests.
fn product(text: &str) -> String {
    let code = lexer::code_only(text);
    match code.find("#[cfg(test)]\nmod ") {
        Some(at) => code[..at].to_owned(),
        None => code,
    }
}

/// Every path in the code that begins with `crate` or `super`, names alone.
fn named(code: &str) -> Vec<Path> {
    let mut paths = Vec::new();
    for start in ["crate", "super"] {
        for at in lexer::words(code, start) {
            // `super::super::x` is read once, from its beginning; `pub(in super::x)` and `pub(crate)` import nothing.
            let before = code[..at].trim_end();
            if before.ends_with("::") || before.ends_with('(') && !code[at..].contains("::") {
                continue;
            }
            tree(&code[at..], &mut Vec::new(), &mut paths);
        }
    }
    paths
}

/// Reads one path, or a tree of them in braces; what of the text it took.
fn tree(text: &str, prefix: &mut Path, paths: &mut Vec<Path>) -> usize {
    let depth = prefix.len();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let name: String = rest
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        if !name.is_empty() {
            at += name.len();
            prefix.push(name);
        } else if rest.starts_with('{') {
            at += 1;
            while at < text.len() && !text[at..].starts_with('}') {
                let skipped = text[at..]
                    .find(|c: char| !c.is_whitespace() && c != ',')
                    .unwrap_or(text.len() - at);
                at += skipped;
                if text[at..].starts_with('}') || at >= text.len() {
                    break;
                }
                let took = tree(&text[at..], prefix, paths);
                // `as name`, or something that is no path: the next comma or brace goes on.
                let end = text[at + took..]
                    .find([',', '}'])
                    .unwrap_or(text.len() - at - took);
                at += took + end;
            }
            at += 1;
            prefix.truncate(depth);
            return at.min(text.len());
        }
        if text[at..].starts_with("::") {
            at += 2;
        } else {
            break;
        }
    }
    paths.push(prefix.clone());
    prefix.truncate(depth);
    at
}

/// The module that a path of `from` leads to: the longest beginning of it that is one.
fn resolve(from: &Path, named: &Path, known: &BTreeMap<Path, usize>) -> Option<Path> {
    let mut base = from.clone();
    let mut names = named.as_slice();
    match names.first().map(String::as_str) {
        Some("crate") => {
            base.clear();
            names = &names[1..];
        }
        _ => {
            while names.first().is_some_and(|n| n == "super") {
                base.pop()?;
                names = &names[1..];
            }
        }
    }
    for name in names {
        base.push(name.clone());
        if !known.contains_key(&base) {
            base.pop();
            break;
        }
    }
    known.contains_key(&base).then_some(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> Modules {
        let files: Vec<File> = files
            .iter()
            .map(|(path, text)| File {
                path: format!("crates/x/src/{path}"),
                text: (*text).to_owned(),
            })
            .collect();
        read("crates/x", &files)
    }

    fn path(text: &str) -> Path {
        text.split("::")
            .filter(|n| !n.is_empty())
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn imports_are_read_from_trees_and_inline_paths() {
        let read = modules(&[
            ("lib.rs", "mod a;\nmod b;"),
            ("a.rs", "use crate::b::{self, c::{D, E as F}, G};\nfn f() {}"),
            ("b/mod.rs", "mod c;\nfn g() { super::a::f() }"),
            (
                "b/c.rs",
                "// crate::a\nuse super::super::a;\n#[cfg(test)]\nmod tests { use crate::b; }",
            ),
        ]);
        let found: Vec<(String, String)> = read
            .imports
            .iter()
            .map(|(from, to)| (from.join("::"), to.join("::")))
            .collect();
        let expected = [("a", "b"), ("a", "b::c"), ("b", "a"), ("b::c", "a")];
        assert_eq!(found, expected.map(|(from, to)| (from.to_owned(), to.to_owned())));
        assert_eq!(read.lines[&path("a")], 2);
        assert_eq!(read.lines[&path("b::c")], 1);
    }

    #[test]
    fn a_circle_is_one_of_modules_with_one_parent() {
        let round = [
            ("lib.rs", ""),
            ("a/mod.rs", "use self::x::X;"),
            ("a/x.rs", "use super::y::Y; use crate::b::B;"),
            ("a/y.rs", "use super::x::X;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use crate::a::A;"),
            ("d.rs", "use crate::a::A;"),
        ];
        let circles = modules(&round).circles();
        let names: Vec<Vec<String>> = circles
            .iter()
            .map(|c| c.iter().map(|p| p.join("::")).collect())
            .collect();
        assert_eq!(names, [vec!["a", "b", "c"], vec!["a::x", "a::y"]]);
        let straight = modules(&[
            ("lib.rs", ""),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use super::c;"),
            ("c.rs", ""),
        ]);
        assert!(straight.circles().is_empty());
    }

    #[test]
    fn a_module_and_its_own_parts_are_no_circle() {
        let read = modules(&[
            ("lib.rs", "use a::A;"),
            ("a/mod.rs", "use x::X;"),
            ("a/x.rs", "use super::A;"),
        ]);
        assert!(read.circles().is_empty(), "{:?}", read.imports);
    }
}
