//! The second connection: to the node's sshd, with a certificate for this one login. The sshd is reached and the
//! certificate signed side by side.

use super::{Host, fresh_key};
use crate::ssh::authenticator::Caller;
use crate::ssh::endpoint::Endpoint;
use fleetgate_ssh::Connection;
use fleetgate_ssh::auth::Request;
use fleetgate_ssh::event::{AuthReply, Event};
use fleetgate_ssh::key::{Algorithm, PrivateKey};
use fleetgate_ssh::settings::Settings;
use std::future::poll_fn;
use std::task::{Context, Poll};
use tokio::net::TcpStream;

/// What an ed25519 certificate signs with.
pub(super) const ALGORITHM: &str = "ssh-ed25519-cert-v01@openssh.com";

/// Logs in there.
pub(super) async fn log_in(host: &dyn Host, caller: &Caller) -> Result<Endpoint<TcpStream>, String> {
    let key = fresh_key()?;
    let (stream, certificate) = tokio::try_join!(host.connect(), host.sign(caller, key.public()))?;
    let mut settings = Settings::default();
    let pinned = host.pinned();
    let known = |name: &String| {
        Algorithm::parse(name).is_some_and(|a| !a.is_certificate() && pinned.contains(&a.key_type()))
    };
    settings.host_key_algorithms.sort_by_key(|name| !known(name));
    settings.limits.window = crate::ssh::WINDOW;
    settings.limits.max_channels = 2 * crate::ssh::MAX_CHANNELS;
    let mut login = Login {
        end: Endpoint::new(Connection::client(settings.into()), stream),
        host,
        key,
        certificate,
        login: caller.name.as_bytes(),
    };
    poll_fn(|cx| login.poll(cx)).await?;
    Ok(login.end)
}

struct Login<'a> {
    end: Endpoint<TcpStream>,
    host: &'a dyn Host,
    key: PrivateKey,
    certificate: Vec<u8>,
    login: &'a [u8],
}

impl Login<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), String>> {
        loop {
            while let Some(event) = self.end.core.poll().map_err(|e| e.to_string())? {
                match event {
                    Event::HostKey(key) => {
                        self.host.trusts(key)?;
                        self.end.core.trust_host(true);
                    }
                    Event::Established => self.authenticate()?,
                    Event::AuthReply(AuthReply::Accepted) => return Poll::Ready(Ok(())),
                    Event::AuthReply(_) => {
                        let words = "its sshd refused the cluster's certificate: it needs TrustedUserCAKeys with the \
                                     cluster's user CA (fleetgate ca show user), and an account of that name";
                        return Poll::Ready(Err(words.to_owned()));
                    }
                    _ => {}
                }
            }
            match self.end.poll_move(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Poll::Ready(Err(format!("its sshd hung up: {e}"))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn authenticate(&mut self) -> Result<(), String> {
        let core = &mut self.end.core;
        let session = core.session_id().ok_or("there is no session id")?;
        let unsigned = Request::unsigned(session, self.login, ALGORITHM, &self.certificate, None);
        let signature = self
            .key
            .sign("ssh-ed25519", unsigned.to_sign())
            .map_err(|e| e.to_string())?;
        core.authenticate(&unsigned.signed(&signature));
        Ok(())
    }
}
