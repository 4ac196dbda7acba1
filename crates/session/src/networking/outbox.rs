//! Answers on their way to the launching side. While one waits for room no request is read and no connection
//! accepted, so what waits here is bounded by the requests that were pending.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use fleetgate_sys::{Errno, Fd, socket};
use fleetgate_wire::net::{Done, Response};

/// What is left of the pause after ETOOMANYREFS: the user's descriptors in flight, over all of his sockets, are at
/// their limit, and nothing tells when one was read.
const PAUSE: i64 = 20_000_000;

/// The answers that wait, oldest first.
pub struct Outbox {
    waiting: VecDeque<(Vec<u8>, Vec<Fd>)>,
    paused_until: i64,
}

/// The other side does not listen any more.
pub struct ControlClosed;

impl Outbox {
    /// Nothing waits.
    pub const fn new() -> Outbox {
        Outbox {
            waiting: VecDeque::new(),
            paused_until: 0,
        }
    }

    /// Whether everything was sent.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Until when sending is of no use; 0: it is.
    pub fn paused_until(&self) -> i64 {
        self.paused_until
    }

    /// Sends an answer, at once if there is room and none waits before it.
    pub fn answer(&mut self, to: &Fd, id: u32, done: Done, fds: Vec<Fd>) -> Result<(), ControlClosed> {
        let frame = fleetgate_wire::encode(&Response { id, done });
        self.waiting.push_back((frame, fds));
        if self.waiting.len() == 1 {
            return self.flush(to, 0);
        }
        Ok(())
    }

    /// Sends as much as there is room for. `now` is needed to end a pause; 0: the clock was not read.
    pub fn flush(&mut self, to: &Fd, now: i64) -> Result<(), ControlClosed> {
        if self.paused_until > now {
            return Ok(());
        }
        self.paused_until = 0;
        while let Some((frame, fds)) = self.waiting.front() {
            let numbers: Vec<i32> = fds.iter().map(Fd::raw).collect();
            match socket::send_now(to, frame, &numbers) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(Errno::EAGAIN) => break,
                Err(Errno::ETOOMANYREFS | Errno::ENOBUFS | Errno::ENOMEM) => {
                    self.paused_until = fleetgate_sys::clock::monotonic().as_nanos() + PAUSE;
                    break;
                }
                Err(_) => return Err(ControlClosed),
            }
        }
        Ok(())
    }
}
