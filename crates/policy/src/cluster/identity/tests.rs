//! Identities as bytes: every one comes back as it was, and nothing else is read.

use super::*;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn alice() -> Identity {
    Identity {
        cluster: name("prod"),
        subject: Subject::User(name("alice")),
        roles: vec![name("dba"), name("ops")],
        issued: 1_800_000_000,
        serial: 0,
        mfa: Some(1_800_000_060),
        device: Some(name("laptop")),
        ends: None,
    }
}

/// xorshift: the same values in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn name(&mut self) -> Name {
        let letters = b"abcdefghijklmnopqrstuvwxyz0123456789._-";
        let length = if self.roll(20) == 0 {
            128
        } else {
            1 + self.roll(12)
        };
        let mut text = String::from("n");
        for _ in 1..length {
            text.push(letters[self.roll(letters.len() as u64) as usize] as char);
        }
        name(&text)
    }

    fn identity(&mut self) -> Identity {
        let subject = match self.roll(4) {
            0 => Subject::User(self.name()),
            1 => Subject::Node(self.name()),
            2 => Subject::Proxy(self.name()),
            _ => Subject::Auth,
        };
        let mut roles: Vec<Name> = (0..self.roll(MAX_ROLES as u64 + 1))
            .map(|_| self.name())
            .collect();
        roles.sort();
        roles.dedup();
        Identity {
            cluster: self.name(),
            subject,
            roles,
            issued: self.roll(u64::MAX),
            serial: self.roll(2) * self.roll(u64::MAX),
            mfa: (self.roll(2) == 0).then(|| self.roll(u64::MAX)),
            device: (self.roll(2) == 0).then(|| self.name()),
            ends: None,
        }
    }
}

#[test]
fn every_identity_comes_back_and_has_one_form() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for _ in 0..2000 {
        let identity = dice.identity();
        let bytes = identity.encode();
        assert_eq!(Identity::parse(&bytes).as_ref(), Ok(&identity));
        // Whatever is still read after a byte was changed has that form as its only one.
        let mut damaged = bytes.clone();
        let at = dice.roll(bytes.len() as u64) as usize;
        damaged[at] ^= 1 << dice.roll(8);
        if let Ok(other) = Identity::parse(&damaged)
            && damaged.len() == other.encode().len()
        {
            assert_eq!(other.encode(), damaged);
        }
        let cut = dice.roll(bytes.len() as u64) as usize;
        if let Ok(other) = Identity::parse(&bytes[..cut]) {
            assert_eq!(
                other.encode(),
                &bytes[..cut],
                "cut at a field that may be missing"
            );
        }
    }
}

#[test]
fn roles_are_sorted_and_stand_once() {
    let mut twice = alice();
    twice.roles = vec![name("ops"), name("dba"), name("ops")];
    assert_eq!(Identity::parse(&twice.encode()).unwrap(), alice());
}

#[test]
fn the_first_version_stays_as_it_is() {
    let golden = b"\x01\x01\x00\x04prod\x02\x00\x06\x01alice\x03\x00\x08\x03dba\x03ops\
        \x04\x00\x08\0\0\0\0\x6b\x49\xd2\x00\x05\x00\x08\0\0\0\0\x6b\x49\xd2\x3c\x06\x00\x06laptop";
    assert_eq!(alice().encode(), golden);
    // What a later fleetgate adds is skipped.
    let later = [&golden[..], b"\x09\x00\x02hi\xff\x00\x00"].concat();
    assert_eq!(Identity::parse(&later), Ok(alice()));
    let by_state = Identity {
        serial: 258,
        ..alice()
    };
    let with_serial = [&golden[..], b"\x07\x00\x08\0\0\0\0\0\0\x01\x02"].concat();
    assert_eq!(by_state.encode(), with_serial);
    let short = Identity {
        ends: Some(258),
        ..alice()
    };
    let with_end = [&golden[..], b"\x08\x00\x08\0\0\0\0\0\0\x01\x02"].concat();
    assert_eq!(short.encode(), with_end);
    assert_eq!(Identity::parse(&with_end), Ok(short));
}

#[test]
fn what_is_out_of_form_is_refused() {
    let long = [alice().encode(), vec![7, 0x23, 0xff], vec![0; 0x23ff]].concat();
    let mut crowd = alice();
    crowd.roles = (0..MAX_ROLES + 1).map(|i| name(&format!("r{i}"))).collect();
    for (bytes, want) in [
        (&b""[..], "is empty"),
        (
            b"\x02",
            "has the form 2, and this fleetgate reads form 1: upgrade it",
        ),
        (b"\x01", "names no cluster"),
        (b"\x01\x01\x00\x01a", "names nobody"),
        (
            b"\x01\x01\x00\x01a\x02\x00\x01\x04",
            "does not say when it was made",
        ),
        (b"\x01\x01\x00\x02a", "is cut off"),
        (b"\x01\x01\x00", "is cut off"),
        (b"\x01\x02\x00\x01\x04\x01\x00\x01a", "has fields out of order"),
        (b"\x01\x01\x00\x01a\x01\x00\x01a", "has fields out of order"),
        (b"\x01\x00\x00\x00", "has fields out of order"),
        (b"\x01\x02\x00\x00", "names nobody"),
        (b"\x01\x02\x00\x02\x04a", "is of a kind that is not known here"),
        (b"\x01\x02\x00\x02\x05a", "is of a kind that is not known here"),
        (b"\x01\x03\x00\x00", "has an empty list of roles"),
        (b"\x01\x03\x00\x04\x01b\x01a", "has roles out of order"),
        (b"\x01\x03\x00\x04\x01a\x01a", "has roles out of order"),
        (b"\x01\x03\x00\x02\x02a", "is cut off"),
        (b"\x01\x04\x00\x01a", "has a number out of form"),
        (b"\x01\x07\x00\x08\0\0\0\0\0\0\0\0", "has a serial of none"),
        (
            b"\x01\x01\x00\x01A",
            "is out of form: the name \"A\" has 'A' in it: a name has lower-case letters, digits and . _ -",
        ),
        (b"\x01\x01\x00\x01\xff", "has a name that is no UTF-8"),
        (&long, "is longer than 9216 bytes"),
        (&crowd.encode(), "has more than 64 roles"),
    ] {
        assert_eq!(
            Identity::parse(bytes).unwrap_err().to_string(),
            format!("the certificate's identity {want}")
        );
    }
}

#[test]
fn the_largest_identity_fits() {
    let mut largest = alice();
    let wide = |i: usize| name(&format!("r{i:0>127}"));
    largest.roles = (0..MAX_ROLES).map(wide).collect();
    largest.subject = Subject::User(wide(1));
    largest.cluster = wide(2);
    largest.device = Some(wide(3));
    largest.serial = u64::MAX;
    assert_eq!(Identity::parse(&largest.encode()), Ok(largest));
}

#[test]
fn the_two_forms_of_the_object_identifier_are_one() {
    let text: Vec<String> = X509_EXTENSION.iter().map(u64::to_string).collect();
    assert_eq!(text.join("."), X509_EXTENSION_TEXT);
}
