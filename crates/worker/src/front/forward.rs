//! Sockets for the client: connections to where it wants (-L, -D, -W), its agent and its X11 display; from where it wants to be
//! reached (-R) is in `listen`. All of them are made by the login's networking helper, as the user, and come through the
//! monitor; here a channel is joined with each, and what the grant has not is refused without asking.

use super::Context;
use super::channel::{Channel, Forward, Listens, Use};
use super::connection::FrontConnection;
use super::pump::Pump;
use crate::start::{WorkerEnd, c_text};
use fleetgate_ssh::channel::refusal;
use fleetgate_ssh::codec::Write;
use fleetgate_ssh::event::{ChannelId, ChannelKind, ReplyId};
use fleetgate_sys::{Errno, Fd};
use fleetgate_wire::net::{Done, MAX_HOST, What};
use fleetgate_wire::node::front::{FromFront, RequestKind, Ticket};
use fleetgate_wire::node::{Blob, FrontPermit};
use fleetgate_wire::{Failure, Reason};
use std::ffi::CString;

/// How long a connect may take: as long as the kernel's own patience.
const CONNECT_MS: u32 = 120_000;
/// Where SSH servers listen.
const SSH_PORT: u16 = 22;
/// Displays that are looked through, as sshd does.
const DISPLAYS: (u16, u16) = (10, 1000);

impl FrontConnection {
    /// Asks the networking helper, through the monitor.
    pub(super) fn ask(
        &mut self,
        ticket: Ticket,
        what: What,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        context.control.say(&FromFront::Network {
            connection: self.number,
            ticket,
            what,
        })
    }

    /// direct-tcpip.
    pub(super) fn connect(
        &mut self,
        channel: ChannelId,
        host: &[u8],
        port: u32,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        let to = c_text(&[host, format!(":{port}").as_bytes()].concat());
        if !self.permits.has(FrontPermit::ConnectForward) {
            let what = [b"direct-tcpip to ", to.as_bytes()].concat();
            return self.refuse(channel, RequestKind::ConnectTcp, &what, context);
        }
        let (Some(host), Ok(port)) = (host_of(host), u16::try_from(port)) else {
            self.core
                .refuse(channel, refusal::CONNECT_FAILED, "not a host and port");
            return Ok(());
        };
        let mut forward = Forward::new(0, to, None);
        forward.is_ssh_port = port == SSH_PORT;
        self.channels.insert(channel.0, Channel::Forward(forward));
        let ticket = self.ticket(Use::Connect(channel.0));
        let timeout_ms = CONNECT_MS;
        self.ask(
            ticket,
            What::Connect {
                host,
                port,
                timeout_ms,
            },
            context,
        )
    }

    /// direct-streamlocal@openssh.com.
    pub(super) fn connect_unix(
        &mut self,
        channel: ChannelId,
        path: &[u8],
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        let to = c_text(path);
        if !self.permits.has(FrontPermit::ConnectForward) {
            let what = [b"direct-streamlocal to ", to.as_bytes()].concat();
            return self.refuse(channel, RequestKind::ConnectUnix, &what, context);
        }
        let Some(path) = path_of(path) else {
            self.core
                .refuse(channel, refusal::CONNECT_FAILED, "not a socket's path");
            return Ok(());
        };
        self.channels
            .insert(channel.0, Channel::Forward(Forward::new(0, to, None)));
        let ticket = self.ticket(Use::Connect(channel.0));
        let timeout_ms = CONNECT_MS;
        self.ask(ticket, What::ConnectUnix { path, timeout_ms }, context)
    }

    /// x11-req.
    pub(super) fn want_display(
        &mut self,
        channel: ChannelId,
        single: bool,
        reply: Option<ReplyId>,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        if !self.permits.has(FrontPermit::X11) {
            if let Some(Channel::Session(session)) = self.channels.get_mut(&channel.0) {
                session.x11 = None;
            }
            self.answer(reply, false);
            return self.deny(RequestKind::X11, b"x11-req", context);
        }
        if let Some(Channel::Session(session)) = self.channels.get_mut(&channel.0) {
            session.awaited += 1;
        }
        let channel = channel.0;
        let ticket = self.ticket(Use::Display {
            channel,
            reply,
            single,
        });
        let (first, last) = DISPLAYS;
        let any_address = false;
        self.ask(
            ticket,
            What::X11Display {
                first,
                last,
                any_address,
            },
            context,
        )
    }

    /// The helper's answer to a request, or a connection on what it listens on.
    pub(super) fn network(
        &mut self,
        ticket: Ticket,
        done: Done,
        fds: Vec<Fd>,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        // What stays as long as something listens.
        if let Some(Use::Tcp { reply, bound, .. }) = self.uses.get_mut(&ticket) {
            match done {
                Done::Listening { local } if bound.is_none() => {
                    let first = local.first().map_or(0, |l| l.port);
                    *bound = Some(first);
                    let reply = reply.take();
                    self.listening(ticket, reply, first);
                    self.start_waiting(context)?;
                }
                Done::Accepted { peer, .. } if bound.is_some() => self.accepted_tcp(ticket, &peer, fds),
                Done::Failed { .. } => {
                    let reply = reply.take();
                    self.uses.remove(&ticket);
                    self.answer_global(reply, None);
                    self.start_waiting(context)?;
                }
                _ => {}
            }
            return Ok(());
        }
        match (self.uses.remove(&ticket), done) {
            (Some(Use::Connect(channel)), Done::Connected { .. }) => {
                self.connected(ticket, channel, fds, context)?;
            }
            (Some(Use::Connect(channel)), Done::Failed { failure }) => {
                self.channels.remove(&channel);
                let reason = match failure.reason {
                    Reason::Denied if failure.errno == 0 => refusal::PROHIBITED,
                    _ => refusal::CONNECT_FAILED,
                };
                self.core.refuse(ChannelId(channel), reason, &why(&failure));
            }
            (Some(Use::Agent(waiting)), done) => {
                let ready = matches!(done, Done::UnixListening { .. }) && !fds.is_empty();
                if ready {
                    self.listen(ticket, fds, |_| Listens::Agent, context)?;
                } else {
                    self.agent = None;
                }
                for (channel, reply) in waiting {
                    self.agent_ready(channel, reply, ready.then_some(ticket));
                    self.there(channel, context)?;
                }
            }
            (
                Some(Use::Display {
                    channel,
                    reply,
                    single,
                }),
                done,
            ) => {
                let ready = matches!(done, Done::Display { .. }) && !fds.is_empty();
                if ready {
                    self.listen(ticket, fds, |_| Listens::Display { single }, context)?;
                }
                match self.channels.get_mut(&channel) {
                    Some(Channel::Session(session)) if ready => {
                        if let Some(x11) = &mut session.x11 {
                            x11.display = ticket;
                        }
                    }
                    Some(Channel::Session(session)) => session.x11 = None,
                    // The client closed it meanwhile.
                    _ if ready => self.stop_listening(ticket, context)?,
                    _ => {}
                }
                self.answer(reply, ready);
                self.there(channel, context)?;
            }
            (Some(Use::Unix(path, reply)), done) => {
                let ready = matches!(done, Done::UnixListening { .. }) && !fds.is_empty();
                if ready {
                    self.listen(ticket, fds, |_| Listens::Unix(path.clone()), context)?;
                }
                self.answer_global(reply, ready.then_some(&[]));
                self.start_waiting(context)?;
            }
            (Some(Use::Cancel(reply)), done) => {
                let done = matches!(done, Done::Cancelled).then_some(&[][..]);
                self.answer_global(reply, done);
            }
            _ => {}
        }
        Ok(())
    }

    /// Signatures that prove host keys.
    pub(super) fn proved(&mut self, ticket: Ticket, signatures: Option<Vec<Blob>>) {
        let Some(Use::Prove(reply)) = self.uses.remove(&ticket) else {
            return;
        };
        let answer = signatures.map(|all| {
            let mut out = Vec::new();
            for blob in all {
                out.put_string(&blob.bytes);
            }
            out
        });
        self.answer_global(reply, answer.as_deref());
    }

    /// What a session waited for is there, or cannot be.
    fn there(&mut self, channel: u32, context: &mut Context<'_>) -> Result<(), WorkerEnd> {
        if let Some(Channel::Session(session)) = self.channels.get_mut(&channel) {
            session.awaited = session.awaited.saturating_sub(1);
        }
        self.start_if_ready(channel, context)
    }

    /// A socket for a channel that the client asked for.
    fn connected(
        &mut self,
        ticket: Ticket,
        channel: u32,
        fds: Vec<Fd>,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        let Some(socket) = fds.into_iter().next() else {
            return Err(WorkerEnd::Because(
                "a connection of the helper's came without its socket".to_owned(),
            ));
        };
        let Some(Channel::Forward(forward)) = self.channels.get_mut(&channel) else {
            return Ok(());
        };
        forward.ticket = ticket;
        forward.pump = Pump::socket(socket);
        forward.pump.refuses_ssh = self.permits.has(FrontPermit::NoOnwardSsh);
        match self.watch(channel, context) {
            Ok(()) => {
                self.core.accept(ChannelId(channel));
                self.core.close_later(ChannelId(channel));
            }
            Err(e) => {
                self.channels.remove(&channel);
                self.core.refuse(ChannelId(channel), refusal::SHORTAGE, e.text());
            }
        }
        Ok(())
    }

    /// Opens a channel for a socket. There may be as many as allowed: then the connection is dropped.
    pub(super) fn offer(&mut self, ticket: Ticket, kind: &ChannelKind, to: CString, socket: Fd) {
        if let Some(channel) = self.core.open(kind) {
            let forward = Forward::new(ticket, to, Some(socket));
            self.channels.insert(channel.0, Channel::Forward(forward));
        }
    }

    /// The client agreed to a channel of ours.
    pub(super) fn opened(&mut self, channel: ChannelId, context: &mut Context<'_>) -> Result<(), WorkerEnd> {
        let Some(Channel::Forward(forward)) = self.channels.get_mut(&channel.0) else {
            return Ok(());
        };
        if let Some(socket) = forward.waiting.take() {
            forward.pump = Pump::socket(socket);
            self.core.close_later(channel);
            if self.watch(channel.0, context).is_err() {
                self.core.close(channel);
            }
        }
        Ok(())
    }

    /// The connection ends: with it those of its forwards that have their sockets, which are told like any other's end. What
    /// its sessions showed goes to the recorder for all that.
    pub(super) fn channels_end(&mut self, context: &mut Context<'_>) -> Result<(), WorkerEnd> {
        for (_, ch) in std::mem::take(&mut self.channels) {
            match ch {
                Channel::Forward(forward) if forward.ticket != 0 && forward.waiting.is_none() => {
                    self.forward_ended(forward, context)?;
                }
                Channel::Forward(_) => {}
                Channel::Session(mut session) => context.keep_recording(&mut session),
            }
        }
        Ok(())
    }

    pub(super) fn forward_ended(
        &mut self,
        forward: Box<Forward>,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        if forward.pump.is_ssh && forward.pump.refuses_ssh {
            let to = forward.to.to_bytes();
            let what = [b"going on to the SSH server ", to, b": a role's onward_ssh"].concat();
            self.deny(RequestKind::Unable, &what, context)?;
        }
        context.control.say(&FromFront::Forwarded {
            connection: self.number,
            ticket: forward.ticket,
            to: forward.to,
            sent: forward.pump.sent,
            received: forward.pump.received,
            onward_ssh: forward.is_ssh_port || forward.pump.is_ssh,
        })
    }
}

/// A host to connect to.
pub(super) fn host_of(host: &[u8]) -> Option<CString> {
    if host.is_empty() || host.len() > MAX_HOST {
        return None;
    }
    CString::new(host).ok()
}

/// A socket's path: what fits into the kernel's sockaddr_un.
pub(super) fn path_of(path: &[u8]) -> Option<CString> {
    const MAX_PATH: usize = 107;
    if path.is_empty() || path.len() > MAX_PATH {
        return None;
    }
    CString::new(path).ok()
}

/// Why a socket could not be had, for the client.
fn why(failure: &Failure) -> String {
    match (failure.errno, &failure.reason) {
        (0, Reason::UnknownName) => "the name is not known".to_owned(),
        (_, Reason::UnknownName) => "Temporary failure in name resolution".to_owned(),
        (0, Reason::TimedOut) => "it took too long".to_owned(),
        (0, Reason::TooMany) => "there are too many".to_owned(),
        (0, Reason::Denied) => "this login may not do that".to_owned(),
        // The monitor's own words: no helper opens the socket.
        (0, Reason::System) => failure.subject.to_string_lossy().into_owned(),
        (0, _) => "it cannot be done".to_owned(),
        (errno, _) => Errno(errno).text().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_service_that_fails_is_no_error_of_input_or_output() {
        for (errno, reason, words) in [
            (0, Reason::UnknownName, "the name is not known"),
            (
                Errno::EIO.0,
                Reason::UnknownName,
                "Temporary failure in name resolution",
            ),
            (Errno::EIO.0, Reason::System, Errno::EIO.text()),
            (0, Reason::System, "the host said why"),
        ] {
            let subject = c"the host said why".into();
            let failure = Failure {
                reason,
                errno,
                subject,
            };
            assert_eq!(why(&failure), words);
        }
    }
}
