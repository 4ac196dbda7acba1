//! SSH as a simulated node speaks it: the whole key exchange with a host certificate of its own, any login, and every command
//! ends at once with the exit code 0. It starts no program and checks nobody: what a real node does there is not measured.

use crate::{Result, said};
use bytes::Bytes;
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{AuthAnswer, ChannelId, Event, Reason, ReplyId, Request};
use fleetgate_ssh::key::{Certificate, HostKey, KeyType};
use fleetgate_ssh::settings::{HostKeyOffer, Settings};
use std::sync::Arc;
use std::time::Duration;

/// The most that is taken in at a time.
const ROOM: usize = 64 * 1024;

/// A node's host key, and what it offers with it.
pub struct Identity {
    key: HostKey,
    settings: Arc<Settings>,
}

/// A host key that nobody had before.
pub fn fresh_key() -> Result<HostKey> {
    let (key, _) = HostKey::generate(KeyType::Ed25519, "").map_err(said)?;
    Ok(key)
}

impl Identity {
    /// With the certificate that the cluster gave for it.
    pub fn new(mut key: HostKey, certificate: &[u8]) -> Result<Identity> {
        let certificate = Certificate::parse(certificate).map_err(said)?;
        key.certify(&certificate.line()).map_err(said)?;
        let offers = key.algorithms().into_iter().filter_map(|algorithm| {
            Some(HostKeyOffer {
                algorithm: algorithm.to_owned(),
                blob: key.blob(algorithm)?.to_vec(),
            })
        });
        let settings = Settings {
            software: "fleetgate_simulated".into(),
            host_keys: offers.collect(),
            ..Settings::default()
        };
        Ok(Identity {
            settings: Arc::new(settings),
            key,
        })
    }

    /// Its key.
    pub fn key(&self) -> &HostKey {
        &self.key
    }
}

/// One connection.
pub struct Server {
    identity: Arc<Identity>,
    core: Connection,
}

impl Server {
    /// From its beginning.
    pub fn new(identity: Arc<Identity>) -> Server {
        let core = Connection::server(identity.settings.clone(), [7; 16]);
        Server { identity, core }
    }

    /// Takes what came; what is to be sent. None: it is over.
    pub fn turn(&mut self, mut bytes: &[u8]) -> Option<Bytes> {
        self.core.tick(Duration::ZERO);
        loop {
            let is_over = self.events().is_err();
            if is_over || bytes.is_empty() {
                let out = Bytes::copy_from_slice(self.core.output());
                self.core.sent(out.len());
                return (!is_over || !out.is_empty()).then_some(out);
            }
            let room = self.core.room(ROOM);
            let n = room.len().min(bytes.len());
            room[..n].copy_from_slice(&bytes[..n]);
            self.core.received(n);
            bytes = &bytes[n..];
        }
    }

    fn events(&mut self) -> std::result::Result<(), ()> {
        enum Then {
            Nothing,
            Sign(Vec<u8>, String),
            Accept,
            Open(ChannelId),
            Done(ChannelId, Option<ReplyId>),
            Refuse(Option<ReplyId>),
        }
        loop {
            let then = match self.core.poll().map_err(|_| ())? {
                None => return Ok(()),
                Some(Event::SignExchange(exchange)) => match exchange.hash() {
                    Some(hash) => Then::Sign(hash.as_ref().to_vec(), exchange.host_key_algorithm.clone()),
                    None => return Err(()),
                },
                Some(Event::Auth(_)) => Then::Accept,
                Some(Event::Open { channel, .. }) => Then::Open(channel),
                Some(Event::Request {
                    channel,
                    request,
                    reply,
                }) => match request {
                    Request::Exec { .. } => Then::Done(channel, reply),
                    _ => Then::Refuse(reply),
                },
                Some(_) => Then::Nothing,
            };
            match then {
                Then::Nothing => {}
                Then::Sign(hash, algorithm) => match self.identity.key.sign(&algorithm, &hash) {
                    Ok(signature) => self.core.signed(&signature, [8; 16]),
                    Err(_) => self.core.disconnect(Reason::KeyExchangeFailed, "no signature"),
                },
                Then::Accept => self.core.answer_auth(AuthAnswer::Accept),
                Then::Open(channel) => self.core.accept(channel),
                Then::Done(channel, reply) => {
                    if let Some(reply) = reply {
                        self.core.answer(reply, true);
                    }
                    self.core
                        .request(channel, &Request::ExitStatus { code: 0 }, false);
                    self.core.close(channel);
                }
                Then::Refuse(Some(reply)) => self.core.answer(reply, false),
                Then::Refuse(None) => {}
            }
        }
    }
}
