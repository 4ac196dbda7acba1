//! Tests of keys, certificates, signatures and private key files, with ssh-keygen as the oracle.

use super::certificate::CertificateRefused;
use super::*;
use crate::codec::{Reader, Write};
use fleetgate_policy::{Kind, What};
use std::path::PathBuf;
use std::process::Command;

/// A directory of its own with files made by ssh-keygen; gone with it.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("fleetgate-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Folder(path)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("a file of the test")
    }

    pub(super) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file of the test");
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, mode).expect("its mode");
        path
    }

    /// Runs ssh-keygen here; its exit and what it printed.
    pub(super) fn keygen(&self, arguments: &[&str]) -> (bool, String) {
        let out = Command::new("ssh-keygen")
            .args(arguments)
            .current_dir(&self.0)
            .output();
        let out = out.expect("ssh-keygen (Debian: openssh-client)");
        let text = [out.stdout, out.stderr].concat();
        (out.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    pub(super) fn made(&self, arguments: &[&str]) {
        let (done, said) = self.keygen(arguments);
        assert!(done, "ssh-keygen {arguments:?}: {said}");
    }

    /// A key pair in the file `name`.
    pub(super) fn key(&self, name: &str, kind: &[&str]) -> PublicKey {
        self.made(&[&["-q", "-N", "", "-C", "a comment", "-f", name, "-t"], kind].concat());
        PublicKey::from_line(&self.text(&format!("{name}.pub"))).expect("ssh-keygen's key")
    }

    /// A certificate by `ca` for the key `name`.
    pub(super) fn certificate(&self, ca: &str, name: &str, options: &[&str]) -> Certificate {
        let file = format!("{name}.pub");
        self.made(&[&["-q", "-s", ca], options, &[&file]].concat());
        Certificate::from_line(&self.text(&format!("{name}-cert.pub"))).expect("ssh-keygen's certificate")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const TYPES: [&[&str]; 6] = [
    &["ed25519"],
    &["ecdsa", "-b", "256"],
    &["ecdsa", "-b", "384"],
    &["rsa", "-b", "2048"],
    &["rsa", "-b", "3072"],
    &["rsa", "-b", "4096"],
];

/// The private key of a file that ssh-keygen made.
pub(super) fn private(folder: &Folder, name: &str) -> PrivateKey {
    PrivateKey::read(folder.text(name).as_bytes(), 0o100600).expect("ssh-keygen's private key")
}

/// `ssh-keygen -Y verify` reads an armoured frame (PROTOCOL.sshsig) around a signature blob.
fn sshsig_message(message: &[u8]) -> Vec<u8> {
    let mut out = b"SSHSIG".to_vec();
    out.put_string("test");
    out.put_string("");
    out.put_string("sha512");
    out.put_string(ring::digest::digest(&ring::digest::SHA512, message));
    out
}

#[test]
fn keys_and_signatures_are_those_of_ssh_keygen() {
    let folder = Folder::new("keys");
    folder.write("message", "what is signed");
    for (i, kind) in TYPES.iter().enumerate() {
        let name = format!("key{i}");
        let public = folder.key(&name, kind);
        // Fingerprint and text as ssh-keygen has them.
        let (_, said) = folder.keygen(&["-l", "-f", &name]);
        assert_eq!(
            said.split(' ').nth(1),
            Some(&public.fingerprint()[..]),
            "{kind:?}"
        );
        assert!(folder.text(&format!("{name}.pub")).starts_with(&public.line()));
        let key = private(&folder, &name);
        assert_eq!(*key.public(), public);
        // Ours over our own message, each algorithm.
        for algorithm in key.algorithms() {
            let signature = key.sign(algorithm, b"message").unwrap();
            assert_eq!(
                verify(&public, algorithm, b"message", &signature),
                Ok(VerifiedSignature { token: None })
            );
            assert_eq!(
                verify(&public, algorithm, b"massage", &signature),
                Err(BadSignature::Wrong)
            );
        }
        // Theirs: what ssh-keygen signs is right here.
        let _ = std::fs::remove_file(folder.path("message.sig"));
        folder.made(&["-q", "-Y", "sign", "-n", "test", "-f", &name, "message"]);
        let armoured = folder.text("message.sig");
        let base64: String = armoured.lines().filter(|l| !l.starts_with('-')).collect();
        let bytes = text::decode(&base64).unwrap();
        let mut r = Reader::new(bytes.strip_prefix(b"SSHSIG\0\0\0\x01").unwrap());
        for _ in 0..4 {
            r.string("field").unwrap();
        }
        let signature = r.string("signature").unwrap();
        let algorithm = Reader::new(signature).text("name").unwrap();
        let message = sshsig_message(b"what is signed");
        assert_eq!(
            verify(&public, algorithm, &message, signature).map(drop),
            Ok(()),
            "{kind:?}"
        );
        // Ours in their frame: right there.
        let ours = key.sign(algorithm, &message).unwrap();
        let mut frame = b"SSHSIG\0\0\0\x01".to_vec();
        for field in [public.blob(), b"test", b"", b"sha512", &ours] {
            frame.put_string(field);
        }
        let frame = text::encode(&frame);
        folder.write(
            "ours.sig",
            format!("-----BEGIN SSH SIGNATURE-----\n{frame}\n-----END SSH SIGNATURE-----\n"),
        );
        let checked = Command::new("ssh-keygen")
            .args(["-Y", "check-novalidate", "-n", "test", "-s", "ours.sig"])
            .current_dir(&folder.0)
            .stdin(std::fs::File::open(folder.path("message")).unwrap())
            .output()
            .unwrap();
        assert!(
            checked.status.success(),
            "{kind:?}: {}",
            String::from_utf8_lossy(&checked.stderr)
        );
    }
}

#[test]
fn generated_keys_are_read_by_ssh_keygen() {
    let folder = Folder::new("generated");
    for kind in [KeyType::Ed25519, KeyType::EcdsaP256] {
        for comment in ["", "a", "ab", "abc", "host key", "longer than a block"] {
            let (key, file) = HostKey::generate(kind, comment).unwrap();
            folder.write("made", file.as_bytes());
            let (done, said) = folder.keygen(&["-y", "-f", "made"]);
            assert!(done, "{said}");
            assert_eq!(said.trim(), format!("{} {comment}", key.public().line()).trim());
            let again = HostKey::read(file.as_bytes(), 0o600).unwrap();
            assert_eq!(again.public(), key.public());
            let signature = again.sign(kind.name(), b"m").unwrap();
            assert!(verify(key.public(), kind.name(), b"m", &signature).is_ok());
        }
    }
    for kind in [KeyType::Rsa, KeyType::EcdsaP384, KeyType::SkEd25519] {
        assert!(matches!(HostKey::generate(kind, ""), Err(KeyError::Type(_))));
    }
}

#[test]
fn a_file_shows_its_public_half_locked_or_not() {
    let folder = Folder::new("halves");
    let open = folder.key("open", &["ed25519"]);
    assert_eq!(PrivateKey::public_half(folder.text("open").as_bytes()), Ok(open));
    // The ciphers of the last two put a tag behind the private half.
    for cipher in [
        "aes256-ctr",
        "aes256-gcm@openssh.com",
        "chacha20-poly1305@openssh.com",
    ] {
        let arguments = ["-q", "-t", "ecdsa", "-N", "secret", "-Z", cipher, "-f", "locked"];
        folder.made(&arguments);
        let public = PublicKey::from_line(&folder.text("locked.pub")).unwrap();
        let file = folder.text("locked");
        assert_eq!(PrivateKey::public_half(file.as_bytes()), Ok(public), "{cipher}");
        assert!(matches!(
            PrivateKey::parse(file.as_bytes()),
            Err(KeyError::Encrypted)
        ));
        for name in ["locked", "locked.pub"] {
            std::fs::remove_file(folder.path(name)).unwrap();
        }
    }
    assert!(PrivateKey::public_half(b"").is_err());
    assert!(PrivateKey::public_half(folder.text("open.pub").as_bytes()).is_err());
}

#[test]
fn private_keys_that_are_refused_say_why() {
    let folder = Folder::new("refused");
    folder.key("good", &["ed25519"]);
    folder.made(&["-q", "-t", "ed25519", "-N", "secret", "-f", "locked"]);
    folder.made(&[
        "-q", "-t", "rsa", "-b", "2048", "-N", "", "-m", "PEM", "-f", "old",
    ]);
    folder.made(&["-q", "-t", "rsa", "-b", "1024", "-N", "", "-f", "weak"]);
    let good = folder.text("good");
    let half = &good[..good.len() / 2];
    let huge = " ".repeat(private::MAX_FILE + 1);
    for (text, mode, want) in [
        (
            &good[..],
            0o640,
            "the private key file has mode 0640, others may read or change it: chmod 600",
        ),
        (
            &good,
            0o100604,
            "the private key file has mode 0604, others may read or change it: chmod 600",
        ),
        (
            &folder.text("locked"),
            0o600,
            "the private key has a passphrase: remove it with ssh-keygen -p, or take a key without one",
        ),
        (
            &folder.text("old"),
            0o600,
            "the private key has not OpenSSH's format: ssh-keygen -p -f FILE converts it",
        ),
        (
            &folder.text("weak"),
            0o600,
            "an RSA key of 1024 bits is not accepted (2048 to 8192; to sign with at most 4096): make an ed25519 key",
        ),
        (half, 0o600, "the private key file ends too early"),
        (
            &huge,
            0o600,
            "the bytes of a private key file may be at most 65536",
        ),
        (
            "",
            0o600,
            "the private key has not OpenSSH's format: ssh-keygen -p -f FILE converts it",
        ),
    ] {
        assert_eq!(
            PrivateKey::read(text.as_bytes(), mode).unwrap_err().to_string(),
            want
        );
    }
    assert!(PrivateKey::read(good.as_bytes(), 0o100600).is_ok());
    assert!(PrivateKey::read(good.as_bytes(), 0o400).is_ok());
    // Any byte of the binary altered: an error or a key that still fits its public half, never a panic.
    let body: String = good.lines().filter(|l| !l.starts_with('-')).collect();
    let binary = text::decode(&body).unwrap();
    for at in 0..binary.len() {
        let mut damaged = binary.clone();
        damaged[at] ^= 0x41;
        let text = format!(
            "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n",
            text::encode(&damaged)
        );
        if let Ok(key) = PrivateKey::parse(text.as_bytes()) {
            let signature = key.sign("ssh-ed25519", b"m").unwrap();
            assert!(
                verify(key.public(), "ssh-ed25519", b"m", &signature).is_ok(),
                "byte {at}"
            );
        }
    }
    assert!(!format!("{:?}", PrivateKey::parse(good.as_bytes()).unwrap()).contains(&body[80..90]));
}

#[test]
fn algorithms_and_signatures_that_do_not_fit_are_refused() {
    let folder = Folder::new("misfits");
    let rsa = folder.key("rsa", &["rsa", "-b", "2048"]);
    let ed = folder.key("ed", &["ed25519"]);
    let (rsa_key, ed_key) = (private(&folder, "rsa"), private(&folder, "ed"));
    let sha256 = rsa_key.sign("rsa-sha2-256", b"m").unwrap();
    let by_ed = ed_key.sign("ssh-ed25519", b"m").unwrap();
    let mut renamed = Vec::new();
    renamed.put_string("ssh-rsa");
    renamed.put(&sha256[16..]);
    let cut = &by_ed[..by_ed.len() - 1];
    let longer = [&by_ed[..], b"x"].concat();
    let empty: &[u8] = b"";
    for (key, algorithm, signature, right) in [
        (&rsa, "rsa-sha2-256", &sha256[..], true),
        (&rsa, "rsa-sha2-256-cert-v01@openssh.com", &sha256, true),
        (&rsa, "rsa-sha2-512", &sha256, false),
        (&rsa, "ssh-rsa", &sha256, false),
        (&rsa, "ssh-rsa", &renamed, false),
        (&rsa, "rsa-sha2-256", &renamed, false),
        (&ed, "ssh-ed25519", &by_ed, true),
        (&ed, "ssh-ed25519", cut, false),
        (&ed, "ssh-ed25519", &longer, false),
        (&ed, "ssh-ed25519", empty, false),
        (&ed, "ecdsa-sha2-nistp256", &by_ed, false),
        (&rsa, "ssh-ed25519", &by_ed, false),
        (&ed, "sk-ssh-ed25519@openssh.com", &by_ed, false),
    ] {
        assert_eq!(
            verify(key, algorithm, b"m", signature).is_ok(),
            right,
            "{algorithm}"
        );
    }
    assert!(rsa_key.sign("ssh-rsa", b"m").is_err());
    assert!(rsa_key.sign("ssh-ed25519", b"m").is_err());
    // A signature whose zeros at the front were left out still is one (OpenSSH writes it whole, others do not).
    let message = (0u32..100_000)
        .map(u32::to_be_bytes)
        .find(|m| rsa_key.sign("rsa-sha2-256", m).unwrap()[20] == 0)
        .expect("one in 256 begins with a zero");
    let whole = rsa_key.sign("rsa-sha2-256", &message).unwrap();
    let mut short = Vec::new();
    short.put_string("rsa-sha2-256");
    short.put_string(&whole[21..]);
    assert!(verify(&rsa, "rsa-sha2-256", &message, &short).is_ok());
}

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

#[test]
fn blobs_are_bounded_and_of_one_form() {
    let blob = |fields: &[&[u8]]| {
        let mut out = Vec::new();
        for field in fields {
            out.put_string(field);
        }
        out
    };
    let point = [&[4u8][..], &[1; 64]].concat();
    let modulus = |bytes: usize| [&[0, 0x80][..], &vec![1; bytes - 1]].concat();
    let application = vec![b'a'; public::MAX_APPLICATION + 1];
    let cases: [(Vec<u8>, bool); 15] = [
        (blob(&[b"ssh-ed25519", &[1; 32]]), true),
        (blob(&[b"ssh-ed25519", &[1; 31]]), false),
        (blob(&[b"ssh-ed25519", &[1; 32], b""]), false),
        (blob(&[b"ssh-dss", &[1; 32]]), false),
        (blob(&[b"ecdsa-sha2-nistp256", b"nistp256", &point]), true),
        (blob(&[b"ecdsa-sha2-nistp256", b"nistp384", &point]), false),
        (blob(&[b"ecdsa-sha2-nistp256", b"nistp256", &point[1..]]), false),
        (blob(&[b"ssh-rsa", &[3], &modulus(256)]), true),
        (blob(&[b"ssh-rsa", &[3], &modulus(1024)]), true),
        (blob(&[b"ssh-rsa", &[3], &modulus(1025)]), false),
        (blob(&[b"ssh-rsa", &[3], &modulus(255)]), false),
        (blob(&[b"ssh-rsa", &[0, 3], &modulus(256)]), false),
        (blob(&[b"ssh-rsa", &[4], &modulus(256)]), false),
        (
            blob(&[b"sk-ssh-ed25519@openssh.com", &[1; 32], &application[1..]]),
            true,
        ),
        (
            blob(&[b"sk-ssh-ed25519@openssh.com", &[1; 32], &application]),
            false,
        ),
    ];
    for (bytes, right) in cases {
        let got = PublicKey::parse(&bytes);
        assert_eq!(got.is_ok(), right, "{:?}", got);
        assert!(got.is_err() || got.unwrap().blob() == bytes);
    }
    let large = vec![0; public::MAX_BLOB + 1];
    assert!(matches!(
        KeyOrCertificate::parse(&large),
        Err(KeyError::TooLarge { .. })
    ));
}
