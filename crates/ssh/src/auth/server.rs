//! A server's side of a login: what may be received when, and the answers. The owner decides; between a request and its
//! answer nothing is read.

use super::prompts::Questions;
use super::{CONNECTION, Request, USERAUTH};
use crate::codec::{Malformed, Write, read_message};
use crate::event::{AuthAnswer, End, Event, Reason};
use crate::message::{
    SERVICE_ACCEPT, SERVICE_REQUEST, USERAUTH_60, USERAUTH_BANNER, USERAUTH_FAILURE, USERAUTH_INFO_RESPONSE,
    USERAUTH_REQUEST, USERAUTH_SUCCESS,
};
use crate::transport::Outbox;

/// Where a login stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody asked for the service yet.
    Fresh,
    /// A request may come.
    Open,
    /// The owner decides.
    Deciding,
    /// The user is asked questions.
    Asking,
    /// In.
    Done,
}

/// One login.
#[derive(Debug)]
pub(crate) struct Server {
    state: State,
    /// A try was turned down.
    refused: bool,
}

impl Server {
    pub(crate) fn new() -> Server {
        Server {
            state: State::Fresh,
            refused: false,
        }
    }

    /// One that is over and went well: of a connection that was moved here.
    pub(crate) fn logged_in() -> Server {
        Server {
            state: State::Done,
            refused: false,
        }
    }

    /// Whether a try was turned down. A client may have sent behind it what a login would have let it do.
    pub(crate) fn refused(&self) -> bool {
        self.refused
    }

    /// Whether an answer is owed; until then nothing may be received.
    pub(crate) fn deciding(&self) -> bool {
        self.state == State::Deciding
    }

    /// Whether the user is in, and channels may be opened.
    pub(crate) fn done(&self) -> bool {
        self.state == State::Done
    }

    /// Takes a SERVICE_REQUEST or a message numbered 50 to 79.
    pub(crate) fn receive<'a>(
        &mut self,
        payload: &'a [u8],
        out: &mut impl Outbox,
    ) -> Result<Option<Event<'a>>, End> {
        let number = *payload.first().ok_or_else(|| out_of_place(0))?;
        match (number, self.state) {
            (SERVICE_REQUEST, _) => self.service(payload, out).map(|()| None),
            // RFC 4252 §5.1: further requests after a success are silently ignored.
            (USERAUTH_REQUEST, State::Done) => Ok(None),
            // RFC 4256 §3.1: a new request abandons the questions of the one before.
            (USERAUTH_REQUEST, State::Open | State::Asking) => {
                let request = Request::parse(payload).map_err(|e| End::malformed("USERAUTH_REQUEST", e))?;
                if request.service != CONNECTION {
                    return Err(no_service(request.service));
                }
                self.state = State::Deciding;
                Ok(Some(Event::Auth(payload)))
            }
            (USERAUTH_INFO_RESPONSE, State::Asking) => {
                super::InfoResponse::parse(payload)
                    .map_err(|e| End::malformed("USERAUTH_INFO_RESPONSE", e))?;
                self.state = State::Deciding;
                Ok(Some(Event::AuthInfo(payload)))
            }
            _ => Err(out_of_place(number)),
        }
    }

    /// The owner's decision. There is one for each [`Event::Auth`] and [`Event::AuthInfo`]; any other is dropped.
    pub(crate) fn answer(&mut self, answer: AuthAnswer, out: &mut impl Outbox) {
        debug_assert!(self.deciding(), "an answer that nobody asked for");
        if !self.deciding() {
            return;
        }
        self.state = State::Open;
        match answer {
            AuthAnswer::Accept => {
                self.state = State::Done;
                out.packet(|p| p.put_u8(USERAUTH_SUCCESS));
            }
            AuthAnswer::Reject { methods, partial } => {
                self.refused = true;
                out.packet(|p| {
                    p.put_u8(USERAUTH_FAILURE);
                    p.put_names(&methods.iter().map(String::as_str).collect::<Vec<_>>());
                    p.put_bool(partial);
                });
            }
            AuthAnswer::KeyOk { algorithm, key } => out.packet(|p| {
                p.put_u8(USERAUTH_60);
                p.put_string(algorithm);
                p.put_string(key);
            }),
            AuthAnswer::Ask {
                name,
                instruction,
                prompts,
            } => {
                self.state = State::Asking;
                out.packet(|p| Questions::write(p, &name, &instruction, &prompts));
            }
        }
    }

    /// Text to show; dropped after the login (RFC 4252 §5.4: only before).
    pub(crate) fn banner(&self, text: &[u8], out: &mut impl Outbox) {
        if !self.done() {
            out.packet(|p| {
                p.put_u8(USERAUTH_BANNER);
                p.put_string(text);
                p.put_string("");
            });
        }
    }

    /// RFC 4253 §10. Some clients ask anew before each try.
    fn service(&mut self, payload: &[u8], out: &mut impl Outbox) -> Result<(), End> {
        let name = service_name(payload).map_err(|e| End::malformed("SERVICE_REQUEST", e))?;
        match self.state {
            State::Fresh | State::Open | State::Asking if name == USERAUTH => self.state = State::Open,
            State::Done if name == CONNECTION => {}
            _ => return Err(no_service(name)),
        }
        out.packet(|p| {
            p.put_u8(SERVICE_ACCEPT);
            p.put_string(name);
        });
        Ok(())
    }
}

/// Of SERVICE_REQUEST and SERVICE_ACCEPT.
pub(super) fn service_name(payload: &[u8]) -> Result<&str, Malformed> {
    read_message(payload, |r| r.text("service"))
}

/// A message that may not come now.
pub(super) fn out_of_place(number: u8) -> End {
    End::protocol(format!("message {number} has no place here in a login"))
}

fn no_service(name: &str) -> End {
    let name: String = name.chars().take(64).collect();
    End::ours(
        Reason::ServiceNotAvailable,
        format!("there is no service {name:?} now"),
    )
}
