//! Listeners for the client (-R), at its wish and to its end, and the connections that come by them, its agent's and its display's
//! among them: a channel is opened for each. The networking helper listens; here only sockets are accepted on that it made.

use super::Context;
use super::channel::{Listener, Listens, Use};
use super::connection::FrontConnection;
use super::forward::{host_of, path_of};
use super::key::Key;
use crate::start::{WorkerEnd, c_text};
use fleetgate_ssh::event::{ChannelKind, Global, ReplyId};
use fleetgate_sys::net::{self, Address};
use fleetgate_sys::{Errno, Fd};
use fleetgate_wire::common::Endpoint;
use fleetgate_wire::net::What;
use fleetgate_wire::node::front::{FromFront, RequestKind, Ticket};
use fleetgate_wire::node::{Blob, FrontPermit};
use std::ffi::CString;
use std::net::SocketAddr;

/// Connections that wait to be accepted by the helper or here.
const BACKLOG: u32 = 128;
/// Requests to the monitor that are unanswered or stand for something that listens, of one connection.
const MAX_USES: usize = 1024;
/// Whoever is not the user may not connect to a socket that listens for him.
const UMASK: u32 = 0o177;

impl FrontConnection {
    /// A request for the whole connection.
    pub(super) fn global(
        &mut self,
        request: Global,
        reply: Option<ReplyId>,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        let listens = matches!(
            request,
            Global::TcpipForward { .. } | Global::StreamlocalForward { .. }
        );
        if listens && !self.permits.has(FrontPermit::ListenForward) {
            self.answer_global(reply, None);
            return self.deny(RequestKind::Listen, b"remote forwarding", context);
        }
        if self.uses.len() >= MAX_USES {
            self.answer_global(reply, None);
            return Ok(());
        }
        match request {
            Global::TcpipForward { host, port } => {
                let (Some(name), Ok(number)) = (listening_host(&host), u16::try_from(port)) else {
                    self.answer_global(reply, None);
                    return Ok(());
                };
                let bound = None;
                let ticket = self.ticket(Use::Tcp {
                    host,
                    port,
                    reply,
                    bound,
                });
                let what = What::Accept {
                    host: name,
                    port: number,
                    backlog: BACKLOG,
                };
                self.ask(ticket, what, context)
            }
            Global::StreamlocalForward { path } => {
                let Some(name) = path_of(&path) else {
                    self.answer_global(reply, None);
                    return Ok(());
                };
                let ticket = self.ticket(Use::Unix(path, reply));
                let what = What::ListenUnix {
                    path: name,
                    umask: UMASK,
                    unlink_first: false,
                    backlog: BACKLOG,
                };
                self.ask(ticket, what, context)
            }
            Global::CancelTcpipForward { host, port } => {
                let is = |what: &Use| match what {
                    Use::Tcp {
                        host: h,
                        port: p,
                        bound: Some(bound),
                        ..
                    } => *h == host && (*p == port && port != 0 || u32::from(*bound) == port),
                    _ => false,
                };
                let of = self
                    .uses
                    .iter()
                    .find(|(_, what)| is(what))
                    .map(|(ticket, _)| *ticket);
                self.cancel(of, reply, context)
            }
            Global::CancelStreamlocalForward { path } => {
                let is = |l: &Listener| matches!(&l.what, Listens::Unix(p) if *p == path);
                let of = self.listeners.values().find(|l| is(l)).map(|l| l.ticket);
                self.cancel(of, reply, context)
            }
            Global::ProveHostKeys { keys } => {
                let ticket = self.ticket(Use::Prove(reply));
                let keys = keys.into_iter().map(|bytes| Blob { bytes }).collect();
                context.control.say(&FromFront::Prove {
                    connection: self.number,
                    ticket,
                    keys,
                })
            }
            // The core itself refuses sessions from here on.
            Global::NoMoreSessions => {
                self.answer_global(reply, Some(&[]));
                Ok(())
            }
            Global::HostKeys { .. } | Global::Other { .. } => {
                self.answer_global(reply, None);
                Ok(())
            }
        }
    }

    /// The helper listens for the client: RFC 4254 §7.1 wants the port where the client left it open.
    pub(super) fn listening(&mut self, ticket: Ticket, reply: Option<ReplyId>, bound: u16) {
        let asked = match self.uses.get(&ticket) {
            Some(Use::Tcp { port, .. }) => *port,
            _ => return,
        };
        let port = u32::from(bound).to_be_bytes();
        self.answer_global(reply, Some(if asked == 0 { &port } else { &[] }));
    }

    /// Somebody connected where the helper listens.
    pub(super) fn accepted_tcp(&mut self, ticket: Ticket, peer: &Endpoint, fds: Vec<Fd>) {
        let Some(Use::Tcp {
            host,
            bound: Some(bound),
            ..
        }) = self.uses.get(&ticket)
        else {
            return;
        };
        let kind = ChannelKind::ForwardedTcpip {
            host: host.clone(),
            port: (*bound).into(),
            origin: peer.ip().to_string().into_bytes(),
            origin_port: peer.port.into(),
        };
        let to = c_text(format!("the client, from {}:{}", peer.ip(), peer.port).as_bytes());
        if let Some(socket) = fds.into_iter().next() {
            self.offer(ticket, &kind, to, socket);
        }
    }

    /// Has the loop told of connections on sockets that listen here.
    pub(super) fn listen(
        &mut self,
        ticket: Ticket,
        fds: Vec<Fd>,
        what: impl Fn(usize) -> Listens,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        for (n, fd) in fds.into_iter().enumerate() {
            let id = self
                .listeners
                .last_key_value()
                .map_or(0, |(id, _)| id.wrapping_add(1));
            context
                .epoll
                .add_edges(&fd, Key::Listener(self.place, id).to_number())
                .map_err(WorkerEnd::at("watching a listener"))?;
            let what = what(n);
            self.listeners.insert(id, Listener { fd, ticket, what });
        }
        Ok(())
    }

    /// Connections wait on a listener.
    pub(super) fn listener_ready(&mut self, listener: u32) {
        loop {
            let Some(l) = self.listeners.get(&listener) else {
                return;
            };
            let (socket, peer) = match net::accept_any(&l.fd) {
                Ok(accepted) => accepted,
                // The end of what waits, or somebody who went away again.
                Err(Errno::ECONNABORTED) => continue,
                Err(_) => return,
            };
            let ticket = l.ticket;
            let (kind, to, last) = match &l.what {
                Listens::Agent => (ChannelKind::Agent, c"the client's agent".to_owned(), false),
                Listens::Display { single } => {
                    let peer = SocketAddr::from(peer.unwrap_or(Address::v4([127, 0, 0, 1], 0)));
                    let kind = ChannelKind::X11 {
                        origin: peer.ip().to_string().into_bytes(),
                        origin_port: peer.port().into(),
                    };
                    (kind, c"the client's display".to_owned(), *single)
                }
                Listens::Unix(path) => (
                    ChannelKind::ForwardedStreamlocal { path: path.clone() },
                    c_text(&[b"the client, from ", &path[..]].concat()),
                    false,
                ),
            };
            self.offer(ticket, &kind, to, socket);
            if last {
                // One connection only: whoever comes next finds nobody.
                self.listeners.retain(|_, l| l.ticket != ticket);
            }
        }
    }

    /// Ends what listens, at the client's wish.
    fn cancel(
        &mut self,
        of: Option<Ticket>,
        reply: Option<ReplyId>,
        context: &mut Context<'_>,
    ) -> Result<(), WorkerEnd> {
        let Some(of) = of else {
            self.answer_global(reply, None);
            return Ok(());
        };
        self.uses.remove(&of);
        self.listeners.retain(|_, l| l.ticket != of);
        let ticket = self.ticket(Use::Cancel(reply));
        self.ask(ticket, What::Cancel { of }, context)
    }

    /// Ends what listens, because what it was for is gone.
    pub(super) fn stop_listening(&mut self, of: Ticket, context: &mut Context<'_>) -> Result<(), WorkerEnd> {
        self.cancel(Some(of), None, context)
    }
}

/// A host to listen on; empty: all addresses.
fn listening_host(host: &[u8]) -> Option<CString> {
    if host.is_empty() {
        Some(CString::default())
    } else {
        host_of(host)
    }
}
