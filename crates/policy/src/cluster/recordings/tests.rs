//! Who may see what, as a table: every no has its yes beside it.

use super::*;
use crate::cluster::{Lock, Subject, Target};
use RecordingRight::{Delete, Join, List, Play, Watch};

const NOW: u64 = 1_800_000_000;
const SKEW: u64 = 60;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn rights(of: &[&str], nodes: &str, logins: &[&str], may: &[RecordingRight]) -> RecordingRights {
    RecordingRights {
        of: of.iter().map(|text| text.to_string()).collect(),
        nodes: vec![Selector::parse(nodes).unwrap()],
        logins: logins.iter().map(|text| text.to_string()).collect(),
        may: may.to_vec(),
    }
}

fn roles() -> BTreeMap<Name, Role> {
    let role = |text: &str, change: &dyn Fn(&mut Role)| {
        let mut role = Role::new(name(text));
        change(&mut role);
        (role.name.clone(), role)
    };
    BTreeMap::from([
        role("auditor", &|r| {
            r.recordings = Some(rights(&["*"], "env=prod", &["*"], &[Play]));
        }),
        role("own", &|r| {
            r.recordings = Some(rights(&[USER], "*", &["*"], &[Join, Play]));
        }),
        role("not-prod", &|r| {
            r.recordings = Some(rights(&["*"], "env!=prod", &["*"], &[List]));
        }),
        role("desk", &|r| {
            r.recordings = Some(rights(
                &["dev-*"],
                "web*",
                &["root", "{user}+*"],
                &[Watch, Delete],
            ));
            r.require_mfa = Some(Duration::from_secs(900));
        }),
        role("device", &|r| {
            r.recordings = Some(rights(&["*"], "*", &["*"], &[Delete]));
            r.require_trusted_device = true;
        }),
        role("boss", &|r| r.admin = true),
        role("plain", &|_| {}),
    ])
}

struct Case {
    identity: Identity,
    locks: Vec<Lock>,
    owner: &'static str,
    node: &'static str,
    login: &'static str,
    labels: Option<Labels>,
}

/// Eve with these roles, a second factor of a minute ago, before a session of dev-bob's as root on web1 (env=prod).
fn eve(roles: &[&str]) -> Case {
    Case {
        identity: Identity {
            cluster: name("c"),
            subject: Subject::User(name("eve")),
            roles: roles.iter().map(|role| name(role)).collect(),
            issued: NOW - 60,
            serial: 41,
            mfa: Some(NOW - 60),
            device: None,
            ends: None,
        },
        locks: Vec::new(),
        owner: "dev-bob",
        node: "web1",
        login: "root",
        labels: Some(Labels::of([("env", "prod")]).unwrap()),
    }
}

impl Case {
    fn of(mut self, owner: &'static str) -> Case {
        self.owner = owner;
        self
    }

    fn at(mut self, node: &'static str, login: &'static str) -> Case {
        (self.node, self.login) = (node, login);
        self
    }

    fn labelled(mut self, env: Option<&'static str>) -> Case {
        self.labels = env.map(|env| Labels::of([("env", env)]).unwrap());
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Identity)) -> Case {
        change(&mut self.identity);
        self
    }

    fn locked(mut self, target: Target) -> Case {
        self.locks.push(Lock {
            id: name("l1"),
            target,
            serial_before: None,
            expires: None,
            reason: String::new(),
            created: NOW - 10,
            by: "root".into(),
        });
        self
    }

    fn asks(&self, right: RecordingRight, expires: Option<u64>, any: bool) -> Result<ViewAllowed, Refusal> {
        may_see(&ViewAttempt {
            identity: &self.identity,
            expires,
            cluster: &name("c"),
            machine: &name("auth1"),
            roles: &roles(),
            locks: &self.locks.iter().cloned().collect(),
            right,
            session: (!any).then_some(ViewedSession {
                owner: self.owner,
                node: self.node,
                labels: self.labels.as_ref(),
                login: self.login,
            }),
            now: NOW,
            skew: SKEW,
        })
    }
}

#[test]
fn who_may_see_what() {
    let yes = |role: &'static str| Ok(role);
    let no = |rule: &'static str| Err(rule);
    for (case, right, want) in [
        (eve(&["auditor"]), Play, yes("auditor")),
        (eve(&["auditor"]), List, yes("auditor")),
        (eve(&["auditor"]), Watch, no("no role")),
        (eve(&["auditor"]), Delete, no("no role")),
        (eve(&["auditor"]).labelled(Some("dev")), Play, no("role auditor")),
        // A node whose labels nobody knows has no label, and is not without one either.
        (eve(&["auditor"]).labelled(None), Play, no("role auditor")),
        (eve(&["not-prod"]).labelled(None), List, no("role not-prod")),
        (eve(&["not-prod"]).labelled(Some("dev")), List, yes("not-prod")),
        (eve(&["own"]).labelled(None).of("eve"), Play, yes("own")),
        (
            eve(&["auditor"]).labelled(None).at("", "root"),
            List,
            no("role auditor"),
        ),
        (
            eve(&["own"]).labelled(None).of("eve").at("", "eve"),
            Play,
            yes("own"),
        ),
        // Everybody's, also of those who came in without the cluster; one's own, and nobody's else.
        (eve(&["auditor"]).of(""), Play, yes("auditor")),
        (eve(&["own"]), Play, no("role own")),
        (eve(&["own"]).of(""), Play, no("role own")),
        (eve(&["own"]).of("eve"), Watch, yes("own")),
        (eve(&["own"]).of("eve2"), Watch, no("role own")),
        (eve(&["desk"]), Watch, yes("desk")),
        (eve(&["desk"]), Join, no("no role")),
        (eve(&["desk"]).of("bob"), Watch, no("role desk")),
        (eve(&["desk"]).at("db1", "root"), Watch, no("role desk")),
        (eve(&["desk"]).at("web1", "root+app"), Watch, no("role desk")),
        (eve(&["desk"]).at("web1", "eve+app"), Watch, yes("desk")),
        (eve(&["desk"]).at("web1", "eve"), Watch, no("role desk")),
        // A second factor and a device, as for a login.
        (
            eve(&["desk"]).with(|i| i.mfa = Some(NOW - 961)),
            Watch,
            no("role desk"),
        ),
        (eve(&["desk"]).with(|i| i.mfa = None), Delete, no("role desk")),
        (eve(&["device"]), Delete, no("role device")),
        (
            eve(&["device"]).with(|i| i.device = Some(name("d"))),
            Delete,
            yes("device"),
        ),
        // Administrators, and nobody else without the table.
        (eve(&["boss"]), Delete, yes("boss")),
        (eve(&["boss"]).labelled(None).of(""), Join, yes("boss")),
        (
            eve(&["boss"]).with(|i| i.mfa = Some(NOW - 3661)),
            List,
            no("role boss"),
        ),
        (eve(&["plain"]), List, no("no role")),
        (eve(&[]), List, no("no role")),
        (eve(&["gone"]), List, no("no role")),
        // Locks: on who looks, always; on the node or the account, where something runs.
        (
            eve(&["boss"]).locked(Target::User(name("eve"))),
            List,
            no("lock l1"),
        ),
        (
            eve(&["auditor"]).locked(Target::Role(name("auditor"))),
            Play,
            no("lock l1"),
        ),
        (
            eve(&["auditor"]).locked(Target::Node(name("web1"))),
            Play,
            yes("auditor"),
        ),
        (
            eve(&["auditor"]).locked(Target::Login("root".into())),
            Play,
            yes("auditor"),
        ),
        (
            eve(&["boss"]).locked(Target::Node(name("web1"))),
            Watch,
            no("lock l1"),
        ),
        (
            eve(&["boss"]).locked(Target::Login("root".into())),
            Join,
            no("lock l1"),
        ),
        (
            eve(&["boss"]).with(|i| i.subject = Subject::Node(name("web1"))),
            List,
            no("the certificate"),
        ),
        (
            eve(&["boss"]).with(|i| i.cluster = name("d")),
            List,
            no("the certificate"),
        ),
    ] {
        let said = case.asks(right, None, false);
        let about = format!(
            "{right:?} of {}@{} by {:?}",
            case.login, case.node, case.identity.roles
        );
        match (&said, want) {
            (Ok(allowed), Ok(role)) => assert_eq!(allowed.role.as_str(), role, "{about}"),
            (Err(refusal), Err(rule)) => assert_eq!(refusal.rule, rule, "{about}: {refusal}"),
            _ => panic!("{about}: {said:?}, not {want:?}"),
        }
    }
}

#[test]
fn a_refusal_says_what_would_be_allowed_and_a_yes_how_long_it_holds() {
    let words = |case: Case, right| case.asks(right, None, false).unwrap_err().words;
    assert_eq!(
        words(eve(&["auditor"]).labelled(Some("dev")), Play),
        "by role auditor, eve may play recordings of *, on env=prod, as *, and this one is of dev-bob on web1 as root: ask an \
         administrator for a role that allows it"
    );
    assert_eq!(
        words(eve(&["plain"]), Join),
        "eve has no role that may join sessions: ask an administrator for one ([role.NAME.recordings] of a role file)"
    );
    assert_eq!(
        words(eve(&["boss"]).with(|i| i.mfa = Some(NOW - 7200)), Play),
        "role boss asks for a second factor not older than 1h and yours is 2h old: run fleetgate login --mfa"
    );
    assert_eq!(
        words(eve(&["device", "desk"]).with(|i| i.mfa = None), Delete),
        "role desk asks for a second factor not older than 15m and you showed none: run fleetgate login --mfa"
    );
    let until = |case: Case, right, expires| case.asks(right, expires, false).unwrap().until;
    assert_eq!(until(eve(&["auditor"]), Play, None), None);
    assert_eq!(
        until(eve(&["auditor"]), Play, Some(NOW + 9)),
        Some(NOW + 9 + SKEW)
    );
    assert_eq!(until(eve(&["desk"]), Watch, None), Some(NOW + 900));
    // Of several the one that holds for longest.
    assert_eq!(until(eve(&["desk", "boss"]), Watch, None), Some(NOW + 3600));
    assert_eq!(until(eve(&["boss", "auditor"]), Play, None), None);
    let late = eve(&["boss"]).asks(List, Some(NOW - 61), false).unwrap_err();
    assert_eq!(
        (late.reason, late.rule.as_str()),
        (Reason::Expired, "the certificate")
    );
}

#[test]
fn whether_any_session_may_be_seen_at_all() {
    for (roles, right, want) in [
        (&["own"][..], Play, true),
        (&["own"], Delete, false),
        (&["plain"], List, false),
        (&["plain", "desk"], Delete, true),
        (&["boss"], Join, true),
    ] {
        assert_eq!(
            eve(roles).asks(right, None, true).is_ok(),
            want,
            "{roles:?} {right:?}"
        );
    }
}

#[test]
fn rights_are_told_in_words() {
    let all = roles();
    let said = |role: &str| explain_view(&all[&name(role)]).unwrap_or_default();
    assert_eq!(
        said("desk"),
        "by role desk: watch, delete: of dev-*, on web*, as root or {user}+*"
    );
    assert_eq!(
        said("boss"),
        "role boss administers the cluster, and so sees every recording, with a second factor not older than 1h"
    );
    assert_eq!(said("plain"), "");
    let names: Vec<&str> = RecordingRight::ALL.iter().map(|right| right.name()).collect();
    assert_eq!(names, ["list", "play", "watch", "join", "delete"]);
}
