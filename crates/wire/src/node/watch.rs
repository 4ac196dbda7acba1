//! Between the monitor and the watcher: what watched sessions do.
//!
//! ```text
//! watcher → monitor    Ready
//! monitor → watcher    Guardian(+ socket) → (Session(+ its end of the introduction) · Adopt · More ·
//!                      Guardian(+ socket))*
//! watcher → helper     [`crate::exec::HELD`] on the introduction: it is there; and again, once it has the listener that came
//!                      beside the helper's only message, the same four bytes
//! watcher → monitor    (Holds · Seen · Lost · Gap · Released · Over)*
//! ```
//!
//! The watcher gives each listener to the guardian too, as any tracer does ([`crate::guard`]); the monitor makes the socket
//! between them. A new watcher is told what the one before it held, and takes that over from the guardian.

use super::Blob;
use crate::common::{Moment, SessionId};
use crate::{choice, record};
use alloc::ffi::CString;
use alloc::vec::Vec;

/// So many events a watcher may tell at first; more when [`ToWatcher::More`] says so.
pub const CREDIT: u32 = 2048;
/// The most events of one frame.
pub const MAX_EVENTS: usize = 256;

choice! {
    /// Where a field comes from, and so how far it can be believed.
    pub enum Source("source of a field") {
        /// The kernel says so: nobody inside the session can make it another.
        0 => Kernel,
        /// A register of the call: what the kernel acts on.
        1 => Register,
        /// The caller's memory: another thread may have put something else there before the kernel read it.
        2 => Claimed,
    }
}

choice! {
    /// What a field holds.
    pub enum Value("value of a field") {
        /// A number.
        0 => Number { number: i64 },
        /// Bytes; `cut`: there were more.
        1 => Text { bytes: Vec<u8>, cut: bool },
        /// A list of them; `cut`: there were more.
        2 => Words { words: Vec<Blob>, cut: bool },
        /// Yes or no.
        3 => Truth { truth: bool },
    }
}

record! {
    /// One field of an event.
    pub struct Field {
        /// Its name in docs/audit.md.
        pub name: CString,
        /// Where it comes from.
        pub source: Source,
        /// What it holds.
        pub value: Value,
    }
}

record! {
    /// Something that a watched session did, or was about to do.
    pub struct WatcherEvent {
        /// The session.
        pub session: SessionId,
        /// When.
        pub at: Moment,
        /// The event's name in docs/audit.md.
        pub event: CString,
        /// The rest, in this order.
        pub fields: Vec<Field>,
    }
}

/// The levels of [`WatchedSession::level`].
pub const LEVELS: core::ops::RangeInclusive<u8> = 1..=3;

record! {
    /// A session that is watched.
    pub struct WatchedSession {
        /// Which.
        pub session: SessionId,
        /// What is told of it: 1 commands, 2 files, 3 everything.
        pub level: u8,
        /// io_uring_setup answers EPERM.
        pub refuse_io_uring: bool,
    }
}

choice! {
    /// Messages to the watcher.
    pub enum ToWatcher("message to the watcher") {
        /// First, and again when it was replaced: one descriptor, the socket to the guardian.
        0 => Guardian,
        /// A session is to be watched; one descriptor, on which its helper sends its listener.
        1 => Session { watched: WatchedSession },
        /// A listener that the watcher before this one held; the guardian has it.
        2 => Adopt { key: u64, watched: WatchedSession },
        /// The log has room: so many more events may be told.
        3 => More { events: u32 },
    }
}

choice! {
    /// Messages of the watcher.
    pub enum FromWatcher("message of the watcher") {
        /// It has its sandbox.
        0 => Ready,
        /// It holds a listener of this session under this key; a session may have several, one for each try of its launch.
        1 => Holds { key: u64, session: SessionId },
        /// Events, in order.
        2 => Seen { events: Vec<WatcherEvent> },
        /// So many events of this session were lost, because nobody took them.
        3 => Lost { session: SessionId, count: u64 },
        /// Nobody watched this session for so long; so many calls were let through untold.
        4 => Gap { session: SessionId, lasted_ms: u64, calls: u64 },
        /// Every process that was bound by this listener's filter has ended.
        5 => Released { key: u64 },
        /// Nothing of this session is held, and nobody will bring anything.
        6 => Over { session: SessionId },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decode, Encode, decode, encode};
    use alloc::vec;

    fn comes_back<T: Encode + Decode + PartialEq + core::fmt::Debug>(message: &T) {
        let frame = encode(message);
        assert_eq!(decode::<T>(&frame).as_ref(), Ok(message));
        assert!(decode::<T>(&frame[..frame.len() - 1]).is_err(), "{message:?}");
    }

    #[test]
    fn messages_come_back_as_they_were_sent() {
        let watched = WatchedSession {
            session: [7; 16],
            level: 2,
            refuse_io_uring: true,
        };
        let blob = |bytes: &[u8]| Blob {
            bytes: bytes.to_vec(),
        };
        let values = vec![
            Value::Number { number: i64::MIN },
            Value::Text {
                bytes: b"a\0b\xff".to_vec(),
                cut: true,
            },
            Value::Words {
                words: vec![blob(b"ls"), blob(b"")],
                cut: false,
            },
            Value::Truth { truth: true },
        ];
        let sources = [Source::Kernel, Source::Register, Source::Claimed, Source::Claimed];
        let fields = values.into_iter().zip(sources).map(|(value, source)| Field {
            name: c"name".into(),
            source,
            value,
        });
        let event = WatcherEvent {
            session: [7; 16],
            at: Moment { sec: -1, nsec: 5 },
            event: c"exec".into(),
            fields: fields.collect(),
        };
        for message in [
            ToWatcher::Guardian,
            ToWatcher::More { events: 1 },
            ToWatcher::Session {
                watched: watched.clone(),
            },
            ToWatcher::Adopt {
                key: u64::MAX,
                watched,
            },
        ] {
            comes_back(&message);
        }
        let session = [7; 16];
        for message in [
            FromWatcher::Ready,
            FromWatcher::Holds { key: 1, session },
            FromWatcher::Seen {
                events: vec![event; 3],
            },
            FromWatcher::Lost { session, count: 9 },
            FromWatcher::Gap {
                session,
                lasted_ms: 1,
                calls: 2,
            },
            FromWatcher::Released { key: 1 },
            FromWatcher::Over { session },
        ] {
            comes_back(&message);
        }
    }
}
