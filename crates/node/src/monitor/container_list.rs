//! The containers of this machine that a login may enter: what `fleetgate ls --containers`, or `ssh -s NODE
//! fleetgate-containers`, shows.

use super::containers::SeenLabels;
use super::open_login::OpenLogin;
use super::timers::unix_seconds;
use super::tools::Tools;
use crate::config::trust::Trust;
use fleetgate_containers::ContainerRecord;
use fleetgate_policy::text;
use fleetgate_policy::{INTO, Kind};
use fleetgate_wire::node::front::{Program, Start};
use serde_json::json;

/// The subsystems that list them.
const AS_TABLE: &[u8] = b"fleetgate-containers";
const AS_JSON: &[u8] = b"fleetgate-containers-json";
/// What is said where there are none.
const NONE: &str = "no container runs here that you may enter\n";
/// How many characters of an id people are shown.
const SHOWN_ID: usize = 12;

/// How a list is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListForm {
    /// For people.
    Table,
    /// A line of JSON for each container.
    Json,
}

impl ListForm {
    /// Of a request for a list; none: it asks for something else.
    pub fn of(start: &Start) -> Option<ListForm> {
        match &start.program {
            Program::Subsystem { name } if name == AS_TABLE => Some(ListForm::Table),
            Program::Subsystem { name } if name == AS_JSON => Some(ListForm::Json),
            _ => None,
        }
    }
}

/// Those of `seen` that the login's account may enter, each with the login that leads there.
pub fn of(
    open_login: &OpenLogin,
    tools: &Tools,
    trust: &Trust,
    seen: &[ContainerRecord],
    form: ListForm,
) -> String {
    let account = open_login.grant.login.account();
    // Who may do nothing in a container needs to know of none.
    let permits = &open_login.grant.permits;
    let may_do = Kind::ALL.into_iter().any(|kind| permits.allow_kind(kind).is_ok())
        || permits.named_commands().is_some();
    let seen = if may_do { seen } else { &[] };
    let mine: Vec<(&ContainerRecord, String)> = seen
        .iter()
        .filter_map(|found| {
            let logins = found.login_names().map(|name| format!("{account}{INTO}{name}"));
            let mut logins = logins.filter(|login| may_enter(open_login, tools, trust, login, found));
            Some((found, logins.next()?))
        })
        .collect();
    match form {
        ListForm::Json => mine.iter().map(|(found, login)| line(found, login)).collect(),
        ListForm::Table if mine.is_empty() => NONE.to_owned(),
        ListForm::Table => {
            let row = |(found, login): &(&ContainerRecord, String)| {
                let id = found.id.chars().take(SHOWN_ID).collect();
                let name = found.display_name().to_owned();
                [name, id, found.runtime.to_string(), login.clone()]
            };
            let rows: Vec<[String; 4]> = mine.iter().map(row).collect();
            text::table(&["NAME", "ID", "RUNTIME", "LOGIN"], &rows)
        }
    }
}

fn line(found: &ContainerRecord, login: &str) -> String {
    let document = json!({
        "name": found.display_name(),
        "id": found.id,
        "names": found.names,
        "runtime": found.runtime.name(),
        "login": login,
        "labels": found.labels,
    });
    format!("{document}\n")
}

/// Whether somebody who is let in as he was would be let in as `login` too.
fn may_enter(
    open_login: &OpenLogin,
    tools: &Tools,
    trust: &Trust,
    login: &str,
    found: &ContainerRecord,
) -> bool {
    // With `containers = []` a login has no part that could be a container.
    let name = trust.login(login.as_bytes());
    let Some(name) = name.filter(|name| name.container().is_some()) else {
        return false;
    };
    let is_name = name.container().is_some_and(|name| found.has_name(name));
    if open_login.cluster_logins.is_empty() {
        return trust.lets_into(&name) && (is_name || trust.lets_into_by_id(&name));
    }
    let Some(cluster) = &tools.cluster else {
        return false;
    };
    let (now, seen) = (unix_seconds(), SeenLabels::of(found));
    let labels = seen.known(None);
    cluster.locked(login, now).is_none()
        && open_login.cluster_logins.iter().all(|one| {
            let decided = cluster.decide_login(&one.identity, one.expires, login, labels, now, trust.skew);
            decided.is_ok_and(|allowed| is_name || allowed.container_by_id)
        })
}
