//! What somebody sees of a session that runs, between the session's front and the viewer's client. The client asks for a
//! subsystem, [`request`]. What it reads is a start of sixteen bytes, then so many bytes of the recording as the start says,
//! then frames, each behind a head as in [`crate::pipe`]. What the recording has behind its first size from the start's time on
//! comes once more among those, and is passed over. What it writes is what is typed. Neither side believes the other.

use crate::frame::{Kind, MAX_BYTES};
use crate::pipe::{HEAD, Head};

/// The subsystem for who only looks, before a space and the session's id.
pub const WATCH: &str = "watch@fleetgate";
/// The same for who types too.
pub const JOIN: &str = "join@fleetgate";
/// The length of a start.
pub const START: usize = 16;
/// The fewest digits of an id that name a session.
const MIN_DIGITS: usize = 8;
/// All of them.
const DIGITS: usize = 32;

/// What comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Since when frames come, in microseconds since the session's start.
    pub at: u64,
    /// How many bytes of the recording follow; 0: the session is not recorded.
    pub recorded: u64,
}

impl Start {
    /// As bytes.
    pub fn encode(&self) -> [u8; START] {
        let mut out = [0; START];
        out[..8].copy_from_slice(&self.at.to_le_bytes());
        out[8..].copy_from_slice(&self.recorded.to_le_bytes());
        out
    }

    /// From bytes.
    pub fn decode(bytes: &[u8; START]) -> Start {
        let [at, recorded] = [0, 8].map(|from| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[from..from + 8]);
            u64::from_le_bytes(number)
        });
        Start { at, recorded }
    }
}

/// A request: whether it is one to type too, and the session's id or its beginning. None: it asks for something else.
pub fn asked(subsystem: &[u8]) -> Option<(bool, Option<&str>)> {
    let word = |name: &str| {
        let rest = subsystem.strip_prefix(name.as_bytes())?;
        match rest {
            [] => Some(None),
            [b' ', id @ ..] => Some(std::str::from_utf8(id).ok().filter(|id| is_id(id))),
            _ => None,
        }
    };
    word(WATCH)
        .map(|id| (false, id))
        .or_else(|| word(JOIN).map(|id| (true, id)))
}

/// The subsystem to ask for.
pub fn request(joins: bool, session: &str) -> String {
    format!("{} {session}", if joins { JOIN } else { WATCH })
}

fn is_id(text: &str) -> bool {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    (MIN_DIGITS..=DIGITS).contains(&text.len()) && text.bytes().all(is_digit)
}

/// A frame's head as a viewer may get it.
pub fn head(bytes: &[u8; HEAD]) -> Option<Head> {
    let [kind, 0, 0, 0, a, b, c, d, at @ ..] = *bytes else {
        return None;
    };
    let kind = Kind::of(kind)?;
    let is_shown = matches!(kind, Kind::Output | Kind::Resize | Kind::Event | Kind::Gap);
    let len = usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?;
    (is_shown && len <= MAX_BYTES).then_some(Head {
        kind,
        len,
        at: u64::from_le_bytes(at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_a_session() {
        let id = "7eb5cf005dd24d3b0a1b2c3d4e5f6071";
        assert_eq!(asked(request(false, id).as_bytes()), Some((false, Some(id))));
        assert_eq!(asked(b"join@fleetgate 7eb5cf00"), Some((true, Some("7eb5cf00"))));
        for no_id in [
            "watch@fleetgate",
            "watch@fleetgate 7eb5cf0",
            "join@fleetgate ../../../etc",
            "join@fleetgate 7EB5CF00",
            "watch@fleetgate 7eb5cf005dd24d3b0a1b2c3d4e5f60711",
        ] {
            assert_eq!(asked(no_id.as_bytes()).map(|(_, id)| id), Some(None), "{no_id}");
        }
        assert_eq!(asked(b"sftp"), None);
        assert_eq!(asked(b"watch@fleetgates 7eb5cf00"), None);
    }

    #[test]
    fn starts_and_heads_come_back_and_others_do_not() {
        let start = Start {
            at: 7,
            recorded: u64::MAX,
        };
        assert_eq!(Start::decode(&start.encode()), start);
        for (kind, len, is_shown) in [
            (Kind::Output, MAX_BYTES, true),
            (Kind::Output, MAX_BYTES + 1, false),
            (Kind::Resize, 4, true),
            (Kind::Event, 9, true),
            (Kind::Gap, 9, true),
            (Kind::Input, 9, false),
            (Kind::End, 9, false),
        ] {
            let one = Head { kind, len, at: 3 };
            assert_eq!(head(&one.encode()), is_shown.then_some(one), "{kind:?}");
        }
        let mut bytes = [0; HEAD];
        bytes[1] = 1;
        assert_eq!(head(&bytes), None);
    }
}
