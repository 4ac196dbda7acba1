//! Whoever is refused is refused on every way in, in the same words: `fleetgate ssh`, plain ssh with fleetgate as its
//! ProxyCommand, `ssh -J`, and the node's own port, which no proxy sees: there the node's monitor alone decides. And what
//! runs ends with the lock, on every way. Each refusal has a login before and after it that is let in.

use fleetgate_tests::cluster::{Cluster, STATE};
use fleetgate_tests::needs_root;
use std::process::Child;
use std::time::{Duration, Instant};

/// What a session prints that was let in: no client repeats it by quoting the command.
const IN: &str = "in-42";
const ECHO: &str = "echo in-$((40+2))";

/// A way in: its name, and a command of the user's with his login's directory as `$H`; the remote command is added.
struct Way {
    name: &'static str,
    command: &'static str,
}

const WAYS: [Way; 4] = [
    Way {
        name: "fleetgate ssh",
        command: r#""$F" ssh --home "$H" ada@gate"#,
    },
    Way {
        name: "ProxyCommand",
        // Kept for a second, as our ssh_config keeps it longer: ssh gives the command no standard error then.
        command: r#"ssh -F "$H.config" -o ProxyCommand="$F proxy-command --home $H --login %r %h %p" -o ControlMaster=auto \
                 -o ControlPersist=1 -o ControlPath="$H.$$" ada@gate.test"#,
    },
    Way {
        name: "ssh -J",
        command: r#"ssh -F "$H.config" -J ada@127.0.0.1:3080 ada@gate"#,
    },
    Way {
        name: "the node's own port",
        command: r#"ssh -F "$H.config" -o HostKeyAlias=gate -p 2222 ada@127.0.0.1"#,
    },
];

/// Something that refuses.
struct Refusal {
    name: &'static str,
    /// Brings it about.
    begin: &'static str,
    /// With which login.
    home: &'static str,
    /// What the user reads on every way.
    words: &'static str,
    /// Ends it; the login in `home` is let in then.
    end: &'static str,
}

const REFUSALS: &[Refusal] = &[
    Refusal {
        name: "no role",
        begin: r#"role '"root"'"#,
        home: "home",
        words: "has the logins root on gate, not ada",
        end: r#"role '"ada", "root"'"#,
    },
    // The label is the token's: the proxy has it from auth, the node from its joining.
    Refusal {
        name: "no role for machines with this label",
        begin: r#"role_for place=attic"#,
        home: "home",
        words: "ada has role everything, and none is for gate",
        end: r#"role_for place=cellar"#,
    },
    Refusal {
        name: "a trusted device",
        begin: r#"role '"ada", "root"' 'require_trusted_device = true'"#,
        home: "home",
        words: "role everything asks for a trusted device and yours is none",
        end: r#"
            "$F" device enroll --home home --json > device
            "$F" device approve --state cluster "$(sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' device)" > approved
            again "$F" login --home home --user ada --proxy 127.0.0.1:3080 --password-file password --authenticator totp --no-agent"#,
    },
    Refusal {
        name: "the user is locked",
        begin: r#""$F" lock add --state cluster --user ada --reason left --json > lock"#,
        home: "home",
        words: "user ada is locked (left)",
        end: UNLOCK,
    },
    Refusal {
        name: "the node is locked",
        begin: r#""$F" lock add --state cluster --node gate --reason broken --json > lock"#,
        home: "home",
        words: "node gate is locked (broken)",
        end: UNLOCK,
    },
    Refusal {
        name: "the login is locked",
        begin: r#""$F" lock add --state cluster --login ada --reason moved --json > lock"#,
        home: "home",
        words: "login ada is locked (moved)",
        end: UNLOCK,
    },
    // A minute later, as far as clocks may be apart.
    Refusal {
        name: "a second factor that is too old",
        begin: r#"role '"ada", "root"' 'require_mfa = "1s"'"#,
        home: "home",
        words: "role everything asks for a second factor not older than 1s and yours is",
        end: r#"again "$F" login --home home --mfa --password-file password --authenticator totp --no-agent"#,
    },
];
const UNLOCK: &str = r#""$F" lock rm --state cluster "$(sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' lock)""#;

/// What it printed or said, and whether it came in.
fn attempt(cluster: &Cluster, way: &Way, home: &str) -> (bool, String) {
    let script = format!("H=/run/test/{home}; {} '{ECHO}' 2>&1", way.command);
    match cluster.attempt(&script) {
        Ok(said) => (said.contains(IN), said),
        Err(said) => (false, said),
    }
}

/// One try after the other, with a moment between, for as long as patience lasts.
fn tries() -> impl Iterator<Item = ()> {
    let end = Instant::now() + PATIENCE;
    let mut first = true;
    std::iter::from_fn(move || {
        if !std::mem::take(&mut first) {
            let _ = fleetgate_sys::poll::poll(&mut [], Some(100));
        }
        (Instant::now() < end).then_some(())
    })
}

/// Until everybody concerned knows the newest state; what was said last is in the failure.
fn comes_in(cluster: &Cluster, way: &Way, home: &str, when: &str) {
    let mut last = String::new();
    for () in tries() {
        let (inside, said) = attempt(cluster, way, home);
        if inside {
            return;
        }
        last = said;
    }
    panic!("{}, {when}: not let in: {last}", way.name);
}

/// The same of a refusal.
fn is_refused(cluster: &Cluster, way: &Way, home: &str, words: &str, when: &str) {
    let mut last = String::new();
    for () in tries() {
        let (inside, said) = attempt(cluster, way, home);
        if !inside && said.contains(words) {
            return;
        }
        last = said;
    }
    panic!("{}, {when}: not {words:?} but: {last}", way.name);
}

/// The audit log has it of every way, as soon as who saw it has handed it over: the proxy of some (`dial_denied`,
/// `jump_refused`, and of a connection that the master kept `dial_ended`), the node of its own port at least (`login_refused`).
fn is_told(cluster: &Cluster, refusal: &Refusal) {
    let mut events = String::new();
    for () in tries() {
        events = cluster.script(r#""$F" audit --state cluster --json"#);
        let told = || events.lines().filter(|line| line.contains(refusal.words));
        let refused = told()
            .filter(|l| {
                ["_refused", "_denied", "dial_ended"]
                    .iter()
                    .any(|event| l.contains(event))
            })
            .count();
        if refused >= WAYS.len() && told().any(|line| line.contains("login_refused")) {
            return;
        }
    }
    panic!("{}: not in the audit log of every way: {events}", refusal.name);
}

/// What an expired login is told: by his own client, which knows, or by whoever looks at the certificate.
const ENDED: [&str; 4] = [
    "the login of ada ended",
    "the login of ada ended",
    "expired",
    "expired",
];

/// How long something may take to come true: certificates and second factors have a minute's allowance for clocks.
const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn every_refusal_holds_on_every_way_in() {
    needs_root!("a network and accounts of its own");
    let cluster = Cluster::with_node();
    for way in &WAYS {
        comes_in(&cluster, way, "home", "at first");
    }
    for refusal in REFUSALS {
        cluster.script(refusal.begin);
        for way in &WAYS {
            is_refused(&cluster, way, refusal.home, refusal.words, refusal.name);
        }
        cluster.script(refusal.end);
        for way in &WAYS {
            comes_in(&cluster, way, refusal.home, &format!("after {}", refusal.name));
        }
        // What a locked node has to tell is heard when it is none any more.
        is_told(&cluster, refusal);
    }
}

#[test]
fn certificates_that_are_over_or_of_another_cluster_open_nothing() {
    needs_root!("a network and accounts of its own");
    let mut cluster = Cluster::with_node();
    // The shortest life there is, and what clocks may be apart: it is over in two minutes, and the other one not.
    cluster.script(
        r#"again "$F" login --home short --user ada --proxy 127.0.0.1:3080 --ca "$("$F" ca status --state cluster |
               grep -o 'sha256:[0-9a-f]*' | head -1)" --password-file password --authenticator totp --no-agent --ttl 1m
           login_config /run/test/short"#,
    );
    for way in &WAYS {
        comes_in(&cluster, way, "short", "while it lives");
    }
    cluster.script(
        r#""$F" init --state other --name other --listen 127.0.0.1:3081 --public 127.0.0.1:3081 \
               --auth-listen 127.0.0.1:3026 --no-node"#,
    );
    cluster.up("other", "127.0.0.1:3081");
    // All that ada knows is of our cluster, and what she shows is of the other.
    cluster.script(
        r#"
        printf '[role.everything]\nnodes = ["*"]\nlogins = ["ada"]\n' > other.toml
        "$F" role apply --state other -f other.toml
        "$F" user add --state other ada --role everything > invite2
        "$F" login --home other_home --proxy 127.0.0.1:3081 --invite-file invite2 --password-file password \
            --authenticator totp2 --no-agent
        cp -r home alien
        cp other_home/id other_home/id.pub other_home/id-cert.pub other_home/tls.key other_home/tls.crt alien/
        login_config /run/test/alien"#,
    );
    // Where TLS ends it, its reason may be lost with the connection.
    for (way, words) in WAYS.iter().zip([
        "fleetgate: ",
        "fleetgate: ",
        "Permission denied",
        "Permission denied",
    ]) {
        is_refused(&cluster, way, "alien", words, "of another cluster");
        comes_in(&cluster, way, "home", "beside another cluster's");
    }
    for (way, words) in WAYS.iter().zip(ENDED) {
        is_refused(&cluster, way, "short", words, "expired");
        comes_in(&cluster, way, "home", "beside an expired one");
    }
    drop(cluster);
}

/// A session that waits for its input, which nobody gives or ends. It was let in.
fn running(cluster: &Cluster, way: &Way) -> Child {
    let script = format!("H=/run/test/home; exec {} '{ECHO}; exec cat'", way.command);
    cluster.begin(&script, IN)
}

#[test]
fn a_lock_ends_what_runs_on_every_way_in() {
    needs_root!("a network and accounts of its own");
    let cluster = Cluster::with_node();
    cluster.script(r#""$F" user add --state cluster bea --role everything > invite2"#);
    for target in ["--user ada", "--login ada", "--node gate"] {
        for way in &WAYS {
            comes_in(&cluster, way, "home", "before a lock");
        }
        let mut sessions: Vec<Child> = WAYS.iter().map(|way| running(&cluster, way)).collect();
        // Somebody else's lock ends none of them: they answer still.
        cluster.script(r#""$F" lock add --state cluster --user bea --json > lock"#);
        cluster.script(UNLOCK);
        for (way, session) in WAYS.iter().zip(&mut sessions) {
            assert!(session.try_wait().expect("ours").is_none(), "{}", way.name);
        }
        cluster.script(&format!(
            r#""$F" lock add --state {STATE} {target} --json > lock"#
        ));
        Cluster::all_ended(WAYS.iter().map(|way| way.name).zip(&mut sessions), target);
        cluster.script(UNLOCK);
    }
}
