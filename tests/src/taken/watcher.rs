//! The watcher, held by the test: it is told of sessions, and watches none of them.

use super::{Fate, Sitting};
use fleetgate_wire::node::watch::{FromWatcher, ToWatcher, WatchedSession};

/// The watcher.
pub struct Watcher {
    /// Its socket.
    pub seat: Sitting,
}

impl Watcher {
    pub(super) fn sit(seat: Sitting) -> Watcher {
        seat.say(&FromWatcher::Ready);
        Watcher { seat }
    }

    /// Says a word.
    pub fn say(&self, word: &FromWatcher) -> Fate {
        self.seat.say(word)
    }

    /// The next session that it is told of; its helper hears that nobody watches.
    pub fn refuses(&mut self) -> WatchedSession {
        let told = self.seat.hear_until(|word: &ToWatcher, fds| match word {
            ToWatcher::Session { watched } => {
                assert_eq!(fds.len(), 1, "the helper's socket");
                Some(watched.clone())
            }
            _ => None,
        });
        told.expect("it is told").1
    }

    /// Waits until the monitor ends it.
    pub fn is_ended(&mut self) {
        self.seat.hear_until::<ToWatcher, ()>(|_, _| None);
    }
}
