//! `fleetgate role …`.

use super::{Admin, ask, call, events, removed, word};
use crate::flags::{Arguments, Outcome};
use crate::output::{self, print};
use fleetgate_base::exit;
use fleetgate_client::error::ClientError;
use fleetgate_client::files;
use fleetgate_policy::cluster::{Labels, NO_ACCOUNT, Name, Role, Selector, Span, parse_roles, write_roles};
use fleetgate_proto::v1::{
    ApplyRoleRequest, Empty, EventsRequest, Node, NodesRequest, RoleName, TestRoleRequest,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use tonic::Code;

/// The latest logins of a node that are looked at for accounts that are not there.
const LOGINS_LOOKED_AT: u32 = 1000;
/// Auth's word for a role that was so already.
const UNCHANGED: &str = "unchanged";

/// `role apply`
pub fn apply(given: &Arguments) -> Outcome {
    // The table requires it.
    let file = given.value("file").unwrap_or_default();
    let text = match file {
        "-" => {
            let mut text = String::new();
            std::io::stdin()
                .lock()
                .take(files::MAX_FILE)
                .read_to_string(&mut text)?;
            text
        }
        path => files::read_given(Path::new(path))?.to_string(),
    };
    let dry_run = given.has("dry-run");
    // Auth reads the roles itself, and may know keys that this program does not. It does not know the file's name.
    let name = if file == "-" { "standard input" } else { file };
    let roles = parse_roles(name, &text);
    let request = ApplyRoleRequest { text, dry_run };
    let (changes, nodes) = ask(given, async |mut admin| {
        let applied = admin.apply_role(request).await;
        let changes = applied
            .map_err(|refused| match &roles {
                Err(why) if refused.code() == Code::InvalidArgument => ClientError::Usage(why.to_string()),
                _ => ClientError::from(refused),
            })?
            .into_inner()
            .changes;
        let every = NodesRequest::default();
        Ok((changes, admin.nodes(every).await?.into_inner().nodes))
    })?;
    let changed = |role: &&Role| {
        let mut changes = changes.iter();
        changes.any(|c| c.name == role.name.as_str() && c.what != UNCHANGED)
    };
    let warnings: Vec<String> = roles
        .iter()
        .flatten()
        .filter(changed)
        .flat_map(|role| opens_nothing(role).into_iter().chain(without_nodes(role, &nodes)))
        .collect();
    for warning in &warnings {
        eprintln!("{}", output::printable(warning));
    }
    output::either(
        given.has("json"),
        || {
            let rows: Vec<_> = changes
                .iter()
                .map(|c| json!({ "name": c.name, "what": c.what }))
                .collect();
            json!({ "changes": rows, "dry_run": dry_run, "warnings": warnings })
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

/// A sentence for a role that opens nothing, as one whose file was cut, or holds its commands alone.
fn opens_nothing(role: &Role) -> Option<String> {
    // Administrators and those who see recordings need no way in anywhere.
    let is_for_else = role.admin || role.recordings.is_some();
    let what = match (is_for_else, role.nodes.is_empty(), role.logins.is_empty()) {
        (true, true, true) | (_, false, false) => return None,
        (_, true, true) => "nodes and no logins",
        (_, true, false) => "nodes",
        (_, false, true) => "logins",
    };
    Some(format!(
        "warning: role {}: it names no {what}, so it lets its users in nowhere",
        role.name
    ))
}

/// A sentence for each selector of a role that no node fits: a label or a name that was mistyped opens nothing.
fn without_nodes(role: &Role, nodes: &[Node]) -> Vec<String> {
    let fits = |selector: &Selector| {
        nodes.iter().any(|node| {
            let name = Name::parse(&node.name);
            let labels = Labels::of(node.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())));
            name.is_ok_and(|name| selector.matches(&name, &labels.unwrap_or_default()))
        })
    };
    let seen = role.recordings.iter().flat_map(|rights| &rights.nodes);
    // Every node is a selector that a cluster without nodes fits too.
    let seen = seen.filter(|selector| **selector != Selector::all());
    let unfit = role.nodes.iter().chain(seen).filter(|selector| !fits(selector));
    unfit
        .map(|selector| {
            format!(
                "warning: role {}: no node matches {:?} now: `fleetgate node ls` lists them with their labels",
                role.name,
                selector.to_string()
            )
        })
        .collect()
}

/// `role ls`
pub fn list(given: &Arguments) -> Outcome {
    let roles = fetch(given)?;
    let headings = ["role", "nodes", "logins", "recorded", "sees"];
    output::list(given.has("json"), "roles", &roles, document, headings, |r| {
        let nodes: Vec<String> = r.nodes.iter().map(ToString::to_string).collect();
        [
            r.name.to_string(),
            nodes.join(" or "),
            logins_of(r),
            recorded(r),
            sees(r),
        ]
    })
}

/// What is recorded of a role's sessions, and how long that is kept.
fn recorded(role: &Role) -> String {
    match (role.recording.is_wanted(), role.recording_keep) {
        (false, _) => String::new(),
        (true, None) => role.recording.name().to_owned(),
        (true, Some(keep)) => format!("{} ({})", role.recording.name(), Span(keep)),
    }
}

/// Whose recordings a role's users may see.
fn sees(role: &Role) -> String {
    match (&role.recordings, role.admin) {
        (_, true) => "all recordings".to_owned(),
        (Some(rights), false) => rights.words(),
        (None, false) => String::new(),
    }
}

/// A role's logins, with what it asks of the containers that they lead into.
fn logins_of(role: &Role) -> String {
    let labels: Vec<String> = role.containers.iter().map(ToString::to_string).collect();
    match labels.is_empty() {
        true => role.logins.join(","),
        false => format!(
            "{} (containers with {})",
            role.logins.join(","),
            labels.join(" or ")
        ),
    }
}

/// `role show`
pub fn show(given: &Arguments) -> Outcome {
    let name = word(given);
    let roles = fetch(given)?;
    let role = roles.iter().find(|r| r.name.as_str() == name);
    let role = role.ok_or_else(|| {
        ClientError::Refused(format!(
            "there is no role {name}: `fleetgate role ls` shows those there are"
        ))
    })?;
    match given.has("json") {
        true => output::json(&document(role)),
        false => print(&write_roles([role])),
    }
}

/// `role rm`
pub fn remove(given: &Arguments) -> Outcome {
    let name = word(given);
    call(given, Admin::remove_role, RoleName { name: name.clone() })?;
    removed(given, &name)
}

/// `role test`
pub fn test(given: &Arguments) -> Outcome {
    let word = word(given);
    // It was read once by the parser.
    let (user, node) = word.split_once('@').unwrap_or_default();
    let request = TestRoleRequest {
        user: user.to_owned(),
        node: node.to_owned(),
        login: given.value("login").unwrap_or_default().to_owned(),
        mfa_age: given.seconds("mfa-age"),
        device: given.has("device"),
    };
    let (reply, missing) = ask(given, async |mut admin| {
        let reply = admin.test_role(request).await?.into_inner();
        let latest = EventsRequest {
            node: node.to_owned(),
            events: vec!["login_accepted".to_owned(), "login_refused".to_owned()],
            limit: LOGINS_LOOKED_AT,
            ..EventsRequest::default()
        };
        let mut missing = MissingAccounts::default();
        events(&mut admin, latest, |line| missing.take(line)).await?;
        Ok((reply, missing))
    })?;
    let warnings: Vec<String> = missing.of(given.value("login"), &reply.steps, node);
    output::either(
        given.has("json"),
        || json!({ "allowed": reply.allowed, "steps": reply.steps, "warnings": warnings }),
        || {
            let lines = reply.steps.iter().chain(&warnings);
            let text: String = lines.map(|l| format!("{}\n", output::printable(l))).collect();
            text + if reply.allowed { "yes\n" } else { "no\n" }
        },
    )?;
    Ok(if reply.allowed { 0 } else { exit::REFUSED })
}

/// Accounts that were not there when somebody last came for them, and when that was.
#[derive(Default)]
struct MissingAccounts(BTreeMap<String, String>);

impl MissingAccounts {
    /// A login that was accepted or refused; the latest counts.
    fn take(&mut self, line: &str) {
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        let Some(login) = event["login"].as_str() else {
            return;
        };
        if event["rule"] == NO_ACCOUNT {
            let time = output::moment(event["time"].as_str().unwrap_or_default());
            self.0.insert(login.to_owned(), time);
        } else if event["event"] == "login_accepted" {
            self.0.remove(login);
        }
    }

    /// Sentences about the login that was asked for, or about those that the steps name.
    fn of(&self, login: Option<&str>, steps: &[String], node: &str) -> Vec<String> {
        let is_meant = |account: &str| match login {
            Some(login) => login == account,
            None => steps.iter().any(|step| {
                step.split(|c: char| c.is_whitespace() || ":,".contains(c))
                    .any(|w| w == account)
            }),
        };
        let said = |(account, time): (&String, &String)| {
            format!("warning: there was no account {account} on {node} when somebody came for it ({time})")
        };
        self.0
            .iter()
            .filter(|(account, _)| is_meant(account))
            .map(said)
            .collect()
    }
}

fn fetch(given: &Arguments) -> Result<Vec<Role>, ClientError> {
    let documents = call(given, Admin::roles, Empty {})?.roles;
    let read = |text: &String| {
        Role::parse_json(text.as_bytes())
            .map_err(|e| ClientError::Refused(format!("a role cannot be read: {e}")))
    };
    documents.iter().map(read).collect()
}

fn document(role: &Role) -> Value {
    serde_json::from_str(&role.to_json()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_that_no_node_fits_is_warned_of() {
        let text = "[role.dba]\nnodes = [\"env=prd\", \"web*\", \"db1\"]\nlogins = [\"root\"]\n";
        let roles = parse_roles("roles.toml", text).expect("roles");
        let node = Node {
            name: "web1".to_owned(),
            labels: [("env".to_owned(), "prod".to_owned())].into(),
            ..Node::default()
        };
        let warnings = without_nodes(&roles[0], std::slice::from_ref(&node));
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            warnings[0].contains("role dba: no node matches \"env=prd\""),
            "{warnings:?}"
        );
        assert!(warnings[1].contains("\"db1\""), "{warnings:?}");
        let right = parse_roles("roles.toml", &text.replace("prd", "prod").replace("db1", "*"));
        let right = right.expect("roles");
        assert_eq!(without_nodes(&right[0], &[node]), [""; 0]);
        assert_eq!(opens_nothing(&right[0]), None);
        let said = |text: &str| opens_nothing(&parse_roles("r.toml", text).expect("roles")[0]);
        let why = said("[role.x]\nkinds = []").expect("it opens nothing");
        assert!(why.contains("names no nodes and no logins"), "{why}");
        assert!(said("[role.x]\nnodes = [\"*\"]").is_some_and(|why| why.contains("no logins")));
        assert_eq!(said("[role.x]\nadmin = true"), None);
        let auditor = "[role.x]\n[role.x.recordings]\nof = [\"*\"]\nnodes = [\"env=prod\"]\nmay = [\"play\"]";
        assert_eq!(said(auditor), None);
        let auditor = parse_roles("r.toml", auditor).expect("roles");
        assert_eq!(sees(&auditor[0]), "play: of *, on env=prod, as *");
        assert_eq!(without_nodes(&auditor[0], &[]).len(), 1);
        let kept = parse_roles(
            "r.toml",
            "[role.x]\nrecording = \"full\"\nrecording_keep = \"90d\"",
        )
        .expect("roles");
        assert_eq!(recorded(&kept[0]), "full (90d)");
    }

    #[test]
    fn a_list_of_roles_says_which_containers() {
        let said = |containers: &str| {
            let text = format!("[role.x]\nlogins = [\"deploy\", \"deploy+*\"]\n{containers}");
            logins_of(&parse_roles("r.toml", &text).expect("roles")[0])
        };
        assert_eq!(said(""), "deploy,deploy+*");
        assert_eq!(
            said("containers = [\"app=web|db\", \"tier=x\"]"),
            "deploy,deploy+* (containers with app=web|db or tier=x)"
        );
    }

    #[test]
    fn an_account_that_was_missing_is_warned_of_until_somebody_came_in() {
        let mut missing = MissingAccounts::default();
        let refused = r#"{"time":"2026-01-31T14:00:05.123Z","event":"login_refused","login":"ghost","rule":"no account"}"#;
        let step = ["ghost: yes, by role dev".to_owned()];
        missing.take(refused);
        let want =
            ["warning: there was no account ghost on web1 when somebody came for it (2026-01-31 14:00:05)"];
        assert_eq!(missing.of(Some("ghost"), &[], "web1"), want);
        assert_eq!(missing.of(None, &step, "web1"), want);
        assert_eq!(missing.of(Some("root"), &step, "web1"), [""; 0]);
        missing.take(r#"{"event":"login_refused","login":"ghost","rule":"role dba"}"#);
        assert_eq!(missing.of(Some("ghost"), &[], "web1"), want);
        missing.take(r#"{"event":"login_accepted","login":"ghost"}"#);
        assert_eq!(missing.of(Some("ghost"), &[], "web1"), [""; 0]);
    }
}
