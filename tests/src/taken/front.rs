//! A front's seat: honest orders in steps, and a way to wait until the monitor has dealt with dishonest ones.

use super::lobby::{Side, settings, turn};
use super::{Accepted, Fate, Sitting};
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{ChannelKind, Event, Request, Stream};
use fleetgate_ssh::settings::Settings;
use fleetgate_sys::{Fd, file};
use fleetgate_wire::net::{Done, What};
use fleetgate_wire::node::front::{FromFront, Program, Start, Ticket, ToFront};
use fleetgate_wire::node::{self, FrontPermits, FrozenConnection};
use std::io::{Read, Write};
use std::sync::Arc;

/// The most that a session in a test prints.
const MAX_OUTPUT: u64 = 1 << 20;

/// The seat.
pub struct Front {
    /// Its socket.
    pub seat: Sitting,
    settings: Arc<Settings>,
    fences: Ticket,
}

/// A connection that the front was given.
pub struct Handed {
    /// Its number.
    pub number: node::ConnectionNumber,
    /// As the lobby froze it.
    pub frozen: FrozenConnection,
    /// What the monitor says that it may.
    pub permits: FrontPermits,
    /// For its next exchange.
    pub cookie: [u8; 16],
    /// Its socket.
    pub socket: Fd,
}

/// A command, as an order.
pub fn command(line: &str) -> Start {
    Start {
        program: Program::Exec {
            command: line.as_bytes().to_vec(),
        },
        terminal: None,
        environment: Vec::new(),
        agent: None,
        x11: None,
    }
}

impl Front {
    pub(super) fn sit(mut seat: Sitting) -> Front {
        let settings = match seat.hear() {
            Some((ToFront::Begin { settings: said }, _)) => settings(&said),
            other => panic!("the front is not told to begin: {other:?}"),
        };
        seat.say(&FromFront::Ready);
        Front {
            seat,
            settings,
            fences: 1 << 30,
        }
    }

    /// The next connection that is handed to it.
    pub fn handed(&mut self) -> Handed {
        let arrived = self.seat.hear_until(|word, mut fds| match word {
            ToFront::Arrived {
                connection,
                frozen,
                permits,
                cookie,
                ..
            } => Some(Handed {
                number: *connection,
                frozen: frozen.clone(),
                permits: *permits,
                cookie: *cookie,
                socket: fds.pop().expect("its socket"),
            }),
            _ => None,
        });
        arrived.expect("a connection is handed over").1
    }

    /// The same, and that it is the one which the lobby gave: frozen connection and socket.
    pub fn handed_as(&mut self, accepted: &mut Accepted) -> Handed {
        let handed = self.handed();
        assert_eq!(handed.number, accepted.arrival.number);
        assert_eq!(handed.frozen, accepted.frozen);
        file::write_all(handed.socket.raw(), b"here").expect("its socket is open");
        let mut got = [0; 4];
        accepted
            .arrival
            .client
            .read_exact(&mut got)
            .expect("the same connection");
        assert_eq!(&got, b"here");
        accepted.arrival.client.flush().expect("open");
        handed
    }

    /// Orders a session; its descriptors, or why there is none.
    pub fn start(
        &mut self,
        number: node::ConnectionNumber,
        ticket: Ticket,
        start: Start,
    ) -> Result<Vec<Fd>, String> {
        self.seat.say(&FromFront::Start {
            connection: number,
            ticket,
            start,
        });
        let answer = self.seat.hear_until(|word, fds| match word {
            ToFront::Started {
                connection,
                ticket: of,
                ..
            } if (*connection, *of) == (number, ticket) => Some(Ok(fds)),
            ToFront::NotStarted {
                connection,
                ticket: of,
                why,
                ..
            } if (*connection, *of) == (number, ticket) => Some(Err(crate::world::text(why))),
            _ => None,
        });
        answer.expect("an order is answered").1
    }

    /// Runs a command; what it prints.
    pub fn run(
        &mut self,
        number: node::ConnectionNumber,
        ticket: Ticket,
        line: &str,
    ) -> Result<String, String> {
        self.output(number, ticket, command(line))
    }

    /// Runs an order without a terminal; what it prints.
    pub fn output(
        &mut self,
        number: node::ConnectionNumber,
        ticket: Ticket,
        start: Start,
    ) -> Result<String, String> {
        let mut fds = self.start(number, ticket, start)?;
        assert_eq!(fds.len(), 3);
        fds.truncate(2);
        Ok(read_all(fds.pop().expect("two are left")))
    }

    /// Asks for a socket; the answer and what came with it.
    pub fn network(&mut self, number: node::ConnectionNumber, ticket: Ticket, what: What) -> (Done, Vec<Fd>) {
        self.seat.say(&FromFront::Network {
            connection: number,
            ticket,
            what,
        });
        let answer = self.seat.hear_until(|word, fds| match word {
            ToFront::Network {
                connection,
                ticket: of,
                done,
            } if (*connection, *of) == (number, ticket) => Some((done.clone(), fds)),
            _ => None,
        });
        answer.expect("a request is answered").1
    }

    /// Asks for a signature.
    pub fn sign(&mut self, number: node::ConnectionNumber, transcript: &[u8]) -> Option<(Vec<u8>, [u8; 16])> {
        self.seat.say(&FromFront::Sign {
            connection: number,
            exchange: transcript.to_vec(),
        });
        let signed = self.seat.hear_until(|word, _| match word {
            ToFront::Signed {
                connection,
                signature,
                cookie,
            } if *connection == number => Some((signature.clone(), *cookie)),
            _ => None,
        });
        signed.map(|(_, signed)| signed)
    }

    /// Asks for proofs of host keys. The outer None: it was ended instead.
    pub fn prove(
        &mut self,
        number: node::ConnectionNumber,
        keys: &[Vec<u8>],
    ) -> Option<Option<Vec<Vec<u8>>>> {
        self.fences += 1;
        let own = self.fences;
        let keys = keys.iter().map(|bytes| node::Blob { bytes: bytes.clone() });
        self.seat.say(&FromFront::Prove {
            connection: number,
            ticket: own,
            keys: keys.collect(),
        });
        let heard = self.seat.hear_until(|word, _| match word {
            ToFront::Proved {
                ticket, signatures, ..
            } if *ticket == own => Some(
                signatures
                    .as_ref()
                    .map(|all| all.iter().map(|s| s.bytes.clone()).collect()),
            ),
            _ => None,
        });
        heard.map(|(_, proofs)| proofs)
    }

    /// Waits until the monitor has dealt with all that was said, by a question about `witness`, a connection of this
    /// front's, that it answers at once; the words that came meanwhile. None: it ended the front instead.
    pub fn fence(&mut self, witness: node::ConnectionNumber) -> Option<Vec<ToFront>> {
        self.fences += 1;
        let own = self.fences;
        let said = self.seat.say(&FromFront::Prove {
            connection: witness,
            ticket: own,
            keys: Vec::new(),
        });
        if said == Fate::Ended {
            return None;
        }
        let heard = self.seat.hear_until(|word, _| match word {
            ToFront::Proved { ticket, .. } if *ticket == own => Some(()),
            _ => None,
        });
        heard.map(|(before, ())| before)
    }

    /// Does what an honest front does for a client that runs a command: through the frozen connection, its channels and
    /// the session's pipes; what the client reads.
    pub fn serve_command(&mut self, handed: &Handed, client: &mut Connection, line: &str) -> String {
        let mut server =
            Connection::thaw(handed.frozen.expose(), self.settings.clone()).expect("what was frozen");
        let channel = client.open(&ChannelKind::Session).expect("a client that is in");
        let exec = Request::Exec {
            command: line.as_bytes().to_vec(),
        };
        client.request(channel, &exec, true);
        let (mut read, mut asked) = (Vec::new(), None);
        loop {
            let next = turn(client, &mut server, &mut |side, event| match (side, event) {
                (Side::Server, Event::Open { channel, .. }) => Some(Next::Open(channel)),
                (
                    Side::Server,
                    Event::Request {
                        channel,
                        request: Request::Exec { command },
                        reply,
                    },
                ) => Some(Next::Exec(channel, command, reply)),
                (Side::Client, Event::Data { channel, bytes, .. }) => {
                    Some(Next::Data(channel, bytes.to_vec()))
                }
                _ => None,
            });
            match next {
                Some(Next::Open(channel)) => server.accept(channel),
                Some(Next::Exec(channel, command, reply)) => {
                    let line = String::from_utf8(command).expect("text");
                    let output = self.run(handed.number, 1, &line).expect("the session starts");
                    if let Some(reply) = reply {
                        server.answer(reply, true);
                    }
                    server.write(channel, Stream::Main, output.as_bytes());
                    server.close(channel);
                    asked = Some(line);
                }
                Some(Next::Data(channel, bytes)) => {
                    client.consumed(channel, bytes.len());
                    read.extend(bytes);
                }
                None => break,
            }
        }
        assert_eq!(asked.as_deref(), Some(line));
        String::from_utf8(read).expect("text")
    }
}

enum Next {
    Open(fleetgate_ssh::event::ChannelId),
    Exec(
        fleetgate_ssh::event::ChannelId,
        Vec<u8>,
        Option<fleetgate_ssh::event::ReplyId>,
    ),
    Data(fleetgate_ssh::event::ChannelId, Vec<u8>),
}

/// Everything that comes out of a descriptor up to its end.
pub fn read_all(fd: Fd) -> String {
    fd.set_nonblocking(false).expect("a descriptor");
    let mut text = String::new();
    let file = std::fs::File::from(std::os::fd::OwnedFd::from(fd));
    file.take(MAX_OUTPUT).read_to_string(&mut text).expect("text");
    text
}
