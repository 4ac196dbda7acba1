//! Authorities, users' certificates, and a client that is driven step by step.

use crate::ssh::endpoint::{Bytes, Endpoint};
use fleetgate_policy::cluster::{Identity, Name, SSH_EXTENSION, Subject};
use fleetgate_ssh::Connection;
use fleetgate_ssh::auth::Request;
use fleetgate_ssh::event::{AuthReply, Event};
use fleetgate_ssh::key::{Certificate, CertificateKind, Draft, HostKey, KeyType, PrivateKey};
use fleetgate_ssh::settings::Settings;
use std::future::poll_fn;
use std::task::Poll;

/// A private key.
pub fn key() -> PrivateKey {
    PrivateKey::generate(KeyType::Ed25519, "test").expect("made").0
}

/// A host's key.
pub fn host_key() -> HostKey {
    HostKey::generate(KeyType::Ed25519, "test").expect("made").0
}

/// A name.
pub fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

/// A user of the cluster `test`.
pub fn identity(user: &str) -> Identity {
    Identity {
        cluster: name("test"),
        subject: Subject::User(name(user)),
        roles: vec![name("access")],
        issued: 1,
        serial: 1,
        mfa: None,
        device: None,
        ends: None,
    }
}

/// A user's certificate.
pub fn certificate(ca: &PrivateKey, user: &PrivateKey, identity: &Identity) -> Certificate {
    let value = identity.encode();
    let extensions: [(&str, &[u8]); 1] = [(SSH_EXTENSION, &value)];
    Draft {
        kind: CertificateKind::User,
        serial: 1,
        key_id: "test",
        principals: &["ada"],
        valid_after: 0,
        valid_before: u64::MAX,
        critical: &[],
        extensions: &extensions,
    }
    .sign(user.public(), ca)
    .expect("signed")
}

/// A client on a stream.
pub struct Client<S> {
    pub end: Endpoint<S>,
}

impl<S: Bytes> Client<S> {
    pub fn new(stream: S) -> Client<S> {
        Client {
            end: Endpoint::new(Connection::client(Settings::default().into()), stream),
        }
    }

    /// Drives the connection until `want` makes something of an event; an end is an error in words.
    pub async fn until<T>(
        &mut self,
        mut want: impl FnMut(&mut Option<Asked>, Event<'_>) -> Option<T>,
    ) -> Result<T, String> {
        poll_fn(|cx| {
            loop {
                loop {
                    let mut asked = None;
                    let found = match self.end.core.poll() {
                        Err(end) => return Poll::Ready(Err(end.to_string())),
                        Ok(None) => break,
                        Ok(Some(Event::HostKey(_))) => {
                            asked = Some(Asked::Trust);
                            None
                        }
                        Ok(Some(event)) => want(&mut asked, event),
                    };
                    match asked {
                        Some(Asked::Trust) => self.end.core.trust_host(true),
                        Some(Asked::Consumed(channel, n)) => self.end.core.consumed(channel, n),
                        None => {}
                    }
                    if let Some(found) = found {
                        return Poll::Ready(Ok(found));
                    }
                }
                match self.end.poll_move(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(format!("lost: {e}"))),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// Tries to log in by a certificate.
    pub async fn log_in(&mut self, login: &str, key: &PrivateKey, blob: &[u8]) -> Result<bool, String> {
        if self.end.core.session_id().is_none() {
            self.until(|_, e| matches!(e, Event::Established).then_some(()))
                .await?;
        }
        let session = self.end.core.session_id().expect("established").to_vec();
        let algorithm = match Certificate::parse(blob) {
            Ok(_) => "ssh-ed25519-cert-v01@openssh.com",
            Err(_) => "ssh-ed25519",
        };
        let unsigned = Request::unsigned(&session, login.as_bytes(), algorithm, blob, None);
        let signature = key.sign("ssh-ed25519", unsigned.to_sign()).expect("signed");
        self.end.core.authenticate(&unsigned.signed(&signature));
        self.until(|_, e| match e {
            Event::AuthReply(reply) => Some(reply == AuthReply::Accepted),
            _ => None,
        })
        .await
    }
}

/// What an event asks of its connection.
pub enum Asked {
    Trust,
    Consumed(fleetgate_ssh::event::ChannelId, usize),
}
