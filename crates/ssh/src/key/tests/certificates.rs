//! Certificates: of users and hosts, what they allow, when they are refused, and their bounds.

use super::{Folder, TYPES};
use crate::codec::{Reader, Write};
use crate::key::certificate::CertificateRefused;
use crate::key::*;
use fleetgate_policy::{Kind, What};

#[test]
fn certificates_are_those_of_ssh_keygen() {
    let folder = Folder::new("certificates");
    for (i, kind) in TYPES.iter().take(4).enumerate() {
        let (ca, name) = (format!("ca{i}"), format!("user{i}"));
        let ca_key = folder.key(&ca, kind);
        let key = folder.key(&name, kind);
        let options = [
            "-I",
            "alice on laptop",
            "-z",
            "42",
            "-n",
            "alice,bob",
            "-V",
            "20200101:20400101",
        ];
        let certificate = folder.certificate(&ca, &name, &options);
        assert_eq!(certificate.signature_holds(), Ok(()));
        assert_eq!((certificate.key(), certificate.ca()), (&key, &ca_key));
        assert_eq!(
            (certificate.serial(), certificate.key_id()),
            (42, "alice on laptop")
        );
        assert_eq!(certificate.principals(), ["alice", "bob"]);
        assert_eq!(certificate.kind(), CertificateKind::User);
        let (_, shown) = folder.keygen(&["-L", "-f", &format!("{name}-cert.pub")]);
        assert!(shown.contains(&format!("{} ", ca_key.fingerprint())), "{shown}");
        assert!(shown.contains(certificate.key().key_type().certificate_name()));
        let line = folder.text(&format!("{name}-cert.pub"));
        assert!(line.starts_with(&certificate.line()));
        // Whoever alters a byte has no certificate any more.
        for at in 0..certificate.blob().len() {
            let mut damaged = certificate.blob().to_vec();
            damaged[at] ^= 1;
            let holds = Certificate::parse(&damaged).is_ok_and(|c| c.signature_holds().is_ok());
            assert!(!holds, "byte {at}");
        }
    }
}

/// Seconds since 1970 of the first of January.
fn year(year: u64) -> u64 {
    (0..year - 1970)
        .map(|n| if (n + 2) % 4 == 0 { 366 } else { 365 } * 86400)
        .sum()
}

#[test]
fn a_users_certificate_lets_in_whom_it_names() {
    let folder = Folder::new("user-check");
    let ca = folder.key("ca", &["ed25519"]);
    folder.key("user", &["ed25519"]);
    let base = ["-I", "id", "-n", "alice", "-V", "20200101000000Z:20300101000000Z"];
    let (start, end) = (year(2020), year(2030));
    let address = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
    type Want = Result<(), CertificateRefused>;
    let check = |certificate: &Certificate, principals: &[&str], now: u64, source: &str| -> Want {
        let trusted = |key: &PublicKey| *key == ca;
        let check = UserCheck {
            trusted: &trusted,
            principals,
            now,
            skew: 60,
            source: address(source),
        };
        certificate.check_user(&check).map(drop)
    };
    type Case<'a> = (&'a [&'a str], &'a [&'a str], u64, &'a str, Want);
    let cases: [Case<'_>; 11] = [
        (&[], &["alice"], start, "10.0.0.1", Ok(())),
        (&[], &["bob", "alice"], start, "10.0.0.1", Ok(())),
        (
            &[],
            &["bob"],
            start,
            "10.0.0.1",
            Err(CertificateRefused::Principal),
        ),
        (&[], &[], start, "10.0.0.1", Err(CertificateRefused::Principal)),
        (&[], &["alice"], start - 60, "10.0.0.1", Ok(())),
        (
            &[],
            &["alice"],
            start - 61,
            "10.0.0.1",
            Err(CertificateRefused::TooEarly),
        ),
        (&[], &["alice"], end + 59, "10.0.0.1", Ok(())),
        (
            &[],
            &["alice"],
            end + 60,
            "10.0.0.1",
            Err(CertificateRefused::Expired),
        ),
        (
            &["-h"],
            &["alice"],
            start,
            "10.0.0.1",
            Err(CertificateRefused::Kind),
        ),
        (
            &["-O", "source-address=10.0.0.0/8,::1/128"],
            &["alice"],
            start,
            "::ffff:10.0.0.1",
            Ok(()),
        ),
        (
            &["-O", "source-address=10.0.0.0/8"],
            &["alice"],
            start,
            "11.0.0.1",
            Err(CertificateRefused::Source),
        ),
    ];
    for (options, principals, now, source, want) in cases {
        let certificate = folder.certificate("ca", "user", &[&base, options].concat());
        assert_eq!(
            check(&certificate, principals, now, source),
            want,
            "{options:?} {principals:?} {now}"
        );
    }
    let nobodys = folder.certificate("ca", "user", &["-I", "id"]);
    assert_eq!(
        check(&nobodys, &["alice"], start, "::1"),
        Err(CertificateRefused::NoPrincipals)
    );
    folder.key("other", &["ed25519"]);
    let strangers = folder.certificate("other", "user", &base);
    let refused = check(&strangers, &["alice"], start, "::1");
    assert_eq!(refused, Err(CertificateRefused::Ca(strangers.ca().fingerprint())));
    let unknown = [
        "-q",
        "-s",
        "ca",
        "-O",
        "critical:new@example.com=1",
        "-I",
        "id",
        "-n",
        "alice",
        "user.pub",
    ];
    folder.made(&unknown);
    let refused = Certificate::from_line(&folder.text("user-cert.pub")).unwrap_err();
    assert_eq!(refused, KeyError::CriticalOption("new@example.com".into()));
}

#[test]
fn a_certificate_says_what_may_be_done() {
    let folder = Folder::new("permits");
    let ca = folder.key("ca", &["ed25519"]);
    folder.key("user", &["ed25519"]);
    let trusted = |key: &PublicKey| *key == ca;
    let extensions = [
        Kind::Pty,
        Kind::ConnectTcp,
        Kind::ListenUnix,
        Kind::Agent,
        Kind::X11,
        Kind::UserRc,
    ];
    let cases: [(&[&str], &[Kind]); 8] = [
        (&[], &extensions),
        (&["-O", "clear"], &[]),
        (&["-O", "clear", "-O", "permit-pty"], &[Kind::Pty]),
        (
            &["-O", "clear", "-O", "permit-port-forwarding"],
            &[Kind::ConnectTcp, Kind::ListenUnix],
        ),
        (&["-O", "clear", "-O", "permit-agent-forwarding"], &[Kind::Agent]),
        (&["-O", "clear", "-O", "permit-X11-forwarding"], &[Kind::X11]),
        (&["-O", "clear", "-O", "permit-user-rc"], &[Kind::UserRc]),
        (&["-O", "no-pty"], &extensions[1..]),
    ];
    let principals = ["alice"];
    let source = "::1".parse().unwrap();
    let restrictions = |options: &[&str]| {
        let base = ["-I", "id", "-n", "alice"];
        let certificate = folder.certificate("ca", "user", &[&base, options].concat());
        let check = UserCheck {
            trusted: &trusted,
            principals: &principals,
            now: 0,
            skew: 0,
            source,
        };
        certificate.check_user(&check).expect("it lets alice in")
    };
    for (options, allowed) in cases {
        let got = restrictions(options);
        for kind in extensions {
            assert_eq!(
                got.permits.allow_kind(kind).is_ok(),
                allowed.contains(&kind),
                "{options:?} {kind:?}"
            );
        }
        assert!(got.permits.allow(&What::Shell).is_ok());
        assert_eq!((got.touch, got.expires), (Touch::REQUIRED, None));
    }
    let got = restrictions(&["-O", "force-command=/bin/backup x", "-O", "verify-required"]);
    assert_eq!(got.permits.forced(), Some(&b"/bin/backup x"[..]));
    assert_eq!(
        got.touch,
        Touch {
            presence: true,
            verification: true
        }
    );
    let got = restrictions(&["-O", "no-touch-required", "-V", "19700101000000Z:19710101000000Z"]);
    assert_eq!((got.touch, got.expires), (Touch::NONE, Some(year(1971))));
}

#[test]
fn a_host_key_has_its_certificate() {
    let folder = Folder::new("host");
    let ca = folder.key("ca", &["ecdsa", "-b", "256"]);
    for (kind, plain, certified) in [
        (
            "ed25519",
            &["ssh-ed25519"][..],
            &["ssh-ed25519-cert-v01@openssh.com"][..],
        ),
        (
            "rsa",
            &["rsa-sha2-512", "rsa-sha2-256"],
            &[
                "rsa-sha2-512-cert-v01@openssh.com",
                "rsa-sha2-256-cert-v01@openssh.com",
            ],
        ),
    ] {
        folder.key(kind, &[kind]);
        let mut host = HostKey::read(folder.text(kind).as_bytes(), 0o600).unwrap();
        assert_eq!(host.algorithms(), plain);
        assert_eq!(host.blob(certified[0]), None);
        let user = folder.certificate("ca", kind, &["-I", "user", "-n", "alice"]);
        assert!(host.certify(&user.line()).is_err(), "a user's");
        let made = folder.certificate(
            "ca",
            kind,
            &["-h", "-I", "host", "-n", "db.example.com", "-V", "always:forever"],
        );
        host.certify(&made.line()).unwrap();
        assert_eq!(host.algorithms(), [certified, plain].concat());
        for algorithm in host.algorithms() {
            let blob = KeyOrCertificate::parse(host.blob(algorithm).unwrap()).unwrap();
            assert!(blob.fits(&Algorithm::parse(algorithm).unwrap()));
            let signature = host.sign(algorithm, b"hash").unwrap();
            assert!(
                verify(blob.key(), algorithm, b"hash", &signature).is_ok(),
                "{algorithm}"
            );
        }
        let trusted = |key: &PublicKey| *key == ca;
        assert_eq!(made.check_host("DB.example.com", 5, 0, trusted), Ok(()));
        assert_eq!(
            made.check_host("db", 5, 0, trusted),
            Err(CertificateRefused::Principal)
        );
        assert_eq!(
            user.check_host("alice", 5, 0, trusted),
            Err(CertificateRefused::Kind)
        );
        let stranger = made.check_host("db.example.com", 5, 0, |_| false);
        assert_eq!(stranger, Err(CertificateRefused::Ca(ca.fingerprint())));
    }
    folder.key("other", &["ed25519"]);
    let others = folder.certificate("ca", "other", &["-h", "-I", "host", "-n", "h"]);
    let mut host = HostKey::read(folder.text("ed25519").as_bytes(), 0o600).unwrap();
    assert_eq!(host.certify(&others.line()), Err(KeyError::OtherKey));
}

/// A certificate made by hand, signed by itself: fields as they are, whatever they hold.
fn handmade(key: &PrivateKey, kind: u32, id: &str, principals: &[String], lists: [&[u8]; 2]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_string(KeyType::Ed25519.certificate_name());
    out.put_string([0; 32]);
    let mut plain = Reader::new(key.public().blob());
    plain.string("type").unwrap();
    out.put(plain.rest());
    out.put_u64(1);
    out.put_u32(kind);
    out.put_string(id);
    let mut names = Vec::new();
    principals.iter().for_each(|p| names.put_string(p));
    out.put_string(names);
    out.put_u64(0);
    out.put_u64(u64::MAX);
    lists.iter().for_each(|list| out.put_string(list));
    out.put_string("");
    out.put_string(key.public().blob());
    let signature = key.sign("ssh-ed25519", &out).unwrap();
    out.put_string(signature);
    out
}

/// Options of a certificate: names, each with this data.
fn options(names: &[&str], data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for name in names {
        out.put_string(name);
        out.put_string(data);
    }
    out
}

#[test]
fn certificates_are_bounded() {
    let (key, _) = PrivateKey::generate(KeyType::Ed25519, "").unwrap();
    let names = |n: usize, len: usize| vec!["p".repeat(len); n];
    let id = |n: usize| "i".repeat(n);
    let numbered: Vec<String> = (0..=certificate::MAX_OPTIONS).map(|n| format!("x{n}")).collect();
    let numbered: Vec<&str> = numbered.iter().map(String::as_str).collect();
    let long = "o".repeat(certificate::MAX_OPTION_NAME + 1);
    let one: &[u8] = b"";
    let data = [&4u32.to_be_bytes()[..], b"10.*"].concat();
    let (none, many, most) = (Vec::new(), options(&numbered, b""), options(&numbered[1..], b""));
    type Case<'a> = (u32, String, Vec<String>, &'a [u8], &'a [u8], bool);
    let cases: [Case<'_>; 15] = [
        (1, id(0), vec![], one, one, true),
        (2, id(0), vec![], one, one, true),
        (3, id(0), vec![], one, one, false),
        (1, id(certificate::MAX_KEY_ID), names(256, 1), one, one, true),
        (1, id(certificate::MAX_KEY_ID + 1), vec![], one, one, false),
        (
            1,
            id(0),
            names(certificate::MAX_PRINCIPALS + 1, 1),
            one,
            one,
            false,
        ),
        (1, id(0), names(1, certificate::MAX_PRINCIPAL), one, one, true),
        (
            1,
            id(0),
            names(1, certificate::MAX_PRINCIPAL + 1),
            one,
            one,
            false,
        ),
        (1, id(0), none.clone(), one, &most, true),
        (1, id(0), none.clone(), one, &many, false),
        (1, id(0), none.clone(), one, &options(&[&long[1..]], b""), true),
        (1, id(0), none.clone(), one, &options(&[&long], b""), false),
        (1, id(0), none.clone(), one, &options(&["a", "a"], b""), false),
        (
            1,
            id(0),
            none.clone(),
            &options(&["source-address"], &data),
            one,
            false,
        ),
        (1, id(0), none, &options(&["verify-required"], b"x"), one, false),
    ];
    for (i, (kind, id, principals, critical, extensions, right)) in cases.into_iter().enumerate() {
        let blob = handmade(&key, kind, &id, &principals, [critical, extensions]);
        let got = Certificate::parse(&blob);
        assert_eq!(got.is_ok(), right, "case {i}: {got:?}");
        assert!(got.is_err() || got.unwrap().signature_holds().is_ok());
    }
}
