//! The tunnel, held by the test: what it was told at its beginning, and sessions that it makes up.

use super::{Fate, Sitting};
use fleetgate_sys::Fd;
use fleetgate_wire::common::Endpoint;
use fleetgate_wire::node::tunnel::{FromTunnel, ProxyStatement, Settings, ToTunnel};
use std::ffi::CString;

/// The tunnel.
pub struct Tunnel {
    /// Its socket.
    pub seat: Sitting,
    /// What it was told first.
    pub settings: Settings,
}

impl Tunnel {
    pub(super) fn sit(mut seat: Sitting) -> Tunnel {
        let settings = match seat.hear() {
            Some((ToTunnel::Begin { settings }, _)) => settings,
            other => panic!("not its beginning: {other:?}"),
        };
        seat.say(&FromTunnel::Ready);
        Tunnel { seat, settings }
    }

    /// Says a word.
    pub fn say(&self, word: &FromTunnel) -> Fate {
        self.seat.say(word)
    }

    /// Whether the monitor ends it; what it hears before that is passed over.
    pub fn is_ended(&mut self) -> bool {
        while self.seat.hear::<ToTunnel>().is_some() {}
        true
    }

    /// A signature, or the end.
    pub fn signature(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        self.say(&FromTunnel::Sign {
            ticket: 7,
            message: message.to_vec(),
        });
        let found = self.seat.hear_until(|word: &ToTunnel, _| match word {
            ToTunnel::Signed { ticket: 7, signature } => Some(signature.clone()),
            _ => None,
        });
        found.and_then(|(_, signature)| signature)
    }

    /// A session from this address: its socket, or the sentence that refuses it.
    pub fn session(&mut self, ticket: u64, source: [u8; 4], first: &[u8]) -> Result<Fd, CString> {
        let mut address = [0; 16];
        address[10..12].copy_from_slice(&[0xff; 2]);
        address[12..].copy_from_slice(&source);
        self.say(&FromTunnel::Arrived {
            ticket,
            vouched: ProxyStatement {
                source: Endpoint {
                    address,
                    scope: 0,
                    port: 4711,
                },
                proxy: c"p1".into(),
                user: c"ann".into(),
                trace: Vec::new(),
                explain: false,
            },
            first: first.to_vec(),
        });
        let answer = self.seat.hear_until(|word: &ToTunnel, mut fds| match word {
            ToTunnel::Session { ticket: of } if *of == ticket => Some(Ok(fds.remove(0))),
            ToTunnel::NotTaken { ticket: of, why } if *of == ticket => Some(Err(why.clone())),
            _ => None,
        });
        answer.expect("an answer").1
    }
}
