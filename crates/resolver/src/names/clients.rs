//! The sockets on which questions come. One that sends anything but questions is closed; one that does not read its
//! answers is read no further until it does. Neither touches another.

use fleetgate_sys::poll::{CLOSED, READ, WRITE, Watch};
use fleetgate_sys::{Errno, Fd, socket};
use fleetgate_wire::MAX_INLINE;
use fleetgate_wire::names::{Answer, MAX_UNANSWERED, Question};
use std::collections::VecDeque;

/// The most look-up sockets at once.
const MAX_CLIENTS: usize = 512;
/// The most questions read from one socket before the others have their turn.
const MAX_PER_TURN: usize = 16;
/// The longest question: a full list of ids and the rest of the frame.
const MAX_QUESTION: usize = 8 << 10;

struct Client {
    number: u64,
    socket: Fd,
    /// Questions without an answer yet.
    unanswered: usize,
    /// Answers that the socket had no room for.
    waiting: VecDeque<Vec<u8>>,
    broken: bool,
}

/// All of them.
#[derive(Default)]
pub struct Clients {
    list: Vec<Client>,
    next: u64,
}

impl Clients {
    /// Takes one more; beyond the bound it is closed, which its other end sees.
    pub fn add(&mut self, socket: Fd) {
        if self.list.len() >= MAX_CLIENTS {
            crate::log(format_args!(
                "{MAX_CLIENTS} look-up sockets are open, one more is refused"
            ));
            return;
        }
        if socket.set_nonblocking(true).is_err() {
            return;
        }
        self.next += 1;
        self.list.push(Client {
            number: self.next,
            socket,
            unanswered: 0,
            waiting: VecDeque::new(),
            broken: false,
        });
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds what is to be waited for.
    pub fn watch(&self, watches: &mut Vec<Watch>) {
        for client in &self.list {
            let events = if !client.waiting.is_empty() {
                WRITE
            } else if client.unanswered < MAX_UNANSWERED {
                READ
            } else {
                0
            };
            watches.push(Watch::new(client.socket.raw(), events));
        }
    }

    /// Reads questions and writes waiting answers; also says which clients are gone.
    pub fn collect(&mut self, ready: &[Watch]) -> (Vec<(u64, Question)>, Vec<u64>) {
        let mut questions = Vec::new();
        let mut buffer = [0u8; MAX_QUESTION];
        for client in &mut self.list {
            let Some(news) = ready.iter().find(|w| w.fd() == client.socket.raw()) else {
                continue;
            };
            if news.happened() == 0 {
                continue;
            }
            // The other end is closed: nobody would read an answer, so what it asked last is not read either.
            client.broken |= news.happened() & CLOSED != 0;
            client.flush();
            client.read(&mut buffer, &mut questions);
        }
        let gone = self.list.iter().filter(|c| c.broken).map(|c| c.number).collect();
        self.list.retain(|c| !c.broken);
        (questions, gone)
    }

    /// Answers; nobody there any more: it is dropped.
    pub fn answer(&mut self, client: u64, answer: &Answer) {
        if let Some(client) = self.list.iter_mut().find(|c| c.number == client) {
            client.unanswered = client.unanswered.saturating_sub(1);
            let frame = fleetgate_wire::encode(answer);
            debug_assert!(frame.len() <= MAX_INLINE);
            client.waiting.push_back(frame);
            client.flush();
        }
    }
}

impl Client {
    fn flush(&mut self) {
        while !self.broken
            && let Some(frame) = self.waiting.front()
        {
            match socket::send(&self.socket, frame, &[]) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(Errno::EAGAIN) => return,
                Err(_) => {
                    self.broken = true;
                    return;
                }
            }
        }
    }

    fn read(&mut self, buffer: &mut [u8], questions: &mut Vec<(u64, Question)>) {
        for _ in 0..MAX_PER_TURN {
            if self.broken || !self.waiting.is_empty() || self.unanswered >= MAX_UNANSWERED {
                return;
            }
            match socket::receive(&self.socket, buffer, false) {
                Ok(m) if m.len > 0 && !m.truncated && m.fds.is_empty() => {
                    match fleetgate_wire::decode::<Question>(&buffer[..m.len]) {
                        Ok(question) => {
                            self.unanswered += 1;
                            questions.push((self.number, question));
                        }
                        Err(e) => {
                            crate::log(format_args!("a look-up socket is closed: {e}"));
                            self.broken = true;
                        }
                    }
                }
                Err(Errno::EAGAIN) => return,
                _ => self.broken = true,
            }
        }
    }
}
