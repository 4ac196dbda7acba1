//! A recording as the catalogue has it, and asking for some.

use fleetgate_policy::text::hex;

/// The most entries of one page.
pub const PAGE: usize = 256;
/// The digits of an id.
pub(crate) const DIGITS: usize = 32;

/// Where the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the directory.
    Directory,
    /// In the object store.
    Objects,
}

/// Which recording. A session's id names one machine's recording, as that machine says. So what one brings takes nothing from
/// another one: both are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The session.
    pub session: [u8; 16],
    /// The machine that it came from.
    pub source: String,
}

impl Key {
    /// Of this machine's recording of a session.
    pub fn of(session: &[u8; 16], source: &str) -> Key {
        Key {
            session: *session,
            source: source.to_owned(),
        }
    }
}

/// A recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The session.
    pub session: [u8; 16],
    /// The machine that made it, a node or a proxy.
    pub source: String,
    /// Its first frame, JSON.
    pub begin: String,
    /// Its last frame, JSON; empty: it has not ended, as far as is known.
    pub end: String,
    /// When its last frame was, in microseconds since the start.
    pub last: u64,
    /// How many bytes are kept.
    pub bytes: u64,
    /// All of it is.
    pub whole: bool,
    /// Its frames are encrypted.
    pub encrypted: bool,
    /// When it began, Unix seconds, as its maker says.
    pub started: u64,
    /// When the last of it came, Unix seconds.
    pub arrived: u64,
    /// The user of the cluster, as its maker says; may be empty.
    pub user: String,
    /// The account.
    pub login: String,
    /// The node: the maker itself, or a plain sshd that a proxy recorded. Empty where the proxy named another one than those
    /// that it may speak for.
    pub node: String,
    /// Where it is.
    pub place: Place,
    /// The day that its file lies in.
    pub(crate) day: String,
    /// Another machine's recording of a session of this id was here before: its file lies in its maker's own directory.
    pub(crate) aside: bool,
}

impl Entry {
    /// Which it is.
    pub fn key(&self) -> Key {
        Key::of(&self.session, &self.source)
    }

    /// The id as a text.
    pub fn id(&self) -> String {
        name(&self.session)
    }
}

/// Which are wanted; what is empty or 0 is not asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Of this user.
    pub user: String,
    /// As this account.
    pub login: String,
    /// On this node.
    pub node: String,
    /// Begun at this second or later.
    pub since: u64,
    /// Begun before this second.
    pub until: u64,
    /// Of the session whose id begins so.
    pub session_prefix: String,
    /// Those that have not ended.
    pub running: bool,
    /// The last so many.
    pub limit: u32,
}

/// How far a list was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub(crate) started: u64,
    pub(crate) session: String,
    pub(crate) source: String,
}

impl Mark {
    /// Behind this one.
    pub fn behind(entry: &Entry) -> Mark {
        Mark {
            started: entry.started,
            session: entry.id(),
            source: entry.source.clone(),
        }
    }
}

/// A session's id as files and the catalogue have it.
pub(crate) fn name(session: &[u8; 16]) -> String {
    hex(session)
}

/// The session of such a name.
pub(crate) fn session_of(name: &str) -> Option<[u8; 16]> {
    let is_name = name.len() == DIGITS
        && name
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let number = u128::from_str_radix(name, 16).ok()?;
    is_name.then(|| number.to_be_bytes())
}
