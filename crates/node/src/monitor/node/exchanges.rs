//! Key exchanges that lobby and fronts want signed: each connection's in its own time, so that nobody who replaces his
//! keys without end has the monitor sign for him alone. What is signed, and that it may be, is `exchange`'s.

use super::Node;
use crate::monitor::connections::{Connection, Stage};
use crate::monitor::offer::Offer;
use crate::monitor::seats::Seat;
use crate::monitor::timers::now;
use crate::monitor::wakes::{Key, Owner};
use fleetgate_wire::node::Connection as Number;
use fleetgate_wire::node::front::ToFront;
use fleetgate_wire::node::lobby::ToLobby;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

impl Node {
    /// An exchange of this connection's, which is known to be whose it is asked for.
    pub(super) fn exchange(&mut self, number: Number, frame: Zeroizing<Vec<u8>>) {
        let Some(known) = self.connections.get(number) else {
            return;
        };
        match known.exchanges.due(now()) {
            Ok(()) => self.signs(number, &frame),
            Err(at) => match known.exchanges.hold(frame) {
                Ok(()) => {
                    self.tools.timers.at(at, Key::new(Owner::Exchanges, number));
                }
                Err(violation) => self.signs_not(number, &violation.0),
            },
        }
    }

    /// The time of one that was held has come.
    pub(super) fn exchange_due(&mut self, number: Number) {
        // The connection may be gone.
        if let Some(known) = self.connections.get(number)
            && let Some(frame) = known.exchanges.held()
        {
            self.exchange(number, frame);
        }
    }

    fn signs(&mut self, number: Number, frame: &[u8]) {
        let offer = self.offer.clone();
        let Some(known) = self.connections.get(number) else {
            return;
        };
        let open = matches!(known.stage, Stage::Open(..));
        let signed = sign(known, frame, &offer);
        if let Ok((_, _, took)) = &signed {
            self.timing(number, "exchange", *took);
        }
        match signed {
            Ok((signature, cookie, _)) if open => {
                let word = ToFront::Signed {
                    connection: number,
                    signature,
                    cookie,
                };
                self.tools.words.say(number, word, Vec::new());
            }
            Ok((signature, cookie, _)) => self.tell_lobby(&ToLobby::Signed {
                connection: number,
                signature,
                cookie,
            }),
            Err(why) => self.signs_not(number, &why),
        }
    }

    /// No honest process asks for this.
    fn signs_not(&mut self, number: Number, why: &str) {
        let (seat, id) = match self.connections.get(number).map(|c| &c.stage) {
            Some(Stage::Open(_, front)) => (Seat::Front, *front),
            _ => (Seat::Lobby, self.lobby.seat),
        };
        self.violated(seat, id, Some(number), why);
    }
}

/// Signs for a connection: what it was offered counts, and what is offered now.
fn sign(
    known: &mut Connection,
    exchange: &[u8],
    now_offered: &Arc<Offer>,
) -> Result<(Vec<u8>, [u8; 16], Duration), String> {
    let began = now();
    let own = known.offer.clone();
    let signed = known
        .exchanges
        .sign(exchange, &[&own, now_offered])
        .map_err(|violation| violation.0)?;
    Ok((signed.signature, signed.cookie, now().saturating_sub(began)))
}
