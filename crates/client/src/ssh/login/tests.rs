//! Keys of files that only an agent signs with. The agent is a list here; OpenSSH's own is asked in `interop::fido`.

use super::*;
use fleetgate_ssh::key::KeyType;
use std::cell::Cell;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// What `ssh-keygen -t ed25519-sk` wrote for a token of software.
const TOKEN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAASgAAABpzay1zc2
gtZWQyNTUxOUBvcGVuc3NoLmNvbQAAACDwhzWe4yL/+a3zGwX6928ryRs+gOa5toj3JmzA
uFTfiQAAAARzc2g6AAAAuLk0sg65NLIOAAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY2
9tAAAAIPCHNZ7jIv/5rfMbBfr3byvJGz6A5rm2iPcmbMC4VN+JAAAABHNzaDoBAAAAUOMG
EOihYhFZYP4ewiPmUpyfS26AIA3LXlwyHIrx4rG/MC4CAQAwBQYDK2VwBCIEIBDJum+Oe4
8QzZ4ddhSyzf8Kly6QCTCXqo0wdCK3qGJ2AAAAAAAAAAV0b2tlbgECAwQ=
-----END OPENSSH PRIVATE KEY-----
";

/// A folder of its own; gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("fleetgate-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("mkdir");
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("write");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("chmod");
        path
    }

    fn keygen(&self, arguments: &[&str]) {
        let status = Command::new("ssh-keygen")
            .args(arguments)
            .current_dir(&self.0)
            .status();
        assert!(status.expect("OpenSSH's ssh-keygen is installed").success());
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn identity(blob: &[u8]) -> Identity {
    Identity {
        blob: blob.to_vec(),
        comment: "held".into(),
    }
}

#[test]
fn an_agent_signs_for_a_file_that_has_no_open_key() {
    let folder = Folder::new("held-files");
    folder.keygen(&["-q", "-t", "ed25519", "-N", "secret", "-f", "locked"]);
    folder.write("token", TOKEN);
    for (name, reason) in [("locked", "has a passphrase"), ("token", "is in a security key")] {
        let path = folder.0.join(name);
        let public = PrivateKey::public_half(&files::read(&path).unwrap()).unwrap();
        let other = PrivateKey::generate(KeyType::Ed25519, "").unwrap().0;
        for held in [vec![], vec![identity(other.public().blob())]] {
            let refused = Credential::of_files(&path, None, &|| held.clone())
                .unwrap_err()
                .to_string();
            let remedy = format!("ssh-add {}", path.display());
            assert!(refused.contains(&remedy) && refused.contains(reason), "{refused}");
        }
        let held = || vec![identity(other.public().blob()), identity(public.blob())];
        let credential = Credential::of_files(&path, None, &held).unwrap();
        assert_eq!(credential.blob, public.blob());
        assert!(matches!(&credential.by, Signer::Agent(blob) if blob == public.blob()));
        assert!(!credential.algorithms.is_empty());
    }
}

#[test]
fn a_certificate_beside_it_is_shown() {
    let folder = Folder::new("held-certificates");
    let token = folder.write("token", TOKEN);
    let public = PrivateKey::public_half(TOKEN.as_bytes()).unwrap();
    folder.write("token.pub", &public.line());
    folder.keygen(&["-q", "-t", "ed25519", "-N", "", "-f", "ca"]);
    folder.keygen(&["-q", "-s", "ca", "-I", "id", "-n", "ada", "token.pub"]);
    let file = folder.0.join("token-cert.pub");
    let certificate = Certificate::from_line(&files::read_text(&file).unwrap()).unwrap();
    // The agent has the key, or the certificate too: what it has is what it is asked to sign with.
    for blob in [public.blob(), certificate.blob()] {
        let credential = Credential::of_files(&token, Some(&file), &|| vec![identity(blob)]).unwrap();
        assert_eq!(credential.blob, certificate.blob());
        assert!(matches!(&credential.by, Signer::Agent(signs) if signs == blob));
    }
    let ca = folder.0.join("ca");
    assert!(Credential::of_files(&ca, Some(&file), &Vec::new).is_err());
}

#[test]
fn no_agent_is_asked_about_an_open_key() {
    let folder = Folder::new("open-files");
    folder.keygen(&["-q", "-t", "ed25519", "-N", "", "-f", "key"]);
    let asked = Cell::new(false);
    let held = || {
        asked.set(true);
        Vec::new()
    };
    assert!(Credential::of_files(&folder.0.join("key"), None, &held).is_ok());
    assert!(!asked.get());
    let token = folder.write("token", TOKEN);
    assert!(Credential::of_files(&token, None, &held).is_err());
    assert!(asked.get());
}

fn agents_key(key: &PrivateKey) -> Credential {
    let blob = key.public().blob();
    Credential::by(Signer::Agent(blob.to_vec()), blob, "nowhere".into())
}

#[test]
fn a_key_that_does_not_sign_is_passed_over() {
    // No agent that this test could meet has the key.
    let unplugged = || agents_key(&PrivateKey::generate(KeyType::Ed25519, "").unwrap().0);
    let (key, _) = PrivateKey::generate(KeyType::EcdsaP256, "").unwrap();
    let good = Credential::new(key, None, "good".into());
    let blob = good.blob.clone();
    let keys = vec![unplugged(), good, unplugged()];
    let mut login = Login::new("ada".into(), keys, true, LoginMethods::default(), |_| {});
    let shows_good = |request: LoginStep| matches!(request, LoginStep::Request(r) if r.windows(blob.len()).any(|w| w == blob));
    assert!(!shows_good(login.next(b"id", None, None).unwrap()));
    assert!(shows_good(login.key_would_do(b"id", None).unwrap()));
    assert!(shows_good(login.key_would_do(b"id", None).unwrap()));
    assert_eq!(login.tried, ["good"]);
    // Behind the last one there is nothing to pass on to: its reason is the command's.
    assert!(!shows_good(login.next(b"id", None, None).unwrap()));
    let reason = login.key_would_do(b"id", None).map(drop).unwrap_err();
    assert!(reason.starts_with("nowhere: "), "{reason}");
}

#[test]
fn a_security_key_is_asked_for_by_name() {
    let (key, _) = PrivateKey::generate(KeyType::Ed25519, "").unwrap();
    let credential = agents_key(&key);
    for (algorithm, wanted) in [
        ("ssh-ed25519", "waiting for the ssh-agent to sign with nowhere"),
        (
            "sk-ssh-ed25519-cert-v01@openssh.com",
            "waiting for the ssh-agent to sign with nowhere: touch the security key",
        ),
    ] {
        assert_eq!(credential.waits(algorithm), wanted);
    }
}
