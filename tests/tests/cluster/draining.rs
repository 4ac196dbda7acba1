//! After a restart of a node the monitor before it goes on with its sessions. What the cluster says since then holds for
//! those too: a lock ends them, `sessions end` reaches them, an open connection opens no session that the newest state
//! refuses, and what they do is in the cluster's audit log although the new monitor has nothing to tell.

use fleetgate_tests::cluster::{Cluster, Managed, OWN_PORT, PROXY, STATE};
use fleetgate_tests::needs_root;
use fleetgate_tests::service::command_line;
use fleetgate_tests::world::wait_until;
use std::process::Child;

/// Of ada's login or bea's: a way to the node's own port, and one by the proxy.
const OWN: &str = r#"exec ssh -tt -F $H.config -o HostKeyAlias=gate -p 2222 ada@127.0.0.1"#;
const PROXIED: &str = r#"exec "$F" ssh -tt --home $H -o ControlMaster=no ada@gate"#;
/// bea, who has a login of her own to the same account.
const BEA: &str = r#"
    "$F" user add --state cluster bea --role everything > invite2
    "$F" login --home bea --proxy 127.0.0.1:3080 --invite-file invite2 --password-file password --authenticator totp2 \
         --ca "$("$F" ca status --state cluster | grep -o 'sha256:[0-9a-f]*' | head -1)" --no-agent
    login_config /run/test/bea
"#;

fn managed() -> (Cluster, Managed, Managed) {
    let mut cluster = Cluster::new();
    cluster.down(STATE);
    let gate = cluster.managed(STATE, PROXY);
    cluster.script(BEA);
    cluster.join_node();
    let node = cluster.managed("node", OWN_PORT);
    wait_until("the node is reached through the proxy", || {
        cluster.attempt(r#""$F" ssh --home home ada@gate true"#).is_ok()
    });
    (cluster, gate, node)
}

/// A session that runs two programs for so many seconds, the second one in a session of its own.
fn running(cluster: &Cluster, way: &str, home: &str, seconds: u32) -> Child {
    let command = format!("(setsid sleep {seconds}1 &); echo begun; sleep {seconds}2");
    cluster.begin(&format!("H=/run/test/{home}; {way} '{command}'"), "begun")
}

/// A program of [`running`] that lives.
fn program(seconds: u32) -> Option<i32> {
    let all = std::fs::read_dir("/proc").expect("readable").flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid| {
        let line = command_line(*pid);
        line.starts_with(&format!("sleep {seconds}1")) || line.starts_with(&format!("sleep {seconds}2"))
    })
}

/// Whether one lives.
fn lives(seconds: u32) -> bool {
    program(seconds).is_some()
}

fn events(cluster: &Cluster, flags: &str) -> String {
    cluster.script(&format!(r#""$F" audit --state cluster --json {flags}"#))
}

#[test]
fn a_lock_after_a_restart_ends_the_sessions_of_the_monitor_before() {
    needs_root!("services in a world of their own");
    let (cluster, _gate, node) = managed();
    // The first round is the control: what a lock does without a restart.
    for (round, restarts) in [(1, 0), (2, 1), (3, 2)] {
        let number = |n: u32| 70_000 + round * 100 + n;
        let mut sessions = [
            ("ada by the own port", running(&cluster, OWN, "home", number(1))),
            ("ada by the proxy", running(&cluster, PROXIED, "home", number(2))),
        ];
        let mut others = [
            running(&cluster, OWN, "bea", number(3)),
            running(&cluster, PROXIED, "bea", number(4)),
        ];
        for _ in 0..restarts {
            node.restart_role("node");
            wait_until("new sessions come in", || {
                cluster.attempt(r#""$F" ssh --home bea ada@gate true"#).is_ok()
            });
        }
        let why = format!("stolen {round}");
        cluster.script(&format!(
            r#""$F" lock add --state cluster --user ada --reason "{why}" --json > lock"#
        ));
        Cluster::all_ended(sessions.iter_mut().map(|(name, session)| (*name, session)), &why);
        for n in [1, 2] {
            wait_until("every program of the sessions is ended", || !lives(number(n)));
        }
        for (n, other) in [3, 4].into_iter().zip(&mut others) {
            assert!(other.try_wait().expect("ours").is_none(), "bea's go on");
            assert!(lives(number(n)), "bea's programs go on");
        }
        let words = format!("user ada is locked ({why})");
        wait_until("the audit log has why", || {
            let told = events(&cluster, "--event locked");
            told.lines().filter(|line| line.contains(&words)).count() == 2
        });
        for mut other in others {
            let _ = other.kill();
            let _ = other.wait();
        }
        cluster.script(r#""$F" lock rm --state cluster "$(sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' lock)""#);
        wait_until("ada comes in again", || {
            cluster.attempt(r#""$F" ssh --home home ada@gate true"#).is_ok()
        });
    }
}

#[test]
fn a_lock_ends_the_sessions_of_a_monitor_that_drains_though_no_other_comes_up() {
    needs_root!("services in a world of their own");
    let (cluster, _gate, node) = managed();
    let mut session = [("ada's", running(&cluster, OWN, "home", 82_001))];
    let mut other = running(&cluster, OWN, "bea", 82_002);
    cluster.script(r"cp node/fleetgate.toml right.toml; printf '[node]\nlisten = 7\n' > node/fleetgate.toml");
    node.end_role("node");
    wait_until("the monitor drains", || {
        cluster.log("node").contains("accepting no more")
    });
    cluster.script(r#""$F" lock add --state cluster --user ada --reason stolen --json > lock"#);
    Cluster::all_ended(
        session.iter_mut().map(|(name, session)| (*name, session)),
        "no other monitor",
    );
    wait_until("every program of the session is ended", || !lives(82_001));
    assert!(
        other.try_wait().expect("ours").is_none() && lives(82_002),
        "bea's goes on"
    );
    // One that comes up after all serves at once.
    cluster.script("mv right.toml node/fleetgate.toml");
    wait_until("the node is reached through the proxy", || {
        cluster.attempt(r#""$F" ssh --home bea ada@gate true"#).is_ok()
    });
    assert!(
        other.try_wait().expect("ours").is_none() && lives(82_002),
        "bea's goes on"
    );
}

#[test]
fn an_open_connection_to_the_monitor_before_opens_no_session_that_the_newest_state_refuses() {
    needs_root!("services in a world of their own");
    let (cluster, _gate, node) = managed();
    let master = |name: &str, home: &str| {
        cluster.script(&format!(
            "ssh -F {home}.config -o HostKeyAlias=gate -p 2222 -M -S {name} -fN ada@127.0.0.1 > /dev/null 2>&1"
        ));
    };
    // With the master alone: no other connection is made.
    let by = |name: &str| {
        cluster.attempt(&format!(
            "ssh -F /dev/null -S {name} -o ProxyCommand=false -o BatchMode=yes ada@127.0.0.1 'echo in'"
        ))
    };
    let is_refused = |name: &str, what: &str| {
        wait_until(what, || by(name).is_err());
        assert_eq!(by("bea.master").as_deref(), Ok("in\n"), "bea is let in: {what}");
    };
    for (name, home) in [("one", "home"), ("two", "home"), ("bea.master", "bea")] {
        master(name, home);
    }
    node.restart_role("node");
    for name in ["one", "two", "bea.master"] {
        assert_eq!(by(name).as_deref(), Ok("in\n"), "{name}, after the restart");
    }
    cluster.script(r#""$F" user change --state cluster ada --no-roles"#);
    is_refused("one", "no role");
    cluster.script(r#""$F" user change --state cluster ada --role everything"#);
    wait_until("the role is back, if the connection still is", || {
        by("one").is_ok() || cluster.attempt("ssh -S one -O check x").is_err()
    });
    cluster.script(r#""$F" lock add --state cluster --user ada --json > lock"#);
    is_refused("one", "a lock");
    is_refused("two", "a lock");
    cluster.script(r#""$F" lock rm --state cluster "$(sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' lock)""#);
    wait_until("ada comes in again", || {
        master_again(&cluster);
        by("three").is_ok()
    });
    node.restart_role("node");
    assert_eq!(by("three").as_deref(), Ok("in\n"), "before the removal");
    cluster.script(r#""$F" user rm --state cluster ada"#);
    is_refused("three", "the user was removed");
}

fn master_again(cluster: &Cluster) {
    let _ = cluster.attempt(
        "H=home; again \"$F\" login --home home --password-file password --authenticator totp --no-agent || true; \
         ssh -F home.config -o HostKeyAlias=gate -p 2222 -M -S three -fN ada@127.0.0.1 > /dev/null 2>&1",
    );
}

#[test]
fn a_session_of_the_monitor_before_is_ended_by_order_and_what_it_does_is_audited() {
    needs_root!("services in a world of their own");
    let (cluster, _gate, node) = managed();
    let ids = || {
        let all = events(&cluster, "--event session_started");
        let ids = all.lines().filter(|line| line.contains("sleep 810"));
        let field = |line: &str| Some(line.split(r#""session":""#).nth(1)?.split('"').next()?.to_owned());
        ids.filter_map(field).collect::<Vec<String>>()
    };
    let mut ordered = running(&cluster, OWN, "home", 81_001);
    wait_until("auth knows of the first", || ids().len() == 1);
    let mut here = running(&cluster, OWN, "home", 81_002);
    wait_until("auth knows of the second", || ids().len() == 2);
    let mut by_itself = running(&cluster, OWN, "home", 81_003);
    wait_until("auth knows of the third", || ids().len() == 3);
    let all = ids();
    node.restart_role("node");
    // Newest first or last: by what it ran.
    let id = |seconds: u32| {
        let told = events(&cluster, "--event session_started");
        let line = told
            .lines()
            .find(|line| line.contains(&format!("sleep {seconds}1")));
        let line = line.expect("it was told").to_owned();
        all.iter()
            .find(|id| line.contains(id.as_str()))
            .expect("one of them")
            .clone()
    };
    // The new monitor has told all that it had to tell, and has nothing more.
    let written = || {
        std::fs::metadata("/var/log/fleetgate/audit.jsonl")
            .expect("it writes")
            .len()
    };
    wait_until("all that was written is delivered", || {
        let note = std::fs::read_to_string("/run/test/node/cluster/audit.json").unwrap_or_default();
        note.contains(&format!(r#""offset":{}}}"#, written()))
    });
    let _ = by_itself.kill();
    let _ = by_itself.wait();
    let last = id(81_003);
    wait_until("the end of one that ends by itself is in the audit log", || {
        events(&cluster, &format!("--event session_ended --session {last}")).contains(&last)
    });
    let first = id(81_001);
    let present = cluster.script(r#""$F" sessions ls --state cluster"#);
    assert!(present.contains(&first[..16]), "{present}");
    assert!(!present.contains(&last[..16]), "{present}");
    let said = cluster.script(&format!(
        r#""$F" sessions end --state cluster {first} --reason "enough of it""#
    ));
    assert_eq!(said, format!("the session {first} is ended\n"));
    Cluster::all_ended([("the first", &mut ordered)], "by the cluster's order");
    wait_until("its programs are ended", || !lives(81_001));
    let told = events(&cluster, &format!("--event session_ended --session {first}"));
    assert!(told.contains("enough of it"), "{told}");
    assert!(
        here.try_wait().expect("ours").is_none() && lives(81_002),
        "the other goes on"
    );
    let second = id(81_002);
    // On the node, whose processes have numbers of their own.
    let inside = program(81_002).expect("it lives");
    let end = format!(
        r#"nsenter -t {inside} -p -m "$F" sessions end --here --config /run/test/node/fleetgate.toml {second}"#
    );
    let said = cluster.script(&end);
    assert_eq!(said, format!("the session {second} is ended\n"));
    Cluster::all_ended([("the second", &mut here)], "by root's order");
    wait_until("its end is in the audit log", || {
        events(&cluster, &format!("--event session_ended --session {second}")).contains(&second)
    });
}

#[test]
fn a_lock_ends_a_session_whose_client_is_gone() {
    needs_root!("services in a world of their own");
    let (cluster, _gate, node) = managed();
    // Without a terminal a program goes on when its client is killed, as with sshd.
    let mut clients = [
        cluster.begin(
            "exec ssh -F home.config -o HostKeyAlias=gate -p 2222 ada@127.0.0.1 'echo begun; sleep 830012'",
            "begun",
        ),
        cluster.begin(
            r#"exec "$F" ssh --no-master --home home ada@gate 'echo begun; sleep 830022'"#,
            "begun",
        ),
        cluster.begin(
            r#"exec "$F" ssh --no-master --home bea ada@gate 'echo begun; sleep 830032'"#,
            "begun",
        ),
    ];
    let ended = || events(&cluster, "--event connection_ended").lines().count();
    let before = ended();
    for client in &mut clients {
        client.kill().expect("ours");
        client.wait().expect("ours");
    }
    wait_until("the connections have ended", || ended() >= before + 3);
    node.restart_role("node");
    assert!(
        [83001, 83002, 83003].into_iter().all(lives),
        "they go on without a client"
    );
    cluster.script(r#""$F" lock add --state cluster --user ada --reason stolen --json > lock"#);
    for number in [83001, 83002] {
        wait_until("the session is ended", || !lives(number));
    }
    assert!(lives(83003), "bea's goes on");
    wait_until("the audit log has why", || {
        let told = events(&cluster, "--event locked");
        told.lines()
            .filter(|line| line.contains("user ada is locked (stolen)"))
            .count()
            == 2
    });
}
