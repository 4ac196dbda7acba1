//! `fleetgate container`: which containers run on this machine, and a program in one of them. What a container is, and how
//! it is entered, is known to the crates `containers`, `container-exec` and `enter`.

mod exec;

pub use exec::exec;

use crate::flags::{Arguments, Outcome};
use crate::output;
use fleetgate_container_exec::{needs_root, note_on_users, search_paths};
use fleetgate_containers::ContainerRecord;
use serde_json::json;
use std::path::Path;

/// `container ls`
pub fn list(given: &Arguments) -> Outcome {
    needs_root()?;
    let root = given.value("root").map(Path::new);
    let all = fleetgate_containers::list(&search_paths(root)?);
    if let Some(note) = root.and_then(note_on_users) {
        eprintln!("fleetgate: {}", output::printable(&note));
    }
    if given.has("json") {
        let containers: Vec<_> = all.iter().map(document).collect();
        return output::json(&json!({ "containers": containers }));
    }
    if all.is_empty() {
        return output::print("no container runs here\n");
    }
    let rows: Vec<[String; 5]> = all
        .iter()
        .map(|found| {
            let id: String = found.id.chars().take(12).collect();
            [
                found.display_name().to_owned(),
                id,
                found.runtime.to_string(),
                found.pid.to_string(),
                state(found).to_owned(),
            ]
        })
        .collect();
    output::print(&output::table(
        &["NAME", "ID", "RUNTIME", "PROCESS", "STATE"],
        &rows,
    ))
}

fn state(found: &ContainerRecord) -> &'static str {
    match found.is_paused() {
        true => "paused",
        false => "running",
    }
}

fn document(found: &ContainerRecord) -> serde_json::Value {
    json!({
        "name": found.display_name(),
        "id": found.id,
        "names": found.names,
        "runtime": found.runtime.name(),
        "pid": found.pid,
        "state": state(found),
        "labels": found.labels,
    })
}
