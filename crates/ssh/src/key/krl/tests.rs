//! Tests of revocation lists, against `ssh-keygen -k` and `ssh-keygen -Q`.

use super::*;
use crate::codec::Write;
use crate::key::tests::{Folder, private};

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn is_revoked(krl: &Krl, folder: &Folder, file: &str) -> bool {
    krl.revoked(&KeyOrCertificate::from_line(&folder.text(file)).unwrap())
        .is_some()
}

#[test]
fn lists_say_what_ssh_keygen_says_of_them() {
    let folder = Folder::new("krl");
    folder.key("ca", &["ed25519"]);
    folder.key("ca2", &["ecdsa", "-b", "256"]);
    let serials = [
        0,
        1,
        2,
        3,
        5,
        63,
        64,
        65,
        100,
        255,
        256,
        1000,
        1023,
        70_000,
        u64::MAX / 2,
        u64::MAX,
    ];
    let mut subjects = Vec::new();
    for (i, serial) in serials.iter().enumerate() {
        let (name, ca) = (format!("user{i}"), if i % 4 == 3 { "ca2" } else { "ca" });
        folder.key(&name, &["ed25519"]);
        folder.certificate(
            ca,
            &name,
            &[
                "-I",
                &format!("id{}", i % 5),
                "-n",
                "u",
                "-z",
                &serial.to_string(),
            ],
        );
        subjects.push(format!("{name}.pub"));
        subjects.push(format!("{name}-cert.pub"));
    }
    subjects.push("ca.pub".into());
    let mut dice = Dice(3);
    let (mut revoked, mut free) = (0, 0);
    for round in 0..40 {
        let mut spec = String::new();
        for _ in 0..=dice.below(6) {
            let serial = serials[1 + dice.below(15) as usize];
            let user = format!("user{}.pub", dice.below(16));
            match dice.below(7) {
                0 => spec += &format!("serial: {serial}\n"),
                // The last serial of all stands in no range of ssh-keygen's.
                1 if serial == u64::MAX => spec += "serial: 1-2\n",
                1 => {
                    spec += &format!(
                        "serial: {serial}-{}\n",
                        serial.saturating_add(1 + dice.below(300))
                    )
                }
                2 => spec += &format!("id: id{}\n", dice.below(8)),
                3 => spec += &format!("key: {}", folder.text(&user)),
                4 => spec += &format!("sha1: {}", folder.text(&user)),
                5 => spec += &format!("sha256: {}", folder.text(&user)),
                // Many near each other: ssh-keygen writes them as a bitmap.
                _ => (0..60).for_each(|_| spec += &format!("serial: {}\n", 1 + dice.below(300))),
            }
        }
        folder.write("spec", &spec);
        let ca = ["ca.pub", "ca2.pub", "none"][dice.below(3) as usize];
        folder.made(&["-q", "-k", "-f", "krl", "-s", ca, "-z", "9", "spec"]);
        let krl = Krl::parse(&std::fs::read(folder.path("krl")).unwrap()).unwrap();
        assert_eq!(krl.version(), 9);
        assert!(krl.generated() > 0);
        let mut question = vec!["-Q", "-f", "krl"];
        question.extend(subjects.iter().map(String::as_str));
        let (_, said) = folder.keygen(&question);
        for subject in &subjects {
            let line = said.lines().find(|l| l.starts_with(&format!("{subject} (")));
            let theirs = line.expect("ssh-keygen answers for each").ends_with("REVOKED");
            assert_eq!(
                is_revoked(&krl, &folder, subject),
                theirs,
                "round {round}, {subject}, by {ca}:\n{spec}"
            );
            *(if theirs { &mut revoked } else { &mut free }) += 1;
        }
    }
    assert!(
        revoked > 100 && free > 100,
        "{revoked} and {free}: both were seen"
    );
}

#[test]
fn a_revoked_ca_takes_its_certificates_with_it() {
    let folder = Folder::new("krl-ca");
    folder.key("ca", &["ed25519"]);
    folder.key("user", &["ed25519"]);
    folder.certificate("ca", "user", &["-I", "id", "-n", "u", "-z", "1"]);
    let certificate = KeyOrCertificate::from_line(&folder.text("user-cert.pub")).unwrap();
    let key = KeyOrCertificate::from_line(&folder.text("user.pub")).unwrap();
    folder.made(&["-q", "-k", "-f", "krl", "ca.pub"]);
    let binary = Krl::parse(&std::fs::read(folder.path("krl")).unwrap()).unwrap();
    let list = format!("# revoked\n\n  {}", folder.text("ca.pub"));
    for krl in [binary, Krl::parse(list.as_bytes()).unwrap()] {
        assert_eq!(krl.revoked(&certificate), Some(Revocation::Ca));
        assert_eq!(krl.revoked(&key), None);
    }
    for named in ["user.pub", "user-cert.pub"] {
        let krl = Krl::parse(folder.text(named).as_bytes()).unwrap();
        assert_eq!(krl.revoked(&key), Some(Revocation::Key));
        assert_eq!(krl.revoked(&certificate), Some(Revocation::Key));
    }
    assert_eq!(Krl::parse(b"").unwrap().revoked(&key), None);
    for bad in [
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        "nonsense here!",
        "ssh-ed25519 !!!!",
    ] {
        assert!(Krl::parse(bad.as_bytes()).is_err(), "{bad}");
    }
}

fn krl(sections: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.put_u32(1);
    for _ in 0..3 {
        out.put_u64(0);
    }
    out.put_string("");
    out.put_string("a comment");
    for (kind, data) in sections {
        out.put_u8(*kind);
        out.put_string(data);
    }
    out
}

fn of_any_ca(kind: u8, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_string("");
    out.put_string("");
    out.put_u8(kind);
    out.put_string(data);
    out
}

#[test]
fn damaged_lists_are_refused() {
    let mut range = Vec::new();
    range.put_u64(5);
    range.put_u64(4);
    let mut bitmap = Vec::new();
    bitmap.put_u64(u64::MAX - 7);
    bitmap.put_mpint(&[1]);
    let extension = |critical: bool| {
        let mut out = Vec::new();
        out.put_string("new@example.com");
        out.put_bool(critical);
        out.put_string("x");
        out
    };
    for (sections, right) in [
        (vec![], true),
        (vec![(1, of_any_ca(0x20, &7u64.to_be_bytes()))], true),
        (vec![(1, of_any_ca(0x20, &[1; 7]))], false),
        (vec![(1, of_any_ca(0x21, &range))], false),
        (vec![(1, of_any_ca(0x22, &bitmap))], false),
        (vec![(1, of_any_ca(0x24, &[]))], false),
        (vec![(1, of_any_ca(0x39, &extension(false)))], true),
        (vec![(1, of_any_ca(0x39, &extension(true)))], false),
        (vec![(3, vec![0, 0, 0, 1, 9])], false),
        (vec![(5, vec![0, 0, 0, 1, 9])], false),
        (vec![(6, vec![])], false),
        (vec![(255, extension(false))], true),
        (vec![(255, extension(true))], false),
    ] {
        assert_eq!(Krl::parse(&krl(&sections)).is_ok(), right, "{sections:?}");
    }
    let whole = krl(&[(1, of_any_ca(0x20, &7u64.to_be_bytes())), (5, Vec::new())]);
    let mut later = whole.clone();
    later[11] = 2;
    assert!(Krl::parse(&later).is_err(), "another format version");
    let boundary = krl(&[]).len();
    let first = boundary + 5 + of_any_ca(0x20, &[0; 8]).len();
    for end in MAGIC.len()..whole.len() {
        let right = [boundary, first].contains(&end);
        assert_eq!(Krl::parse(&whole[..end]).is_ok(), right, "cut at {end}");
    }
    assert!(Krl::parse(&vec![b'#'; MAX_KRL + 1]).is_err());
    assert!(Krl::parse(&vec![b'#'; MAX_KRL]).is_ok());
}

#[test]
fn a_signed_list_is_signed_to_its_end() {
    let folder = Folder::new("krl-signed");
    folder.key("ca", &["ed25519"]);
    let key = private(&folder, "ca");
    let mut file = krl(&[(1, of_any_ca(0x23, b"\0\0\0\x02id"))]);
    file.put_u8(4);
    file.put_string(key.public().blob());
    let signature = key.sign("ssh-ed25519", &file).unwrap();
    file.put_string(&signature);
    assert!(Krl::parse(&file).is_ok());
    let mut other = file.clone();
    other[30] ^= 1;
    assert!(Krl::parse(&other).is_err(), "altered");
    file.put_u8(5);
    file.put_string("");
    assert!(Krl::parse(&file).is_err(), "something behind the signature");
}

#[test]
fn a_bitmap_stays_packed() {
    // 8 MB of alternating bits: as ranges they would be 64 million.
    let mut data = Vec::new();
    data.put_u64(10);
    data.put_mpint(&vec![0x55; 8 << 20]);
    let krl = Krl::parse(&krl(&[(1, of_any_ca(0x22, &data))])).unwrap();
    let listed = &krl.certificates[&b""[..]];
    assert!(listed.serials.is_empty() && listed.bitmaps[0].1.len() == 8 << 20);
    for (serial, want) in [
        (9, false),
        (10, true),
        (11, false),
        (12, true),
        ((8 << 23) + 8, true),
        ((8 << 23) + 10, false),
    ] {
        assert_eq!(listed.has_serial(serial), want, "{serial}");
    }
}

#[test]
fn ranges_are_joined() {
    let serials = vec![(5, 9), (1, 3), (7, 20), (30, 30), (30, 30), (2, 2)];
    let mut listed = Certificates {
        serials,
        ..Certificates::default()
    };
    listed.sort();
    assert_eq!(listed.serials, [(1, 3), (5, 20), (30, 30)]);
    let all: Vec<_> = (0..35).filter(|&n| listed.has_serial(n)).collect();
    let want: Vec<_> = (1..=3).chain(5..=20).chain([30]).collect();
    assert_eq!(all, want);
}
