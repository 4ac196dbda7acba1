//! Documents: what is written is read again, what is wrong is named with its place, and all of it is bounded.

use super::*;
use crate::Invalid;
use crate::cluster::*;
use crate::commands::{Command, CommandLimits, Commands};
use crate::permits::Kind;
use crate::watching::{Audit, Stance, Watching};
use std::time::Duration;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

const FILE: &str = r#"
[role.dba]
nodes = ["env=prod,role=db", "bastion*"]
logins = ["{user}", "postgres", "postgres+db-*"]
containers = ["app=db|cache", "tier!=front"]
kinds = ["shell", "terminal", "forward", "sftp"]
commands = ["disk", "load"]
require_mfa = "15m"
require_trusted_device = true
recording = "events"
audit = "files"
io_uring = "refuse"
unwatched = "allow"
lifetime = "8h"
renewal = "90d"
session = 3600
sessions = 4
admin = true

[role.dba.command.vacuum]
argv = ["/usr/bin/vacuumdb", "--dbname", "{}"]
args = ["word"]
timeout = "2m"
environment = { LC_ALL = "C" }

[role."eu.dev"]
nodes = ["env=dev"]
logins = ["{user}"]
"#;

fn dba() -> Role {
    let kinds = [
        Kind::Shell,
        Kind::Sftp,
        Kind::Pty,
        Kind::ConnectTcp,
        Kind::ListenTcp,
        Kind::ConnectUnix,
        Kind::ListenUnix,
    ];
    Role {
        name: name("dba"),
        nodes: vec![
            Selector::parse("env=prod,role=db").unwrap(),
            Selector::parse("bastion*").unwrap(),
        ],
        logins: vec![USER.into(), "postgres".into(), "postgres+db-*".into()],
        containers: ["app=db|cache", "tier!=front"]
            .map(|text| Selector::parse(text).unwrap())
            .to_vec(),
        kinds: kinds.to_vec(),
        commands: vec!["disk".into(), "load".into()],
        defined: vacuum(),
        require_mfa: Some(Duration::from_secs(900)),
        require_trusted_device: true,
        recording: Recording::Events,
        watching: Watching {
            audit: Audit::Files,
            io_uring: Stance::Refuse,
            unwatched: Stance::Allow,
        },
        limits: Limits {
            lifetime: Duration::from_secs(8 * 3600),
            renewal: Some(Duration::from_secs(90 * 86_400)),
            session: Some(Duration::from_secs(3600)),
            sessions: Some(4),
        },
        admin: true,
    }
}

fn vacuum() -> Commands {
    let argv = ["/usr/bin/vacuumdb", "--dbname", "{a1}"];
    let command = Command::define(&argv, &[("a1", "word", None)]).unwrap();
    let limits = CommandLimits {
        timeout: Some(Duration::from_secs(120)),
        concurrency: None,
        output: Some(1 << 20),
    };
    let environment = vec![("LC_ALL".to_owned(), "C".to_owned())];
    let command = command.limited(limits).with_environment(environment).unwrap();
    let mut commands = Commands::new();
    commands.add("vacuum", command).unwrap();
    commands
}

fn dev() -> Role {
    let mut role = Role::new(name("eu.dev"));
    role.nodes = vec![Selector::parse("env=dev").unwrap()];
    role.logins = vec![USER.into()];
    role.kinds.sort();
    role
}

fn lock() -> Lock {
    Lock {
        id: name("l1"),
        target: Target::Login("DOMAIN\\bob".into()),
        serial_before: Some(5),
        expires: Some(7),
        reason: "left".into(),
        created: 3,
        by: "user root".into(),
    }
}

fn state() -> State {
    let mut state = State::new(name("prod"));
    (state.serial, state.as_of) = (7, 1_800_000_000);
    state.trust = Trust {
        user_ca: vec![b"user".to_vec(), b"next".to_vec()],
        host_ca: vec![b"host".to_vec()],
        tls_ca: vec![b"tls".to_vec()],
        state_keys: vec![b"state".to_vec()],
        retiring: vec![Retiring {
            authority: vec![4, 5],
            since: 1_000,
            until: 2_000,
        }],
    };
    state.roles = [dba(), dev()].map(|role| (role.name.clone(), role)).into();
    state.locks = Locks::new([lock()]);
    state.proxies = vec!["proxy.example.com:443".into()];
    state
}

#[test]
fn role_files_are_read_and_written() {
    let roles = parse_roles("roles.toml", FILE).unwrap();
    assert_eq!(roles, [dba(), dev()]);
    let written = write_roles(&roles);
    assert_eq!(
        written,
        r#"[role."dba"]
nodes = ["env=prod,role=db","bastion*"]
logins = ["{user}","postgres","postgres+db-*"]
containers = ["app=db|cache","tier!=front"]
kinds = ["shell","sftp","terminal","forward"]
commands = ["disk","load"]
require_mfa = "15m"
require_trusted_device = true
audit = "files"
io_uring = "refuse"
unwatched = "allow"
lifetime = "8h"
renewal = "90d"
session = "1h"
sessions = 4
admin = true
[role."dba".command."vacuum"]
argv = ["/usr/bin/vacuumdb","--dbname","{a1}"]
arguments = [{ "name" = "a1", "form" = "word" }]
timeout = "2m"
environment = { "LC_ALL" = "C" }

[role."eu.dev"]
nodes = ["env=dev"]
logins = ["{user}"]
"#
    );
    assert_eq!(parse_roles("roles.toml", &written).unwrap(), roles);
    for role in roles {
        assert_eq!(Role::parse_json(role.to_json().as_bytes()).unwrap(), role);
    }
}

#[test]
fn a_stored_role_that_wants_a_recording_is_read_and_cannot_be_applied_again() {
    let old = r#"{"name":"x","recording":"full"}"#;
    let role = Role::parse_json(old.as_bytes()).unwrap();
    assert_eq!(role.recording, Recording::Full);
    let refused = parse_roles("r.toml", &write_roles([&role])).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("recording = \"full\" is not possible"),
        "{refused}"
    );
}

#[test]
fn what_is_wrong_in_a_role_file_is_named_with_its_line() {
    for (line, want) in [
        (
            "nodse = []",
            "r.toml line 2: unknown field `nodse`, expected one of `name`, `nodes`, `logins`, `containers`, `kinds`, `commands`, `command`, \
             `require_mfa`, `require_trusted_device`, `recording`, `audit`, `io_uring`, \
             `unwatched`, `lifetime`, `renewal`, `session`, `sessions`, `admin`",
        ),
        (
            "nodes = [\"web1\",\n\"Env\"]",
            "r.toml line 2: the selector \"Env\" has 'E' in what should be a node's name or label=value",
        ),
        (
            "logins = [\"*\"]",
            "r.toml line 2: the login \"*\": it is an account's name or \"{user}\", not a pattern; only what stands \
             behind `+`, a container, may be one",
        ),
        (
            "logins = [\"{user}+web-*\", \"ada+*\", \"a*+web\"]",
            "r.toml line 2: the login \"a*+web\": it is an account's name or \"{user}\", not a pattern; only what stands \
             behind `+`, a container, may be one",
        ),
        (
            "logins = [\"a/b\"]",
            "r.toml line 2: the login \"a/b\": the user name holds a slash, a colon or a control character",
        ),
        (
            "kinds = [\"shel\"]",
            "r.toml line 2: \"shel\" is no kind: there are all, shell, exec, sftp, subsystem, terminal, forward, \
             connect-tcp, listen-tcp, connect-unix, listen-unix, agent, x11, environment, user-rc",
        ),
        (
            "[role.x.command.load]\nargv = [\"/bin/true\"]",
            "r.toml: role x: it lets its users run anything (`exec` among its kinds), so the commands that it defines would do \
             nothing: leave `exec` out of `kinds`, or the commands",
        ),
        (
            "kinds = []\n[role.x.command.load]\nargv = [\"/bin/true\"]\nuser = \"root\"",
            "r.toml: role x: the command load: `user` stands in a node's own file only. A role's commands run as the account \
             that logs in: put it into `logins`, or the command into node.toml",
        ),
        (
            "kinds = []\n[role.x.command.load]\nargv = [\"uptime\"]",
            "r.toml: role x: the command load: the program \"uptime\" has to be an absolute path without arguments in it",
        ),
        (
            "commands = [\"/bin/sh\"]",
            "r.toml line 2: the command \"/bin/sh\": a command's name has 1 to 128 letters, digits and _.-",
        ),
        (
            "require_mfa = \"soon\"",
            "r.toml line 2: invalid value: string \"soon\", expected a time such as \"90s\", \"15m\", \"12h\", \"7d\" \
             or a number of seconds",
        ),
        (
            "require_mfa = -1",
            "r.toml line 2: invalid value: integer `-1`, expected a time such as \"90s\", \"15m\", \"12h\", \"7d\" \
             or a number of seconds",
        ),
        (
            "audit = \"all\"",
            "r.toml line 2: unknown variant `all`, expected one of `none`, `commands`, `files`, `full`",
        ),
        (
            "io_uring = \"refuse\"",
            "r.toml: role x: io_uring and unwatched say how a watched session is to be: set audit, or leave them out",
        ),
        (
            "recording = \"all\"",
            "r.toml line 2: unknown variant `all`, expected one of `events`, `output`, `full`",
        ),
        (
            "recording = \"output\"",
            "r.toml: role x: recording = \"output\" is not possible: fleetgate keeps the events of a session and does not \
             record it yet; leave it out, or write \"events\"",
        ),
        (
            "recording = \"full\"",
            "r.toml: role x: recording = \"full\" is not possible: fleetgate keeps the events of a session and does not \
             record it yet; leave it out, or write \"events\"",
        ),
        (
            "lifetime = 59",
            "r.toml: role x: lifetime is from 1m to 30d, not 59s",
        ),
        (
            "lifetime = \"31d\"",
            "r.toml: role x: lifetime is from 1m to 30d, not 31d",
        ),
        (
            "renewal = \"11h\"",
            "r.toml: role x: renewal is from its lifetime, 12h, to 365d, not 11h",
        ),
        (
            "renewal = \"366d\"",
            "r.toml: role x: renewal is from its lifetime, 12h, to 365d, not 366d",
        ),
        (
            "sessions = 0",
            "r.toml: role x: a limit of 0 would end every session: leave it out, or take the kinds away",
        ),
        (
            "name = \"x\"",
            "r.toml: role x: its name stands in the table's line already",
        ),
        (
            "admin = \"yes\"",
            "r.toml line 2: invalid type: string \"yes\", expected a boolean",
        ),
        (
            "[role.x.commands.load]",
            "r.toml line 2: invalid type: map, expected a list of names (a command that the role defines is a table: \
             [role.ROLE.command.NAME])",
        ),
        ("[rule.y]", "r.toml line 2: unknown field `rule`, expected `role`"),
        (
            "[role.Y]",
            "r.toml line 2: the name \"Y\" has 'Y' in it: a name has lower-case letters, digits and . _ -",
        ),
    ] {
        let text = format!("[role.x]\n{line}\n");
        assert_eq!(
            parse_roles("r.toml", &text).unwrap_err().to_string(),
            want,
            "{line}"
        );
    }
    assert_eq!(parse_roles("r.toml", "[role.x]\n").unwrap().len(), 1);
    let many = |count: usize| format!("[role.x]\nlogins = [{}]", "\"a\",".repeat(count));
    assert!(parse_roles("r.toml", &many(MAX_ROLE_ENTRIES)).is_ok());
    assert_eq!(
        parse_roles("r.toml", &many(MAX_ROLE_ENTRIES + 1))
            .unwrap_err()
            .to_string(),
        "r.toml: role x: it has room for 256 logins"
    );
}

#[test]
fn the_first_form_of_the_state_stays_as_it_is() {
    let golden = concat!(
        r#"{"version":1,"cluster":"prod","serial":7,"as_of":1800000000,"trust":{"user_ca":["dXNlcg==","bmV4dA=="],"#,
        r#""host_ca":["aG9zdA=="],"tls_ca":["dGxz"],"state_keys":["c3RhdGU="]"#,
        r#","retiring":[{"authority":"BAU=","since":1000,"until":2000}]},"roles":[{"name":"dba","#,
        r#""nodes":["env=prod,role=db","bastion*"],"logins":["{user}","postgres","postgres+db-*"],"containers":["app=db|cache","tier!=front"],"#,
        r#""kinds":["shell","sftp","terminal","forward"],"commands":["disk","load"],"command":{"vacuum":{"#,
        r#""argv":["/usr/bin/vacuumdb","--dbname","{a1}"],"#,
        r#""arguments":[{"name":"a1","form":"word"}],"timeout":"2m","environment":{"LC_ALL":"C"}}},"require_mfa":"15m","#,
        r#""require_trusted_device":true,"audit":"files","io_uring":"refuse","unwatched":"allow","lifetime":"8h","renewal":"90d","session":"1h","sessions":4,"#,
        r#""admin":true},{"name":"eu.dev","nodes":["env=dev"],"logins":["{user}"]}],"#,
        r#""locks":[{"id":"l1","target":{"kind":"login","name":"DOMAIN\\bob"},"serial_before":5,"expires":7,"#,
        r#""reason":"left","created":3,"by":"user root"}],"proxies":["proxy.example.com:443"]}"#,
    );
    assert_eq!(String::from_utf8(state().to_json()).unwrap(), golden);
    assert_eq!(State::parse_json(golden.as_bytes()).unwrap(), state());
    // An earlier one did not say what it retires.
    let retiring = r#","retiring":[{"authority":"BAU=","since":1000,"until":2000}]"#;
    let mut earlier = state();
    earlier.trust.retiring.clear();
    let text = golden.replacen(retiring, "", 1);
    assert_eq!(String::from_utf8(earlier.to_json()).unwrap(), text);
    assert_eq!(State::parse_json(text.as_bytes()).unwrap(), earlier);
    // A later cluster may say more, though not in a role or a lock.
    let later = golden.replacen('{', "{\"more\":[1],", 1);
    assert_eq!(State::parse_json(later.as_bytes()).unwrap(), state());
    for (from, to, want) in [
        (
            "\"version\":1",
            "\"version\":2",
            "the state: it has the form 2, and this fleetgate reads form 1: upgrade it",
        ),
        ("\"eu.dev\"", "\"dba\"", "the state: role dba stands there twice"),
        (
            "\"dXNlcg==\"",
            "\"dXNlcg\"",
            "the state: the key is no base64 at line 1 column 89",
        ),
        (
            "\"dXNlcg==\"",
            "\"\"",
            "the state: a key has 1 to 16384 bytes at line 1 column 83",
        ),
        (
            "\"kind\":\"login\"",
            "\"kind\":\"logn\"",
            "the state: lock l1: \"logn\" cannot be locked: name a user, node, login, role, device, proxy or session",
        ),
        ("left", "a\\nb", "the state: lock l1: its reason has '\\n' in it"),
        (
            "proxy.example",
            "proxy\\u0007.example",
            "the state: the address of a proxy has '\\u{7}' in it",
        ),
    ] {
        let text = golden.replacen(from, to, 1);
        assert_eq!(State::parse_json(text.as_bytes()).unwrap_err().to_string(), want);
    }
    for inside in ["{\"name\":\"dba\"", "{\"id\":\"l1\""] {
        let text = golden.replacen(inside, &inside.replace('{', "{\"deny\":1,"), 1);
        assert!(
            State::parse_json(text.as_bytes())
                .unwrap_err()
                .to_string()
                .contains("unknown field `deny`")
        );
    }
}

#[test]
fn locks_and_signs_of_freshness_come_back() {
    let mut plain = lock();
    (plain.serial_before, plain.expires) = (None, None);
    for target in [
        Target::User(name("a")),
        Target::Node(name("a")),
        Target::Role(name("a")),
        Target::Device(name("a")),
        Target::Proxy(name("a")),
    ] {
        plain.target = target;
        assert_eq!(Lock::parse_json(plain.to_json().as_bytes()).unwrap(), plain);
    }
    assert_eq!(Lock::parse_json(lock().to_json().as_bytes()).unwrap(), lock());
    let fresh = Fresh { serial: 7, as_of: 9 };
    assert_eq!(fresh.to_json(), b"{\"serial\":7,\"as_of\":9}");
    assert_eq!(Fresh::parse_json(&fresh.to_json()).unwrap(), fresh);
    assert!(Fresh::parse_json(b"{}").is_err());
    // Neither document's signature passes for the other's.
    assert_eq!(State::signed(b"{}"), b"fleetgate-state-v1{}");
    assert_eq!(Fresh::signed(b"{}"), b"fleetgate-fresh-v1{}");
}

#[test]
fn a_state_is_bounded() {
    let small = |change: &dyn Fn(&mut State)| {
        let mut state = State::new(name("c"));
        change(&mut state);
        State::parse_json(&state.to_json()).map_err(|why| why.to_string())
    };
    let locks = |count: usize| {
        move |state: &mut State| {
            state.locks = (0..count)
                .map(|i| Lock {
                    id: name(&format!("l{i}")),
                    ..lock()
                })
                .collect();
        }
    };
    let roles = |count: usize| {
        move |state: &mut State| {
            let made = (0..count).map(|i| Role::new(name(&format!("r{i}"))));
            state.roles = made.map(|role| (role.name.clone(), role)).collect();
        }
    };
    let proxies = |count: usize| move |state: &mut State| state.proxies = vec!["a:1".into(); count];
    let keys =
        |count: usize, size: usize| move |state: &mut State| state.trust.user_ca = vec![vec![1; size]; count];
    let reason = |bytes: usize| {
        move |state: &mut State| {
            let reason = "x".repeat(bytes);
            state.locks = Locks::new([Lock { reason, ..lock() }]);
        }
    };
    type Case<'a> = (&'a dyn Fn(&mut State), Option<&'static str>);
    let cases: [Case<'_>; 12] = [
        (&locks(MAX_LOCKS), None),
        (
            &locks(MAX_LOCKS + 1),
            Some("the state: it has 65537 locks, and there is room for 65536"),
        ),
        (&roles(MAX_CLUSTER_ROLES), None),
        (
            &roles(MAX_CLUSTER_ROLES + 1),
            Some("the state: it has 4097 roles, and there is room for 4096"),
        ),
        (&proxies(MAX_PROXIES), None),
        (
            &proxies(MAX_PROXIES + 1),
            Some("the state: it has 257 proxies, and there is room for 256"),
        ),
        (&keys(MAX_TRUSTED, 1), None),
        (
            &keys(MAX_TRUSTED + 1, 1),
            Some("the state: it has 17 user authorities, and there is room for 16"),
        ),
        (&keys(1, MAX_KEY), None),
        (&keys(1, MAX_KEY + 1), Some("a key has 1 to 16384 bytes")),
        (&reason(MAX_REASON), None),
        (
            &reason(MAX_REASON + 1),
            Some("its reason is longer than 1024 bytes"),
        ),
    ];
    for (i, (change, want)) in cases.into_iter().enumerate() {
        match (small(change), want) {
            (Ok(_), None) => {}
            (Err(why), Some(want)) => assert!(why.contains(want), "case {i}: {why}"),
            (got, want) => panic!("case {i}: {want:?}, and it was {:?}", got.map(drop)),
        }
    }
    let mut text = State::new(name("c")).to_json();
    text.resize(MAX_STATE, b' ');
    assert!(State::parse_json(&text).is_ok());
    text.push(b' ');
    assert_eq!(
        State::parse_json(&text).unwrap_err().to_string(),
        "the state is longer than 16777216 bytes"
    );
}

#[test]
fn a_serial_never_goes_back() {
    let at = |serial: u64, as_of: u64| {
        let mut state = State::new(name("c"));
        (state.serial, state.as_of) = (serial, as_of);
        state
    };
    let here = at(5, 100);
    for (new, want) in [
        (at(6, 100), Ok(())),
        (at(6, 90), Ok(())),
        (at(5, 100), Ok(())),
        (at(5, 160), Ok(())),
        (
            at(4, 200),
            Err(
                "the state has the serial 4 of 200, and 5 of 100 is known already: somebody sends an old one",
            ),
        ),
        (
            at(5, 99),
            Err("the state has the serial 5 of 99, and 5 of 100 is known already: somebody sends an old one"),
        ),
    ] {
        assert_eq!(
            here.follows(&new),
            want.map_err(|why: &str| Invalid(why.to_string()))
        );
    }
    let mut other = at(9, 900);
    other.cluster = name("d");
    assert_eq!(
        here.follows(&other).unwrap_err().to_string(),
        "the state is of the cluster d, and this machine belongs to c"
    );
    let mut here = here;
    here.refresh(&Fresh {
        serial: 5,
        as_of: 160,
    })
    .unwrap();
    here.refresh(&Fresh {
        serial: 5,
        as_of: 130,
    })
    .unwrap();
    assert_eq!((here.as_of, here.age(200), here.age(100)), (160, 40, 0));
    assert!(
        here.refresh(&Fresh {
            serial: 6,
            as_of: 170
        })
        .is_err()
    );
}

#[test]
fn every_key_and_kind_of_a_role_is_documented() {
    let page = include_str!("../../../../../docs/roles.md");
    let said = parse_roles("r.toml", "[role.x]\nno-such-key = 1")
        .unwrap_err()
        .to_string();
    let (_, known) = said.split_once("expected one of ").unwrap();
    // The name stands in the table's line.
    let known: Vec<&str> = known.split(", ").filter(|key| *key != "`name`").collect();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: Vec<String> = rows
        .map(|row| format!("`{}", row.split('|').next().unwrap().trim()))
        .collect();
    let mut sorted = (known.clone(), rows);
    sorted.0.sort();
    sorted.1.sort();
    assert_eq!(sorted.0, sorted.1);
    let said = parse_roles("r.toml", "[role.x]\nkinds = [\"no\"]")
        .unwrap_err()
        .to_string();
    let (_, kinds) = said.split_once("there are ").unwrap();
    for kind in kinds.split(", ") {
        assert!(page.contains(&format!("`{kind}`")), "{kind}");
    }
    // The page's own example is one.
    let example: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .collect();
    assert_eq!(parse_roles("roles.md", &example.join("\n")).unwrap().len(), 3);
}

#[test]
fn machines_renew_in_the_first_half_of_what_is_left_of_an_authority() {
    let of = |since, until| Retiring {
        authority: Vec::new(),
        since,
        until,
    };
    assert_eq!(of(1_000, 1_060).due(0), 1_000);
    assert_eq!(of(1_000, 1_060).due(u32::MAX / 2), 1_014);
    assert_eq!(of(1_000, 1_060).due(u32::MAX), 1_029);
    assert_eq!(of(1_000, 900).due(u32::MAX), 1_000);
}
