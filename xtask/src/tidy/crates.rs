//! Rules about crates: their roots and what they depend on, as cargo itself sees it.

use super::{File, Finding, text};
use crate::shell::{Result, cargo, output, root};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// All that the session helper may be made of, itself left out.
const SESSION: [&str; 4] = ["fleetgate-logins", "fleetgate-sys", "fleetgate-wire", "libc"];
/// Roots that cannot forbid unsafe code: the crate that holds it, and an entry point that its macro writes. Both
/// are still read by the rule about the word itself.
const MAY_NOT_FORBID: [&str; 6] = [
    "crates/sys/src/lib.rs",
    "crates/check/src/main.rs",
    "crates/enter/src/main.rs",
    "crates/session/src/main.rs",
    "benches/src/bin/bare.rs",
    "benches/src/bin/true.rs",
];

/// What cargo knows of the workspace.
pub struct Metadata {
    /// Each package of ours.
    pub packages: Vec<Package>,
    /// Everything that goes into the session helper.
    session: BTreeSet<String>,
}

/// A package of ours.
pub struct Package {
    /// `fleetgate-NAME`.
    pub name: String,
    /// Its crate roots, as paths from the checkout's root.
    roots: Vec<String>,
    /// What it depends on, tests left out.
    pub uses: BTreeSet<String>,
}

/// Asks cargo.
pub fn metadata() -> Result<Metadata> {
    let text = output(cargo().args(["metadata", "--format-version", "1"]))?;
    let value: Value = serde_json::from_str(&text).map_err(|e| format!("cargo metadata: {e}"))?;
    let prefix = format!("{}/", root().display());
    Ok(parse(&value, &prefix))
}

/// Every rule of this file.
pub fn check(metadata: &Metadata, files: &[File]) -> Vec<Finding> {
    let mut findings = roots(metadata, files);
    findings.extend(session(&metadata.session));
    findings
}

fn parse(value: &Value, prefix: &str) -> Metadata {
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    let string = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let members: BTreeSet<String> = list(&value["workspace_members"]).iter().map(string).collect();
    let mut names = BTreeMap::new();
    let mut packages = Vec::new();
    for package in list(&value["packages"]) {
        names.insert(string(&package["id"]), string(&package["name"]));
        if !members.contains(&string(&package["id"])) {
            continue;
        }
        let uses = list(&package["dependencies"]);
        let uses = uses
            .iter()
            .filter(|d| d["kind"].is_null())
            .map(|d| string(&d["name"]))
            .collect();
        let roots = list(&package["targets"]);
        let roots = roots
            .iter()
            .map(|t| without_climbing(&string(&t["src_path"]).replace(prefix, "")))
            .collect();
        packages.push(Package {
            name: string(&package["name"]),
            roots,
            uses,
        });
    }
    // What a package's normal dependencies lead to, features and all.
    let mut edges: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for node in list(&value["resolve"]["nodes"]) {
        let deps = list(&node["deps"]);
        let normal = deps
            .iter()
            .filter(|d| list(&d["dep_kinds"]).iter().any(|k| k["kind"].is_null()));
        edges.insert(string(&node["id"]), normal.map(|d| string(&d["pkg"])).collect());
    }
    let start = names
        .iter()
        .find(|(_, name)| *name == "fleetgate-session")
        .map(|(id, _)| id.clone());
    let mut open: Vec<String> = start.iter().cloned().collect();
    let mut seen: BTreeSet<String> = open.iter().cloned().collect();
    while let Some(id) = open.pop() {
        for next in edges.get(&id).into_iter().flatten() {
            if seen.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    let session = seen.iter().filter(|id| Some(*id) != start.as_ref());
    let session = session.filter_map(|id| names.get(id).cloned()).collect();
    Metadata { packages, session }
}

/// The path without its `..`: two crates may share a build script.
fn without_climbing(path: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join("/")
}

/// Every crate root forbids unsafe code.
fn roots(metadata: &Metadata, files: &[File]) -> Vec<Finding> {
    let roots = metadata.packages.iter().flat_map(|p| &p.roots);
    roots
        .filter(|path| !MAY_NOT_FORBID.contains(&path.as_str()))
        .filter(|path| {
            !text(files, path)
                .unwrap_or_default()
                .contains("#![forbid(unsafe_code)]")
        })
        .map(|path| Finding::new(path, "a crate root without `#![forbid(unsafe_code)]`"))
        .collect()
}

/// The helper is made of exactly what the list says.
fn session(found: &BTreeSet<String>) -> Option<Finding> {
    let list: BTreeSet<String> = SESSION.iter().map(|s| s.to_string()).collect();
    (*found != list).then(|| {
        let rule = format!("the session helper is made of {found:?}, the exact list is {list:?}");
        Finding::new("crates/session/Cargo.toml", rule)
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use serde_json::json;

    fn workspace(session_uses: &str) -> Metadata {
        let value = json!({
            "workspace_members": ["s", "y"],
            "packages": [
                {"id": "s", "name": "fleetgate-session", "targets": [{"src_path": "/x/crates/session/src/lib.rs"}],
                 "dependencies": [{"name": "fleetgate-sys", "kind": null}, {"name": "rand", "kind": "dev"}]},
                {"id": "y", "name": "fleetgate-sys", "targets": [], "dependencies": []},
                {"id": "l", "name": "libc", "targets": [], "dependencies": []},
                {"id": "r", "name": "rand", "targets": [], "dependencies": []},
            ],
            "resolve": {"nodes": [
                {"id": "s", "deps": [{"pkg": "y", "dep_kinds": [{"kind": null}]},
                                     {"pkg": "r", "dep_kinds": [{"kind": session_uses}]}]},
                {"id": "y", "deps": [{"pkg": "l", "dep_kinds": [{"kind": null}]}]},
            ]},
        });
        parse(&value, "/x/")
    }

    #[test]
    fn what_the_helper_is_made_of_is_followed_through_normal_dependencies() {
        let metadata = workspace("dev");
        assert_eq!(
            metadata.session,
            ["fleetgate-sys", "libc"].map(str::to_owned).into()
        );
        assert_eq!(metadata.packages[0].uses, ["fleetgate-sys".to_owned()].into());
    }

    #[test]
    fn a_root_that_two_crates_share_has_one_name() {
        assert_eq!(without_climbing("crates/a/../b/build.rs"), "crates/b/build.rs");
        assert_eq!(without_climbing("crates/a/src/lib.rs"), "crates/a/src/lib.rs");
    }

    #[test]
    fn another_dependency_of_the_helper_is_found() {
        let exact: BTreeSet<String> = SESSION.map(str::to_owned).into();
        assert!(session(&exact).is_none());
        let mut more = exact.clone();
        more.insert("rand".to_owned());
        assert!(session(&more).is_some());
        let mut less = exact;
        less.remove("libc");
        assert!(session(&less).is_some());
    }

    #[test]
    fn a_root_that_allows_unsafe_code_is_found() {
        let metadata = workspace("dev");
        let path = "crates/session/src/lib.rs";
        assert_eq!(roots(&metadata, &sample(path, "//! Header.\n")).len(), 1);
        assert_eq!(
            roots(&metadata, &sample(path, "//! Header.\n#![forbid(unsafe_code)]\n")).len(),
            0
        );
    }
}
