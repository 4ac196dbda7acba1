//! Channels that the client opens and closes: which it may have, and what a refusal is told to. What then happens on one is in
//! `session` and `forward`.

use super::Context;
use super::channel::{Channel, Session};
use super::connection::FrontConnection;
use crate::start::{WorkerEnd, c_text};
use fleetgate_ssh::channel::refusal;
use fleetgate_ssh::event::{ChannelId, ChannelKind, Global};
use fleetgate_wire::node::FrontPermit;
use fleetgate_wire::node::front::{FromFront, RequestKind};

/// Refusals that are told for the audit log, of one connection: a client could make millions.
const MAX_DENIED: u32 = 100;

impl FrontConnection {
    /// The peer opens a channel.
    pub(super) fn open(
        &mut self,
        channel: ChannelId,
        kind: ChannelKind,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        self.announce();
        match kind {
            ChannelKind::Session => {
                let any = [FrontPermit::Shell, FrontPermit::Exec, FrontPermit::Sftp]
                    .into_iter()
                    .any(|k| self.permits.has(k));
                if !any {
                    return self.refuse(channel, RequestKind::Session, b"session", context);
                }
                self.channels
                    .insert(channel.0, Channel::Session(Box::new(Session::new())));
                self.core.accept(channel);
                self.core.close_later(channel);
                Ok(())
            }
            ChannelKind::DirectTcpip { host, port, .. } => self.connect(channel, &host, port, context),
            ChannelKind::DirectStreamlocal { path } => self.connect_unix(channel, &path, context),
            ChannelKind::Other { name, .. } => {
                let text = format!(
                    "unknown channel type {}",
                    String::from_utf8_lossy(&name[..name.len().min(64)])
                );
                self.core.refuse(channel, refusal::UNKNOWN_TYPE, &text);
                Ok(())
            }
            _ => {
                let reason = refusal::UNKNOWN_TYPE;
                self.core.refuse(channel, reason, "a server opens such channels");
                Ok(())
            }
        }
    }

    /// The grant has no such thing: said to the client, and told for the audit log.
    pub(super) fn refuse(
        &mut self,
        channel: ChannelId,
        kind: RequestKind,
        what: &[u8],
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        self.core
            .refuse(channel, refusal::PROHIBITED, "this login may not do that");
        self.deny(kind, what, context)
    }

    /// Tells of a refusal for the audit log.
    pub(super) fn deny(
        &mut self,
        kind: RequestKind,
        what: &[u8],
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        self.denied += 1;
        if self.denied > MAX_DENIED {
            return Ok(());
        }
        context.control.say(&FromFront::Denied {
            connection: self.number,
            kind,
            what: c_text(what),
        })
    }

    /// Tells OpenSSH's clients all host keys (UpdateHostKeys). Before their first channel is accepted, not before: what
    /// is sent alone wakes the client for itself.
    fn announce(&mut self) {
        if std::mem::replace(&mut self.announced, true)
            || !self.core.info().peer_version.starts_with(b"SSH-2.0-OpenSSH")
        {
            return;
        }
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for offer in &self.core.settings().host_keys {
            if !offer.algorithm.contains("-cert-") && !keys.contains(&offer.blob) {
                keys.push(offer.blob.clone());
            }
        }
        self.core.global(&Global::HostKeys { keys }, false);
    }

    /// The client closed a channel. What it sent before is passed on first, however slowly it is taken; a session whose
    /// output has ended waits for its program's end too.
    pub(super) fn leaving(&mut self, channel: ChannelId) {
        match self.channels.get_mut(&channel.0) {
            Some(Channel::Session(session)) => session.leave(),
            Some(Channel::Forward(forward)) => {
                forward.pump.end_output();
                forward.pump.finish();
            }
            None => {}
        }
        self.settle(channel.0);
    }

    /// A channel is gone, on both sides.
    pub(super) fn closed(&mut self, channel: ChannelId, context: &mut Context<'_>) -> Result<(), WorkerEnd> {
        let Some(mut ch) = self.channels.remove(&channel.0) else {
            return Ok(());
        };
        self.kept -= ch.pump().shut();
        match ch {
            Channel::Session(mut session) => {
                context.keep_recording(&mut session);
                self.session_closed(*session, context)
            }
            Channel::Forward(forward) => self.forward_ended(forward, context),
        }
    }
}
