//! A node in a cluster, at its own port, with plain `ssh`: who comes in, what the others read, and what a lock ends. The
//! state comes by the disk and a reload here; what brings it otherwise is believed as little.

use fleetgate_policy::Kind;
use fleetgate_policy::cluster::Target;
use fleetgate_sys::signals;
use fleetgate_tests::fleet::{Card, Fleet, STATE, key, name, now, public};
use fleetgate_tests::service::{AUDIT, Manager, Service, audited};
use fleetgate_tests::ways_in::undocumented;
use fleetgate_tests::world::wait_until;
use fleetgate_tests::{needs_root, skip};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const KEY: &str = "/run/test/card";
/// Where the manager leaves the node's configuration.
const CONFIG: &str = "/run/test/service.toml";

fn configuration(more: &str) -> String {
    format!(
        "host_keys = [\"/run/test/host_ed25519\"]\nstate_directory = \"{STATE}\"\npam = \"off\"\nroot_login = \"yes\"\n\
         audit_log = \"{AUDIT}\"\n{more}\n[labels]\nenv = \"prod\"\n"
    )
}

/// The roles of these tests.
fn fleet() -> Fleet {
    let mut fleet = Fleet::new();
    fleet.role("dev", "env=prod", &["{user}"], |_| {});
    fleet.role("other", "env=dev", &["{user}"], |_| {});
    fleet.role("dba", "*", &["{user}"], |role| {
        role.require_mfa = Some(Duration::from_secs(900));
    });
    fleet.role("ops", "web*", &["root"], |role| {
        role.require_trusted_device = true
    });
    fleet.role("ghosts", "*", &["ghost"], |_| {});
    fleet.role("shell", "*", &["{user}"], |role| role.kinds = vec![Kind::Shell]);
    fleet.role("check", "*", &["{user}"], |role| {
        role.kinds = vec![];
        role.commands = vec!["load".into()];
    });
    fleet
}

/// Reads the configuration and the state again.
fn reload(manager: &Manager, service: &Service) {
    service.signal(signals::HUP);
    manager.hear("RELOADING=1", service);
    manager.hear("READY=1", service);
}

/// The card in the user's hand.
fn hold(card: &Card, ca: &fleetgate_ssh::key::PrivateKey) {
    std::fs::copy("/run/test/stranger", KEY).expect("copied");
    let certificate = card.sign(&public("/run/test/stranger.pub"), ca);
    std::fs::write(format!("{KEY}-cert.pub"), certificate.line()).expect("written");
}

/// Plain ssh with that card; only the words that a user reads by default.
fn ssh(login: &str) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.args([
        "-F",
        "/run/test/bare",
        "-o",
        "LogLevel=INFO",
        "-i",
        KEY,
        "-l",
        login,
    ])
    .env("HOME", "/run/home/root")
    .stdin(Stdio::null());
    ssh
}

/// Plain ssh with a key that stands in ada's authorized_keys.
fn by_own_key() -> Command {
    let mut ssh = Command::new("ssh");
    ssh.args(["-F", "/run/test/bare", "-o", "LogLevel=INFO", "-l", "ada"])
        .args(["-i", "/run/test/user_ecdsa256"])
        .env("HOME", "/run/home/root")
        .stdin(Stdio::null());
    ssh
}

/// What a command says, both streams, and how it ends.
fn said(command: &mut Command) -> (Option<i32>, String) {
    let out = command.output().expect("it starts");
    let text = [out.stdout, out.stderr].concat();
    (out.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn who_comes_in_at_the_nodes_own_port_and_what_the_others_read() {
    needs_root!("a network and accounts of its own");
    let Some((_world, manager)) = Manager::in_world() else {
        return skip("a world of its own needs root");
    };
    let mut fleet = fleet();
    fleet.join();
    let service = manager.start(&configuration(
        "[commands.load]\nargv = [\"/bin/echo\", \"the load\"]",
    ));
    let card = Card::of;
    let out = "Permission denied";
    let ask = "echo in";
    let stranger = key();
    let cases = [
        (card(&["dev"]), "ada", None, ask, Some("in")),
        (card(&["other"]), "ada", None, ask, None),
        (
            card(&[]),
            "ada",
            None,
            ask,
            Some("ada has no role that would allow ada on web1"),
        ),
        (
            card(&["dev"]),
            "root",
            None,
            ask,
            Some("has the logins ada on web1, not root"),
        ),
        (
            card(&["dev"]).with(|c| c.principals = vec!["bea"]),
            "ada",
            None,
            ask,
            None,
        ),
        (
            card(&["dev"]).with(|c| c.until = now() - 7200),
            "ada",
            None,
            ask,
            Some("the certificate of ada expired 2h ago: run fleetgate login"),
        ),
        (
            card(&["dev"]).with(|c| c.identity.cluster = name("elsewhere")),
            "ada",
            None,
            ask,
            Some("the certificate is of the cluster elsewhere, and web1 belongs to home"),
        ),
        (
            card(&["dba"]).with(|c| c.identity.mfa = Some(now() - 7200)),
            "ada",
            None,
            ask,
            Some(
                "role dba asks for a second factor not older than 15m and yours is 2h old: run fleetgate login --mfa",
            ),
        ),
        (card(&["dba"]), "ada", None, ask, Some("in")),
        (
            card(&["ops"]),
            "root",
            None,
            ask,
            Some("role ops asks for a trusted device and yours is none"),
        ),
        (
            card(&["ops"]).with(|c| c.identity.device = Some(name("laptop"))),
            "root",
            None,
            ask,
            Some("in"),
        ),
        (
            card(&["ops"]).with(|c| c.identity.device = Some(name("laptop"))),
            "root",
            Some(Target::Device(name("laptop"))),
            ask,
            Some("device laptop is locked (left): ask an administrator"),
        ),
        (
            card(&["dev"]),
            "ada",
            Some(Target::User(name("ada"))),
            ask,
            Some("user ada is locked (left): ask an administrator"),
        ),
        (
            card(&["dev"]),
            "ada",
            Some(Target::User(name("bea"))),
            ask,
            Some("in"),
        ),
        (
            card(&["shell"]),
            "ada",
            None,
            ask,
            Some("not allowed by role shell"),
        ),
        (card(&["check"]), "ada", None, "load", Some("the load")),
        (
            card(&["dev", "shell"]),
            "ada",
            None,
            "echo $FLEETGATE_USER may by $FLEETGATE_ROLES",
            Some("ada may by dev"),
        ),
        (
            card(&["check"]),
            "ada",
            None,
            ask,
            Some("does not stand in role check"),
        ),
        (
            card(&["ghosts"]).with(|card| card.principals.push("ghost")),
            "ghost",
            None,
            ask,
            Some("there is no account ghost on web1"),
        ),
        (
            card(&["dev"]).with(|card| card.principals.push("ghost")),
            "ghost",
            None,
            ask,
            Some("has the logins ada on web1, not ghost"),
        ),
    ];
    for (i, (card, login, lock, command, want)) in cases.into_iter().enumerate() {
        if lock.is_some() || !fleet.state.locks.is_empty() {
            fleet.lock(lock);
            reload(&manager, &service);
        }
        hold(&card, &fleet.user_ca);
        let (code, text) = said(ssh(login).args(["gate", command]));
        let came_in = matches!(want, Some("in" | "the load" | "ada may by dev"));
        assert_eq!(code == Some(0), came_in, "case {i}: {text}");
        assert!(text.contains(want.unwrap_or(out)), "case {i}: {text}");
        // Words go to who has the key: another signature on the same card gives none of them.
        if code == Some(255) && want.is_some() {
            hold(&card, &stranger);
            let (code, text) = said(ssh(login).args(["gate", command]));
            assert_eq!(
                (code, text.contains(want.unwrap_or(out))),
                (Some(255), false),
                "case {i}: {text}"
            );
        }
    }
    let told = audited("a refusal by a role", |e| e["rule"] == "role dba");
    assert_eq!(
        (&told["event"], &told["user"]),
        (&"login_refused".into(), &"ada".into())
    );
    let came = audited("a login", |e| {
        e["event"] == "login_accepted" && e["device"] == "laptop"
    });
    assert_eq!((&came["user"], &came["roles"]), (&"ada".into(), &"ops".into()));
    assert!(came["mfa"].as_u64().is_some());
    assert_eq!(undocumented(), BTreeSet::new());
}

/// A session that goes on until it is ended, and says its process's number first.
fn endless(command: &mut Command) -> (Child, i32) {
    let mut child = command
        .args(["gate", "echo $$; exec sleep 100000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ssh starts");
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("it runs");
    (child, line.trim().parse().expect("a number"))
}

fn is_gone(pid: i32) -> bool {
    !std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_lock_ends_connections_and_their_sessions() {
    needs_root!("a network and accounts of its own");
    let Some((_world, manager)) = Manager::in_world() else {
        return skip("a world of its own needs root");
    };
    let mut fleet = fleet();
    fleet.join();
    let service = manager.start(&configuration("authorized_keys = true"));
    // Programs whose clients are gone: a lock that is for them ends them too.
    let mut left_behind = Vec::new();
    for (target, ends_key) in [
        (Target::User(name("ada")), false),
        (Target::Role(name("dev")), false),
        (Target::Login("ada".into()), true),
        (Target::Node(name("web1")), true),
    ] {
        fleet.lock(None);
        reload(&manager, &service);
        hold(&Card::of(&["dev"]), &fleet.user_ca);
        let (plain, first) = endless(&mut ssh("ada"));
        let (terminal, second) = endless(ssh("ada").arg("-tt"));
        // Break glass: a key that the account's own file has.
        let (mut by_key, third) = endless(&mut by_own_key());

        let before = fleetgate_tests::service::audit().len();
        fleet.lock([target.clone()]);
        reload(&manager, &service);
        for child in [plain, terminal] {
            let out = child.wait_with_output().expect("ours");
            let text = String::from_utf8_lossy(&out.stderr).into_owned();
            assert_eq!(out.status.code(), Some(255), "{target}: {text}");
            assert!(
                text.contains(&format!("{target} is locked (left)")),
                "{target}: {text}"
            );
        }
        wait_until("their processes end", || is_gone(first) && is_gone(second));
        match ends_key {
            true => wait_until("the process of the key's login ends", || is_gone(third)),
            false => {
                assert!(!is_gone(third), "{target}");
                by_key.kill().expect("ours");
                left_behind.push(third);
            }
        }
        by_key.wait().expect("ours");
        let locked = || {
            let mut events = fleetgate_tests::service::audit().split_off(before);
            events.retain(|e| e["event"] == "locked");
            events
        };
        let wanted = if ends_key { 3 + left_behind.len() } else { 2 };
        if ends_key {
            wait_until("what was left behind ends", || {
                left_behind.iter().all(|pid| is_gone(*pid))
            });
            left_behind.clear();
        }
        wait_until("the events of the lock", || locked().len() >= wanted);
        let locked = locked();
        assert_eq!(locked.len(), wanted, "{target}: {locked:?}");
        assert_eq!(locked[0]["rule"], "lock l0");
        // Nobody comes in as long as it holds, and the key where the lock is not for it.
        let (code, text) = said(ssh("ada").args(["gate", "echo in"]));
        assert_eq!(code, Some(255), "{target}: {text}");
        let (code, text) = said(by_own_key().args(["gate", "echo in"]));
        assert_eq!(code == Some(0), !ends_key, "{target}: {text}");
        assert_eq!(text.contains("is locked (left)"), ends_key, "{target}: {text}");
    }
    assert_eq!(undocumented(), BTreeSet::new());
}

/// `fleetgate` with the node's configuration, about this machine.
fn here(words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("/run/test/fleetgate");
    said(
        command
            .args(words)
            .args(["--here", "--config", CONFIG])
            .stdin(Stdio::null()),
    )
}

/// The id of the session whose first process this is.
fn session_of(pid: i32) -> String {
    let started = audited("the session's start", |e| {
        e["event"] == "session_started" && e["pid"] == pid
    });
    started["session"].as_str().expect("an id").to_owned()
}

#[test]
fn an_order_ends_one_session_and_leaves_the_others_of_its_user() {
    needs_root!("a network and accounts of its own");
    let Some((_world, manager)) = Manager::in_world() else {
        return skip("a world of its own needs root");
    };
    let mut fleet = fleet();
    fleet.join();
    let service = manager.start(&configuration(""));
    hold(&Card::of(&["dev"]), &fleet.user_ca);
    let (by_state, first) = endless(&mut ssh("ada"));
    let (by_root, second) = endless(&mut ssh("ada"));
    let (mut stays, third) = endless(&mut ssh("ada"));
    let ids = [first, second, third].map(session_of);

    // Who is in, by the machine's own notes and log.
    let (code, text) = here(&["sessions", "ls", "--json"]);
    assert_eq!(code, Some(0), "{text}");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let listed = document["sessions"].as_array().expect("a list");
    let field = |field: &str| -> BTreeSet<&str> { listed.iter().filter_map(|s| s[field].as_str()).collect() };
    assert_eq!(field("session"), ids.iter().map(String::as_str).collect());
    assert_eq!(field("login"), BTreeSet::from(["ada"]));
    assert_eq!(field("command"), BTreeSet::from(["echo $$; exec sleep 100000"]));
    assert!(field("source").iter().all(|s| !s.contains("::ffff:")), "{text}");
    let (_, text) = here(&["sessions", "ls", "--login", "bob"]);
    assert_eq!(text, "no sessions\n");

    // An order of the cluster's, which the node believes for the state's signature. It says which sessions it has then.
    fleet.lock([Target::Session(ids[0].clone())]);
    reload(&manager, &service);
    let told = audited("the state", |e| {
        e["event"] == "cluster_state" && e["done"] == true
    });
    let told = told["sessions"].as_array().expect("ids");
    let told: BTreeSet<&str> = told.iter().filter_map(|id| id.as_str()).collect();
    assert_eq!(told, ids.iter().map(String::as_str).collect());
    let out = by_state.wait_with_output().expect("ours");
    assert_ne!(out.status.code(), Some(0));
    wait_until("its process ends", || is_gone(first));
    let ended = |id: &str| audited("the end", |e| e["event"] == "session_ended" && e["session"] == id);
    let end = ended(&ids[0]);
    assert_eq!(
        (&end["ended_by"], &end["reason"]),
        (&"root".into(), &"left".into())
    );

    // Root on the machine itself; the beginning of the id is enough.
    let (code, text) = here(&["sessions", "end", &ids[1][..8], "--reason", "maintenance"]);
    assert_eq!(
        (code, &*text),
        (Some(0), &*format!("the session {} is ended\n", ids[1]))
    );
    by_root.wait_with_output().expect("ours");
    wait_until("its process ends", || is_gone(second));
    let end = ended(&ids[1]);
    assert_eq!(
        (&end["ended_by"], &end["reason"]),
        (&"uid 0".into(), &"maintenance".into())
    );

    // It is over, and the third goes on; its user may come in again.
    let (code, text) = here(&["sessions", "end", &ids[1]]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no session that runs"), "{text}");
    assert!(!is_gone(third));
    let (code, text) = said(ssh("ada").args(["gate", "echo in"]));
    assert_eq!((code, &*text), (Some(0), "in\n"));
    let (_, text) = here(&["sessions", "ls", "--all"]);
    let runs: Vec<&str> = text.lines().filter(|line| line.contains("  runs  ")).collect();
    assert!(runs.len() == 1 && runs[0].starts_with(&ids[2][..16]), "{text}");
    stays.kill().expect("ours");
    stays.wait().expect("ours");
    wait_until("its process ends", || {
        here(&["sessions", "ls"]).1 == "no sessions\n"
            || fleetgate_sys::process::pidfd_open(third).is_ok_and(|fd| {
                let _ = fleetgate_sys::process::signal(&fd, fleetgate_sys::process::SIGKILL);
                false
            })
    });
    assert_eq!(undocumented(), BTreeSet::new());
}

#[test]
fn an_open_connection_is_decided_about_for_each_of_its_orders() {
    needs_root!("a network and accounts of its own");
    let Some((_world, manager)) = Manager::in_world() else {
        return skip("a world of its own needs root");
    };
    let mut fleet = fleet();
    fleet.join();
    let service = manager.start(&configuration(""));
    hold(&Card::of(&["dev"]), &fleet.user_ca);
    let socket = "/run/test/master";
    let mut master = ssh("ada")
        .args(["-M", "-N", "-S", socket, "gate"])
        .stderr(Stdio::null())
        .spawn()
        .expect("ssh starts");
    wait_until("the master listens", || std::path::Path::new(socket).exists());
    let session = || said(ssh("ada").args(["-S", socket, "gate", "echo in"]));
    assert_eq!(session(), (Some(0), "in\n".to_owned()));
    for (kinds, want) in [
        (vec![Kind::Shell], "running a command is not allowed by role dev"),
        (vec![Kind::Exec], "in"),
    ] {
        fleet.next(|state| {
            let role = state.roles.get_mut(&name("dev")).expect("there");
            role.kinds = kinds;
        });
        reload(&manager, &service);
        let (code, text) = session();
        assert_eq!(code == Some(0), want == "in", "{text}");
        assert!(text.contains(want), "{text}");
    }
    // How many, and how long.
    let limit = |fleet: &mut Fleet, sessions, session| {
        fleet.next(|state| {
            let limits = &mut state.roles.get_mut(&name("dev")).expect("there").limits;
            (limits.sessions, limits.session) = (sessions, session);
        });
        reload(&manager, &service);
    };
    limit(&mut fleet, Some(1), None);
    let (mut first, pid) = endless(ssh("ada").args(["-S", socket]));
    let (code, text) = session();
    assert_ne!(code, Some(0), "{text}");
    assert!(text.contains("at most 1 sessions by its roles"), "{text}");
    limit(&mut fleet, Some(2), Some(Duration::from_secs(1)));
    let (second, limited) = endless(ssh("ada").args(["-S", socket]));
    second.wait_with_output().expect("ours");
    wait_until("the session that lasts too long ends", || is_gone(limited));
    audited("its end", |e| {
        e["event"] == "denied"
            && e["what"]
                .as_str()
                .is_some_and(|w| w.starts_with("a session of more than 1 s"))
    });
    assert!(!is_gone(pid), "the one without a limit goes on");
    first.kill().expect("ours");
    first.wait().expect("ours");
    limit(&mut fleet, None, None);
    assert_eq!(session(), (Some(0), "in\n".to_owned()));
    fleet.next(|state| drop(state.roles.remove(&name("dev"))));
    reload(&manager, &service);
    let (code, text) = session();
    assert_ne!(code, Some(0), "{text}");
    assert!(text.contains("ada has role"), "{text}");
    audited("the refusal of an order", |e| {
        e["event"] == "denied" && e["what"].as_str().is_some_and(|w| w.contains("ada has role"))
    });
    master.kill().expect("ours");
    master.wait().expect("ours");
}

#[test]
fn labels_are_said_by_commands_and_choose_the_node() {
    needs_root!("a network and accounts of its own");
    let Some((_world, manager)) = Manager::in_world() else {
        return skip("a world of its own needs root");
    };
    let mut fleet = fleet();
    fleet.role("of-id", "whoami=54341", &["{user}"], |_| {});
    fleet.join();
    let commands = "[label_commands.whoami]\ncommand = [\"/usr/bin/id\", \"-u\"]\n\
                    [label_commands.slow]\ncommand = [\"/bin/sleep\", \"1000\"]\ntimeout = \"1s\"\n\
                    [label_commands.broken]\ncommand = [\"/nonexistent\"]";
    let service = manager.start(&configuration(commands));
    hold(&Card::of(&["of-id"]), &fleet.user_ca);
    // The unprivileged user's number: no command runs as root.
    wait_until("the label is there", || {
        said(ssh("ada").args(["gate", "echo in"])).0 == Some(0)
    });
    for label in ["slow", "broken"] {
        wait_until("what fails is told", || {
            service
                .log()
                .lines()
                .any(|line| line.contains("the label stays as it is") && line.contains(label))
        });
    }
}

#[test]
fn a_refusal_by_pam_names_the_user_who_has_proven_who_he_is() {
    needs_root!("a network and accounts of its own");
    let Some((_world, manager)) = Manager::in_world() else {
        return skip("a world of its own needs root");
    };
    let fleet = fleet();
    fleet.join();
    let rules = "auth required pam_permit.so\naccount required pam_deny.so\nsession required pam_permit.so\n";
    std::fs::write("/etc/pam.d/fleetgate", rules).expect("written");
    let _service = manager.start(&configuration("").replace("pam = \"off\"", "pam = \"on\""));
    hold(&Card::of(&["dev"]), &fleet.user_ca);
    let (code, text) = said(ssh("ada").args(["gate", "true"]));
    assert_eq!(code, Some(255), "{text}");
    let refused = audited("the refusal", |e| {
        e["event"] == "login_refused" && e["method"] == "account"
    });
    assert_eq!(
        (&refused["login"], &refused["user"]),
        (&"ada".into(), &"ada".into())
    );
}
