//! What the user asks for: requests on a channel, and for the whole connection. Each is held against his roles as they are
//! now; what no role allows is refused here and told to the audit log, and the rest waits for the host in its channel's
//! queue. It opens and closes no channel.

use super::SessionEvent;
use super::pair::{Item, MAX_UNREAD_BYTES, Pair};
use super::relay::{MAX_REQUEST_BYTES, Relay, Side, port_of};
use crate::recorder::Terminal;
use fleetgate_policy::cluster::Allowed;
use fleetgate_policy::permits::What;
use fleetgate_ssh::Connection;
use fleetgate_ssh::event::{ChannelId, Global, ReplyId, Request};

/// Refusals of one connection that have a line of their own; of the others the number is told, as a node does.
pub(super) const MAX_DENIAL_LINES: u64 = 100;

impl Relay<'_> {
    pub(super) fn request_up(
        &mut self,
        channel: ChannelId,
        request: Request,
        reply: Option<ReplyId>,
        user: &mut Connection,
    ) -> Result<(), String> {
        let refuse = |user: &mut Connection| {
            if let Some(reply) = reply {
                user.answer(reply, false);
            }
            Ok(())
        };
        let (what, began): (Option<What<'_>>, Option<(&str, &[u8])>) = match &request {
            Request::Shell => (Some(What::Shell), Some(("shell", b""))),
            Request::Exec { command } => (Some(What::Exec(command)), Some(("exec", command))),
            Request::Subsystem { name } if name == b"sftp" => {
                (Some(What::Subsystem(name)), Some(("sftp", name)))
            }
            Request::Subsystem { name } => (Some(What::Subsystem(name)), Some(("subsystem", name))),
            Request::Pty(_) => (Some(What::Pty), None),
            Request::Agent => (Some(What::Agent), None),
            Request::X11 { .. } => (Some(What::X11), None),
            Request::Env { name, .. } => (Some(What::Environment(name)), None),
            Request::WindowChange(_)
            | Request::Signal { .. }
            | Request::Break { .. }
            | Request::EndOfWrite => (None, None),
            // What only a host says, and what no role says anything of.
            Request::ExitStatus { .. } | Request::ExitSignal { .. } | Request::Other { .. } => {
                return refuse(user);
            }
        };
        if let Some((kind, command)) = began {
            // Of a second one the sshd would refuse the start, and nobody would watch the first.
            let takes = |pair: &mut Pair| std::mem::take(&mut pair.takes_program);
            if !self.pair(Side::User, channel).is_some_and(takes) {
                return refuse(user);
            }
            if let Err(words) = self.begin((channel, reply), &what, kind, command) {
                self.not_begun(channel, &request, reply, &words, user);
                return Ok(());
            }
        } else if what.is_some_and(|what| self.allow(&what).is_err()) {
            return refuse(user);
        }
        self.asked_for.agent |= matches!(request, Request::Agent);
        self.asked_for.x11 |= matches!(request, Request::X11 { .. });
        if let Some(pair) = self.pair(Side::User, channel) {
            match &request {
                Request::Pty(pty) => {
                    let side = |length| u16::try_from(length).unwrap_or_default();
                    pair.terminal = Some(Terminal {
                        term: pty.term.clone(),
                        columns: side(pty.size.columns),
                        rows: side(pty.size.rows),
                    });
                    pair.terminal_answer = reply.map(|_| pair.asked_up.len());
                }
                Request::WindowChange(size) => {
                    if let Some(tap) = &mut pair.tap {
                        tap.resized(size.columns, size.rows);
                    }
                }
                _ => {}
            }
            pair.asked_up.extend(reply);
            pair.up.push(Item::Request(request, reply.is_some()));
        }
        self.has_room_for_requests()
    }

    pub(super) fn global_up(
        &mut self,
        request: &Global,
        reply: Option<ReplyId>,
        user: &mut Connection,
        host: &mut Connection,
    ) -> Result<(), String> {
        let allowed = match request {
            Global::TcpipForward { host, port } => self.allow(&What::ListenTcp(host, port_of(*port))),
            Global::StreamlocalForward { path } => self.allow(&What::ListenUnix(path)),
            Global::CancelTcpipForward { .. }
            | Global::CancelStreamlocalForward { .. }
            | Global::NoMoreSessions => Ok(()),
            // Keepalives, and proofs of host keys that were never told.
            _ => {
                if let Some(reply) = reply {
                    user.answer_global(reply, None);
                }
                return Ok(());
            }
        };
        match allowed {
            // A host that reads nothing is asked for nothing more.
            Ok(()) if host.output().len() > MAX_UNREAD_BYTES + MAX_REQUEST_BYTES => {
                return Err("more requests wait than one connection may have".to_owned());
            }
            Ok(()) => {
                self.asked_for.tcp |= matches!(request, Global::TcpipForward { .. });
                self.asked_for.unix |= matches!(request, Global::StreamlocalForward { .. });
                self.globals_up.extend(reply);
                host.global(request, reply.is_some());
            }
            Err(_) => {
                if let Some(reply) = reply {
                    user.answer_global(reply, None);
                }
            }
        }
        Ok(())
    }

    /// Whether this may be done, by the state as it is now. What may not is told.
    pub(super) fn allow(&self, what: &What<'_>) -> Result<(), String> {
        self.decided(what).map(drop)
    }

    pub(super) fn decided(&self, what: &What<'_>) -> Result<Allowed, String> {
        let decided = self.host.allowed(self.caller).and_then(|allowed| {
            allowed.permits.allow(what).map_err(|denied| denied.to_string())?;
            Ok(allowed)
        });
        decided.inspect_err(|words| self.tell_denied(words))
    }

    pub(super) fn tell_denied(&self, words: &str) {
        self.denials.set(self.denials.get() + 1);
        if self.denials.get() <= MAX_DENIAL_LINES {
            let line = self.host.tell(Some(self.caller), SessionEvent::Denied(words));
            self.lines.borrow_mut().push(line);
        }
    }
}
