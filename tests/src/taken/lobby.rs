//! The lobby's seat. What an honest lobby says is here, in steps, so that a test can say something else at any of them.

use super::{Fate, Key, Node, Sitting};
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{AuthAnswer, AuthReply, Event, Exchange};
use fleetgate_ssh::kex::Method;
use fleetgate_ssh::settings::{HostKeyOffer, Settings};
use fleetgate_sys::Fd;
use fleetgate_wire::node::lobby::{FromLobby, ToLobby};
use fleetgate_wire::node::{self, FrozenConnection, Verdict};
use std::net::TcpStream;
use std::sync::Arc;

/// The seat.
pub struct Lobby {
    /// Its socket.
    pub seat: Sitting,
    settings: Arc<Settings>,
}

/// A connection that the lobby was told of.
pub struct Arrival {
    /// Its number.
    pub number: node::ConnectionNumber,
    /// For its first exchange.
    pub cookie: [u8; 16],
    /// The client's end.
    pub client: TcpStream,
    /// The lobby's.
    pub socket: Fd,
}

/// A client and a server that talk to each other in memory, on behalf of a connection that arrived.
pub struct Visit {
    /// The connection.
    pub arrival: Arrival,
    /// The client.
    pub client: Connection,
    /// What an honest lobby has.
    pub server: Connection,
    /// The transcript that an honest lobby has signed, as it is sent.
    pub transcript: Vec<u8>,
}

/// Somebody who was let in.
pub struct Accepted {
    /// His connection.
    pub arrival: Arrival,
    /// His client.
    pub client: Connection,
    /// The connection, frozen for its front.
    pub frozen: FrozenConnection,
    /// The session id, as both of them know it.
    pub session_id: Vec<u8>,
    /// The request that let him in.
    pub request: Vec<u8>,
    /// The transcript of his first exchange.
    pub transcript: Vec<u8>,
}

/// Who of a visit has an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// The monitor's settings for a core of ours.
pub(super) fn settings(from: &node::Settings) -> Arc<Settings> {
    let offers = from.host_keys.iter().flat_map(|key| {
        key.algorithms.iter().map(|algorithm| HostKeyOffer {
            algorithm: crate::world::text(algorithm),
            blob: key.blob.clone(),
        })
    });
    Arc::new(Settings {
        software: crate::world::text(&from.software),
        // The quickest, unoptimised.
        kex: vec![Method::Curve25519],
        host_keys: offers.collect(),
        ..Settings::default()
    })
}

impl Lobby {
    pub(super) fn sit(mut seat: Sitting) -> Lobby {
        let settings = match seat.hear() {
            Some((ToLobby::Begin { settings: said }, _)) => settings(&said),
            other => panic!("the lobby is not told to begin: {other:?}"),
        };
        seat.say(&FromLobby::Ready);
        Lobby { seat, settings }
    }

    /// Connects, and hears of it.
    pub fn arrive(&mut self, node: &Node) -> Arrival {
        let client = TcpStream::connect(node.address()).expect("the monitor listens");
        let arrived = self.seat.hear_until(|word, mut fds| match word {
            ToLobby::Arrived {
                connection, cookie, ..
            } => Some((*connection, *cookie, fds.pop().expect("its socket"))),
            _ => None,
        });
        let (_, (number, cookie, socket)) = arrived.expect("the lobby is told of a connection");
        Arrival {
            number,
            cookie,
            client,
            socket,
        }
    }

    /// A visit up to the point where the transcript is to be signed; the transcript as an honest lobby has it.
    pub fn begin(&self, arrival: Arrival, cookie: [u8; 16]) -> (Visit, Exchange) {
        let client = Settings {
            kex: self.settings.kex.clone(),
            ..Settings::default()
        };
        let mut visit = Visit {
            client: Connection::client(Arc::new(client)),
            server: Connection::server(self.settings.clone(), cookie),
            arrival,
            transcript: Vec::new(),
        };
        let exchange = visit.turn(|_, event| match event {
            Event::SignExchange(exchange) => Some(*exchange),
            _ => None,
        });
        let exchange = exchange.expect("an exchange comes to its signature");
        visit.transcript = exchange.encode().to_vec();
        (visit, exchange)
    }

    /// Asks for a signature; the signature and the next cookie. None: the monitor gave none.
    pub fn sign(&mut self, number: node::ConnectionNumber, transcript: &[u8]) -> Option<(Vec<u8>, [u8; 16])> {
        self.seat.say(&FromLobby::Sign {
            connection: number,
            exchange: transcript.to_vec(),
        });
        let signed = self.seat.hear_until(|word, _| match word {
            ToLobby::Signed {
                connection,
                signature,
                cookie,
            } if *connection == number => Some((signature.clone(), *cookie)),
            _ => None,
        });
        signed.map(|(_, signed)| signed)
    }

    /// A visit that has keys on both sides.
    pub fn establish(&mut self, node: &Node) -> Visit {
        let arrival = self.arrive(node);
        let cookie = arrival.cookie;
        let (mut visit, _) = self.begin(arrival, cookie);
        let signed = self.sign(visit.arrival.number, &visit.transcript);
        let (signature, next) = signed.expect("an honest exchange is signed");
        visit.signed(&signature, next);
        visit
    }

    /// Asks for a login by these bytes; the answer. None: the lobby was ended.
    pub fn ask(&mut self, number: node::ConnectionNumber, request: &[u8]) -> Option<Verdict> {
        self.seat.say(&FromLobby::Auth {
            connection: number,
            request: request.to_vec(),
        });
        self.verdict(number)
    }

    /// The next verdict about this connection.
    pub fn verdict(&mut self, number: node::ConnectionNumber) -> Option<Verdict> {
        let heard = self.seat.hear_until(|word, _| match word {
            ToLobby::Verdict { connection, verdict } if *connection == number => Some(verdict.clone()),
            _ => None,
        });
        heard.map(|(_, verdict)| verdict)
    }

    /// Logs the visitor in and freezes the connection.
    pub fn log_in(&mut self, mut visit: Visit, key: &Key, user: &str) -> Accepted {
        let session_id = visit.client.session_id().expect("there are keys").to_vec();
        let request = key.request(&session_id, user);
        visit.client.authenticate(&request);
        let asked = visit.turn(|_, event| match event {
            Event::Auth(request) => Some(request.to_vec()),
            _ => None,
        });
        assert_eq!(asked.as_ref(), Some(&request));
        assert_eq!(
            self.ask(visit.arrival.number, &request),
            Some(Verdict::Accepted { notes: Vec::new() })
        );
        visit.server.answer_auth(AuthAnswer::Accept);
        let accepted = visit.turn(|_, event| match event {
            Event::AuthReply(AuthReply::Accepted) => Some(()),
            _ => None,
        });
        assert_eq!(accepted, Some(()), "the client hears that it is in");
        assert!(visit.server.may_move());
        Accepted {
            frozen: FrozenConnection::new(visit.server.freeze().expect("it may move").to_vec()),
            arrival: visit.arrival,
            client: visit.client,
            session_id,
            request,
            transcript: visit.transcript,
        }
    }

    /// A login from its arrival to the frozen connection.
    pub fn let_in(&mut self, node: &Node, key: &Key, user: &str) -> Accepted {
        let visit = self.establish(node);
        self.log_in(visit, key, user)
    }

    /// Hands it over.
    pub fn hand_over(&self, accepted: &Accepted) -> Fate {
        self.seat.say(&FromLobby::HandOver {
            connection: accepted.arrival.number,
            frozen: accepted.frozen.clone(),
        })
    }

    /// Waits until the monitor has dealt with all that was said, by a question on the connection `witness` that it answers
    /// at once; the words that came meanwhile. None: it ended the lobby instead.
    pub fn fence(&mut self, witness: &Arrival) -> Option<Vec<ToLobby>> {
        self.seat.say(&FromLobby::AuthInfo {
            connection: witness.number,
            response: Vec::new(),
        });
        let witness = witness.number;
        let heard = self.seat.hear_until(|word, _| match word {
            ToLobby::Verdict {
                connection,
                verdict: Verdict::End { .. },
            } if *connection == witness => Some(()),
            _ => None,
        });
        heard.map(|(before, ())| before)
    }
}

impl Visit {
    /// Gives both sides what the other one sent until `wanted` takes an event; none: they have nothing more to say.
    pub fn turn<R>(&mut self, mut wanted: impl FnMut(Side, Event<'_>) -> Option<R>) -> Option<R> {
        turn(&mut self.client, &mut self.server, &mut wanted)
    }

    /// The signature came: both sides get their keys.
    pub fn signed(&mut self, signature: &[u8], next: [u8; 16]) {
        self.server.signed(signature, next);
        while let Some(()) = self.turn(|side, event| match (side, event) {
            (Side::Client, Event::HostKey(_)) => Some(()),
            _ => None,
        }) {
            self.client.trust_host(true);
        }
        assert_eq!(self.client.info().exchanges, 1, "the client has keys");
        assert_eq!(self.client.session_id(), self.server.session_id());
    }
}

/// See [`Visit::turn`].
pub fn turn<R>(
    client: &mut Connection,
    server: &mut Connection,
    wanted: &mut impl FnMut(Side, Event<'_>) -> Option<R>,
) -> Option<R> {
    loop {
        let moved = carry(client, server) | carry(server, client);
        for (side, connection) in [(Side::Client, &mut *client), (Side::Server, &mut *server)] {
            while let Some(event) = connection.poll().expect("an honest peer") {
                if let Some(found) = wanted(side, event) {
                    return Some(found);
                }
            }
        }
        if !moved && client.output().is_empty() && server.output().is_empty() {
            return None;
        }
    }
}

fn carry(from: &mut Connection, to: &mut Connection) -> bool {
    let n = from.output().len();
    if n == 0 {
        return false;
    }
    to.room(n)[..n].copy_from_slice(from.output());
    to.received(n);
    from.sent(n);
    true
}
