//! Signatures over texts, beside those of `ssh-keygen -Y`.

use super::{Folder, TYPES, private};
use crate::codec::Malformed;
use crate::key::*;
use crate::sshsig::{self, Error};
use std::process::Command;

const NAMESPACE: &str = "recording@fleetgate";

fn armoured(blob: &[u8]) -> String {
    format!(
        "-----BEGIN SSH SIGNATURE-----\n{}\n-----END SSH SIGNATURE-----\n",
        text::encode(blob)
    )
}

#[test]
fn signatures_over_texts_are_those_of_ssh_keygen() {
    let folder = Folder::new("sshsig");
    let said = b"what is signed\n";
    folder.write("message", said);
    for (i, kind) in TYPES.iter().enumerate() {
        let name = format!("key{i}");
        let public = folder.key(&name, kind);
        // Theirs is right here, and for this purpose and text only.
        let _ = std::fs::remove_file(folder.path("message.sig"));
        folder.made(&["-q", "-Y", "sign", "-n", NAMESPACE, "-f", &name, "message"]);
        let lines = folder.text("message.sig");
        let base64: String = lines.lines().filter(|l| !l.starts_with('-')).collect();
        let theirs = text::decode(&base64).unwrap();
        assert_eq!(
            sshsig::verify(&theirs, NAMESPACE, said),
            Ok(public.clone()),
            "{kind:?}"
        );
        assert_eq!(sshsig::verify(&theirs, "file", said), Err(Error::Namespace));
        assert_eq!(
            sshsig::verify(&theirs, NAMESPACE, b"another"),
            Err(Error::Signature(BadSignature::Wrong))
        );
        // Ours is right there, with each algorithm of the key.
        let key = private(&folder, &name);
        folder.write("signers", format!("node {}\n", public.line()));
        for algorithm in key.algorithms() {
            let signature = key.sign(algorithm, &sshsig::message(NAMESPACE, said)).unwrap();
            let ours = sshsig::encode(public.blob(), NAMESPACE, &signature);
            assert_eq!(sshsig::verify(&ours, NAMESPACE, said), Ok(public.clone()));
            folder.write("ours.sig", armoured(&ours));
            let words = [
                "-Y", "verify", "-f", "signers", "-I", "node", "-n", NAMESPACE, "-s", "ours.sig",
            ];
            let checked = Command::new("ssh-keygen")
                .args(words)
                .current_dir(&folder.0)
                .stdin(std::fs::File::open(folder.path("message")).unwrap())
                .output()
                .unwrap();
            let why = String::from_utf8_lossy(&checked.stderr).into_owned();
            assert!(checked.status.success(), "{kind:?} {algorithm}: {why}");
        }
    }
}

#[test]
fn a_signature_is_read_within_bounds() {
    let (key, _) = HostKey::generate(KeyType::Ed25519, "").unwrap();
    let signature = key.sign("ssh-ed25519", &sshsig::message("n", b"t")).unwrap();
    let blob = sshsig::encode(key.public().blob(), "n", &signature);
    assert_eq!(sshsig::verify(&blob, "n", b"t").as_ref(), Ok(key.public()));
    for len in 0..blob.len() {
        assert!(sshsig::verify(&blob[..len], "n", b"t").is_err(), "{len}");
        let mut changed = blob.clone();
        changed[len] ^= 1;
        assert!(sshsig::verify(&changed, "n", b"t").is_err(), "{len}");
    }
    let longer = [blob.as_slice(), b"\0"].concat();
    assert_eq!(
        sshsig::verify(&longer, "n", b"t"),
        Err(Error::Malformed(Malformed::Trailing))
    );
    assert_eq!(
        sshsig::verify(&vec![0; sshsig::MAX + 1], "n", b"t"),
        Err(Error::TooLarge)
    );
}
