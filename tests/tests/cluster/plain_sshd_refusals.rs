//! A machine without fleetgate, reached through the proxy by every way that there is: what the cluster refuses is refused
//! before its sshd hears of it, what is wrong with the sshd is said with its name, what runs ends with a lock, and the audit
//! log has all of it. The sshd takes nothing but the cluster's certificates, and each refusal has a session before and
//! after it.

use fleetgate_tests::cluster::Cluster;
use fleetgate_tests::needs_root;
use fleetgate_tests::plain::{HOST_KEYS, Machine, REGISTERED, WAYS, WORDS, Way};
use fleetgate_tests::service::{go_on, stop};
use fleetgate_tests::world::wait_until;
use serde_json::Value;
use std::process::Child;
use std::time::{Duration, Instant};

/// Where a way that is no row's is run.
const HOME: &str = "T=/run/test; H=$T/home; export FLEETGATE_HOME=$H";

/// What a session prints that was let in: no client repeats it by quoting the command.
const IN: &str = "in-42";
const ECHO: &str = "echo in-$((40+2))";

/// How long something may take to come true: second factors have a minute's allowance for clocks.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs a command of `w` by a way: what it printed and said, and whether it ended well.
fn asked(machine: &Machine, way: &Way, command: &str) -> (bool, String) {
    let script = format!("exec 2>&1\n{HOME}\n{}{WORDS}{command}", way.words);
    match machine.cluster.attempt(&script) {
        Ok(said) => (true, said),
        Err(said) => (false, said),
    }
}

/// Tries until `holds` of what was said and of whether somebody came in.
fn until_said(machine: &Machine, way: &Way, command: &str, when: &str, holds: impl Fn(bool, &str) -> bool) {
    let end = Instant::now() + PATIENCE;
    let mut last = String::new();
    while Instant::now() < end {
        let (well, said) = asked(machine, way, command);
        if holds(well, &said) {
            return;
        }
        last = said;
        let _ = fleetgate_sys::poll::poll(&mut [], Some(100));
    }
    panic!("{}, {when}: {command}: {last}", way.name);
}

/// Everybody comes in, by every way.
fn all_come_in(machine: &Machine, when: &str) {
    for way in &WAYS {
        until_said(
            machine,
            way,
            &format!("w ada@db1 '{ECHO}'"),
            when,
            |well, said| well && said.contains(IN),
        );
    }
}

/// Nobody does, by any way, and reads these words.
fn all_are_refused(machine: &Machine, login: &str, words: &[&str], when: &str) {
    for way in &WAYS {
        let command = format!("w {login}@db1 '{ECHO}'");
        until_said(machine, way, &command, when, |well, said| {
            !well && !said.contains(IN) && words.iter().all(|w| said.contains(w))
        });
    }
}

/// The cluster's events of this machine, oldest first.
fn events(machine: &Machine) -> Vec<Value> {
    events_of(machine, "--node db1")
}

/// The events that `fleetgate audit` has by these flags.
fn events_of(machine: &Machine, flags: &str) -> Vec<Value> {
    let ask = format!("\"$F\" audit --state cluster --json {flags}");
    let text = machine.cluster.script(&ask);
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// The events of this kind that hold these fields.
fn told<'a>(events: &'a [Value], event: &str, fields: &[(&str, &str)]) -> Vec<&'a Value> {
    let holds = |e: &&Value| {
        let has = |(name, value): &(&str, &str)| match &e[*name] {
            Value::String(text) => text.contains(value),
            other => other.as_u64().is_some_and(|number| value.parse() == Ok(number)),
        };
        e["event"] == event && fields.iter().all(has)
    };
    events.iter().filter(holds).collect()
}

#[test]
fn what_is_done_there_is_in_the_audit_log_and_in_the_sshds() {
    needs_root!("a network and accounts of its own");
    let machine = Machine::registered();
    let ada = [("user", "ada"), ("node", "db1"), ("login", "ada")];
    for (n, way) in WAYS.iter().enumerate() {
        let code = (40 + n).to_string();
        let before = events(&machine);
        let (_, said) = asked(&machine, way, &format!("w ada@db1 'echo {IN}; exit {code}'"));
        assert!(said.contains(IN), "{}: {said}", way.name);
        let command = format!("echo {IN}; exit {code}");
        let started = [("kind", "exec"), ("command", command.as_str())];
        let jumped = way.name == "ssh -J";
        let mut wanted: Vec<(&str, Vec<(&str, &str)>)> = vec![
            ("host_signed", vec![("by", "proxy")]),
            ("login_signed", ada.to_vec()),
            ("login_accepted", ada.to_vec()),
            ("session_started", [&ada[..], &started].concat()),
            ("session_ended", [&ada[..], &[("code", &code)]].concat()),
            ("connection_ended", [&ada[..], &[("reason", "")]].concat()),
            ("dial", vec![("user", "ada"), ("source", "127.0.0.1")]),
            ("dial_ended", vec![("user", "ada"), ("source", "127.0.0.1")]),
        ];
        if jumped {
            // Where it ends is told by the session: a jump is for many nodes.
            wanted.pop();
            wanted[6].1.push(("by", "jump"));
        }
        let mut news = Vec::new();
        wait_until(&format!("the events of {}", way.name), || {
            news = events(&machine).split_off(before.len());
            let all = wanted.iter().all(|(event, f)| told(&news, event, f).len() == 1);
            if !all && news.len() > 20 {
                panic!("{news:#?}");
            }
            all
        });
        if !jumped {
            let ended = told(&news, "dial_ended", &ada)[0];
            for bytes in ["received", "sent"] {
                assert!(ended[bytes].as_u64() > Some(500), "{ended}");
            }
        }
    }
    // Another account is another login, and a file transfer is told as one.
    let before = events(&machine).len();
    let (well, said) = asked(&machine, &WAYS[0], "echo pwd | \"${C[@]}\" -b - bea@db1");
    assert!(well, "{said}");
    wait_until("sftp's events", || {
        let news = events(&machine).split_off(before);
        told(&news, "session_started", &[("login", "bea"), ("kind", "sftp")]).len() == 1
            && told(&news, "session_ended", &[("login", "bea"), ("code", "0")]).len() == 1
    });
    // Its own log names the user, who need not have the account's name, and the authority.
    let log = machine.log();
    let accepted: Vec<&String> = log
        .iter()
        .filter(|l| l.contains("Accepted publickey for bea"))
        .collect();
    assert_eq!(accepted.len(), 1, "{log:#?}");
    assert!(accepted[0].contains("ED25519-CERT"), "{accepted:?}");
    assert!(accepted[0].contains("ID user ada (test)"), "{accepted:?}");
}

#[test]
fn only_who_is_registered_and_trusted_is_reached_and_every_fault_has_a_name() {
    needs_root!("a network and accounts of its own");
    let mut machine = Machine::unregistered();
    let fingerprint = |file: &str| format!("$(ssh-keygen -lf {file}.pub | cut -d' ' -f2)");
    all_are_refused(
        &machine,
        "ada",
        &["there is no node db1"],
        "before it is registered",
    );
    let said = machine.page("fleetgate node register");
    assert!(
        said.contains("db1") && said.contains("sshd") && said.contains("kind=db"),
        "{said}"
    );
    all_come_in(&machine, "registered");
    // By its labels too, and it stands in the user's list.
    let (well, said) = asked(
        &machine,
        &WAYS[0],
        &format!("\"$F\" ls kind=db; w -l ada kind=db '{ECHO}'"),
    );
    assert!(well && said.contains("db1") && said.contains(IN), "{said}");

    machine.stop();
    all_are_refused(
        &machine,
        "ada",
        &["db1", "db1.example:2222", "refused"],
        "while sshd is down",
    );
    machine.start(REGISTERED);
    all_come_in(&machine, "when sshd is up again");

    machine.start(HOST_KEYS);
    let shown = machine
        .cluster
        .script(&format!("echo {}", fingerprint("host_ecdsa256")));
    let words = ["sshd of db1", "not registered", "register the node again"];
    all_are_refused(&machine, "ada", &words, "with another host key");
    all_are_refused(&machine, "ada", &[shown.trim()], "with another host key");
    machine
        .cluster
        .script("cp host_ecdsa256.pub ssh_host_ed25519_key.pub");
    machine.page("fleetgate node register");
    all_come_in(&machine, "registered by its new key");
    // Left to itself, a client would take another first.
    machine.start(&format!("{HOST_KEYS}{REGISTERED}"));
    all_come_in(&machine, "with more host keys");
    machine.start(HOST_KEYS);
    machine
        .cluster
        .script("cp host_ed25519.pub ssh_host_ed25519_key.pub");
    machine.page("fleetgate node register");
    all_are_refused(
        &machine,
        "ada",
        &words,
        "registered by the key that it has no more",
    );
    machine.start(REGISTERED);
    all_come_in(&machine, "with its first key");

    // What the sshd itself decides.
    let refused = [
        "db1",
        "its sshd refused the cluster's certificate",
        "TrustedUserCAKeys",
        "account",
    ];
    machine.start(&format!("{REGISTERED}TrustedUserCAKeys /run/test/user_ca.pub\n"));
    all_are_refused(&machine, "ada", &refused, "where it trusts another authority");
    machine.start(&format!("{REGISTERED}DenyUsers ada\n"));
    all_are_refused(&machine, "ada", &refused, "where it denies the account");
    machine.start(REGISTERED);
    all_come_in(&machine, "in the end");

    // After a rotation the next authority is trusted before it signs, as soon as the file has it.
    machine
        .cluster
        .script(r#""$F" ca rotate user --state cluster > /dev/null"#);
    assert_eq!(
        machine
            .cluster
            .script(r#""$F" ca show user --state cluster"#)
            .lines()
            .count(),
        2
    );
    machine.page("fleetgate ca show");
    all_come_in(&machine, "with two authorities");

    machine.cluster.script(r#""$F" node rm db1 --state cluster"#);
    all_are_refused(&machine, "ada", &["there is no node db1"], "when it was removed");
}

/// Something that refuses.
struct Refusal {
    name: &'static str,
    /// Brings it about.
    begin: &'static str,
    /// What is read.
    words: &'static str,
    /// Ends it.
    end: &'static str,
}

const ROLE: &str = r#"role '"ada", "bea", "root"' 'kinds = ["all"]'"#;
const UNLOCK: &str = r#""$F" lock rm --state cluster "$(sed -n 's/.*"id": *"\([^"]*\)".*/\1/p' lock)""#;
const REFUSALS: &[Refusal] = &[
    Refusal {
        name: "no role with this login",
        begin: r#"role '"bea", "root"'"#,
        words: "has the logins bea, root on db1, not ada",
        end: ROLE,
    },
    Refusal {
        name: "no role for this machine",
        begin: r#"printf '[role.everything]\nnodes = ["gate"]\nlogins = ["ada"]\n' > role.toml
            "$F" role apply --state cluster -f role.toml"#,
        words: "db1",
        end: ROLE,
    },
    Refusal {
        name: "a trusted device",
        begin: r#"role '"ada"' 'require_trusted_device = true'"#,
        words: "role everything asks for a trusted device and yours is none",
        end: ROLE,
    },
    Refusal {
        name: "the user is locked",
        begin: r#""$F" lock add --state cluster --user ada --reason left --json > lock"#,
        words: "user ada is locked (left)",
        end: UNLOCK,
    },
    Refusal {
        name: "the machine is locked",
        begin: r#""$F" lock add --state cluster --node db1 --reason broken --json > lock"#,
        words: "node db1 is locked (broken)",
        end: UNLOCK,
    },
    Refusal {
        name: "the login is locked",
        begin: r#""$F" lock add --state cluster --login ada --reason moved --json > lock"#,
        words: "login ada is locked (moved)",
        end: UNLOCK,
    },
    // A minute later, as far as clocks may be apart.
    Refusal {
        name: "a second factor that is too old",
        begin: r#"role '"ada"' 'require_mfa = "1s"'"#,
        words: "role everything asks for a second factor not older than 1s and yours is",
        end: r#"again "$F" login --home home --mfa --password-file password --authenticator totp --no-agent"#,
    },
];

#[test]
fn every_refusal_holds_by_every_way_and_the_sshd_hears_of_none() {
    needs_root!("a network and accounts of its own");
    let machine = Machine::registered();
    all_come_in(&machine, "at first");
    for refusal in REFUSALS {
        machine.cluster.script(refusal.begin);
        all_are_refused(&machine, "ada", &[refusal.words], refusal.name);
        // Now that everybody knows of it, the sshd is asked nothing.
        let asked = machine
            .log()
            .iter()
            .filter(|l| l.contains("Connection from"))
            .count();
        all_are_refused(&machine, "ada", &[refusal.words], refusal.name);
        let then = machine
            .log()
            .iter()
            .filter(|l| l.contains("Connection from"))
            .count();
        assert_eq!(asked, then, "{}", refusal.name);
        machine.cluster.script(refusal.end);
        all_come_in(&machine, &format!("after {}", refusal.name));
        // A jump that is refused before it says where to has no node; who was let in just before is refused his session.
        wait_until(&format!("the events of {}", refusal.name), || {
            let all = events_of(&machine, "");
            let of = |event, why| told(&all, event, &[(why, refusal.words)]).len();
            let each = ["dial_denied", "login_refused", "jump_refused"].map(|event| of(event, "reason"));
            each.iter().sum::<usize>() + of("denied", "what") >= 2 * WAYS.len()
        });
    }
    // Of the denied dials the log says whose they are, by the name that everything else has.
    assert!(!told(&events_of(&machine, "--user ada"), "dial_denied", &[]).is_empty());
}

#[test]
fn kinds_that_no_role_allows_are_refused_and_told() {
    needs_root!("a network and accounts of its own");
    let machine = Machine::registered();
    /// A command that works, and the kind without which it does not.
    const KINDS: [(&str, &str); 6] = [
        ("exec", "is \"$(w -n ada@db1 'echo yes')\" yes"),
        ("shell", "is \"$(echo 'echo yes' | w -T ada@db1)\" yes"),
        ("sftp", "echo pwd | \"${C[@]}\" -b - ada@db1"),
        ("terminal", "w -n -tt ada@db1 tty | grep -q dev/pts"),
        (
            "connect-tcp",
            "echo | w -W 127.0.0.1:2222 ada@db1 | grep -q SSH-2.0",
        ),
        (
            "agent",
            "eval $(ssh-agent) > /dev/null; w -n -A ada@db1 'ssh-add -l; [ $? = 1 ]'; c=$?; ssh-agent -k > /dev/null; [ $c = 0 ]",
        ),
    ];
    let all: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
    let is = "is() { [ \"$1\" = \"$2\" ]; }; set -o pipefail;";
    let role = |kinds: &[&str]| format!("role '\"ada\"' 'kinds = {kinds:?}'");
    for (kind, command) in KINDS {
        machine.cluster.script(&role(&all));
        for way in &WAYS {
            until_said(&machine, way, &format!("{is} {command}"), kind, |well, _| well);
        }
        let mut less = all.clone();
        less.retain(|k| *k != kind);
        machine.cluster.script(&role(&less));
        let before = events(&machine).len();
        for way in &WAYS {
            let without = format!("without {kind}");
            until_said(
                &machine,
                way,
                &format!("{is} ! {{ {command}; }}"),
                &without,
                |well, _| well,
            );
        }
        wait_until(&format!("the events of {kind}"), || {
            let news = events(&machine).split_off(before);
            told(&news, "denied", &[("user", "ada"), ("what", "role everything")]).len() >= WAYS.len()
        });
    }
}

/// What roles say of sessions, on connections that are open already too: plain ssh shares one for many sessions.
#[test]
fn what_roles_say_counts_for_the_next_session_of_an_open_connection() {
    needs_root!("a network and accounts of its own");
    let machine = Machine::registered();
    let role = |more: &str| format!("role '\"ada\"' '{more}'");
    let begin = "m=(-o ControlPath=$T/m); w \"${m[@]}\" -O check ada@db1 ||
        w \"${m[@]}\" -o ControlMaster=yes -o ControlPersist=yes ada@db1 true > /dev/null 2>&1 < /dev/null";
    let shared =
        |command: &str| format!("m=(-o ControlPath=$T/m); w \"${{m[@]}}\" -o ControlMaster=no {command}");
    let end = shared("-O exit ada@db1");
    for way in &WAYS[1..] {
        machine.cluster.script(&role("kinds = [\"all\"]"));
        let open = || until_said(&machine, way, begin, "at first", |well, _| well);
        let yes = shared(&format!("ada@db1 '{ECHO}'"));
        let no = |more: &str, words: &str| {
            open();
            machine.cluster.script(&role(more));
            until_said(&machine, way, &yes, more, |well, said| {
                !well && said.contains(words) && !said.contains(IN)
            });
            machine.cluster.script(&role("kinds = [\"all\"]"));
            until_said(&machine, way, &yes, "afterwards", |well, said| {
                well && said.contains(IN)
            });
        };
        no("kinds = [\"shell\"]", "is not allowed");
        // The list of commands is a node's own, and an sshd has none.
        no("kinds = []\ncommands = [\"disk\"]", "is not allowed");
        no("require_trusted_device = true", "asks for a trusted device");
        open();
        // Two at once, and no third; all of them end with their time.
        machine.cluster.script(&role("sessions = 2\nsession = \"3s\""));
        let two = format!(
            "{}; for n in 1 2; do {} & done; wait",
            shared("ada@db1 true"),
            shared("ada@db1 'echo begun; exec tail -f /dev/null'")
        );
        until_said(&machine, way, &two, "for 3 s", |_, said| {
            said.matches("a session of more than 3 s is not allowed by its roles")
                .count()
                == 2
        });
        wait_until("the end of what ran", || {
            machine.cluster.attempt("! pgrep -u ada -x tail").is_ok()
        });
        machine.cluster.script(&role("sessions = 2"));
        let three = format!(
            "rm -f n1 n2 hold1 hold2; mkfifo hold1 hold2; exec 4<> hold1 5<> hold2
             {} <&4 > n1 & {} <&5 > n2 &
             until [ -s n1 ] && [ -s n2 ]; do read -rt 0.1 <> <(:) || :; done
             {} || :; echo >&4; echo >&5; wait; {}",
            shared("ada@db1 'echo begun; read x'"),
            shared("ada@db1 'echo begun; read x'"),
            shared(&format!("ada@db1 '{ECHO}' < /dev/null")),
            shared("ada@db1 'echo then'"),
        );
        until_said(&machine, way, &three, "with two sessions", |well, said| {
            well && said.contains("at most 2 sessions by its roles")
                && !said.contains(IN)
                && said.contains("then")
        });
        until_said(&machine, way, &end, "in the end", |well, _| well);
    }
}

/// A session of a program that does not hear of its connection's end. It was let in.
fn running(machine: &Machine, way: &Way) -> Child {
    let script = format!(
        "{HOME}\n{}\nexec \"${{W[@]}}\" ada@db1 '{ECHO}; exec tail -f /dev/null'",
        way.words
    );
    machine.cluster.begin(&script, IN)
}

#[test]
fn a_lock_ends_what_runs_there() {
    needs_root!("a network and accounts of its own");
    let machine = Machine::registered();
    machine
        .cluster
        .script(r#""$F" user add --state cluster bea --role everything > invite2"#);
    for (at, target) in ["--user ada", "--login ada", "--node db1", "--role everything"]
        .iter()
        .enumerate()
    {
        all_come_in(&machine, "before a lock");
        let mut sessions: Vec<Child> = WAYS.iter().map(|way| running(&machine, way)).collect();
        // Somebody else's lock ends none of them.
        machine
            .cluster
            .script(r#""$F" lock add --state cluster --user bea --json > lock"#);
        machine.cluster.script(UNLOCK);
        all_come_in(&machine, "after another's lock");
        for (way, session) in WAYS.iter().zip(&mut sessions) {
            assert!(session.try_wait().expect("ours").is_none(), "{}", way.name);
        }
        machine.cluster.script(&format!(
            r#""$F" lock add --state cluster {target} --json > lock"#
        ));
        Cluster::all_ended(WAYS.iter().map(|way| way.name).zip(&mut sessions), target);
        // On the machine too.
        wait_until("the end of what ran", || {
            machine.cluster.attempt("! pgrep -u ada -x tail").is_ok()
        });
        // The log has why each of them ended.
        wait_until("the events of the lock", || {
            let ended = [("user", "ada"), ("login", "ada"), ("reason", "is locked")];
            told(&events(&machine), "connection_ended", &ended).len() >= (at + 1) * WAYS.len()
        });
        machine.cluster.script(UNLOCK);
    }
}

#[test]
fn an_auth_that_hangs_is_named_and_waited_for_no_longer_than_the_bound() {
    needs_root!("a network and accounts of its own");
    let machine = Machine::registered();
    all_come_in(&machine, "before");
    let auth = machine.cluster.serving("auth").expect("it runs");
    stop(auth);
    for (n, way) in WAYS.iter().enumerate() {
        let (well, said) = asked(&machine, way, &format!("w ada@db1 '{ECHO}'"));
        assert!(!well && !said.contains(IN), "{}: {said}", way.name);
        // A while later its connection is given up.
        let words = match n {
            0 => {
                "the auth service did not answer the proxy within 10 s: try again, or have an administrator look"
            }
            _ => "the auth service ",
        };
        assert!(said.contains(words), "{}: {said}", way.name);
        // ssh has no words for what it waits for.
        let waits = said.contains("waiting for the auth service behind the proxy 127.0.0.1:3080");
        assert_eq!(waits, way.name != "ssh -J", "{}: {said}", way.name);
    }
    go_on(auth);
    all_come_in(&machine, "when it goes on");
}

/// A connection that the master keeps ends with the registration: no session begins on it any more.
#[test]
fn a_kept_connection_to_an_sshd_that_was_removed_begins_nothing() {
    needs_root!("a network and accounts of its own");
    let machine = Machine::registered();
    let session = "\"$F\" ssh --home home ada@db1 \"echo in\"";
    assert_eq!(machine.cluster.script(session), "in\n");
    assert_eq!(machine.cluster.script(session), "in\n");
    machine.cluster.script(r#""$F" node rm --state cluster db1"#);
    wait_until("the refusal", || machine.cluster.attempt(session).is_err());
    assert!(machine.cluster.attempt(session).is_err());
}
