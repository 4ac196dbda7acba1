//! The thread that carries packets between the two devices of each link, and holds each for half of the link's
//! round-trip time. It looks into no packet and changes none.
//!
//! It waits in one call for all devices and for the next packet that is due, and is woken to the microsecond
//! ([`clock::wake_on_time`]), before everybody else ([`process::run_first`]). What it did is counted: packets, wake-ups,
//! and how late the latest packet was.

use crate::queue::Queue;
use crate::tap::Tap;
use crate::{Error, Result};
use fleetgate_sys::poll::{self, Watch};
use fleetgate_sys::{Errno, Fd, clock, epoll, file, process};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest packet of a device, whatever its MTU.
const MAX_PACKET: usize = 65_536;
/// Packets taken from one device before the others are looked at and what is due is sent.
const AT_ONCE: usize = 64;

/// What the thread and the lab share of one link.
pub(crate) struct Line {
    delay_nanos: AtomicU64,
    tap: Mutex<Option<Tap>>,
}

/// One link as the thread has it.
pub(crate) struct Ends {
    /// Its two devices.
    pub(crate) devices: [Fd; 2],
    /// What it shares.
    pub(crate) line: Arc<Line>,
}

/// The running thread; it ends when this is dropped.
pub(crate) struct Relay {
    end: Arc<Fd>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    packets: AtomicU64,
    wake_ups: AtomicU64,
    late: AtomicU64,
    latest: AtomicU64,
    dropped: AtomicU64,
    lost: AtomicU64,
}

/// What the relay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Packets carried.
    pub packets: u64,
    /// How often it was woken.
    pub wake_ups: u64,
    /// How long after its time the average packet was sent on.
    pub late: Duration,
    /// The same of the latest packet.
    pub latest: Duration,
    /// Packets that found no room in the relay.
    pub dropped: u64,
    /// Packets that a device did not take.
    pub lost: u64,
}

impl Line {
    pub(crate) fn new(round_trip: Duration) -> Line {
        let line = Line {
            delay_nanos: AtomicU64::new(0),
            tap: Mutex::new(None),
        };
        line.set_round_trip(round_trip);
        line
    }

    pub(crate) fn set_round_trip(&self, round_trip: Duration) {
        let half = u64::try_from(round_trip.as_nanos() / 2).unwrap_or(u64::MAX / 2);
        self.delay_nanos.store(half, Relaxed);
    }

    /// Puts a tap on the line or takes it off; the one that was there.
    pub(crate) fn tap(&self, tap: Option<Tap>) -> Option<Tap> {
        let mut held = self.tap.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *held, tap)
    }

    /// A packet passes `side`: it was sent there, or arrives there.
    fn passes(&self, side: usize, packet: &[u8]) {
        let mut held = self.tap.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tap) = held.as_mut().filter(|tap| tap.side() == side) {
            tap.take(packet);
        }
    }
}

impl Relay {
    /// Starts it.
    pub(crate) fn start(ends: Vec<Ends>) -> Result<Relay> {
        let failed = |e| Error::new("starting the relay", e);
        let end = Arc::new(epoll::bell().map_err(failed)?);
        let counts = Arc::new(Counts::default());
        let (bell, counted) = (end.clone(), counts.clone());
        let thread = std::thread::Builder::new().name("lab-relay".to_owned());
        let thread = thread.spawn(move || carry(&ends, &bell, &counted));
        let thread = thread.map_err(|e| Error::new("starting the relay", e))?;
        Ok(Relay {
            end,
            counts,
            thread: Some(thread),
        })
    }

    /// What it did so far.
    pub(crate) fn account(&self) -> Account {
        let counts = &self.counts;
        let packets = counts.packets.load(Relaxed);
        Account {
            packets,
            wake_ups: counts.wake_ups.load(Relaxed),
            late: Duration::from_nanos(counts.late.load(Relaxed) / packets.max(1)),
            latest: Duration::from_nanos(counts.latest.load(Relaxed)),
            dropped: counts.dropped.load(Relaxed),
            lost: counts.lost.load(Relaxed),
        }
    }
}

impl Account {
    /// Itself, unless a packet was dropped: what was seen over that link is not what the link is.
    pub(crate) fn dropped_nothing(self) -> Result<Account> {
        if self.dropped + self.lost == 0 {
            return Ok(self);
        }
        Err(Error::new(
            format!(
                "{} packets found no room in the relay and {} at a device",
                self.dropped, self.lost
            ),
            "what was measured over this link does not count",
        ))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        epoll::ring(&self.end);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread.
fn carry(ends: &[Ends], end: &Fd, counts: &Counts) {
    // Without these packets are up to 50 us late, and as late as the machine is busy. It is seen in the account.
    let _ = clock::wake_on_time();
    let _ = process::run_first();
    // Of each link the packets from side 0, then those from side 1.
    let mut queues: Vec<[Queue; 2]> = ends.iter().map(|_| Default::default()).collect();
    let mut buffer = vec![0; MAX_PACKET];
    let mut watches = vec![Watch::new(end.raw(), poll::READ)];
    watches.extend(
        ends.iter()
            .flat_map(|e| &e.devices)
            .map(|d| Watch::new(d.raw(), poll::READ)),
    );
    loop {
        let next = queues.iter().flatten().filter_map(Queue::next_due).min();
        let left = next.map(|due| i64::try_from(due.saturating_sub(now())).unwrap_or(i64::MAX));
        let news = poll::wait(&mut watches, left).expect("descriptors of our own can be waited for");
        counts.wake_ups.fetch_add(1, Relaxed);
        if watches[0].happened() != 0 {
            return;
        }
        for (link, (ends, queues)) in ends.iter().zip(&mut queues).enumerate() {
            for side in 0..2 {
                let watch = &mut watches[1 + 2 * link + side];
                if news > 0 && watch.happened() != 0 && !take(ends, side, &mut queues[side], &mut buffer) {
                    // Its place is gone. It would be reported for ever.
                    *watch = Watch::new(-1, 0);
                }
            }
        }
        let now = now();
        for (ends, queues) in ends.iter().zip(&mut queues) {
            for (side, queue) in queues.iter_mut().enumerate() {
                give(ends, 1 - side, queue, now, counts);
            }
        }
        let dropped = queues.iter().flatten().map(Queue::dropped).sum();
        counts.dropped.store(dropped, Relaxed);
    }
}

/// Takes what waits at the device of `side`; whether the device is still there.
fn take(ends: &Ends, side: usize, queue: &mut Queue, buffer: &mut [u8]) -> bool {
    let delay = ends.line.delay_nanos.load(Relaxed);
    for _ in 0..AT_ONCE {
        let len = match file::read(ends.devices[side].raw(), buffer) {
            Ok(len) => len,
            Err(e) => return e == Errno::EAGAIN,
        };
        ends.line.passes(side, &buffer[..len]);
        queue.push(now(), delay, &buffer[..len]);
    }
    true
}

/// Hands what is due to the device of `side`.
fn give(ends: &Ends, side: usize, queue: &mut Queue, now: u64, counts: &Counts) {
    while let Some((due, packet)) = queue.pop(now) {
        ends.line.passes(side, &packet);
        match file::write(ends.devices[side].raw(), &packet) {
            Ok(_) => {}
            // The device is not up, because its place is being made or is gone.
            Err(Errno::EIO) => {}
            Err(_) => {
                counts.lost.fetch_add(1, Relaxed);
            }
        }
        let late = now.saturating_sub(due);
        counts.packets.fetch_add(1, Relaxed);
        counts.late.fetch_add(late, Relaxed);
        counts.latest.fetch_max(late, Relaxed);
    }
}

fn now() -> u64 {
    clock::monotonic().as_nanos().cast_unsigned()
}
