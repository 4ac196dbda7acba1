//! `fleetgate role …`.

use super::{ask, word};
use crate::flags::{Given, Outcome};
use crate::{print, show};
use fleetgate_base::exit;
use fleetgate_client::error::ClientError;
use fleetgate_client::files;
use fleetgate_policy::cluster::{Role, write_roles};
use fleetgate_proto::v1::{ApplyRoleRequest, Empty, RoleName, TestRoleRequest};
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;

/// `role apply`
pub fn apply(given: &Given) -> Outcome {
    let Some(file) = given.value("file") else {
        return Err(
            ClientError::Usage("--file is missing: the file that describes the roles".to_owned()).into(),
        );
    };
    let text = match file {
        "-" => {
            let mut text = String::new();
            std::io::stdin()
                .lock()
                .take(files::MAX_FILE)
                .read_to_string(&mut text)?;
            text
        }
        path => files::read_text(Path::new(path))?.to_string(),
    };
    let dry_run = given.has("dry-run");
    let request = ApplyRoleRequest { text, dry_run };
    let changes = ask(given, async |mut admin| {
        Ok(admin.apply_role(request).await?.into_inner().changes)
    })?;
    show::either(
        given.has("json"),
        || {
            let rows: Vec<_> = changes
                .iter()
                .map(|c| json!({ "name": c.name, "what": c.what }))
                .collect();
            json!({ "changes": rows, "dry_run": dry_run })
        },
        || {
            let would = if dry_run { " (would be)" } else { "" };
            changes
                .iter()
                .map(|c| format!("{} {}{would}\n", c.name, c.what))
                .collect()
        },
    )
}

/// `role ls`
pub fn list(given: &Given) -> Outcome {
    let roles = fetch(given)?;
    show::either(
        given.has("json"),
        || json!({ "roles": roles.iter().map(document).collect::<Vec<_>>() }),
        || {
            let row = |r: &Role| {
                let nodes: Vec<String> = r.nodes.iter().map(ToString::to_string).collect();
                vec![r.name.to_string(), nodes.join(" or "), r.logins.join(",")]
            };
            show::table(
                &["role", "nodes", "logins"],
                &roles.iter().map(row).collect::<Vec<_>>(),
            )
        },
    )
}

/// `role show`
pub fn show(given: &Given) -> Outcome {
    let name = word(given)?;
    let roles = fetch(given)?;
    let role = roles.iter().find(|r| r.name.as_str() == name);
    let role = role.ok_or_else(|| ClientError::Refused(format!("there is no role {name}")))?;
    match given.has("json") {
        true => show::json(&document(role)),
        false => print(&write_roles([role])),
    }
}

/// `role rm`
pub fn remove(given: &Given) -> Outcome {
    let name = word(given)?;
    ask(given, async |mut admin| {
        Ok(admin.remove_role(RoleName { name }).await?.into_inner())
    })?;
    Ok(0)
}

/// `role test`
pub fn test(given: &Given) -> Outcome {
    let word = word(given)?;
    let Some((user, node)) = word.split_once('@') else {
        return Err(ClientError::Usage(format!("`{word}` is not USER@NODE")).into());
    };
    let request = TestRoleRequest {
        user: user.to_owned(),
        node: node.to_owned(),
        login: given.value("login").unwrap_or_default().to_owned(),
        mfa_age: given
            .seconds("mfa-age")
            .map(|s| u32::try_from(s).unwrap_or(u32::MAX)),
        device: given.has("device"),
    };
    let reply = ask(given, async |mut admin| {
        Ok(admin.test_role(request).await?.into_inner())
    })?;
    show::either(
        given.has("json"),
        || json!({ "allowed": reply.allowed, "steps": reply.steps }),
        || {
            let steps: String = reply
                .steps
                .iter()
                .map(|s| format!("{}\n", show::printable(s)))
                .collect();
            steps + if reply.allowed { "yes\n" } else { "no\n" }
        },
    )?;
    Ok(if reply.allowed { 0 } else { exit::REFUSED })
}

fn fetch(given: &Given) -> Result<Vec<Role>, ClientError> {
    let documents = ask(given, async |mut admin| {
        Ok(admin.roles(Empty {}).await?.into_inner().roles)
    })?;
    let read = |text: &String| {
        Role::parse_json(text.as_bytes())
            .map_err(|e| ClientError::Refused(format!("a role cannot be read: {e}")))
    };
    documents.iter().map(read).collect()
}

fn document(role: &Role) -> Value {
    serde_json::from_str(&role.to_json()).unwrap_or_default()
}
