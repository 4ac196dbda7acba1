//! How much of a session is recorded, and what follows where that cannot be done. How a recording is made is not its business;
//! here is only what roles and `node.toml` say.

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
}
