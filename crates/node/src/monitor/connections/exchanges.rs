//! Key exchanges that lobby and fronts want signed. The monitor is no oracle: it gives a cookie for each exchange, hashes
//! the transcript that it is handed itself, finds its cookie in it, and signs once. The first hash is the connection's
//! session id.
//!
//! Each connection's exchanges are signed in its own time, so that a client that replaces its keys without end does not have
//! the monitor sign for it alone.

use super::Connection;
use crate::config::offer::Offer;
use crate::monitor::Monitor;
use crate::monitor::timers::now;
use crate::monitor::wakes::{Key, Owner};
use crate::monitor::workers::WorkerKind;
use fleetgate_ssh::event::Exchange;
use fleetgate_sys::{Errno, net};
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::front::ToFront;
use fleetgate_wire::node::lobby::ToLobby;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// Exchanges of one connection that are signed without delay. A client that replaces its keys after each megabyte comes
/// to some.
pub const AT_ONCE: u32 = 128;
/// Beyond them one is signed each such time: a signature is work of the monitor, which everybody waits for.
pub const EVERY: Duration = Duration::from_millis(40);

/// One connection's exchanges.
pub struct Exchanges {
    /// Given and not used yet.
    cookie: [u8; 16],
    session_id: Option<Vec<u8>>,
    host_key: Vec<u8>,
    /// Until when the exchanges so far would have taken, had each waited for its time.
    paid: Duration,
    /// A transcript whose time has not come. It holds the shared secret.
    held: Option<Zeroizing<Vec<u8>>>,
}

/// What was asked for is not what an honest process asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A signature, and the cookie of the next exchange.
#[derive(Debug)]
pub struct ExchangeSignature {
    /// A blob.
    pub signature: Vec<u8>,
    /// Good for one.
    pub cookie: [u8; 16],
}

/// A cookie that nobody can guess.
pub fn cookie() -> Result<[u8; 16], Errno> {
    let mut cookie = [0; 16];
    net::random(&mut cookie)?;
    Ok(cookie)
}

impl Exchanges {
    /// None yet; the first has to have this cookie.
    pub fn new(cookie: [u8; 16]) -> Exchanges {
        Exchanges {
            cookie,
            session_id: None,
            host_key: Vec::new(),
            paid: Duration::ZERO,
            held: None,
        }
    }

    /// Whether one may be signed now, which then counts; or when.
    pub fn due(&mut self, now: Duration) -> Result<(), Duration> {
        let paid = self.paid.max(now);
        let earliest = paid.saturating_sub(EVERY * (AT_ONCE - 1));
        if earliest > now {
            return Err(earliest);
        }
        self.paid = paid + EVERY;
        Ok(())
    }

    /// Keeps a transcript until its time has come. An honest process has no second one before the first is signed.
    pub fn hold(&mut self, transcript: Zeroizing<Vec<u8>>) -> Result<(), Violation> {
        if self.held.is_some() {
            return Err(Violation(
                "an exchange is to be signed before the last one was".to_owned(),
            ));
        }
        self.held = Some(transcript);
        Ok(())
    }

    /// Takes it back.
    pub fn held(&mut self) -> Option<Zeroizing<Vec<u8>>> {
        self.held.take()
    }

    /// The cookie of the next exchange, for the process that the connection moves to.
    pub fn next_cookie(&self) -> [u8; 16] {
        self.cookie
    }

    /// The first exchange's hash, once it was signed.
    pub fn session_id(&self) -> Option<&[u8]> {
        self.session_id.as_deref()
    }

    /// The host key or certificate of the first exchange.
    pub fn host_key(&self) -> &[u8] {
        &self.host_key
    }

    /// Signs the exchange whose encoded transcript this is, if it is one of this connection under one
    /// of these offers: the one that it came under, or today's.
    pub fn sign(&mut self, transcript: &[u8], offers: &[&Offer]) -> Result<ExchangeSignature, Violation> {
        let bad = |why: &str| Violation(why.to_owned());
        let exchange = Exchange::decode(transcript)
            .map_err(|e| Violation(format!("the transcript cannot be read: {e}")))?;
        if exchange.server_cookie() != Some(self.cookie) {
            return Err(bad("the transcript's cookie is not the one that was given"));
        }
        let fits = |offer: &&&Offer| {
            offer.version == exchange.server_version && offer.methods.contains(&exchange.kex.as_str())
        };
        let key = offers
            .iter()
            .filter(fits)
            .find_map(|o| o.keys.find(&exchange.host_key_algorithm, &exchange.host_key))
            .ok_or_else(|| bad("the transcript has a version, method or host key that is not ours"))?;
        let hash = exchange
            .hash()
            .ok_or_else(|| bad("the transcript's method is not known"))?;
        let next = cookie().map_err(|e| Violation(format!("no random bytes: {e}")))?;
        let signature = key
            .sign(&exchange.host_key_algorithm, hash.as_ref())
            .map_err(|e| Violation(format!("the host key does not sign: {e}")))?;
        self.cookie = next;
        if self.session_id.is_none() {
            self.session_id = Some(hash.as_ref().to_vec());
            self.host_key.clone_from(&exchange.host_key);
        }
        Ok(ExchangeSignature {
            signature,
            cookie: next,
        })
    }
}

impl Monitor {
    /// An exchange of this connection's, which is known to be whose it is asked for.
    pub(crate) fn sign_when_due(&mut self, number: ConnectionNumber, transcript: Zeroizing<Vec<u8>>) {
        let Some(known) = self.connections.get(number) else {
            return;
        };
        match known.exchanges.due(now()) {
            Ok(()) => self.sign_and_answer(number, &transcript),
            Err(at) => match known.exchanges.hold(transcript) {
                Ok(()) => {
                    self.tools.timers.at(at, Key::new(Owner::Exchanges, number));
                }
                Err(violation) => self.refuse_to_sign(number, &violation.0),
            },
        }
    }

    /// The time of one that was held has come.
    pub(crate) fn exchange_due(&mut self, number: ConnectionNumber) {
        // The connection may be gone.
        if let Some(known) = self.connections.get(number)
            && let Some(transcript) = known.exchanges.held()
        {
            self.sign_when_due(number, transcript);
        }
    }

    fn sign_and_answer(&mut self, number: ConnectionNumber, transcript: &[u8]) {
        let offer = self.offer.clone();
        let Some(known) = self.connections.get(number) else {
            return;
        };
        let open = known.front().is_some();
        let signed = sign_under_offers(known, transcript, &offer);
        if let Ok((_, _, took)) = &signed {
            self.timing(number, "exchange", *took);
        }
        match signed {
            Ok((signature, cookie, _)) if open => {
                let message = ToFront::Signed {
                    connection: number,
                    signature,
                    cookie,
                };
                self.tools.to_fronts.say(number, message, Vec::new());
            }
            Ok((signature, cookie, _)) => self.tell_lobby(&ToLobby::Signed {
                connection: number,
                signature,
                cookie,
            }),
            Err(why) => self.refuse_to_sign(number, &why),
        }
    }

    /// No honest process asks for this.
    fn refuse_to_sign(&mut self, number: ConnectionNumber, why: &str) {
        let front = self.connections.get(number).and_then(|known| known.front());
        let (worker, id) = match front {
            Some(front) => (WorkerKind::Front, front),
            None => (WorkerKind::Lobby, self.lobby.worker),
        };
        self.violated(worker, id, Some(number), why);
    }
}

/// Signs for a connection: what it was offered counts, and what is offered now.
fn sign_under_offers(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_of_one_connection_are_bounded_in_time() {
        let mut one = Exchanges::new([0; 16]);
        let start = Duration::from_secs(1000);
        for _ in 0..AT_ONCE {
            assert_eq!(one.due(start), Ok(()));
        }
        assert_eq!(one.due(start), Err(start + EVERY));
        // Asking in vain costs nothing, and each one after that has its time.
        for n in 1..100 {
            assert_eq!(one.due(start + EVERY * n), Ok(()), "{n}");
            assert_eq!(one.due(start + EVERY * n), Err(start + EVERY * (n + 1)), "{n}");
        }
        // Who was quiet for long has them all again, and no more.
        let later = start + EVERY * 10_000;
        assert_eq!(
            (0..1000).filter(|_| one.due(later).is_ok()).count(),
            AT_ONCE as usize
        );
        assert!(one.hold(vec![1].into()).is_ok());
        assert!(one.hold(vec![2].into()).is_err());
        assert_eq!(one.held().map(|f| f.to_vec()), Some(vec![1]));
        assert!(one.held().is_none());
    }
}
