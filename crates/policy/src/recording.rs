//! How much of a session is recorded, for whom that is encrypted, and what follows where it cannot be done. How a recording is made
//! is not its business; here is only what roles and `node.toml` say.

use crate::bech32;
use std::fmt;
use std::str::FromStr;

/// How much of a session is kept, the least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "documents", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "documents", serde(rename_all = "lowercase"))]
pub enum Recording {
    /// What the audit log has: that it was, and what was started. Nothing is recorded.
    #[default]
    Events,
    /// What the terminal showed and programs printed, too.
    Output,
    /// What was typed and sent, too.
    Full,
}

/// What happens to a session that should be recorded and cannot be, the laxer first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "documents", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "documents", serde(rename_all = "kebab-case"))]
pub enum RecordingFailure {
    /// It goes on, and the audit log says that it is not recorded.
    GoOn,
    /// It is refused, or ended.
    #[default]
    End,
}

/// Whether forwarded connections may go on to SSH servers, whose sessions nobody records here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "documents", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "documents", serde(rename_all = "kebab-case"))]
pub enum OnwardSsh {
    /// They may, and the audit log marks them.
    #[default]
    Allow,
    /// They are closed.
    Refuse,
}

impl Recording {
    /// All of them.
    pub const ALL: [Recording; 3] = [Recording::Events, Recording::Output, Recording::Full];

    /// In files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Recording::Events => "events",
            Recording::Output => "output",
            Recording::Full => "full",
        }
    }

    /// Whether there is more to keep than the audit log has.
    pub const fn is_wanted(self) -> bool {
        !matches!(self, Recording::Events)
    }
}

impl RecordingFailure {
    /// In files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            RecordingFailure::GoOn => "go-on",
            RecordingFailure::End => "end",
        }
    }
}

/// The most recipients that a role or `node.toml` names.
pub const MAX_RECIPIENTS: usize = 8;

/// Somebody for whom recordings are encrypted: the public key that `age-keygen` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Recipient(pub [u8; 32]);

impl FromStr for Recipient {
    type Err = String;

    fn from_str(text: &str) -> Result<Recipient, String> {
        if text.to_ascii_lowercase().starts_with("age-secret-key-") {
            // It is not said again: what comes of this is written to logs.
            return Err(
                "a recipient is a public key, and this is a private one: it begins with age1, and `age-keygen -y FILE` prints it"
                    .to_owned(),
            );
        }
        bech32::decode("age", text).map(Recipient).ok_or_else(|| {
            format!("the recipient {text:?} is no key of age: it begins with age1, and `age-keygen` makes it")
        })
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&bech32::encode("age", &self.0))
    }
}

#[cfg(feature = "documents")]
impl serde::Serialize for Recipient {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(feature = "documents")]
impl<'de> serde::Deserialize<'de> for Recipient {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Recipient, D::Error> {
        let text = <String as serde::Deserialize>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// All of several lists, each once.
pub fn union<'a>(lists: impl IntoIterator<Item = &'a [Recipient]>) -> Vec<Recipient> {
    let mut all: Vec<Recipient> = lists.into_iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What holds where several say it: the most that one of them asks for, and the strictest failure of those that ask for a
/// recording. One that asks for none says nothing about the failure.
pub fn strictest(
    all: impl IntoIterator<Item = (Recording, RecordingFailure)>,
) -> (Recording, RecordingFailure) {
    all.into_iter()
        .filter(|(recording, _)| recording.is_wanted())
        .reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::Recording::{Events, Full, Output};
    use super::RecordingFailure::{End, GoOn};
    use super::*;

    #[test]
    fn the_strictest_of_several_holds() {
        for (all, both) in [
            (&[][..], (Events, End)),
            (&[(Events, GoOn)], (Events, End)),
            (&[(Events, End), (Full, GoOn)], (Full, GoOn)),
            (&[(Full, GoOn), (Output, End)], (Full, End)),
            (&[(Output, GoOn), (Output, GoOn)], (Output, GoOn)),
        ] {
            assert_eq!(strictest(all.iter().copied()), both, "{all:?}");
        }
    }

    #[test]
    fn recipients_are_public_keys_and_each_is_one_once() {
        let text = "age1dc3xeggyp2p9556c0r8nplujq2tga0rguvtcp9hz97kwywghd4pqycqsp2";
        let key: Recipient = text.parse().expect("a key");
        assert_eq!(key.to_string(), text);
        let secret = "AGE-SECRET-KEY-16KT6RRED5N7GFDY8VCWS4DA2CJZ7R6D6PRVAYR5Q4TQLL7V87P7S824KNZ";
        let why = secret.parse::<Recipient>().expect_err("it is private");
        assert!(why.contains("public key") && !why.contains("16KT6"), "{why}");
        assert!("ssh-ed25519 AAAA".parse::<Recipient>().is_err());
        assert_eq!(union([&[key, Recipient([1; 32])][..], &[], &[key]]).len(), 2);
    }
}
