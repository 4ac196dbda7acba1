//! Names of the cluster for a shell that completes a word. It asks over the kept connection to the proxy, for a second at most;
//! without an answer it takes the last one, a file in the login's directory. It writes nothing to standard error and asks no
//! person anything: a shell is in the middle of a line.

use crate::flags::Outcome;
use crate::output::print;
use fleetgate_client::connect::{self, AdminEndpoint};
use fleetgate_client::error::ClientError;
use fleetgate_client::files;
use fleetgate_client::master_client::{Keep, PERSIST, ProxyConnector};
use fleetgate_client::profile::Home;
use fleetgate_client::timings::Timings;
use fleetgate_policy::cluster::Role;
use fleetgate_policy::text::is_unseen;
use fleetgate_proto::v1::Empty;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

/// What can be asked for.
pub const WHAT: &[&str] = &["nodes", "users", "roles"];
/// How long an answer may take.
const TIME: Duration = Duration::from_secs(1);
/// An answer that is younger is not asked for again: a person presses the key more than once.
const FRESH: Duration = Duration::from_secs(10);
/// Names that are offered, at most.
pub const MAX_NAMES: usize = 10_000;

/// What a word of the table stands for, as `complete` has it.
pub const fn of(name: &str) -> Option<&'static str> {
    match name.as_bytes() {
        b"NODE" | b"SELECTOR" => Some("nodes"),
        b"USER" => Some("users"),
        b"ROLE" => Some("roles"),
        _ => None,
    }
}

/// `complete`: the names, one a line.
pub fn run(what: &str) -> Outcome {
    let Ok(home) = Home::find(None) else { return Ok(0) };
    let place = home.file(&format!("mux/{what}"));
    let names = match kept(&place, Some(FRESH)) {
        Some(names) => names,
        None => match connect::run(async { Ok(timeout(TIME, ask(&home, what)).await) }) {
            Ok(Ok(Ok(names))) => {
                let names = offered(names);
                // Without the file the next key asks again.
                let _ = files::write(&place, 0o600, names.as_bytes());
                names
            }
            _ => kept(&place, None).unwrap_or_default(),
        },
    };
    print(&names)
}

/// The last answer, if it is there and young enough.
fn kept(place: &PathBuf, age: Option<Duration>) -> Option<String> {
    let written = std::fs::metadata(place).and_then(|m| m.modified()).ok()?;
    let old = SystemTime::now().duration_since(written).unwrap_or_default();
    if age.is_some_and(|age| old > age) {
        return None;
    }
    files::read_text(place).ok().map(|text| text.to_string())
}

async fn ask(home: &Home, what: &str) -> Result<Vec<String>, ClientError> {
    let profile = home.login()?;
    if what == "nodes" {
        let mut connector = ProxyConnector::new(home, Keep::For(PERSIST), Some(TIME), |_| {});
        let (_, nodes) = connector
            .nodes(&profile.proxy, "", &mut Timings::default())
            .await?;
        return Ok(nodes.into_iter().map(|n| n.name).collect());
    }
    // Administrators alone are told; others get nothing to choose from.
    let mut admin = AdminEndpoint::Login(home.clone()).admin().await?;
    Ok(match what {
        "users" => {
            let users = admin.users(Empty {}).await?.into_inner().users;
            users.into_iter().map(|u| u.name).collect()
        }
        _ => {
            let documents = admin.roles(Empty {}).await?.into_inner().roles;
            let role = |text: &String| Role::parse_json(text.as_bytes()).ok();
            documents
                .iter()
                .filter_map(role)
                .map(|r| r.name.to_string())
                .collect()
        }
    })
}

/// Words that a shell takes as they are: whoever names them does not get to type for the person.
fn offered(mut names: Vec<String>) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '@' | '+' | ':');
    names.retain(|n| !n.is_empty() && !n.starts_with('-') && n.chars().all(|c| plain(c) && !is_unseen(c)));
    names.sort();
    names.truncate(MAX_NAMES);
    names.iter().map(|n| format!("{n}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_shell_would_act_on_are_not_offered() {
        let names = [
            "web1",
            "$(reboot)",
            "a b",
            "-x",
            "`id`",
            "db.eu",
            "x;y",
            "",
            "a\u{200b}",
            "*",
        ];
        assert_eq!(offered(names.map(str::to_owned).to_vec()), "db.eu\nweb1\n");
        let many = (0..MAX_NAMES + 5).map(|n| format!("n{n}")).collect();
        assert_eq!(offered(many).lines().count(), MAX_NAMES);
    }
}
