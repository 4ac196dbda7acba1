//! Decisions as a table: who, where, when, and what is answered. Every no has its yes beside it.

mod viewer;

use super::*;
use crate::cluster::{Lock, Selector, Subject, Target};
use crate::commands::Command;

mod containers;

const NOW: u64 = 1_800_000_000;
const SKEW: u64 = 60;
const REMEDY: &str = "ask an administrator for a role that allows it";

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn role(text: &str, nodes: &str, logins: &[&str], change: impl FnOnce(&mut Role)) -> (Name, Role) {
    let mut role = Role::new(name(text));
    role.nodes = vec![Selector::parse(nodes).unwrap()];
    role.logins = logins.iter().map(|login| login.to_string()).collect();
    change(&mut role);
    (role.name.clone(), role)
}

fn roles() -> BTreeMap<Name, Role> {
    BTreeMap::from([
        role("dev", "env=dev", &["{user}", "deploy"], |_| {}),
        role("dba", "role=db", &["{user}", "postgres"], |r| {
            r.require_mfa = Some(Duration::from_secs(900));
            r.kinds = vec![Kind::Shell, Kind::Pty];
            r.limits.session = Some(Duration::from_secs(3600));
            r.limits.sessions = Some(2);
            r.limits.lifetime = Duration::from_secs(7200);
            r.recording = Recording::Full;
            r.recording_keep = Some(Duration::from_secs(10 * 86_400));
            r.recording_recipients = vec![Recipient([2; 32]), Recipient([1; 32])];
        }),
        role("root", "*", &["root"], |r| {
            r.require_mfa = Some(Duration::from_secs(300));
            r.require_trusted_device = true;
        }),
        role("check", "*", &["nagios", "{user}"], |r| {
            r.kinds = vec![];
            r.commands = vec!["disk".into()];
            let own = Command::define(&["/bin/own"], &[]).unwrap();
            r.defined.add("own", own).unwrap();
            r.limits.sessions = Some(8);
            r.recording = Recording::Output;
            r.recording_failure = RecordingFailure::GoOn;
            r.recording_keep = Some(Duration::from_secs(90 * 86_400));
            r.recording_recipients = vec![Recipient([3; 32]), Recipient([1; 32])];
        }),
    ])
}

fn lock(id: &str, target: Target, change: impl FnOnce(&mut Lock)) -> Lock {
    let mut lock = Lock {
        id: name(id),
        target,
        serial_before: None,
        expires: None,
        reason: String::new(),
        created: NOW - 10,
        by: "root".into(),
    };
    change(&mut lock);
    lock
}

/// `alice` with these roles; what is said of it below.
struct Case {
    identity: Identity,
    expires: Option<u64>,
    locks: Vec<Lock>,
    node: &'static str,
    login: &'static str,
}

/// On `db1` (env=prod, role=db) as `alice`, a second factor 60 s old.
fn alice(roles: &[&str]) -> Case {
    Case {
        identity: Identity {
            cluster: name("c"),
            subject: Subject::User(name("alice")),
            roles: roles.iter().map(|role| name(role)).collect(),
            issued: NOW - 60,
            serial: 41,
            mfa: Some(NOW - 60),
            device: None,
            ends: None,
        },
        expires: None,
        locks: Vec::new(),
        node: "db1",
        login: "alice",
    }
}

impl Case {
    fn at(mut self, node: &'static str, login: &'static str) -> Case {
        (self.node, self.login) = (node, login);
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Identity)) -> Case {
        change(&mut self.identity);
        self
    }

    fn locked(mut self, target: Target, change: impl FnOnce(&mut Lock)) -> Case {
        self.locks.push(lock("l1", target, change));
        self
    }

    fn expires(mut self, at: u64) -> Case {
        self.expires = Some(at);
        self
    }

    fn ask<T>(&self, ask: impl FnOnce(&Attempt<'_>) -> T) -> T {
        let labels = match self.node {
            "db1" => Labels::of([("env", "prod"), ("role", "db")]),
            _ => Labels::of([("env", "dev")]),
        };
        ask(&Attempt {
            identity: &self.identity,
            expires: self.expires,
            cluster: &name("c"),
            roles: &roles(),
            locks: &Locks::new(self.locks.clone()),
            node: &name(self.node),
            labels: &labels.unwrap(),
            login: self.login,
            container: ContainerLabels::Unknown,
            now: NOW,
            skew: SKEW,
        })
    }
}

fn yes(roles: &[&str]) -> Result<Vec<Name>, (Reason, String, String)> {
    Ok(roles.iter().map(|role| name(role)).collect())
}

fn no(reason: Reason, rule: &str, words: &str) -> Result<Vec<Name>, (Reason, String, String)> {
    Err((reason, rule.to_string(), words.to_string()))
}

#[test]
fn who_comes_in_where_and_what_the_others_are_told() {
    let old = |identity: &mut Identity| identity.mfa = Some(NOW - 7200);
    let device = |identity: &mut Identity| identity.device = Some(name("laptop"));
    let cases = [
        (alice(&["dba"]), yes(&["dba"])),
        (alice(&["dba"]).at("db1", "postgres"), yes(&["dba"])),
        (
            alice(&["dba"]).at("db1", "root"),
            no(
                Reason::Role,
                "role dba",
                &format!(
                    "by role dba, alice has the logins alice, postgres on db1, not root: name one of these, or {REMEDY}"
                ),
            ),
        ),
        (
            alice(&["dba"]).at("web1", "alice"),
            no(
                Reason::Role,
                "role dba",
                &format!("alice has role dba, and none is for web1: {REMEDY}"),
            ),
        ),
        (
            alice(&[]),
            no(
                Reason::Role,
                "no role",
                &format!("alice has no role that would allow alice on db1: {REMEDY}"),
            ),
        ),
        // A role that was removed allows nothing.
        (
            alice(&["gone"]),
            no(
                Reason::Role,
                "role gone",
                &format!("alice has role gone, and none is for db1: {REMEDY}"),
            ),
        ),
        (alice(&["dev", "dba"]).at("web1", "deploy"), yes(&["dev"])),
        // The second factor.
        (
            alice(&["dba"]).with(old),
            no(
                Reason::Mfa,
                "role dba",
                "role dba asks for a second factor not older than 15m and yours is 2h old: run fleetgate login --mfa",
            ),
        ),
        (
            alice(&["dba"]).with(|i| i.mfa = None),
            no(
                Reason::Mfa,
                "role dba",
                "role dba asks for a second factor not older than 15m and you showed none: run fleetgate login --mfa",
            ),
        ),
        (
            alice(&["dba"]).with(|i| i.mfa = Some(NOW - 900 - SKEW)),
            yes(&["dba"]),
        ),
        (
            alice(&["dba"]).with(|i| i.mfa = Some(NOW - 900 - SKEW - 1)),
            no(
                Reason::Mfa,
                "role dba",
                "role dba asks for a second factor not older than 15m and yours is 16m old: run fleetgate login --mfa",
            ),
        ),
        // Another role allows it without.
        (alice(&["check", "dba"]).with(old), yes(&["check"])),
        // The device.
        (alice(&["root"]).at("db1", "root").with(device), yes(&["root"])),
        (
            alice(&["root"]).at("db1", "root"),
            no(
                Reason::Device,
                "role root",
                "role root asks for a trusted device and yours is none: \
                 run fleetgate device enroll, have it approved and log in again",
            ),
        ),
        (
            alice(&["root"]).at("db1", "root").with(old),
            no(
                Reason::Device,
                "role root",
                "role root asks for a second factor not older than 5m and yours is 2h old, \
                 and for a trusted device and yours is none: \
                 run fleetgate device enroll, have it approved and log in again",
            ),
        ),
        // The certificate's time.
        (alice(&["dba"]).expires(NOW + 1), yes(&["dba"])),
        (alice(&["dba"]).expires(NOW - SKEW + 1), yes(&["dba"])),
        (
            alice(&["dba"]).expires(NOW - SKEW),
            no(
                Reason::Expired,
                "the certificate",
                "the certificate of alice expired 1m ago: run fleetgate login",
            ),
        ),
        (alice(&["dba"]).with(|i| i.issued = NOW + SKEW), yes(&["dba"])),
        (
            alice(&["dba"]).with(|i| i.issued = NOW + SKEW + 1),
            no(
                Reason::Expired,
                "the certificate",
                "the certificate of alice was made 1m from now (clocks may be 1m apart): set the clock of db1",
            ),
        ),
        // Who is nobody to log in.
        (
            alice(&["dba"]).with(|i| i.cluster = name("other")),
            no(
                Reason::Role,
                "the certificate",
                "the certificate is of the cluster other, and db1 belongs to c: log in there",
            ),
        ),
        (
            alice(&["dba"]).with(|i| i.subject = Subject::Node(name("web1"))),
            no(
                Reason::Role,
                "the certificate",
                "the certificate is for node web1, and only users log in",
            ),
        ),
        // Locks come before roles and cannot be worked around with another one.
        (
            alice(&["dba"]).locked(Target::User(name("alice")), |l| l.reason = "left".into()),
            no(
                Reason::Lock,
                "lock l1",
                "user alice is locked (left): ask an administrator",
            ),
        ),
        (
            alice(&["dba"]).locked(Target::User(name("bob")), |_| {}),
            yes(&["dba"]),
        ),
        (
            alice(&["dba"]).locked(Target::Node(name("db1")), |_| {}),
            no(
                Reason::Lock,
                "lock l1",
                "node db1 is locked: ask an administrator",
            ),
        ),
        (
            alice(&["dba"]).locked(Target::Node(name("db2")), |_| {}),
            yes(&["dba"]),
        ),
        (
            alice(&["dba"]).locked(Target::Login("alice".into()), |_| {}),
            no(
                Reason::Lock,
                "lock l1",
                "login alice is locked: ask an administrator",
            ),
        ),
        (
            alice(&["dba"]).locked(Target::Login("postgres".into()), |_| {}),
            yes(&["dba"]),
        ),
        (
            alice(&["check", "dba"]).locked(Target::Role(name("dba")), |_| {}),
            no(
                Reason::Lock,
                "lock l1",
                "role dba is locked: ask an administrator",
            ),
        ),
        (
            alice(&["dba"])
                .with(device)
                .locked(Target::Device(name("laptop")), |_| {}),
            no(
                Reason::Lock,
                "lock l1",
                "device laptop is locked: ask an administrator",
            ),
        ),
        (
            alice(&["dba"]).locked(Target::Device(name("laptop")), |_| {}),
            yes(&["dba"]),
        ),
        (
            alice(&["dba"]).locked(Target::User(name("alice")), |l| l.serial_before = Some(42)),
            no(
                Reason::Lock,
                "lock l1",
                "the login of user alice is over: log in again",
            ),
        ),
        (
            alice(&["dba"]).locked(Target::User(name("alice")), |l| l.serial_before = Some(41)),
            yes(&["dba"]),
        ),
        (
            alice(&["dba"]).locked(Target::User(name("alice")), |l| l.expires = Some(NOW)),
            yes(&["dba"]),
        ),
        (
            alice(&["dba"]).locked(Target::User(name("alice")), |l| l.expires = Some(NOW + 1)),
            no(
                Reason::Lock,
                "lock l1",
                "user alice is locked: ask an administrator",
            ),
        ),
    ];
    for (i, (case, want)) in cases.into_iter().enumerate() {
        let got = case.ask(decide);
        let got = got
            .map(|yes| yes.roles)
            .map_err(|no| (no.reason, no.rule, no.words));
        assert_eq!(got, want, "case {i}");
        // What is explained ends in what is decided.
        let last = case.ask(explain).pop().unwrap();
        assert_eq!(last.starts_with("allowed by"), want.is_ok(), "case {i}: {last}");
    }
}

#[test]
fn what_is_allowed_is_what_any_of_the_roles_allows() {
    let both = alice(&["check", "dba"]).ask(decide).unwrap();
    assert!(both.permits.allow_kind(Kind::Shell).is_ok());
    assert_eq!(
        both.permits.allow_kind(Kind::Sftp).unwrap_err().to_string(),
        "file transfer is not allowed by roles check and dba"
    );
    assert!(
        both.permits.allow_kind(Kind::Exec).is_ok(),
        "for the named commands"
    );
    // check has no limit for the length of a session, dba none for a check.
    assert_eq!(both.limits.session, None);
    assert_eq!(both.limits.sessions, Some(8));
    assert_eq!(both.limits.lifetime, Duration::from_secs(7200));
    assert_eq!(
        (both.recording, both.recording_failure),
        (Recording::Full, RecordingFailure::End)
    );
    assert_eq!(both.recording_role, Some(name("dba")));
    // The longest.
    assert_eq!(both.recording_keep, Some(Duration::from_secs(90 * 86_400)));
    assert_eq!(both.recording_recipients, [1, 2, 3].map(|n| Recipient([n; 32])));
    let lax = alice(&["check"]).ask(decide).unwrap();
    assert_eq!(
        (lax.recording, lax.recording_failure),
        (Recording::Output, RecordingFailure::GoOn)
    );
    assert_eq!(lax.recording_role, Some(name("check")));
    assert_eq!(both.until, None);

    let dba = alice(&["dba"]).ask(decide).unwrap();
    assert_eq!(dba.limits.session, Some(Duration::from_secs(3600)));
    assert_eq!(dba.limits.sessions, Some(2));
    assert_eq!(dba.until, Some(NOW - 60 + 900 + SKEW));
    assert_eq!(
        dba.permits.allow_kind(Kind::Exec).unwrap_err().to_string(),
        "running a command is not allowed by role dba"
    );
    let unrecorded = alice(&["dev"]).at("web1", "alice").ask(decide).unwrap();
    assert_eq!(
        (unrecorded.recording, unrecorded.recording_role),
        (Recording::Events, None)
    );
    assert_eq!(unrecorded.recording_keep, None);
    let short = alice(&["dba"]).expires(NOW + 5).ask(decide).unwrap();
    assert_eq!(short.until, Some(NOW + 5 + SKEW));

    // Exec from one role is exec, whatever another one names.
    let free = alice(&["check", "dev"]).at("web1", "alice").ask(decide).unwrap();
    assert!(!free.permits.only_named());
    let check = alice(&["check"]).ask(decide).unwrap();
    assert!(check.permits.only_named());
}

#[test]
fn steps_are_for_people() {
    let case = alice(&["check", "dba", "dev", "gone"]).with(|i| i.mfa = None);
    assert_eq!(
        case.ask(explain),
        [
            "no lock holds against alice, alice or db1",
            "role check allows alice on db1: the commands disk, own; recorded (output, kept for 90d), or goes on without",
            "role dba asks for a second factor not older than 15m and you showed none: run fleetgate login --mfa",
            "role dev is for env=dev, not for db1",
            "role gone does not exist any more: it allows nothing",
            "allowed by role check",
        ]
    );
    let case = alice(&["dba"]).at("db1", "root");
    assert_eq!(
        case.ask(explain),
        [
            "no lock holds against alice, root or db1".to_string(),
            "role dba is for the logins {user}, postgres, not root".to_string(),
            format!(
                "refused by role dba: alice has the logins alice, postgres on db1, not root: name one of these, or {REMEDY}"
            ),
        ]
    );
    let case = alice(&["dba"]).locked(Target::User(name("alice")), |_| {});
    assert_eq!(
        case.ask(explain),
        ["refused by lock l1: user alice is locked: ask an administrator"]
    );
}

#[test]
fn principals_and_lifetime_are_of_all_roles() {
    let roles = roles();
    let some = |wanted: &[&str]| -> Vec<&Role> { wanted.iter().map(|role| &roles[&name(role)]).collect() };
    let alice = name("alice");
    assert_eq!(
        logins_of(some(&["dev", "dba"]), &alice),
        ["alice", "deploy", "postgres"]
    );
    assert_eq!(logins_of(some(&[]), &alice), [""; 0]);
    assert_eq!(lifetime_of(some(&["dev", "dba"])), Duration::from_secs(7200));
    assert_eq!(lifetime_of(some(&["dev"])), Duration::from_secs(12 * 3600));
    assert_eq!(lifetime_of(some(&[])), Duration::from_secs(12 * 3600));
}

#[test]
fn a_login_is_renewed_for_as_long_as_each_of_its_roles_says() {
    let role = |days: Option<u64>| {
        let mut role = Role::new(name("checks"));
        role.limits.renewal = days.map(|days| Duration::from_secs(days * 86_400));
        role
    };
    let of = |days: &[Option<u64>]| {
        let roles: Vec<Role> = days.iter().map(|days| role(*days)).collect();
        renewal_of(&roles).map(|time| time.as_secs() / 86_400)
    };
    assert_eq!(of(&[Some(90)]), Some(90));
    assert_eq!(of(&[Some(90), Some(30)]), Some(30));
    assert_eq!(of(&[Some(90), None]), None);
    assert_eq!(of(&[]), None);
}

#[test]
fn times_are_said_by_their_largest_unit() {
    for (seconds, want) in [(0, "0s"), (59, "59s"), (61, "1m"), (7200, "2h"), (172_800, "2d")] {
        assert_eq!(time(seconds), want);
    }
}
