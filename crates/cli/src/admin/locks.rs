//! `fleetgate lock …` and `fleetgate user lock`.

use super::{Admin, call, lifetime, moment, removed, word};
use crate::flags::{Arguments, Outcome};
use crate::output;
use fleetgate_policy::account_and_container;
use fleetgate_policy::cluster::{Name, Role};
use fleetgate_proto::v1::{AddLockRequest, Empty, Lock, LockId, LockTarget};
use serde_json::{Value, json};

/// What can be locked; flags of these names say which.
const KINDS: [&str; 7] = ["user", "node", "login", "account", "role", "device", "proxy"];

/// `lock add`
pub fn add(given: &Arguments) -> Outcome {
    let mut named = KINDS
        .into_iter()
        .filter_map(|kind| given.value(kind).map(|name| (kind, name)));
    match (named.next(), named.next()) {
        (Some((kind, name)), None) => lock(given, kind, name.to_owned()),
        (None, _) => Err(given
            .wrong(
                "give one of `--user`, `--node`, `--login`, `--account`, `--role`, `--device` and `--proxy`: it names what is locked",
            )
            .into()),
        (Some((one, _)), Some((other, _))) => Err(given
            .wrong(format!("`--{one}` and `--{other}` together: a lock is on one of them"))
            .into()),
    }
}

/// `user lock`
pub fn user(given: &Arguments) -> Outcome {
    lock(given, "user", word(given))
}

fn lock(given: &Arguments, kind: &str, name: String) -> Outcome {
    let target = LockTarget {
        kind: kind.to_owned(),
        name: name.clone(),
    };
    let request = AddLockRequest {
        target: Some(target),
        reason: given.value("reason").unwrap_or_default().to_owned(),
        lifetime: lifetime(given),
    };
    let lock = call(given, Admin::add_lock, request)?;
    if kind == "login" && !is_named(given, &name) {
        eprintln!(
            "note: no role names the account {}: this lock ends no login by a role. Is it misspelled, or a container's name?",
            output::printable(&name)
        );
    }
    output::either(
        given.has("json"),
        || document(&lock),
        || {
            format!(
                "lock {}: {}; `fleetgate lock rm {}` takes it back\n",
                lock.id,
                target_text(&lock),
                lock.id
            )
        },
    )
}

/// Whether a role has logins of this account, as far as the cluster says: the lock is made already.
fn is_named(given: &Arguments, account: &str) -> bool {
    let (Ok(roles), Ok(users)) = (
        call(given, Admin::roles, Empty {}),
        call(given, Admin::users, Empty {}),
    ) else {
        return true;
    };
    let mut users = users.users.iter().filter_map(|user| Name::parse(&user.name).ok());
    let user = users.find(|user| user.as_str() == account);
    roles.roles.iter().any(|role| {
        Role::parse_json(role.as_bytes()).map_or(true, |role| has_account(&role, account, user.as_ref()))
    })
}

/// Whether a role has logins of this account, which is this user's name too, if anybody's.
fn has_account(role: &Role, account: &str, user: Option<&Name>) -> bool {
    let is_it = |login: &str| account_and_container(login).0 == account;
    match user {
        Some(user) => role.logins_for(user).any(|login| is_it(&login)),
        None => role.logins.iter().any(|login| is_it(login)),
    }
}

/// `lock ls`
pub fn list(given: &Arguments) -> Outcome {
    let locks = call(given, Admin::locks, Empty {})?.locks;
    let headings = ["id", "what", "since", "ends", "by", "reason"];
    output::list(given.has("json"), "locks", &locks, document, headings, |l| {
        let (since, ends) = (moment(l.created, ""), moment(l.expires, "never"));
        [
            l.id.clone(),
            target_text(l),
            since,
            ends,
            l.by.clone(),
            l.reason.clone(),
        ]
    })
}

/// `lock rm`
pub fn remove(given: &Arguments) -> Outcome {
    let id = word(given);
    call(given, Admin::remove_lock, LockId { id: id.clone() })?;
    removed(given, &id)
}

fn target_text(lock: &Lock) -> String {
    let whom = lock
        .target
        .as_ref()
        .map_or(String::new(), |t| format!("{} {}", t.kind, t.name));
    match lock.issued_before {
        0 => whom,
        before => format!("{whom}, logins until {}", moment(before, "")),
    }
}

fn document(l: &Lock) -> Value {
    let target = l.target.clone().unwrap_or_default();
    json!({
        "id": l.id, "kind": target.kind, "name": target.name, "reason": l.reason, "created": l.created,
        "expires": l.expires, "by": l.by, "issued_before": l.issued_before,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_of_an_account_that_no_role_has_is_told() {
        let text = "[role.x]\nlogins = [\"{user}+web\", \"deploy\", \"root+db\"]";
        let roles = fleetgate_policy::cluster::parse_roles("r.toml", text).expect("roles");
        let ada = Name::parse("ada").expect("a name");
        for (account, user, wanted) in [
            ("deploy", None, true),
            ("root", None, true),
            ("db", None, false),
            ("ada", Some(&ada), true),
            ("ada", None, false),
        ] {
            assert_eq!(has_account(&roles[0], account, user), wanted, "{account}");
        }
    }

    #[test]
    fn a_lock_of_what_was_issued_until_a_moment_does_not_read_as_one_of_everything() {
        let target = Some(LockTarget {
            kind: "user".to_owned(),
            name: "alice".to_owned(),
        });
        let mut lock = Lock {
            target,
            ..Lock::default()
        };
        assert_eq!(target_text(&lock), "user alice");
        lock.issued_before = fleetgate_client::time::now() - 180;
        assert_eq!(target_text(&lock), "user alice, logins until 3m ago");
    }
}
