//! One process's socket: messages out, frames in, never waiting. A process that does not read is ended; it costs none of our
//! memory.

use crate::monitor::wakes::{Key, Wakes};
use fleetgate_sys::poll::{READ, WRITE};
use fleetgate_sys::{Errno, Fd, socket};
use fleetgate_wire::Encode;
use fleetgate_wire::pam::wipe;
use std::collections::VecDeque;

/// The most bytes and descriptors that wait for a process which does not read.
pub const MAX_UNREAD_BYTES: usize = 8 << 20;
/// What a waiting descriptor counts as, in bytes.
const FD_COSTS: usize = 4096;

/// The socket.
pub struct WorkerSocket {
    socket: Fd,
    key: Key,
    waiting: VecDeque<(Vec<u8>, Vec<Fd>)>,
    held: usize,
}

/// A frame with its descriptors. It is wiped when it is dropped: it may hold a connection's keys.
pub struct Frame {
    /// The frame.
    pub bytes: Vec<u8>,
    /// What came with it.
    pub fds: Vec<Fd>,
}

impl Drop for Frame {
    fn drop(&mut self) {
        wipe(&mut self.bytes);
    }
}

/// Why a process is not spoken to any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// Its end of the socket is closed.
    Closed,
    /// It does not read what it is told.
    Deaf,
    /// It sent a frame that is longer than any, or descriptors.
    Garbage,
}

impl WorkerSocket {
    /// Speaks on `socket`, which is watched from now on.
    pub fn new(socket: Fd, key: Key, wakes: &Wakes) -> Result<WorkerSocket, Errno> {
        wakes.watch(&socket, READ, key)?;
        Ok(WorkerSocket {
            socket,
            key,
            waiting: VecDeque::new(),
            held: 0,
        })
    }

    /// Says `message`. It may hold a connection's keys: the frame is made in `room`, where it need not be moved as it grows,
    /// and is wiped there and wherever it waited.
    pub fn say(
        &mut self,
        message: &impl Encode,
        fds: Vec<Fd>,
        wakes: &Wakes,
        room: &mut Vec<u8>,
    ) -> Result<(), LossReason> {
        *room = fleetgate_wire::encode_in(std::mem::take(room), message);
        let said = self.send(room, fds, wakes);
        wipe(room);
        room.clear();
        said
    }

    fn send(&mut self, frame: &[u8], fds: Vec<Fd>, wakes: &Wakes) -> Result<(), LossReason> {
        if self.waiting.is_empty() {
            let raw: Vec<i32> = fds.iter().map(Fd::raw).collect();
            match socket::send_now(&self.socket, frame, &raw) {
                Ok(()) => return Ok(()),
                Err(Errno::EAGAIN) => {}
                Err(_) => return Err(LossReason::Closed),
            }
            let _ = wakes.change(&self.socket, READ | WRITE, self.key);
        }
        self.held += frame.len() + fds.len() * FD_COSTS;
        self.waiting.push_back((frame.to_vec(), fds));
        if self.held > MAX_UNREAD_BYTES {
            return Err(LossReason::Deaf);
        }
        Ok(())
    }

    /// Sends what waits, as far as there is room.
    pub fn flush(&mut self, wakes: &Wakes) -> Result<(), LossReason> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        while let Some((frame, fds)) = self.waiting.front_mut() {
            let raw: Vec<i32> = fds.iter().map(Fd::raw).collect();
            match socket::send_now(&self.socket, frame, &raw) {
                Ok(()) => {
                    wipe(frame);
                    self.held -= frame.len() + fds.len() * FD_COSTS;
                    self.waiting.pop_front();
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(_) => return Err(LossReason::Closed),
            }
        }
        let _ = wakes.change(&self.socket, READ, self.key);
        Ok(())
    }

    /// The next frame, if there is one. Lobby and fronts send no descriptors.
    pub fn hear(&self, buffer: &mut [u8]) -> Result<Option<Frame>, LossReason> {
        match socket::receive(&self.socket, buffer, false) {
            Ok(got) if got.len == 0 => Err(LossReason::Closed),
            Ok(got) if got.truncated || !got.fds.is_empty() => Err(LossReason::Garbage),
            Ok(got) => {
                let frame = &mut buffer[..got.len];
                let bytes = frame.to_vec();
                wipe(frame);
                Ok(Some(Frame { bytes, fds: got.fds }))
            }
            Err(Errno::EAGAIN) => Ok(None),
            Err(_) => Err(LossReason::Closed),
        }
    }
}

impl Drop for WorkerSocket {
    fn drop(&mut self) {
        for (frame, _) in &mut self.waiting {
            wipe(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::wakes::Owner;
    use fleetgate_wire::node::lobby::ToLobby;

    #[test]
    fn a_process_that_does_not_read_is_given_up_and_one_that_does_gets_everything_in_order() {
        let wakes = Wakes::new().expect("epoll");
        let (ours, theirs) = socket::pair().expect("pair");
        let mut peer = WorkerSocket::new(ours, Key::new(Owner::Workers, 4), &wakes).expect("peer");
        let mut room = Vec::new();
        let message = |connection| ToLobby::Signed {
            connection,
            signature: vec![7; 32 << 10],
            cookie: [0; 16],
        };
        for n in 0..64 {
            assert_eq!(peer.say(&message(n), Vec::new(), &wakes, &mut room), Ok(()));
        }
        assert!(!peer.waiting.is_empty(), "the socket holds less than 2 MB");
        let mut buffer = vec![0; 64 << 10];
        for n in 0..64 {
            let got = socket::receive(&theirs, &mut buffer, false).expect("a frame");
            assert_eq!(fleetgate_wire::decode(&buffer[..got.len]), Ok(message(n)));
            assert_eq!(peer.flush(&wakes), Ok(()));
        }
        assert_eq!(peer.held, 0);
        let deaf = (0..1000).map(|n| peer.say(&message(n), Vec::new(), &wakes, &mut room));
        assert!(deaf.collect::<Result<Vec<_>, _>>() == Err(LossReason::Deaf));
    }

    #[test]
    fn a_frame_is_made_where_it_stays_and_leaves_nothing_where_it_was_heard() {
        let wakes = Wakes::new().expect("epoll");
        let (ours, theirs) = socket::pair().expect("pair");
        let key = Key::new(Owner::Workers, 4);
        let (mut one, other) = (
            WorkerSocket::new(ours, key, &wakes).expect("peer"),
            WorkerSocket::new(theirs, key, &wakes).expect("peer"),
        );
        let (mut room, mut buffer) = (Vec::with_capacity(4096), vec![0; 4096]);
        let place = room.as_ptr();
        let message = ToLobby::Signed {
            connection: 1,
            signature: vec![7; 2048],
            cookie: [0; 16],
        };
        for _ in 0..3 {
            assert_eq!(one.say(&message, Vec::new(), &wakes, &mut room), Ok(()));
            assert_eq!((room.len(), room.as_ptr()), (0, place));
            let frame = other.hear(&mut buffer).expect("open").expect("a frame");
            assert_eq!(fleetgate_wire::decode(&frame.bytes), Ok(message.clone()));
            assert!(buffer.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn descriptors_and_overlong_frames_are_garbage() {
        let wakes = Wakes::new().expect("epoll");
        let mut buffer = vec![0; 16];
        for (frame, with_fd, want) in [
            (&b"short"[..], false, Ok(true)),
            (&[1; 17][..], false, Err(LossReason::Garbage)),
            (&b"x"[..], true, Err(LossReason::Garbage)),
            (&b""[..], false, Err(LossReason::Closed)),
        ] {
            let (ours, theirs) = socket::pair().expect("pair");
            let peer = WorkerSocket::new(ours, Key::new(Owner::Workers, 4), &wakes).expect("peer");
            let fds: &[i32] = if with_fd { &[theirs.raw()] } else { &[] };
            socket::send(&theirs, frame, fds).expect("send");
            assert_eq!(peer.hear(&mut buffer).map(|f| f.is_some()), want, "{frame:?}");
        }
    }
}
