//! Who is woken by which descriptor: one epoll, level-triggered, and a key for each descriptor that says which part of
//! the monitor it belongs to. It owns no descriptor.

use fleetgate_sys::epoll::{Epoll, Event};
use fleetgate_sys::{Errno, Fd};

/// A part of the monitor that is woken, by a descriptor, a timer, a launch or a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Owner {
    /// The starter's socket, and signals.
    Starter,
    /// Listening sockets.
    Listeners,
    /// The processes of `WorkerKind`: their sockets, their ends, what they log.
    Workers,
    /// Workers that were started and wait to be taken over; the id is 0.
    StartedWorkers,
    /// A front without a connection, whose time is over.
    IdleFronts,
    /// The look-up socket.
    Names,
    /// Finished launches.
    Launches,
    /// A client's connection, by its number.
    Connections,
    /// A login that is being decided, by its connection's number.
    Logins,
    /// Sessions; the id is theirs.
    Sessions,
    /// Networking helpers and listeners; the id is theirs.
    Networks,
    /// A key exchange whose time has come, by its connection's number.
    Exchanges,
    /// What is due in the cluster.
    Cluster,
    /// Helpers that ended or are to be reaped and have nobody else.
    Zombies,
    /// The tunnel; the id says what of it.
    Tunnel,
    /// The watcher and its guardian; the id says what of them.
    Watcher,
    /// What strangers did, in sums.
    Strangers,
    /// The recorder; the id says what of it.
    Recorder,
}

const OWNERS: [Owner; 18] = [
    Owner::Starter,
    Owner::Listeners,
    Owner::Workers,
    Owner::StartedWorkers,
    Owner::IdleFronts,
    Owner::Names,
    Owner::Launches,
    Owner::Connections,
    Owner::Logins,
    Owner::Sessions,
    Owner::Networks,
    Owner::Exchanges,
    Owner::Cluster,
    Owner::Zombies,
    Owner::Tunnel,
    Owner::Watcher,
    Owner::Strangers,
    Owner::Recorder,
];

/// A wake-up: whom, and which of his things. Ids are below 2^56.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Whom.
    pub owner: Owner,
    /// Which of his things.
    pub id: u64,
}

const ID_BITS: u32 = 56;

impl Key {
    /// The key of `owner`'s thing `id`.
    pub const fn new(owner: Owner, id: u64) -> Key {
        Key { owner, id }
    }

    fn to_number(self) -> u64 {
        debug_assert!(self.id >> ID_BITS == 0);
        (self.owner as u64) << ID_BITS | self.id
    }

    fn from_number(number: u64) -> Key {
        Key {
            owner: OWNERS[(number >> ID_BITS) as usize % OWNERS.len()],
            id: number & ((1 << ID_BITS) - 1),
        }
    }
}

/// The waiter.
pub struct Wakes {
    epoll: Epoll,
    buffer: Vec<Event>,
}

/// How many wake-ups are taken at once.
const AT_ONCE: usize = 128;

impl Wakes {
    /// Nothing is watched.
    pub fn new() -> Result<Wakes, Errno> {
        Ok(Wakes {
            epoll: Epoll::new()?,
            buffer: vec![Event::EMPTY; AT_ONCE],
        })
    }

    /// Watches `fd` for `events` (`sys::poll`'s flags; 0: for its end alone), until it is closed.
    pub fn watch(&self, fd: &Fd, events: i16, key: Key) -> Result<(), Errno> {
        self.epoll.add(fd, events, key.to_number())
    }

    /// From now on for these events.
    pub fn change(&self, fd: &Fd, events: i16, key: Key) -> Result<(), Errno> {
        self.epoll.change(fd, events, key.to_number())
    }

    /// Not any more. Needed before closing only where another descriptor of the same open file stays.
    pub fn forget(&self, fd: &Fd) {
        // It is not there any more: that is what was wanted.
        let _ = self.epoll.remove(fd);
    }

    /// Waits; the keys of what happened, in the kernel's order.
    pub fn wait(&mut self, timeout_ms: Option<u32>, keys: &mut Vec<Key>) -> Result<(), Errno> {
        let count = self.epoll.wait(&mut self.buffer, timeout_ms)?;
        keys.extend(self.buffer[..count].iter().map(|e| Key::from_number(e.key())));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_sys::{epoll, poll};

    #[test]
    fn a_key_survives_the_kernel() {
        let mut wakes = Wakes::new().expect("epoll");
        let bell = epoll::bell().expect("eventfd");
        epoll::ring(&bell);
        for owner in OWNERS {
            for id in [0, 1, (1 << ID_BITS) - 1] {
                let key = Key::new(owner, id);
                wakes.watch(&bell, poll::READ, key).expect("watch");
                let mut keys = Vec::new();
                wakes.wait(Some(10_000), &mut keys).expect("wait");
                assert_eq!(keys, [key]);
                wakes.forget(&bell);
            }
        }
    }
}
