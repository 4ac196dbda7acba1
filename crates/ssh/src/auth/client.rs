//! A client's side of a login. Its first request goes out behind SERVICE_REQUEST, and whatever is to be done after the
//! login may go out behind that: nothing here waits.

use super::prompts::{InfoResponse, Questions};
use super::server::{out_of_place, service_name};
use super::{Method, Request, USERAUTH};
use crate::codec::{Malformed, Write, read_message};
use crate::event::{AuthReply, End, Event};
use crate::message::{
    SERVICE_ACCEPT, SERVICE_REQUEST, USERAUTH_60, USERAUTH_BANNER, USERAUTH_FAILURE, USERAUTH_SUCCESS,
};
use crate::transport::Outbox;
use std::collections::VecDeque;

/// Names in a refusal's list of methods, at most.
const MAX_METHODS: usize = 64;

/// What a request asked for, to know what message 60 means in the answer to it.
#[derive(Debug, PartialEq, Eq)]
enum OpenRequest {
    /// Only yes or no is an answer.
    Login,
    /// Whether this key of this algorithm would do.
    Key { algorithm: String, key: Vec<u8> },
    /// To be asked questions.
    Questions,
}

/// Whether the service that logs in was asked for and is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    NotRequested,
    Requested,
    Accepted,
}

/// One login.
#[derive(Debug)]
pub(crate) struct Client {
    service: Service,
    /// Requests without an answer, first sent first (RFC 4252 §5.1: answered in order).
    requests: VecDeque<OpenRequest>,
    done: bool,
}

impl Client {
    pub(crate) fn new() -> Client {
        Client {
            service: Service::NotRequested,
            requests: VecDeque::new(),
            done: false,
        }
    }

    /// One that is over and went well: of a connection that was moved here.
    pub(crate) fn logged_in() -> Client {
        Client {
            service: Service::Accepted,
            requests: VecDeque::new(),
            done: true,
        }
    }

    /// Whether we are in.
    pub(crate) fn done(&self) -> bool {
        self.done
    }

    /// Whether a login was asked for: channels may be opened ahead behind it.
    pub(crate) fn asked(&self) -> bool {
        self.done || !self.requests.is_empty()
    }

    /// Sends a request made by [`Request`]. Dropped when we are in.
    pub(crate) fn authenticate(&mut self, request: &[u8], out: &mut impl Outbox) {
        if self.done {
            return;
        }
        if self.service == Service::NotRequested {
            self.service = Service::Requested;
            out.packet(|p| {
                p.put_u8(SERVICE_REQUEST);
                p.put_string(USERAUTH);
            });
        }
        self.requests
            .push_back(match Request::parse(request).map(|r| r.method) {
                Ok(Method::PublicKey(key)) if key.signature.is_none() => OpenRequest::Key {
                    algorithm: key.algorithm.to_owned(),
                    key: key.key.to_vec(),
                },
                Ok(Method::KeyboardInteractive { .. }) => OpenRequest::Questions,
                _ => OpenRequest::Login,
            });
        out.packet(|p| p.put(request));
    }

    /// Sends the answers to [`AuthReply::Ask`].
    pub(crate) fn answer_prompts(&mut self, answers: &[&[u8]], out: &mut impl Outbox) {
        if self.requests.front() == Some(&OpenRequest::Questions) {
            let payload = InfoResponse::write(answers);
            out.packet(|p| p.put(&payload));
        }
    }

    /// Takes a SERVICE_ACCEPT or a message numbered 50 to 79.
    pub(crate) fn receive<'a>(&mut self, payload: &'a [u8]) -> Result<Option<Event<'a>>, End> {
        let number = *payload.first().ok_or_else(|| out_of_place(0))?;
        if self.done {
            return Err(out_of_place(number));
        }
        match (number, self.service) {
            (SERVICE_ACCEPT, Service::Requested) => {
                let name = service_name(payload).map_err(|e| End::malformed("SERVICE_ACCEPT", e))?;
                if name != USERAUTH {
                    return Err(out_of_place(number));
                }
                self.service = Service::Accepted;
                Ok(None)
            }
            (USERAUTH_BANNER, _) => {
                let text = banner(payload).map_err(|e| End::malformed("USERAUTH_BANNER", e))?;
                Ok(Some(Event::Banner(text)))
            }
            (USERAUTH_SUCCESS, Service::Accepted) if !self.requests.is_empty() && payload.len() == 1 => {
                self.done = true;
                self.requests = VecDeque::new();
                Ok(Some(Event::AuthReply(AuthReply::Accepted)))
            }
            (USERAUTH_FAILURE, Service::Accepted) if !self.requests.is_empty() => {
                let (methods, partial) =
                    failure(payload).map_err(|e| End::malformed("USERAUTH_FAILURE", e))?;
                self.requests.pop_front();
                Ok(Some(Event::AuthReply(AuthReply::Rejected { methods, partial })))
            }
            (USERAUTH_60, Service::Accepted) => self.sixty(payload).map(Some),
            _ => Err(out_of_place(number)),
        }
    }

    /// PK_OK or INFO_REQUEST. A demand for a new password (PASSWD_CHANGEREQ) is a refusal: we change none.
    fn sixty<'a>(&mut self, payload: &'a [u8]) -> Result<Event<'a>, End> {
        match self.requests.front() {
            Some(OpenRequest::Key { algorithm, key }) => {
                let named = read_message(payload, |r| Ok((r.string("algorithm")?, r.string("key")?)))
                    .map_err(|e| End::malformed("USERAUTH_PK_OK", e))?;
                if named != (algorithm.as_bytes(), &key[..]) {
                    return Err(End::malformed("USERAUTH_PK_OK", Malformed::Invalid("key")));
                }
                self.requests.pop_front();
                Ok(Event::AuthReply(AuthReply::KeyOk))
            }
            Some(OpenRequest::Questions) => {
                let asked =
                    Questions::parse(payload).map_err(|e| End::malformed("USERAUTH_INFO_REQUEST", e))?;
                Ok(Event::AuthReply(AuthReply::Ask {
                    name: asked.name.to_vec(),
                    instruction: asked.instruction.to_vec(),
                    prompts: asked.prompts,
                }))
            }
            Some(OpenRequest::Login) => {
                self.requests.pop_front();
                Ok(Event::AuthReply(AuthReply::Rejected {
                    methods: Vec::new(),
                    partial: false,
                }))
            }
            None => Err(out_of_place(USERAUTH_60)),
        }
    }
}

fn banner(payload: &[u8]) -> Result<&[u8], Malformed> {
    let (text, _language) = read_message(payload, |r| Ok((r.string("text")?, r.string("language")?)))?;
    Ok(text)
}

fn failure(payload: &[u8]) -> Result<(Vec<String>, bool), Malformed> {
    read_message(payload, |r| {
        let names = r.text("list of methods")?.split(',');
        let methods: Vec<String> = names
            .filter(|name| !name.is_empty())
            .take(MAX_METHODS + 1)
            .map(str::to_owned)
            .collect();
        if methods.len() > MAX_METHODS {
            return Err(Malformed::Invalid("list of methods"));
        }
        Ok((methods, r.bool("partial success flag")?))
    })
}
