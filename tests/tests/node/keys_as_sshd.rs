//! The same line of authorized_keys, the same key or certificate: whether it lets in here, beside whether Debian's sshd
//! let it in. Where the two differ on purpose, the table says so.

use fleetgate_ssh::key::{AuthorizedKeys, Claimant, KeyOrCertificate};
use fleetgate_tests::login_world::{World, sh};
use fleetgate_tests::needs_root;
use std::fs;

const KEY: &str = "/run/test/key.pub";

/// Whether sshd lets root in; what stands in its authorized_keys file was written before.
fn theirs(world: &World, options: &[&str]) -> bool {
    let keys_only = [
        "-o",
        "PasswordAuthentication=no",
        "-o",
        "KbdInteractiveAuthentication=no",
    ];
    let mut arguments = keys_only.to_vec();
    arguments.extend(["-o", "IdentitiesOnly=yes"]);
    arguments.extend(options);
    arguments.push("true");
    let output = world.ssh("root", &arguments, "");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() != Some(255) || said.contains("Permission denied"),
        "{said}"
    );
    !said.contains("Permission denied")
}

/// Whether it would be let in here.
fn ours(file: &str, presented: &KeyOrCertificate) -> bool {
    let seconds = fleetgate_sys::clock::wall().sec;
    let zone = sh("date +%z");
    let (hours, minutes) = zone.trim().split_at(3);
    let hours: i32 = hours.parse().expect("hours of the zone");
    let minutes: i32 = minutes.parse().expect("minutes of the zone");
    let claimant = Claimant {
        login: "root",
        source: "127.0.0.1".parse().expect("an address"),
        now: u64::try_from(seconds).expect("a time after 1970"),
        skew: 0,
        utc_offset: hours * 3600 + hours.signum() * minutes * 60,
        environment: true,
    };
    let keys = AuthorizedKeys::parse(file.as_bytes(), "authorized_keys").expect("a file");
    keys.find(presented, &claimant).line.is_some()
}

fn presented(file: &str) -> KeyOrCertificate {
    KeyOrCertificate::from_line(&fs::read_to_string(file).expect("a key")).expect("a key of ssh-keygen's")
}

#[test]
fn options_let_in_whom_sshd_lets_in() {
    needs_root!("an sshd that changes to the user");
    let world = World::new();
    world.ssh("root", &["true"], "");
    let key = presented(KEY);
    let line = fs::read_to_string(KEY).expect("a key");
    let at = |when: &str| sh(&format!("date -d '{when}' +%Y%m%d%H%M%S")).trim().to_owned();
    let soon = format!("expiry-time=\"{}\"", at("30 minutes"));
    let just = format!("expiry-time=\"{}\"", at("30 minutes ago"));
    let same = [
        "",
        "restrict",
        "RESTRICT,No-Pty",
        "no-pty,",
        ",no-pty",
        "no-restrict",
        "no-cert-authority",
        "cert-authority",
        "unknown",
        "unknown=\"x\"",
        "command",
        "command=ls",
        "command=\"ls",
        "command=\"a\"b",
        "command=\"true\",command=\"true\"",
        "COMMAND=\"true\"",
        "command=\"echo \\\"a b\\\" # \\x\",no-pty",
        "from=\"127.0.0.0/8,!127.9.*\"",
        "from=\"127.*\"",
        "from=\"127.0.0.?\"",
        "from=\"!127.0.0.1,127.*\"",
        "from=\"192.0.2.1\"",
        "from=\"localhost,*.example.com\"",
        "from=\"127.0.0.1/8\"",
        "from=\"127.0.0.0/33\"",
        "from=\"\"",
        "from=\"!\"",
        "from=\" 127.0.0.1\"",
        "from=\"127.0.0.1, 10.0.0.1\"",
        &soon,
        &just,
        "expiry-time=\"20991231Z\"",
        "expiry-time=\"20991231Z\",expiry-time=\"20200101Z\"",
        "expiry-time=\"2099123\"",
        "expiry-time=\"+20990101\"",
        "tunnel=\"1\"",
        "tunnel=\"x\"",
        "environment=\"A\"",
        "environment=\"A-B=1\"",
        "environment=\"AB=1\"",
        "permitopen=\"host\"",
        "permitopen=\"host:0\"",
        "permitopen=\"host:99999\"",
        "permitopen=\"*:80\",permitopen=\"[::1]:*\"",
        "permitopen=\"::1:80\"",
        "permitlisten=\"8080\",permitlisten=\"host:*\"",
        "permitlisten=\"*\"",
        "principals=\"a\"",
        "no-touch-required,no-verify-required",
        "verify-required",
    ];
    let (mut let_in, mut refused) = (0, 0);
    for options in same {
        let file = format!("{options} {line}");
        fs::write(KEY, &file).expect("write");
        let theirs = theirs(&world, &[]);
        assert_eq!(ours(&file, &key), theirs, "{options}");
        *(if theirs { &mut let_in } else { &mut refused }) += 1;
    }
    assert!(
        let_in > 10 && refused > 10,
        "{let_in} and {refused}: both were seen"
    );
    // On purpose: a day that is none, a port that only the services file knows; and a network that sshd never fits.
    for (options, here) in [
        ("expiry-time=\"20990229Z\"", false),
        ("permitopen=\"host:http\"", false),
        ("from=\"::ffff:127.0.0.1\"", true),
    ] {
        let file = format!("{options} {line}");
        fs::write(KEY, &file).expect("write");
        assert_eq!(
            (ours(&file, &key), theirs(&world, &[])),
            (here, !here),
            "{options}"
        );
    }
}

#[test]
fn certificates_let_in_whom_sshd_lets_in() {
    needs_root!("an sshd that changes to the user");
    let world = World::new();
    world.ssh("root", &["true"], "");
    sh("cd /run/test && ssh-keygen -q -t ed25519 -N '' -f ca && cp key user && cp key.pub user.pub");
    let ca = fs::read_to_string("/run/test/ca.pub").expect("a key");
    let certificate = ["-o", "CertificateFile=/run/test/user-cert.pub"];
    for (made, line, same) in [
        ("-n root", "cert-authority", true),
        ("-n root", "", true),
        ("-n root", "cert-authority,from=\"192.0.2.1\"", true),
        ("-n ada", "cert-authority", true),
        ("-n ada", "cert-authority,principals=\"bob,ada\"", true),
        ("-n ada", "cert-authority,principals=\"bob\"", true),
        ("-n root -V 20200101:20210101", "cert-authority", true),
        ("-n root -V 20200101:20990101", "cert-authority", true),
        ("-n root -V 20980101:20990101", "cert-authority", true),
        ("-n root -h", "cert-authority", true),
        (
            "-n root -O source-address=127.0.0.0/8,::1/128",
            "cert-authority",
            true,
        ),
        ("-n root -O source-address=192.0.2.1", "cert-authority", true),
        ("-n root -O critical:new@example.com=1", "cert-authority", true),
        ("-n root -O extension:new@example.com=1", "cert-authority", true),
        (
            "-n root -O force-command=true",
            "cert-authority,command=\"true\"",
            true,
        ),
        (
            "-n root -O force-command=true",
            "cert-authority,command=\"false\"",
            true,
        ),
        // On purpose: one without principals is everybody's for OpenSSH before 10.
        ("", "cert-authority", false),
    ] {
        sh(&format!(
            "cd /run/test && ssh-keygen -q -s ca -I id {made} user.pub"
        ));
        let file = format!("{line} {ca}");
        fs::write(KEY, &file).expect("write");
        let line_of_it = fs::read_to_string("/run/test/user-cert.pub").expect("a certificate");
        // One that cannot be read lets nobody in.
        let ours =
            KeyOrCertificate::from_line(&line_of_it).is_ok_and(|certificate| ours(&file, &certificate));
        assert_eq!(ours == theirs(&world, &certificate), same, "{made}; {line}");
    }
}
