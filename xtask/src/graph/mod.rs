//! `cargo xtask graph`: the structure as it is. It draws the crates, and the modules of the node's three crates, into
//! `docs/pictures`, and prints each crate's size, its largest file, how deep its modules are nested and which of them
//! import each other in a circle. `cargo xtask tidy` holds the pictures and the bounds to the code.

mod imports;
mod picture;

use crate::shell::{Result, heading, root, write};
use crate::tidy::{self, File, Finding, Metadata};
use imports::Modules;
use picture::Graph;
pub use picture::escaped;
use std::collections::BTreeMap;

/// Where the pictures are.
const PICTURES: &str = "docs/pictures";
/// The crates whose modules are drawn.
const DRAWN: [&str; 3] = ["node", "worker", "tunnel"];
/// The crates without a circle between modules; the others are still to be straightened.
const STRAIGHT: [&str; 17] = [
    "audit",
    "base",
    "calls",
    "launch",
    "logins",
    "node",
    "node-config",
    "orders",
    "proto",
    "proxy",
    "seal",
    "starter",
    "sys",
    "tunnel",
    "wire",
    "worker",
    "wtmpdb",
];

/// `cargo xtask graph`
pub fn main(args: &[String]) -> Result {
    let (files, metadata) = (tidy::files()?, tidy::metadata()?);
    match args {
        [] => {}
        [name] => return circles_of(name, &files, &metadata),
        _ => return Err("graph takes the name of one crate, or nothing".to_owned()),
    }
    for (name, svg) in pictures(&files, &metadata) {
        let path = format!("{PICTURES}/{name}.svg");
        write(&root().join(&path), svg.as_bytes())?;
        println!("{path}");
    }
    heading("lines of product code: no blank line, no comment, no test");
    let mut all = 0;
    for (name, modules) in crates(&files, &metadata) {
        let lines: usize = modules.lines.values().sum();
        all += lines;
        let (largest, of_it) = modules
            .lines
            .iter()
            .max_by_key(|(_, lines)| **lines)
            .map_or((String::new(), 0), |(path, lines)| (path.join("::"), *lines));
        let deepest = modules.lines.keys().map(Vec::len).max().unwrap_or(0);
        println!("{name:<10} {lines:>6}   largest {of_it:>4} {largest:<32} levels {deepest}");
        for circle in modules.circles() {
            let names: Vec<String> = circle.iter().map(|p| p.join("::")).collect();
            println!("{:<10} a circle of {}: {}", "", names.len(), names.join(", "));
        }
    }
    println!("{:<10} {all:>6}", "all");
    Ok(())
}

/// Prints the imports that make the circles of one crate.
fn circles_of(name: &str, files: &[File], metadata: &Metadata) -> Result {
    let crates = crates(files, metadata);
    let modules = crates
        .get(name)
        .ok_or_else(|| format!("graph: there is no crate {name:?}"))?;
    for circle in modules.circles() {
        println!("a circle of {}", circle.len());
        let member = |path: &imports::Path| circle.iter().find(|m| path.starts_with(m));
        for (from, to) in &modules.imports {
            if let (Some(a), Some(b)) = (member(from), member(to))
                && a != b
            {
                println!("  {} -> {}", from.join("::"), to.join("::"));
            }
        }
    }
    Ok(())
}

/// What of the structure does not hold, for `cargo xtask tidy`.
pub fn check(files: &[File], metadata: &Metadata) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, svg) in pictures(files, metadata) {
        let path = format!("{PICTURES}/{name}.svg");
        if tidy::text(files, &path) != Some(svg.as_str()) {
            findings.push(Finding::new(
                path,
                "not what the code makes: run `cargo xtask graph`",
            ));
        }
    }
    for (name, modules) in crates(files, metadata) {
        for circle in modules.circles() {
            if STRAIGHT.contains(&name.as_str()) {
                let names: Vec<String> = circle.iter().map(|p| p.join("::")).collect();
                let rule = format!(
                    "these modules import each other in a circle: {}",
                    names.join(", ")
                );
                findings.push(Finding::new(format!("crates/{name}"), rule));
            }
        }
    }
    findings
}

/// The crates below `crates/`, and the modules of each.
fn crates(files: &[File], metadata: &Metadata) -> BTreeMap<String, Modules> {
    let names = metadata
        .packages
        .iter()
        .filter_map(|p| p.name.strip_prefix("fleetgate-"));
    names
        .map(|name| (name.to_owned(), imports::read(&format!("crates/{name}"), files)))
        .filter(|(_, modules)| !modules.lines.is_empty())
        .collect()
}

fn pictures(files: &[File], metadata: &Metadata) -> Vec<(String, String)> {
    let crates = crates(files, metadata);
    let mut pictures = vec![("crates".to_owned(), crates_graph(&crates, metadata).svg())];
    for name in DRAWN {
        if let Some(modules) = crates.get(name) {
            pictures.push((name.to_owned(), modules_graph(name, modules).svg()));
        }
    }
    pictures
}

fn crates_graph(crates: &BTreeMap<String, Modules>, metadata: &Metadata) -> Graph {
    let boxes = crates.iter().map(|(name, modules)| {
        let lines: usize = modules.lines.values().sum();
        (name.clone(), rounded(lines))
    });
    let arrows = metadata.packages.iter().flat_map(|package| {
        let from = package.name.strip_prefix("fleetgate-").unwrap_or_default();
        let to = package.uses.iter().filter_map(|u| u.strip_prefix("fleetgate-"));
        to.map(move |to| (from.to_owned(), to.to_owned()))
    });
    let drawn = |(from, to): &(String, String)| crates.contains_key(from) && crates.contains_key(to);
    Graph {
        title: "Crates: each stands above those that it uses".to_owned(),
        boxes: boxes.collect(),
        arrows: arrows.filter(drawn).collect(),
    }
}

/// The modules right below the crate's root; where one of them holds most of the crate, its parts.
fn modules_graph(name: &str, modules: &Modules) -> Graph {
    let all: usize = modules.lines.values().sum();
    let below = |prefix: &[String]| -> usize {
        let parts = modules.lines.iter().filter(|(p, _)| p.starts_with(prefix));
        parts.map(|(_, lines)| lines).sum()
    };
    // The name of the box that a module is drawn in.
    let place = |path: &[String]| -> Option<String> {
        let first = path.first()?;
        let large =
            below(&path[..1]) * 2 > all && modules.lines.keys().any(|p| p.len() > 1 && p[0] == *first);
        Some(match path.get(1) {
            Some(second) if large => second.clone(),
            _ => first.clone(),
        })
    };
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for (path, own) in &modules.lines {
        if let Some(name) = place(path) {
            *lines.entry(name).or_default() += own;
        }
    }
    let arrows = modules
        .imports
        .iter()
        .filter_map(|(from, to)| Some((place(from)?, place(to)?)))
        .filter(|(from, to)| from != to);
    Graph {
        title: format!("Modules of {name}: each stands above those that it imports"),
        arrows: arrows.collect(),
        boxes: lines
            .into_iter()
            .map(|(name, lines)| (name, rounded(lines)))
            .collect(),
    }
}

/// Lines to two digits: a picture is not to change with every line.
fn rounded(lines: usize) -> String {
    let unit = match lines {
        0..100 => 10,
        100..1000 => 100,
        1000..10_000 => 1000,
        _ => 10_000,
    } / 2;
    format!("{} lines", (lines + unit / 2) / unit * unit)
}
