//! What the threads have seen, until the monitor is told. Each listener has a queue of its own, which is bounded: a thread
//! whose queue is full waits a little, and its session with it, before an event is lost and counted. Nobody else waits.

use fleetgate_sys::{Fd, epoll};
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::watch::{Field, FromWatcher, MAX_EVENTS, Value, WatcherEvent};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most events of one listener that wait.
pub const MAX_UNSENT_EVENTS: usize = 512;
/// So long a session is held up before one of its events is lost.
const PATIENCE: Duration = Duration::from_millis(500);
/// About the most bytes of one frame.
const FRAME: usize = 64 << 10;

pub(super) struct Outbox {
    queues: Mutex<BTreeMap<u64, Queue>>,
    room: Condvar,
    bell: Fd,
}

struct Queue {
    session: SessionId,
    events: VecDeque<WatcherEvent>,
    lost: u64,
    ended: bool,
}

impl Outbox {
    pub(super) fn new(bell: Fd) -> Outbox {
        Outbox {
            queues: Mutex::default(),
            room: Condvar::new(),
            bell,
        }
    }

    /// Rings when there is something to tell.
    pub(super) fn bell(&self) -> &Fd {
        &self.bell
    }

    fn queues(&self) -> MutexGuard<'_, BTreeMap<u64, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A listener begins.
    pub(super) fn open(&self, key: u64, session: SessionId) {
        let queue = Queue {
            session,
            events: VecDeque::new(),
            lost: 0,
            ended: false,
        };
        self.queues().insert(key, queue);
    }

    /// It did not begin after all.
    pub(super) fn forget(&self, key: u64) {
        self.queues().remove(&key);
    }

    /// A thread has seen something.
    pub(super) fn put(&self, key: u64, event: WatcherEvent) {
        let full = |queues: &mut BTreeMap<u64, Queue>| {
            queues
                .get(&key)
                .is_some_and(|queue| queue.events.len() >= MAX_UNSENT_EVENTS)
        };
        let waited = self.room.wait_timeout_while(self.queues(), PATIENCE, full);
        let (mut queues, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let Some(queue) = queues.get_mut(&key) else { return };
        if queue.events.len() >= MAX_UNSENT_EVENTS {
            queue.lost += 1;
            return;
        }
        queue.events.push_back(event);
        drop(queues);
        epoll::ring(&self.bell);
    }

    /// A thread has ended: nothing comes any more.
    pub(super) fn end(&self, key: u64) {
        if let Some(queue) = self.queues().get_mut(&key) {
            queue.ended = true;
        }
        epoll::ring(&self.bell);
    }

    /// The next message to the monitor: at most so many events of all listeners, some of each, or how many were lost.
    pub(super) fn next(&self, most: u32) -> Option<FromWatcher> {
        let most = MAX_EVENTS.min(most as usize);
        let mut queues = self.queues();
        let mut events = Vec::new();
        let mut bytes = 0;
        let mut lost = None;
        let share = (most / queues.len().max(1)).max(1);
        for queue in queues.values_mut() {
            for _ in 0..share {
                if bytes >= FRAME || events.len() >= most {
                    break;
                }
                let Some(event) = queue.events.pop_front() else {
                    break;
                };
                bytes += size(&event);
                events.push(event);
            }
            // What is lost came behind all that waited.
            if queue.events.is_empty() && queue.lost > 0 && events.is_empty() {
                lost = Some((queue.session, std::mem::take(&mut queue.lost)));
                break;
            }
        }
        drop(queues);
        if !events.is_empty() {
            self.room.notify_all();
            return Some(FromWatcher::Seen { events });
        }
        lost.map(|(session, count)| FromWatcher::Lost { session, count })
    }

    /// Listeners that have ended and of which everything is told; each once.
    pub(super) fn ended(&self) -> Vec<u64> {
        let mut queues = self.queues();
        let over = |queue: &Queue| queue.ended && queue.events.is_empty() && queue.lost == 0;
        let keys: Vec<u64> = queues
            .iter()
            .filter(|(_, queue)| over(queue))
            .map(|(key, _)| *key)
            .collect();
        for key in &keys {
            queues.remove(key);
        }
        keys
    }
}

/// About how many bytes it takes in a frame.
fn size(event: &WatcherEvent) -> usize {
    let field = |field: &Field| {
        32 + match &field.value {
            Value::Text { bytes, .. } => bytes.len(),
            Value::Words { words, .. } => words.iter().map(|word| word.bytes.len() + 4).sum(),
            Value::Number { .. } | Value::Truth { .. } => 8,
        }
    };
    64 + event.fields.iter().map(field).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_wire::common::Moment;

    fn event(session: u8, name: &str) -> WatcherEvent {
        WatcherEvent {
            session: [session; 16],
            at: Moment { sec: 0, nsec: 0 },
            event: std::ffi::CString::new(name).expect("a name"),
            fields: Vec::new(),
        }
    }

    #[test]
    fn what_is_seen_is_told_in_order_and_what_has_no_room_is_counted() {
        let outbox = Outbox::new(epoll::bell().expect("a bell"));
        outbox.open(1, [1; 16]);
        outbox.open(2, [2; 16]);
        for _ in 0..MAX_UNSENT_EVENTS + 2 {
            outbox.put(1, event(1, "many"));
        }
        outbox.put(2, event(2, "one"));
        outbox.end(1);
        assert!(outbox.ended().is_empty(), "not all of it is told");
        let (mut many, mut one, mut turns) = (0, 0, 0);
        assert!(outbox.next(0).is_none(), "the log has no room");
        while let Some(message) = outbox.next(u32::MAX) {
            turns += 1;
            match message {
                FromWatcher::Seen { events } => {
                    assert!(events.len() <= MAX_EVENTS);
                    many += events.iter().filter(|e| e.session == [1; 16]).count();
                    one += events.iter().filter(|e| e.session == [2; 16]).count();
                    // The one that has much to say holds up no other.
                    assert!(turns > 1 || one == 1);
                }
                FromWatcher::Lost { session, count } => assert_eq!((session, count), ([1; 16], 2)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((many, one), (MAX_UNSENT_EVENTS, 1));
        assert_eq!(outbox.ended(), [1]);
        assert!(outbox.ended().is_empty(), "once");
        // Of one that is gone nothing is kept.
        outbox.put(1, event(1, "late"));
        assert!(outbox.next(u32::MAX).is_none());
    }
}
