//! Tests of authorized_keys and principals files.

use super::*;
use crate::key::tests::Folder;
use crate::key::{Certificate, KeyType, PrivateKey, Touch};
use fleetgate_policy::permits::Program;
use fleetgate_policy::{Kind, What};

const NOW: u64 = 1_700_000_000; // 2023-11-14 22:13:20 UTC

fn claimant(source: &str) -> Claimant<'_> {
    Claimant {
        login: "alice",
        source: source.parse().unwrap(),
        now: NOW,
        skew: 0,
        utc_offset: 3600,
        environment: true,
    }
}

fn key() -> PublicKey {
    PrivateKey::generate(KeyType::Ed25519, "")
        .unwrap()
        .0
        .public()
        .clone()
}

/// What one line of options before a key says to its owner from 10.0.0.1.
fn asked(key: &PublicKey, options: &str) -> Result<Restrictions, String> {
    let file = format!("# comment\n\n{options} {} a comment\n", key.line());
    let keys = AuthorizedKeys::parse(file.as_bytes(), "keys").unwrap();
    if let Some(bad) = keys.bad().first() {
        assert_eq!(bad.number, 3);
        return Err(format!("bad: {}", bad.reason));
    }
    let found = keys.find(&KeyOrCertificate::Key(key.clone()), &claimant("10.0.0.1"));
    match found.line {
        Some((3, restrictions)) => Ok(restrictions),
        Some(other) => panic!("line {}", other.0),
        None => Err(found
            .refusals
            .into_iter()
            .map(|(n, r)| format!("{n}: {r}"))
            .collect()),
    }
}

#[test]
fn lines_let_in_or_say_why_not() {
    let key = key();
    for (options, want) in [
        ("", Ok(())),
        ("   \t", Ok(())),
        ("restrict", Ok(())),
        ("RESTRICT,No-Pty", Ok(())),
        ("command=\"echo \\\"a b\\\" # \\x\",no-pty", Ok(())),
        ("from=\"10.0.0.0/8,!10.9.*\"", Ok(())),
        ("from=\"10.*\"", Ok(())),
        (
            "from=\"!10.0.0.1,10.*\"",
            Err("3: its from= does not have 10.0.0.1"),
        ),
        ("from=\"192.0.2.1\"", Err("3: its from= does not have 10.0.0.1")),
        (
            "from=\"localhost,*.example.com\"",
            Err("3: its from= does not have 10.0.0.1"),
        ),
        (
            "from=\"10.0.0.1/8\"",
            Err("bad: from: \"10.0.0.1/8\" has bits beyond its prefix length"),
        ),
        ("expiry-time=\"20231114221321Z\"", Ok(())),
        (
            "expiry-time=\"20231114221320Z\"",
            Err("3: its expiry-time has passed"),
        ),
        ("expiry-time=\"20231114231321\"", Ok(())),
        (
            "expiry-time=\"20231114231320\"",
            Err("3: its expiry-time has passed"),
        ),
        ("expiry-time=\"202311142214Z\"", Ok(())),
        ("expiry-time=\"20231114\"", Err("3: its expiry-time has passed")),
        ("expiry-time=\"20231115UTC\"", Ok(())),
        (
            "expiry-time=\"20991231Z\",expiry-time=\"20200101Z\"",
            Err("3: its expiry-time has passed"),
        ),
        (
            "expiry-time=\"20200101Z\",expiry-time=\"20991231Z\"",
            Err("3: its expiry-time has passed"),
        ),
        (
            "expiry-time=\"20230229Z\"",
            Err("bad: expiry-time is no YYYYMMDD[HHMM[SS]][Z]"),
        ),
        (
            "expiry-time=\"+20230101\"",
            Err("bad: expiry-time is no YYYYMMDD[HHMM[SS]][Z]"),
        ),
        ("tunnel=\"1\"", Ok(())),
        ("cert-authority", Err("")),
        ("no-restrict", Err("bad: the option \"no-restrict\" is not known")),
        ("unknown", Err("bad: the option \"unknown\" is not known")),
        ("unknown=\"x\"", Err("bad: the option \"unknown\" is not known")),
        ("command", Err("bad: command needs a value in quotes")),
        ("command=ls", Err("bad: command: its value has no quotes")),
        ("command=\"ls", Err("bad: command: its closing quote is missing")),
        (
            "command=\"a\"b",
            Err("bad: command: something stands behind its closing quote"),
        ),
        (
            "command=\"a\",command=\"a\"",
            Err("bad: command stands there twice"),
        ),
        ("no-pty,", Ok(())),
        (",no-pty", Ok(())),
        ("no-,pty", Err("bad: the option \"no-\" is not known")),
        ("tunnel=\"x\"", Err("bad: tunnel is no number")),
        ("from=\" 10.0.0.1\"", Err("3: its from= does not have 10.0.0.1")),
        (
            "principals=\"a\"",
            Err("3: its principals= means nothing without cert-authority"),
        ),
        ("environment=\"A\"", Err("bad: environment is no NAME=value")),
        ("environment=\"A-B=1\"", Err("bad: environment is no NAME=value")),
        ("permitopen=\"host\"", Err("bad: \"host\" is no host:port")),
        ("principals=\"\"", Err("bad: principals needs 1 to 256 names")),
    ] {
        let got = asked(&key, options).map(drop);
        assert_eq!(got, want.map_err(str::to_string), "{options}");
    }
}

#[test]
fn options_become_restrictions() {
    let key = key();
    let all = [
        Kind::Pty,
        Kind::ConnectTcp,
        Kind::ListenUnix,
        Kind::Agent,
        Kind::X11,
        Kind::UserRc,
    ];
    let cases: [(&str, &[Kind]); 9] = [
        ("", &all),
        ("restrict", &[]),
        ("restrict,pty", &[Kind::Pty]),
        ("pty,restrict", &[]),
        (
            "restrict,port-forwarding,user-rc",
            &[Kind::ConnectTcp, Kind::ListenUnix, Kind::UserRc],
        ),
        ("no-pty", &all[1..]),
        (
            "no-port-forwarding",
            &[Kind::Pty, Kind::Agent, Kind::X11, Kind::UserRc],
        ),
        (
            "no-x11-forwarding,no-agent-forwarding",
            &[Kind::Pty, Kind::ConnectTcp, Kind::ListenUnix, Kind::UserRc],
        ),
        ("no-user-rc", &all[..5]),
    ];
    for (options, allowed) in cases {
        let got = asked(&key, options).unwrap();
        for kind in all {
            assert_eq!(
                got.permits.allow_kind(kind).is_ok(),
                allowed.contains(&kind),
                "{options} {kind:?}"
            );
        }
        assert!(got.permits.allow(&What::Exec(b"id")).is_ok());
    }
    let got = asked(&key, "restrict")
        .unwrap()
        .permits
        .allow(&What::Pty)
        .unwrap_err();
    assert_eq!(got.to_string(), "a terminal is not allowed by keys line 3");

    let got = asked(&key, "command=\"echo \\\"a b\\\" # \\x\"").unwrap();
    let want = Program::Line {
        command: b"echo \"a b\" # \\x".to_vec(),
        original: Some(b"id".to_vec()),
    };
    assert_eq!(got.permits.program(&What::Exec(b"id")), Ok(want));

    let got = asked(
        &key,
        "permitopen=\"db:5432\",permitopen=\"[::1]:*\",permitlisten=\"8080\"",
    )
    .unwrap();
    for (what, want) in [
        (What::ConnectTcp(b"db", 5432), true),
        (What::ConnectTcp(b"::1", 99), true),
        (What::ConnectTcp(b"db", 80), false),
        (What::ListenTcp(b"localhost", 8080), true),
        (What::ListenTcp(b"localhost", 8081), false),
    ] {
        assert_eq!(got.permits.allow(&what).is_ok(), want, "{what:?}");
    }

    let options = "environment=\"A=1 2\",environment=\"A=3\",environment=\"B=\"";
    let got = asked(&key, options).unwrap();
    assert_eq!(
        got.permits.environment(),
        [("A".into(), "1 2".into()), ("B".into(), String::new())]
    );
    let file = format!("{options} {}", key.line());
    let keys = AuthorizedKeys::parse(file.as_bytes(), "keys").unwrap();
    let without = Claimant {
        environment: false,
        ..claimant("10.0.0.1")
    };
    let found = keys
        .find(&KeyOrCertificate::Key(key.clone()), &without)
        .line
        .unwrap()
        .1;
    assert!(found.permits.environment().is_empty());

    for (options, presence, verification, expires) in [
        ("", true, false, None),
        ("no-touch-required", false, false, None),
        ("verify-required", true, true, None),
        ("expiry-time=\"20231115Z\"", true, false, Some(1_700_006_400)),
        (
            "expiry-time=\"20231115\"",
            true,
            false,
            Some(1_700_006_400 - 3600),
        ),
    ] {
        let got = asked(&key, options).unwrap();
        assert_eq!(
            (got.touch, got.expires),
            (
                Touch {
                    presence,
                    verification
                },
                expires
            ),
            "{options}"
        );
    }
}

#[test]
fn the_first_line_that_allows_counts_and_bad_ones_are_passed_over() {
    let (one, two) = (key(), key());
    let file = format!(
        "from=\"192.0.2.1\" {a}\nbroken\nssh-dss AAAA old\n\\xff {a}\n{b} other\nno-pty {a}\nrestrict {a}\n",
        a = one.line(),
        b = two.line()
    );
    let keys = AuthorizedKeys::parse(file.as_bytes(), "k").unwrap();
    assert_eq!(keys.bad().iter().map(|b| b.number).collect::<Vec<_>>(), [2, 3, 4]);
    let found = keys.find(&KeyOrCertificate::Key(one), &claimant("10.0.0.1"));
    assert_eq!(
        found.refusals,
        [(1, "its from= does not have 10.0.0.1".to_string())]
    );
    let (line, restrictions) = found.line.unwrap();
    assert_eq!(line, 6);
    assert!(
        restrictions.permits.allow(&What::X11).is_ok() && restrictions.permits.allow(&What::Pty).is_err()
    );
    assert_eq!(
        keys.find(&KeyOrCertificate::Key(two), &claimant("10.0.0.1"))
            .line
            .unwrap()
            .0,
        5
    );
    let stranger = keys.find(&KeyOrCertificate::Key(key()), &claimant("10.0.0.1"));
    assert!(stranger.line.is_none() && stranger.refusals.is_empty());
}

/// `ssh-keygen -l` lists the keys of an authorized_keys file, options and all.
#[test]
fn ssh_keygen_finds_the_same_keys() {
    let folder = Folder::new("authorized");
    let keys: Vec<_> = (0..6).map(|_| key()).collect();
    let lines = [
        format!("{}\r", keys[0].line()),
        format!("   {} comment with spaces", keys[1].line()),
        format!("command=\"a \\\"b, c\\\" d\",no-pty\t{}", keys[2].line()),
        format!("# {}", keys[3].line()),
        format!("restrict,from=\"10.*,!10.1.*\" {} x", keys[4].line()),
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA short".to_string(),
        format!("environment=\"A= x \" {}", keys[5].line()),
    ];
    folder.write("keys", lines.join("\n"));
    let (_, said) = folder.keygen(&["-l", "-f", "keys"]);
    let file = AuthorizedKeys::parse(folder.text("keys").as_bytes(), "keys").unwrap();
    for (i, key) in keys.iter().enumerate() {
        let theirs = said.contains(&key.fingerprint());
        assert_eq!(
            file.lines.iter().any(|l| l.subject == *key),
            theirs,
            "key {i}: {said}"
        );
        assert_eq!(theirs, i != 3);
    }
    assert_eq!(file.bad().len(), 1);
}

fn certified(folder: &Folder, options: &[&str]) -> (Certificate, PublicKey) {
    let ca = folder.key("ca", &["ed25519"]);
    folder.key("user", &["ed25519"]);
    (
        folder.certificate("ca", "user", &[&["-I", "id"], options].concat()),
        ca,
    )
}

#[test]
fn a_line_can_name_a_ca() {
    let folder = Folder::new("authority");
    let (certificate, ca) = certified(
        &folder,
        &[
            "-n",
            "alice,admin",
            "-O",
            "no-pty",
            "-O",
            "source-address=10.0.0.0/8",
        ],
    );
    let presented = KeyOrCertificate::Certificate(Box::new(certificate.clone()));
    for (options, source, want) in [
        ("cert-authority", "10.0.0.1", Ok(())),
        (
            "cert-authority",
            "11.0.0.1",
            Err("its source-address does not have this address"),
        ),
        ("cert-authority,principals=\"bob,admin\"", "10.0.0.1", Ok(())),
        (
            "cert-authority,principals=\"bob\"",
            "10.0.0.1",
            Err("none of its principals may log in as this account"),
        ),
        (
            "cert-authority,from=\"10.1.*\"",
            "10.0.0.1",
            Err("its from= does not have 10.0.0.1"),
        ),
        ("no-pty", "10.0.0.1", Err("")),
    ] {
        let keys = AuthorizedKeys::parse(format!("{options} {}", ca.line()).as_bytes(), "k").unwrap();
        let found = keys.find(&presented, &claimant(source));
        let reasons: String = found.refusals.into_iter().map(|r| r.1).collect();
        assert_eq!(
            found.line.map(drop).ok_or(reasons),
            want.map_err(str::to_string),
            "{options}"
        );
    }
    let keys = AuthorizedKeys::parse(
        format!("cert-authority,no-x11-forwarding {}", ca.line()).as_bytes(),
        "k",
    )
    .unwrap();
    let (_, got) = keys.find(&presented, &claimant("10.0.0.1")).line.unwrap();
    let denied = |what| got.permits.allow(&what).unwrap_err().to_string();
    assert_eq!(
        denied(What::Pty),
        "a terminal is not allowed by the certificate \"id\""
    );
    assert_eq!(denied(What::X11), "X11 forwarding is not allowed by k line 1");
    assert!(got.permits.allow(&What::Agent).is_ok());
    // Neither the CA's own key nor the certificate's is let in by such a line, nor the certificate by its key's line.
    for key in [&ca, certificate.key()] {
        assert!(
            keys.find(&KeyOrCertificate::Key(key.clone()), &claimant("10.0.0.1"))
                .line
                .is_none()
        );
    }
    let plain = AuthorizedKeys::parse(certificate.key().line().as_bytes(), "k").unwrap();
    assert!(plain.find(&presented, &claimant("10.0.0.1")).line.is_none());
    assert!(
        plain
            .find(
                &KeyOrCertificate::Key(certificate.key().clone()),
                &claimant("10.0.0.1")
            )
            .line
            .is_some()
    );
}

#[test]
fn two_forced_commands_have_to_be_one() {
    let folder = Folder::new("forced");
    let (certificate, ca) = certified(&folder, &["-n", "alice", "-O", "force-command=/bin/a"]);
    let presented = KeyOrCertificate::Certificate(Box::new(certificate));
    for (command, right) in [("/bin/a", true), ("/bin/b", false)] {
        let file = format!("cert-authority,command=\"{command}\" {}", ca.line());
        let keys = AuthorizedKeys::parse(file.as_bytes(), "k").unwrap();
        assert_eq!(
            keys.find(&presented, &claimant("10.0.0.1")).line.is_some(),
            right,
            "{command}"
        );
    }
}

#[test]
fn principals_files_name_who_may() {
    let folder = Folder::new("principals");
    let (certificate, ca) = certified(&folder, &["-n", "dev,ops"]);
    let trusted = |key: &PublicKey| *key == ca;
    for (file, want, bad) in [
        ("dev\n", Some(1), 0),
        ("# dev\nops # operators\n", Some(2), 0),
        ("admin\n", None, 0),
        ("", None, 0),
        ("from=\"192.0.2.1\" dev\nno-pty,command=\"a b\" ops\n", Some(2), 0),
        ("nonsense dev\nops", Some(2), 1),
        ("no-pty and dev\n", None, 1),
        ("cert-authority dev\n", None, 1),
        ("principals=\"dev\" dev\n", None, 1),
    ] {
        let principals = Principals::parse(file.as_bytes(), "p").unwrap();
        let found = principals.find(&certificate, &trusted, &claimant("10.0.0.1"));
        assert_eq!(found.line.as_ref().map(|l| l.0), want, "{file}");
        if file.contains("a b") {
            assert_eq!(found.line.unwrap().1.permits.forced(), Some(&b"a b"[..]));
        }
        assert_eq!(principals.bad().len(), bad, "{file}");
    }
    let principals = Principals::parse(b"dev", "p").unwrap();
    let found = principals.find(&certificate, &|_| false, &claimant("10.0.0.1"));
    assert!(found.line.is_none() && found.refusals[0].1.contains("not trusted"));
}

#[test]
fn files_and_lines_are_bounded() {
    let key = key();
    let line = key.line();
    let big = vec![b'\n'; MAX_FILE + 1];
    assert!(AuthorizedKeys::parse(&big, "k").is_err());
    assert!(AuthorizedKeys::parse(&big[1..], "k").is_ok());
    let presented = KeyOrCertificate::Key(key);
    let found = |file: String| {
        let keys = AuthorizedKeys::parse(file.as_bytes(), "k").unwrap();
        (
            keys.find(&presented, &claimant("::1")).line.is_some(),
            keys.bad().len(),
        )
    };
    let junk = |n: usize| "x\n".repeat(n);
    assert_eq!(found(junk(MAX_LINES - 1) + &line), (true, MAX_REPORTED));
    assert_eq!(found(junk(MAX_LINES) + &line), (false, MAX_REPORTED));
    let comment = |n: usize| format!("{line} {}", "c".repeat(n));
    assert_eq!(found(comment(MAX_LINE - line.len() - 1)), (true, 0));
    assert_eq!(found(comment(MAX_LINE - line.len())), (false, 1));
    let many = |n: usize| format!("{} {line}", vec!["permitopen=\"h:1\""; n].join(","));
    assert_eq!(found(many(256)), (true, 0));
    assert_eq!(found(many(257)), (false, 1));
    assert_eq!(
        found(format!("{} {line}", vec!["no-pty"; 257].join(","))),
        (false, 1)
    );
    assert_eq!(
        found(format!("principals=\"{}\" {line}", vec!["p"; 257].join(","))),
        (false, 1)
    );
    let variables = |n: usize| format!("{} {line}", vec!["environment=\"A=1\""; n].join(","));
    assert_eq!(found(variables(256)), (true, 0));
    assert_eq!(found(variables(257)), (false, 1));
    let variable = |n: usize| format!("environment=\"A={}\" {line}", "v".repeat(n));
    assert_eq!(found(variable(8191)), (true, 0));
    assert_eq!(found(variable(8192)), (false, 1));
}
