//! Tests of keys, certificates, signatures and private key files, with ssh-keygen as the oracle.

mod certificates;
mod keys;
mod sshsig;

use super::*;
use std::path::PathBuf;
use std::process::Command;

/// A directory of its own with files made by ssh-keygen; gone with it.
pub(in crate::key) struct Folder(pub(in crate::key) PathBuf);

impl Folder {
    pub(in crate::key) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("fleetgate-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Folder(path)
    }

    pub(in crate::key) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(in crate::key) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("a file of the test")
    }

    pub(in crate::key) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file of the test");
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, mode).expect("its mode");
        path
    }

    /// Runs ssh-keygen here; its exit and what it printed.
    pub(in crate::key) fn keygen(&self, arguments: &[&str]) -> (bool, String) {
        let out = Command::new("ssh-keygen")
            .args(arguments)
            .current_dir(&self.0)
            .output();
        let out = out.expect("ssh-keygen (Debian: openssh-client)");
        let text = [out.stdout, out.stderr].concat();
        (out.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    pub(in crate::key) fn made(&self, arguments: &[&str]) {
        let (done, said) = self.keygen(arguments);
        assert!(done, "ssh-keygen {arguments:?}: {said}");
    }

    /// A key pair in the file `name`.
    pub(in crate::key) fn key(&self, name: &str, kind: &[&str]) -> PublicKey {
        self.made(&[&["-q", "-N", "", "-C", "a comment", "-f", name, "-t"], kind].concat());
        PublicKey::from_line(&self.text(&format!("{name}.pub"))).expect("ssh-keygen's key")
    }

    /// A certificate by `ca` for the key `name`.
    pub(in crate::key) fn certificate(&self, ca: &str, name: &str, options: &[&str]) -> Certificate {
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
pub(in crate::key) fn private(folder: &Folder, name: &str) -> PrivateKey {
    PrivateKey::read(folder.text(name).as_bytes(), 0o100600).expect("ssh-keygen's private key")
}
