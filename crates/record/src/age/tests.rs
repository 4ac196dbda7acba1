//! Sealed and opened; what is changed is noticed; and the program `age` and we read each other's files, where it is installed.

use super::*;
use fleetgate_policy::bech32;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

fn identity(n: u8) -> Identity {
    Identity::new([n; 32])
}

fn recipients(of: &[&Identity]) -> Recipients {
    let keys: Vec<[u8; 32]> = of.iter().map(|identity| identity.recipient()).collect();
    Recipients::new(&keys).expect("sound keys")
}

fn open(file: &[u8], with: u8) -> Result<Vec<u8>, OpenError> {
    let mut plain = Vec::new();
    Keys::new(vec![identity(with)])
        .open(file, &mut plain)
        .map(|()| plain)
}

#[test]
fn each_recipient_opens_what_was_sealed_and_nobody_else() {
    let all = recipients(&[&identity(1), &identity(2)]);
    for len in [0, 1, 65_535, 65_536, 65_537, 131_072, 140_000] {
        let plain: Vec<u8> = (0..len).map(|n| (n * 7 % 251) as u8).collect();
        let file = all.seal(&plain);
        assert!(file.len() <= plain.len() + MAX_OVERHEAD + TAG);
        assert_ne!(file, all.seal(&plain), "no two are alike");
        for with in [1, 2] {
            assert_eq!(open(&file, with), Ok(plain.clone()), "{len}");
        }
        assert_eq!(open(&file, 3), Err(OpenError::OtherKey));
    }
    assert_eq!(open(b"no age file", 1), Err(OpenError::NotAge));
}

#[test]
fn every_changed_byte_and_every_cut_is_noticed() {
    let file = recipients(&[&identity(1), &identity(2)]).seal(b"nobody may change this");
    for at in 0..file.len() {
        let mut changed = file.clone();
        changed[at] ^= 1;
        assert!(open(&changed, 1).is_err(), "byte {at}");
        assert!(open(&file[..at], 1).is_err(), "cut at {at}");
    }
    let mut longer = file;
    longer.push(0);
    assert!(open(&longer, 1).is_err());
}

#[test]
fn keys_that_everybody_could_open_are_refused() {
    assert!(Recipients::new(&[]).is_none());
    assert!(Recipients::new(&[[9; 32]; MAX_RECIPIENTS + 1]).is_none());
    let mut one = [0; 32];
    one[0] = 1;
    for point in [[0; 32], one] {
        assert!(Recipients::new(&[identity(1).recipient(), point]).is_none());
    }
}

#[test]
fn stanzas_of_others_are_passed_over() {
    let file = recipients(&[&identity(1)]).seal(b"text");
    let text = |more: &str| {
        let at = VERSION_LINE.len();
        [&file[..at], more.as_bytes(), &file[at..]].concat()
    };
    // The code over the header is another one then, which the right key finds out; to anybody else it is for other keys.
    for more in ["-> scrypt c2FsdA 18\nYm9keQ\n", "-> ssh-ed25519 a b\n\n"] {
        assert_eq!(open(&text(more), 1), Err(OpenError::Damaged));
        assert_eq!(open(&text(more), 2), Err(OpenError::OtherKey));
    }
    for more in [
        "-> \n\n",
        "-> X25519\n\n",
        "-> X25519 a b\n\n",
        "->scrypt\n\n",
        &"-> x\n\n".repeat(65),
        &format!("-> x\n{}\n", "A".repeat(65)),
    ] {
        assert_eq!(open(&text(more), 1), Err(OpenError::NotAge), "{more:?}");
    }
}

const VERSION_LINE: &str = "age-encryption.org/v1\n";

/// A pair that age-keygen made.
const PUBLIC: &str = "age1dc3xeggyp2p9556c0r8nplujq2tga0rguvtcp9hz97kwywghd4pqycqsp2";
const SECRET: &str = "AGE-SECRET-KEY-16KT6RRED5N7GFDY8VCWS4DA2CJZ7R6D6PRVAYR5Q4TQLL7V87P7S824KNZ";

#[test]
fn the_program_age_opens_ours_and_we_open_its() {
    let have = |name: &str| Path::new("/usr/bin").join(name).exists();
    if !have("age") {
        assert!(std::env::var_os("CI").is_none(), "age is not installed");
        eprintln!("not compared: age is not installed");
        return;
    }
    let keys = std::env::temp_dir().join(format!("fleetgate-age-{}", std::process::id()));
    std::fs::write(&keys, SECRET).expect("a file");
    let own = Identity::new(bech32::decode("age-secret-key-", SECRET).expect("a key"));
    assert_eq!(Some(own.recipient()), bech32::decode("age", PUBLIC));
    for len in [0, 5, 65_536, 70_000, 131_072] {
        let plain: Vec<u8> = (0..len).map(|n| (n * 11 % 253) as u8).collect();
        let ours = recipients(&[&identity(4), &own]).seal(&plain);
        let file = keys.display().to_string();
        assert_eq!(age(&["-d", "-i", &file], &ours), plain, "{len}");
        let other = bech32::encode("age", &identity(4).recipient());
        let theirs = age(&["-r", PUBLIC, "-r", &other], &plain);
        assert_eq!(open(&theirs, 4), Ok(plain), "{len}");
    }
    std::fs::remove_file(&keys).expect("removed");
}

fn age(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("age")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut to = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || to.write_all(&input));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("a thread").expect("it reads");
    assert!(output.status.success(), "age {arguments:?}");
    output.stdout
}
