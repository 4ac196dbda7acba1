//! A seat's socket to the monitor, held by the test: whole frames both ways, and everything that ever came back.

use crate::world::{PATIENCE_MS, wait_for};
use fleetgate_sys::poll::{READ, WRITE, Watch, poll};
use fleetgate_sys::{Errno, Fd, net, socket};
use fleetgate_wire::{Decode, Encode, decode, encode};
use std::fmt::Debug;

/// The seat.
pub struct Sitting {
    control: Fd,
    /// Closed, the process that stands in for the seat ends.
    _alive: Fd,
    /// That process.
    pub pid: i32,
    /// Every byte that the monitor has sent.
    pub seen: Vec<u8>,
    buffer: Vec<u8>,
}

/// What became of a seat that said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is spoken to as before.
    Stays,
    /// The monitor has closed its socket.
    Ended,
}

impl Sitting {
    pub(super) fn new(control: Fd, alive: Fd, pid: i32) -> Sitting {
        Sitting {
            control,
            _alive: alive,
            pid,
            seen: Vec::new(),
            buffer: vec![0; fleetgate_wire::MAX_INLINE + (16 << 10)],
        }
    }

    /// Says a word.
    pub fn say(&self, word: &impl Encode) -> Fate {
        self.send(&encode(word), &[])
    }

    /// Sends these bytes as one frame, and descriptors beside it.
    pub fn send(&self, frame: &[u8], fds: &[i32]) -> Fate {
        loop {
            match socket::send_now(&self.control, frame, fds) {
                Ok(()) => return Fate::Stays,
                Err(Errno::EAGAIN) => {
                    let mut watch = [Watch::new(self.control.raw(), WRITE)];
                    assert_eq!(
                        poll(&mut watch, Some(PATIENCE_MS)),
                        Ok(1),
                        "the monitor reads nothing"
                    );
                }
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Fate::Ended,
                // Longer than a socket's buffer: the kernel's own refusal.
                Err(Errno::EMSGSIZE) => return Fate::Ended,
                Err(e) => panic!("sending to the monitor: {e}"),
            }
        }
    }

    /// The next word; none: the monitor has closed the socket.
    pub fn hear<T: Decode>(&mut self) -> Option<(T, Vec<Fd>)> {
        wait_for(&self.control, "a word of the monitor");
        match socket::receive(&self.control, &mut self.buffer, true) {
            Ok(got) if got.len == 0 => None,
            Ok(got) => {
                assert!(!got.truncated, "a frame of the monitor is too long");
                self.seen.extend_from_slice(&self.buffer[..got.len]);
                Some((decode(&self.buffer[..got.len]).expect("a word"), got.fds))
            }
            Err(Errno::ECONNRESET) => None,
            Err(e) => panic!("hearing the monitor: {e}"),
        }
    }

    /// Whether something is to be heard already.
    pub fn has_news(&self) -> bool {
        poll(&mut [Watch::new(self.control.raw(), READ)], Some(0)) == Ok(1)
    }

    /// Hears words until `wanted` takes one; those before it. None: the monitor closed the socket first.
    pub fn hear_until<T: Decode + Debug, R>(
        &mut self,
        mut wanted: impl FnMut(&T, Vec<Fd>) -> Option<R>,
    ) -> Option<(Vec<T>, R)> {
        let mut before = Vec::new();
        loop {
            let (word, fds) = self.hear()?;
            if let Some(found) = wanted(&word, fds) {
                return Some((before, found));
            }
            before.push(word);
        }
    }

    /// Speaks no more, as a process that died.
    pub fn hang_up(&self) {
        net::shut(&self.control).expect("it is open");
    }
}
