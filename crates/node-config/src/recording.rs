//! `[recording]` of `node.toml`: which sessions this node records whatever roles say, where recordings lie, and how long they stay
//! there. What a role asks for is the cluster's decision; the stricter of the two counts.

use crate::{Size, types};
use fleetgate_policy::recording::{self, MAX_RECIPIENTS, Recipient, Recording, RecordingFailure};
use serde::{Deserialize, Deserializer, de};
use std::path::PathBuf;

/// Where recordings are, unless told otherwise: in the state directory, here by its default.
pub const DIRECTORY: &str = "/var/lib/fleetgate/recordings";
/// Their directory's name there.
pub const BELOW_STATE: &str = "recordings";

/// The section.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// How much of every session is recorded; a role may ask for more.
    pub sessions: Recording,
    /// What happens to a session that `sessions` wants recorded and that cannot be.
    pub on_failure: RecordingFailure,
    /// For whom recordings are encrypted, beside those whom roles name; nobody by either: they are readable.
    #[serde(deserialize_with = "recipients")]
    pub recipients: Vec<Recipient>,
    /// Where recordings are kept. Empty while the file is read: it names no place.
    #[serde(default, deserialize_with = "types::from_root")]
    pub directory: PathBuf,
    /// Recordings that ended so many days ago are removed; 0: none for its age.
    #[serde(deserialize_with = "types::days")]
    pub keep_days: u32,
    /// How much the directory may hold before the oldest ended recordings are removed; 0: as much as the disk has room for.
    pub max_size: Size,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            sessions: Recording::default(),
            on_failure: RecordingFailure::default(),
            recipients: Vec::new(),
            directory: DIRECTORY.into(),
            keep_days: 0,
            max_size: Size(10 << 30),
        }
    }
}

/// Of a file that says nothing about recordings: where they lie depends on its other settings.
pub(super) fn unplaced() -> Settings {
    Settings {
        directory: PathBuf::new(),
        ..Settings::default()
    }
}

impl Settings {
    /// How much of a session is recorded, and what happens where it cannot be: by this node and by the decisions about its login.
    pub fn of_session(
        &self,
        decided: impl IntoIterator<Item = (Recording, RecordingFailure)>,
    ) -> (Recording, RecordingFailure) {
        recording::strictest(decided.into_iter().chain([(self.sessions, self.on_failure)]))
    }
}

fn recipients<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Recipient>, D::Error> {
    let all = Vec::<Recipient>::deserialize(from)?;
    match all.len() <= MAX_RECIPIENTS {
        true => Ok(all),
        false => Err(de::Error::custom(format!(
            "{} recipients: there is room for {MAX_RECIPIENTS}",
            all.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_of_node_and_roles_counts() {
        use Recording::{Events, Full, Output};
        use RecordingFailure::{End, GoOn};
        for (own, decided, both) in [
            ((Events, End), (Output, GoOn), (Output, GoOn)),
            ((Events, GoOn), (Full, End), (Full, End)),
            ((Output, GoOn), (Events, End), (Output, GoOn)),
            ((Output, End), (Full, GoOn), (Full, End)),
        ] {
            let settings = Settings {
                sessions: own.0,
                on_failure: own.1,
                ..Settings::default()
            };
            assert_eq!(settings.of_session([decided]), both, "{own:?} and {decided:?}");
            assert_eq!(settings.of_session([]).0, own.0);
        }
    }
}
