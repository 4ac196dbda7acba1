//! What somebody meets who has just begun, or made a mistake: damaged files of a login, a wrong password, a token and a place
//! that do not fit, a role for machines that are not there, and what `doctor` says of the services.

use fleetgate_tests::cluster::{Cluster, PROXY, STATE};
use fleetgate_tests::needs_root;
use fleetgate_tests::world::wait_until;

/// `damaged FILE HOW` makes the home `hurt` from ada's, with this file damaged; `said WORDS` runs the program, and prints its
/// exit code and what it said.
const TOOLS: &str = include_str!("../../scripts/newcomer.sh");

/// A file of a login, and the commands that need it. Nothing of ours reads `id.pub`.
const FILES: &[(&str, &[&str])] = &[
    ("id", &["ssh"]),
    ("id-cert.pub", &["ssh"]),
    ("tls.key", &["ssh", "ls"]),
    ("tls.crt", &["ssh", "ls"]),
    ("state.json", &["ssh", "ls"]),
    ("known_hosts", &["ssh"]),
    ("profile.json", &["ssh", "ls", "logout"]),
];

#[test]
fn a_damaged_file_of_a_login_is_named_with_what_mends_it() {
    needs_root!("a node");
    let cluster = Cluster::with_node();
    let say = |text: &str| cluster.script(&format!("{TOOLS}{text}"));
    for how in ["cut", "garbled", "gone"] {
        for (file, commands) in FILES {
            // Without it nobody is logged in, which is said in other words.
            if (*file, how) == ("profile.json", "gone") {
                continue;
            }
            for command in *commands {
                let words = match *command {
                    "ssh" => "ssh --home hurt ada@gate true",
                    "ls" => "ls --home hurt",
                    _ => "logout --home hurt",
                };
                let told = say(&format!("damaged {file} {how}; said {words}"));
                assert!(!told.starts_with("0 "), "{file} {how}: {command}: {told}");
                for wanted in [format!("hurt/{file}"), "`fleetgate login".to_owned()] {
                    assert!(told.contains(&wanted), "{file} {how}: {command}: {told}");
                }
            }
        }
    }
    // What is said is so: a login writes all of them anew. Whom to believe it has to be told, where it knows no more.
    let all: Vec<&str> = FILES.iter().map(|(file, _)| *file).collect();
    for (damage, more) in [
        (all.join(" ").replace("state.json ", ""), ""),
        ("state.json".to_owned(), "--ca $HASH"),
    ] {
        let told = say(&format!(
            r#"HASH=$("$F" ca status --state cluster | sed -n 's/^tls *active *\(sha256:.*\)/\1/p')
            damaged id none; for file in {damage}; do truncate -s 30 hurt/$file; done
            again "$F" login --home hurt $LOGIN --user ada --proxy 127.0.0.1:3080 {more}
            said ssh --home hurt ada@gate echo in; said ls --home hurt"#
        ));
        assert!(told.starts_with("0 in\n0 "), "{damage}: {told}");
    }
    // A login without a word on whom to believe goes on with what it has, and says what is missing.
    for (prepare, wanted) in [
        ("damaged state.json cut", "hurt/state.json"),
        ("damaged state.json cut", "login --ca sha256:HASH"),
        ("damaged profile.json cut", "hurt/profile.json"),
        ("damaged profile.json cut", "`--proxy` is missing"),
        (
            "damaged id cut; \"$F\" logout --home hurt; echo x > hurt/last.json",
            "hurt/last.json",
        ),
    ] {
        let told = say(&format!("{prepare}; said login --home hurt $LOGIN"));
        assert!(
            !told.contains("0 user") && told.contains(wanted),
            "{prepare}: {told}"
        );
    }
    // The keys of a login that cannot be read are removed like others.
    let left = say("damaged profile.json cut; said logout --home hurt > /dev/null; ls hurt");
    assert_eq!(left, "login.lock\nstate.json\n");
}

#[test]
fn a_login_that_is_refused_takes_nothing_out_of_the_agent() {
    needs_root!("a node");
    let cluster = Cluster::new();
    let told = cluster.script(
        r#"eval "$(ssh-agent -s)" > /dev/null
        trap 'kill $SSH_AGENT_PID' EXIT
        again "$F" login --home home --password-file password --authenticator totp
        ssh-add -l | grep -c ED25519-CERT
        echo 'another password than hers' > wrong
        if "$F" login --home home --password-file wrong --authenticator totp 2> why; then exit 1; fi
        grep -c 'password or code is wrong' why
        ssh-add -l | grep -c ED25519-CERT"#,
    );
    assert_eq!(told, "1\n1\n1\n");
}

#[test]
fn joining_exits_with_2_for_usage_1_where_it_is_refused_and_255_without_a_connection() {
    needs_root!("a node");
    let cluster = Cluster::new();
    cluster.script(
        r#""$F" token add --state cluster > token; "$F" token add --state cluster > used
        "$F" user add --state cluster bea --role everything > person
        "$F" join --proxy 127.0.0.1:3080 --token-file used --name other --state other
        { tr -d '\n' < token; echo x; } > unknown"#,
    );
    for (words, code, wanted) in [
        ("--token-file token", "2", "`--proxy` is missing"),
        (
            "--proxy 127.0.0.1:3080",
            "2",
            "no terminal to ask for the token; give --token-file",
        ),
        (
            "--proxy 127.0.0.1:3080 --token-file person",
            "2",
            "a machine joins by a token",
        ),
        (
            "--proxy 127.0.0.1:3080 --token-file token --label x",
            "2",
            "`--label` wants",
        ),
        (
            "--proxy 127.0.0.1:3080 --token-file unknown",
            "1",
            "the token is not known",
        ),
        (
            "--proxy 127.0.0.1:3080 --token-file used",
            "1",
            "the token was used",
        ),
        (
            "--proxy 127.0.0.1:3080 --token-file nowhere",
            "2",
            "there is no file nowhere",
        ),
        (
            "--proxy 127.0.0.1:3080 --token-file token --state /proc/node",
            "1",
            "/proc/node: No such file or directory (os error 2); the token was not used",
        ),
        (
            "--proxy 127.0.0.1:1 --token-file token",
            "255",
            "no connection to 127.0.0.1:1",
        ),
        // The token is as good as before.
        (
            "--proxy 127.0.0.1:3080 --token-file token",
            "0",
            "this machine is the node fresh",
        ),
        (
            "--proxy 127.0.0.1:3080 --token-file token",
            "0",
            "`fleetgate join --again`",
        ),
    ] {
        let state = if words.contains("--state") {
            ""
        } else {
            "--state fresh"
        };
        let told = cluster.script(&format!("{TOOLS}said join --name fresh {state} {words}"));
        assert!(
            told.starts_with(&format!("{code} ")) && told.contains(wanted),
            "{words}: {told}"
        );
    }
}

#[test]
fn a_role_for_machines_that_are_not_there_is_applied_and_said() {
    needs_root!("a node");
    let cluster = Cluster::new();
    cluster.join_node();
    let apply = |nodes: &str| {
        let role = format!("[role.dba]\\nnodes = [{nodes}]\\nlogins = [\"root\"]\\n");
        cluster.script(&format!(
            "{TOOLS}printf '{role}' > dba.toml; said role apply --state cluster -f dba.toml"
        ))
    };
    let told = apply(r#""place=celar", "gate""#);
    assert!(
        told.contains("warning: role dba: no node matches \"place=celar\" now")
            && told.contains("dba created"),
        "{told}"
    );
    assert!(told.starts_with("0 ") && !told.contains("\"gate\""), "{told}");
    // What changes nothing says nothing anew.
    assert_eq!(apply(r#""place=celar", "gate""#), "0 dba unchanged\n");
    assert_eq!(apply(r#""place=cellar", "gate""#), "0 dba changed\n");
    // The file that cannot be read is named as it was given.
    let told = apply("\"*\"]\\nlogin = [\"root\"");
    assert!(
        told.starts_with("2 ") && told.contains("dba.toml line 3: unknown field `login`"),
        "{told}"
    );
    let told = cluster.script(&format!(
        "{TOOLS}echo '[role.dba]' | said role apply --state cluster -f -"
    ));
    assert!(!told.contains("role file"), "{told}");
}

#[test]
fn a_registration_that_takes_labels_away_says_so() {
    needs_root!("auth");
    let cluster = Cluster::new();
    cluster.script("ssh-keygen -q -t ed25519 -N '' -f plain_key");
    let register = |labels: &str| {
        cluster.script(&format!(
            "{TOOLS}said node register --state cluster db1 --address 127.0.0.1:22 --host-key plain_key.pub {labels}"
        ))
    };
    let told = register("--label env=dev");
    assert!(told.starts_with("0 ") && !told.contains("warning"), "{told}");
    let told = register("--label env=dev");
    assert!(told.starts_with("0 ") && !told.contains("warning"), "{told}");
    let told = register("");
    assert!(
        told.contains("warning: db1: its labels were env=dev; now: none"),
        "{told}"
    );
}

#[test]
fn doctor_says_how_the_services_are() {
    needs_root!("services that give up root");
    let mut cluster = Cluster::new();
    const DOCTOR: &str = r#"code=0; "$P" doctor --config cluster/fleetgate.toml > seen || code=$?
        echo "code $code"; grep -A1 'auth service\|auth state\|auth port\|auth disk\|proxy ' seen"#;
    let seen = cluster.script(&format!("P=$F; {DOCTOR}"));
    for wanted in [
        "good   auth service        answers for the cluster test, version 0.1.0; its state is open",
        "good   auth port           127.0.0.1:3025 answers",
        "proxy service       127.0.0.1:3080 answers and reaches auth",
        "good   proxy certificate   ends in ",
        " MB are left for /run/test/cluster/auth",
        " MB are left for /run/test/cluster/proxy",
    ] {
        assert!(seen.contains(wanted), "{wanted}: {seen}");
    }
    assert!(!seen.contains("wrong "), "{seen}");

    // Another program than the one that runs, as after an upgrade.
    let seen = cluster.script(&format!("cp \"$F\" another; P=./another; {DOCTOR}"));
    for service in ["auth", "proxy"] {
        let of_it = seen
            .split(&format!("{service} service "))
            .nth(1)
            .unwrap_or_default();
        let of_it: String = of_it.lines().take(2).collect();
        assert!(
            of_it.contains("its program is ") && of_it.contains("-> `systemctl restart fleetgate`"),
            "{service}: {seen}"
        );
    }

    // Auth does not answer: the proxy answers, and does not reach it.
    let auth = cluster.serving("auth").expect("it runs");
    let seen = cluster.script(&format!("P=$F; kill -STOP {auth}; {DOCTOR}; kill -CONT {auth}"));
    for wanted in [
        "code 1",
        "wrong  auth service",
        "no answer within 10 s",
        "wrong  proxy service       127.0.0.1:3080 answers, but auth is not reached through it: ",
        "-> see that auth runs, and that it is at 127.0.0.1:3025 (`auth` in [proxy], `listen` in [auth])",
    ] {
        assert!(seen.contains(wanted), "{wanted}: {seen}");
    }

    // Neither runs; then the state is damaged, and the certificate gone.
    cluster.down(STATE);
    let mut seen = String::new();
    wait_until("both have ended", || {
        seen = cluster.script(&format!("P=$F; {DOCTOR}"));
        seen.matches("does not run").count() == 2
    });
    for wanted in [
        "code 1",
        "good   auth state          /run/test/cluster/auth can be read",
        "-> start it: `systemctl start fleetgate`, or `fleetgate up`",
    ] {
        assert!(seen.contains(wanted), "{wanted}: {seen}");
    }
    let seen = cluster.script(&format!(
        "mv cluster/auth/state.db kept; echo nothing > cluster/auth/state.db; chmod 600 cluster/auth/state.db
        mv cluster/proxy/tls.chain chain; P=$F; {DOCTOR}
        mv kept cluster/auth/state.db; mv chain cluster/proxy/tls.chain"
    ));
    for wanted in [
        "wrong  auth state",
        "-> `fleetgate restore BACKUP --replace`",
        "wrong  proxy service       /run/test/cluster/proxy/tls.chain: ",
        "-> join it again",
    ] {
        assert!(seen.contains(wanted), "{wanted}: {seen}");
    }
    // The control: it starts, and all is well again.
    cluster.up(STATE, PROXY);
    let seen = cluster.script(&format!("P=$F; {DOCTOR}"));
    assert!(!seen.contains("wrong "), "{seen}");
}
