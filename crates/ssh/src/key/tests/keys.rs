//! Keys, signatures and private key files, beside those of ssh-keygen.

use super::{Folder, TYPES, private};
use crate::codec::{Reader, Write};
use crate::key::*;
use std::process::Command;

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
