//! The socket to the monitor: whole frames both ways, in the order they were said. What does not fit waits here;
//! while something waits, the worker reads nothing from its connections, so that what waits stays bounded.

use super::WorkerEnd;
use crate::sandbox::CONTROL;
use fleetgate_sys::epoll::Epoll;
use fleetgate_sys::{Errno, Fd, socket};
use fleetgate_wire::node::MAX_FRAME;
use fleetgate_wire::{Decode, Encode};
use std::collections::VecDeque;
use std::ffi::CString;
use zeroize::Zeroize;

/// Room for the longest frame with its fields around it.
const ROOM: usize = MAX_FRAME + 8 * 1024;
/// More than one turn of the loop can make while nothing is read from connections.
const MAX_UNSENT_BYTES: usize = 16 << 20;

/// A worker's end of the socket.
pub struct Control {
    socket: Fd,
    room: Box<[u8]>,
    /// Where frames are made: none is moved as it grows, so that keys leave no copies behind.
    written: Vec<u8>,
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// Under which the loop is told of it.
    key: u64,
    /// Whether it is told of room, too.
    told_of_room: bool,
}

/// The most of a text of our own in a frame.
const MAX_TEXT: usize = 1024;

/// A text for a frame, without zero bytes and cut: a peer's part of it may hold anything.
pub fn c_text(text: &[u8]) -> CString {
    let clean: Vec<u8> = text.iter().copied().filter(|b| *b != 0).take(MAX_TEXT).collect();
    CString::new(clean).unwrap_or_default()
}

impl Control {
    /// The socket that every worker is started with.
    pub fn inherited() -> Control {
        Control::new(Fd::from_raw(CONTROL))
    }

    /// On this socket.
    pub fn new(socket: Fd) -> Control {
        Control {
            socket,
            // From the kernel this comes zeroed, a page at a time as it is used.
            room: vec![0; ROOM].into(),
            written: Vec::with_capacity(ROOM),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            key: 0,
            told_of_room: false,
        }
    }

    /// Has the loop told of frames under `key`.
    pub fn watch(&mut self, epoll: &Epoll, key: u64) -> Result<(), WorkerEnd> {
        self.key = key;
        epoll
            .add_arrivals(&self.socket, key)
            .map_err(WorkerEnd::at("watching the control socket"))
    }

    /// The loop is about to wait: it is told of room only where frames wait for some. To be told always, as connections
    /// are, is a wake-up for each frame that the monitor reads: eight in a first login, and two calls for each of them.
    pub fn will_wait(&mut self, epoll: &Epoll) -> Result<(), WorkerEnd> {
        let tell = self.is_congested();
        if tell != self.told_of_room {
            epoll
                .tell_of_room(&self.socket, self.key, tell)
                .map_err(WorkerEnd::at("watching the control socket"))?;
            self.told_of_room = tell;
        }
        Ok(())
    }

    /// The next frame and the descriptors beside it; none: there is none now.
    pub fn receive<T: Decode>(&mut self) -> Result<Option<(T, Vec<Fd>)>, WorkerEnd> {
        let got = match socket::receive(&self.socket, &mut self.room, false) {
            Ok(got) => got,
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::ECONNRESET) => return Err(WorkerEnd::Quietly),
            Err(e) => return Err(WorkerEnd::Because(format!("reading from the monitor: {e}"))),
        };
        if got.len == 0 {
            return Err(WorkerEnd::Quietly);
        }
        let frame = &mut self.room[..got.len];
        let message = if got.truncated {
            Err(WorkerEnd::Because("a frame of the monitor was cut".to_owned()))
        } else {
            fleetgate_wire::decode(frame).map_err(WorkerEnd::at("a frame of the monitor"))
        };
        // States hold keys.
        frame.zeroize();
        Ok(Some((message?, got.fds)))
    }

    /// Says it, now or as soon as there is room.
    pub fn say<T: Encode>(&mut self, message: &T) -> Result<(), WorkerEnd> {
        self.write(message);
        self.send_written()
    }

    /// As [`Control::say`], unless that makes a longer frame than any may be: false.
    pub fn say_if_it_fits<T: Encode>(&mut self, message: &T) -> Result<bool, WorkerEnd> {
        self.write(message);
        if self.written.len() > MAX_FRAME {
            self.clear_written();
            return Ok(false);
        }
        self.send_written().map(|()| true)
    }

    fn write<T: Encode>(&mut self, message: &T) {
        self.written = fleetgate_wire::encode_in(std::mem::take(&mut self.written), message);
    }

    fn send_written(&mut self) -> Result<(), WorkerEnd> {
        let sent = self.waiting.is_empty() && self.send(&self.written)?;
        if !sent {
            self.waiting_bytes += self.written.len();
            self.waiting.push_back(self.written.clone());
        }
        self.clear_written();
        if sent {
            return Ok(());
        }
        if self.waiting_bytes > MAX_UNSENT_BYTES {
            return Err(WorkerEnd::Because("the monitor reads nothing".to_owned()));
        }
        Ok(())
    }

    /// What was written is wiped; the room stays. All of it was never touched, and is not now.
    fn clear_written(&mut self) {
        self.written.as_mut_slice().zeroize();
        self.written.clear();
    }

    /// Says what waits, as far as there is room.
    pub fn flush(&mut self) -> Result<(), WorkerEnd> {
        while let Some(mut frame) = self.waiting.pop_front() {
            if !self.send(&frame)? {
                self.waiting.push_front(frame);
                break;
            }
            self.waiting_bytes -= frame.len();
            frame.zeroize();
        }
        Ok(())
    }

    /// Whether something waits.
    pub fn is_congested(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn send(&self, frame: &[u8]) -> Result<bool, WorkerEnd> {
        match socket::send_now(&self.socket, frame, &[]) {
            Ok(()) => Ok(true),
            Err(Errno::EAGAIN) => Ok(false),
            Err(Errno::EPIPE | Errno::ECONNRESET) => Err(WorkerEnd::Quietly),
            Err(e) => Err(WorkerEnd::Because(format!("writing to the monitor: {e}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleetgate_wire::node::lobby::FromLobby;

    #[test]
    fn room_is_told_of_where_something_waits_for_it() {
        const KEY: u64 = 5;
        let (ours, monitor) = socket::pair().expect("a pair");
        let mut control = Control::new(ours);
        let mut reader = Control::new(monitor);
        let epoll = Epoll::new().expect("an epoll");
        control.watch(&epoll, KEY).expect("watched");
        let woken = |control: &mut Control| {
            let mut events = [fleetgate_sys::epoll::Event::EMPTY; 4];
            control.will_wait(&epoll).expect("watched");
            let count = epoll.wait(&mut events, Some(0)).expect("waited");
            events[..count]
                .iter()
                .any(|event| event.key() == KEY && event.writable())
        };
        let message = FromLobby::Auth {
            connection: 1,
            request: vec![7; 60_000],
        };
        // A frame that is read leaves room; nobody waits for it.
        control.say(&message).expect("there is room");
        assert!(!woken(&mut control));
        assert!(reader.receive::<FromLobby>().expect("frames").is_some());
        assert!(!woken(&mut control));

        while !control.is_congested() {
            control.say(&message).expect("there is room");
        }
        assert!(!woken(&mut control), "there is none");
        while reader.receive::<FromLobby>().expect("frames").is_some() {}
        assert!(woken(&mut control), "there is some");
        control.flush().expect("the other side is there");
        assert!(!control.is_congested());
        assert!(!woken(&mut control), "nothing waits for it any more");

        // Room that came between the frame that had none and the wait.
        while !control.is_congested() {
            control.say(&message).expect("there is room");
        }
        while reader.receive::<FromLobby>().expect("frames").is_some() {}
        assert!(woken(&mut control));
    }

    #[test]
    fn a_monitor_that_does_not_read_is_not_flooded() {
        let (ours, monitor) = socket::pair().expect("a pair");
        let mut control = Control::new(ours);
        let message = FromLobby::Auth {
            connection: 1,
            request: vec![7; 60_000],
        };
        let mut said = 0;
        while !control.is_congested() {
            control.say(&message).expect("there is room");
            said += 1;
        }
        // What waits is said, in order, as soon as there is room.
        let mut reader = Control::new(monitor);
        let mut heard = 0;
        while control.is_congested() || heard < said {
            let next = reader.receive::<FromLobby>().expect("frames");
            assert_eq!(next.map(|(w, _)| w), Some(message.clone()));
            heard += 1;
            control.flush().expect("the other side is there");
        }
        let ended = loop {
            if let Err(ended) = control.say(&message) {
                break ended;
            }
            said += 1;
        };
        assert!(matches!(ended, WorkerEnd::Because(why) if why.contains("reads nothing")));
        assert!(
            said * 60_000 > MAX_UNSENT_BYTES,
            "it is not given up early: {said}"
        );
    }
}
