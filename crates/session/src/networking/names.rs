//! Asking the resolver. Questions never wait: one that finds no room is asked again when there is.

use super::refusal;
use alloc::ffi::CString;
use alloc::vec::Vec;
use fleetgate_sys::net::Address;
use fleetgate_sys::{Errno, Fd, socket};
use fleetgate_wire::names::{About, Answer, Found, Question};
use fleetgate_wire::{Failure, Reason};

/// The longest answer that is read: some 370 addresses, of which sixteen are tried.
const MAX_ANSWER: usize = 8192;

/// The way to the resolver.
pub struct Names {
    /// None: it was not given, or is gone.
    socket: Option<Fd>,
    given: bool,
    last: u32,
}

/// One question, until it is answered.
pub struct Lookup {
    /// Its number on the resolver's socket.
    number: u32,
    name: CString,
    port: u16,
    deadline: i64,
    sent: bool,
}

/// What came from the resolver.
pub enum News {
    /// Nothing more.
    Nothing,
    /// The answer to this question.
    Answer(u32, Found),
    /// It is gone, or sent what is no answer; every open question is lost.
    Lost,
}

impl Names {
    /// Asks on `socket`.
    pub fn new(socket: Option<Fd>) -> Names {
        Names {
            given: socket.is_some(),
            socket,
            last: 0,
        }
    }

    /// The descriptor to wait on.
    pub fn socket(&self) -> Option<i32> {
        self.socket.as_ref().map(Fd::raw)
    }

    /// Asks for the addresses of `name`.
    pub fn ask(&mut self, name: CString, port: u16, now: i64, deadline: i64) -> Result<Lookup, Failure> {
        self.last = self.last.wrapping_add(1);
        let mut asked = Lookup {
            number: self.last,
            name,
            port,
            deadline,
            sent: false,
        };
        self.send(&mut asked, now)?;
        Ok(asked)
    }

    /// Sends the question unless that was done.
    pub fn send(&self, asked: &mut Lookup, now: i64) -> Result<(), Failure> {
        if asked.sent {
            return Ok(());
        }
        let Some(to) = &self.socket else {
            return Err(self.unreachable(asked));
        };
        let left = (asked.deadline - now).clamp(1_000_000, 600_000_000_000);
        let frame = fleetgate_wire::encode(&Question {
            id: asked.number,
            deadline_ms: u32::try_from(left / 1_000_000).unwrap_or(1),
            about: About::Host {
                name: asked.name.clone(),
                port: asked.port,
            },
        });
        match socket::send_now(to, &frame, &[]) {
            Ok(()) => asked.sent = true,
            Err(Errno::EAGAIN) => {}
            Err(_) => return Err(self.unreachable(asked)),
        }
        Ok(())
    }

    /// Why no name can be looked up now.
    pub fn unreachable(&self, asked: &Lookup) -> Failure {
        let (reason, errno, sentence) = if self.given {
            (
                Reason::System,
                Errno::EPIPE,
                "the resolver is gone; nobody can look up",
            )
        } else {
            (
                Reason::Unsupported,
                Errno(0),
                "no resolver was given with the order; nobody can look up",
            )
        };
        refusal::name(reason, errno, sentence, asked.name.as_bytes())
    }

    /// One answer, if there is one.
    pub fn receive(&mut self) -> News {
        let Some(from) = &self.socket else {
            return News::Nothing;
        };
        let mut buffer = [0u8; MAX_ANSWER];
        let news = match socket::receive(from, &mut buffer, false) {
            Err(Errno::EAGAIN) => return News::Nothing,
            Ok(message) if message.len > 0 && message.fds.is_empty() => {
                read(&buffer[..message.len], message.truncated)
            }
            _ => News::Lost,
        };
        if matches!(news, News::Lost) {
            self.socket = None;
        }
        news
    }
}

fn read(frame: &[u8], truncated: bool) -> News {
    // An answer beyond the buffer loses that question alone; its number is among the first bytes.
    if truncated && let Some(number) = frame.get(3..7) {
        let number = u32::from_le_bytes([number[0], number[1], number[2], number[3]]);
        let why = c"the answer is longer than 8192 bytes".into();
        return News::Answer(number, Found::Failed { why });
    }
    match fleetgate_wire::decode::<Answer>(frame) {
        Ok(answer) => News::Answer(answer.id, answer.found),
        Err(_) => News::Lost,
    }
}

impl Lookup {
    /// Whether it is the question with `number`.
    pub fn is(&self, number: u32) -> bool {
        self.number == number
    }

    /// Whether it still has to be sent.
    pub fn unsent(&self) -> bool {
        !self.sent
    }

    /// When it is given up.
    pub fn deadline(&self) -> i64 {
        self.deadline
    }

    /// No answer came in time.
    pub fn timed_out(&self) -> Failure {
        self.refused(
            Reason::TimedOut,
            Errno::ETIMEDOUT,
            "no answer in time to the question for",
        )
    }

    /// The addresses, or why there are none.
    pub fn addresses(&self, found: Found) -> Result<Vec<Address>, Failure> {
        let list: Vec<Address> = match found {
            Found::Host { addresses } => addresses
                .iter()
                .map(|e| Address {
                    ip: e.address,
                    scope: e.scope,
                    port: self.port,
                })
                .collect(),
            Found::Unknown => Vec::new(),
            Found::TimedOut => return Err(self.timed_out()),
            Found::Failed { why } => {
                let sentence =
                    alloc::format!("the name service failed ({})", refusal::printable(why.as_bytes()));
                return Err(self.refused(Reason::UnknownName, Errno::EIO, &sentence));
            }
            _ => {
                return Err(self.refused(
                    Reason::System,
                    Errno::EPROTO,
                    "the resolver answered something else for",
                ));
            }
        };
        if list.is_empty() {
            return Err(self.refused(Reason::UnknownName, Errno(0), "no such host"));
        }
        Ok(list)
    }

    fn refused(&self, reason: Reason, errno: Errno, sentence: &str) -> Failure {
        refusal::name(reason, errno, sentence, self.name.as_bytes())
    }
}
