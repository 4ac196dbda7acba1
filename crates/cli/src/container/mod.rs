//! `fleetgate container`: which containers run on this machine, and a program in one of them. What a container is, and how
//! it is entered, is known to the crates `containers` and `enter`.

mod exec;

pub use exec::exec;

use crate::flags::{Arguments, Outcome};
use crate::output;
use fleetgate_containers::{ContainerRecord, SearchPaths};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Where to look: the usual places, or the runtime's root that was named.
fn search_paths(given: &Arguments) -> Result<SearchPaths, String> {
    match given.value("root") {
        None => Ok(SearchPaths::default()),
        Some(root) if !Path::new(root).is_dir() => Err(format!("--root {root}: there is no such directory")),
        Some(root) => Ok(SearchPaths {
            runtimes: vec![PathBuf::from(root)],
            ..SearchPaths::none()
        }),
    }
}

/// What runtimes keep is root's to read, and containers root's to enter.
fn needs_root() -> Result<(), &'static str> {
    match fleetgate_sys::process::effective_uid() {
        0 => Ok(()),
        _ => Err("this takes root: become root, or go by the machine's node (`ssh ACCOUNT+CONTAINER@NODE`)"),
    }
}

/// `container ls`
pub fn list(given: &Arguments) -> Outcome {
    needs_root()?;
    let all = fleetgate_containers::list(&search_paths(given)?);
    if given.has("json") {
        let containers: Vec<_> = all.iter().map(document).collect();
        return output::json(&json!({ "containers": containers }));
    }
    if all.is_empty() {
        return output::print("no container runs here\n");
    }
    let rows: Vec<[String; 4]> = all
        .iter()
        .map(|found| {
            let id: String = found.id.chars().take(12).collect();
            [
                found.display_name().to_owned(),
                id,
                found.runtime.to_string(),
                found.pid.to_string(),
            ]
        })
        .collect();
    output::print(&output::table(&["NAME", "ID", "RUNTIME", "PROCESS"], &rows))
}

fn document(found: &ContainerRecord) -> serde_json::Value {
    json!({
        "name": found.display_name(),
        "id": found.id,
        "names": found.names,
        "runtime": found.runtime.name(),
        "pid": found.pid,
        "labels": found.labels,
    })
}
