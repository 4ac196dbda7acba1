//! What each request does, up to where it has to wait for something.

use super::connecting::{ConnectAttempt, MAX_ADDRESSES};
use super::helper::{AddressUse, End, Helper, PendingRequest, Resource, ResourceKind, Stage, endpoint};
use super::host::{self, Host};
use super::unix::{self, SocketPath, UnixConnectAttempt};
use super::{listening, refusal};
use crate::order;
use alloc::ffi::CString;
use alloc::format;
use alloc::vec::Vec;
use fleetgate_sys::net::Address;
use fleetgate_sys::{Errno, Fd, socket};
use fleetgate_wire::net::{Done, HELPER, MAX_KEPT_SOCKETS, MAX_REQUEST, MAX_TIMEOUT_MS, Request, What};
use fleetgate_wire::{Failure, Reason};

/// How long a name may take where the request says nothing of time (listening).
const NAME_TIME: i64 = 30_000_000_000;

/// A request that is refused: answered, and the helper goes on.
type Refusable<T> = Result<T, Failure>;

impl Helper {
    /// Reads and serves one request.
    pub(super) fn request(&mut self, now: i64) -> Result<(), End> {
        let mut buffer = [0u8; MAX_REQUEST];
        let message = match socket::receive(&self.control, &mut buffer, false) {
            Err(Errno::EAGAIN) => return Ok(()),
            Err(_) => return Err(End::Stopped),
            Ok(message) if message.len == 0 && message.fds.is_empty() => return Err(End::Stopped),
            Ok(message) => message,
        };
        let garbage = |text: &str| order::failure(Reason::BadOrder, Errno(0), text);
        if message.truncated {
            return Err(self.give_up(garbage("a request is longer than 1024 bytes")));
        }
        if !message.fds.is_empty() {
            return Err(self.give_up(garbage("a request came with descriptors")));
        }
        let Request { id, what } = match fleetgate_wire::decode(&buffer[..message.len]) {
            Ok(request) => request,
            Err(e) => return Err(self.give_up(garbage(&format!("a request could not be read: {e}")))),
        };
        if id == HELPER || self.knows(id) {
            return Err(self.give_up(garbage("a request has the number 0 or that of another one")));
        }
        match what {
            What::Stop => Err(End::Stopped),
            What::Cancel { of } => self.cancel(id, of),
            what => match self.serve(id, what, now)? {
                Ok(()) => Ok(()),
                Err(why) => self.refuse(id, why),
            },
        }
    }

    fn knows(&self, id: u32) -> bool {
        self.pending.iter().any(|p| p.id == id) || self.kept.iter().any(|k| k.id == id)
    }

    fn cancel(&mut self, id: u32, of: u32) -> Result<(), End> {
        let before = self.pending.len() + self.kept.len();
        self.pending.retain(|p| p.id != of);
        self.kept.retain(|k| k.id != of);
        if self.pending.len() + self.kept.len() < before {
            return self.answer(id, Done::Cancelled, Vec::new());
        }
        let text = format!("there is no request {of}, or it is done");
        self.refuse(id, order::failure(Reason::Missing, Errno(0), &text))
    }

    fn serve(&mut self, id: u32, what: What, now: i64) -> Result<Refusable<()>, End> {
        if self.pending.len() >= self.max_pending {
            let text = format!("{} requests wait already", self.max_pending);
            return Ok(Err(refusal::too_many(&text)));
        }
        let checked = match what {
            What::Connect {
                host,
                port,
                timeout_ms,
            } => return self.connect(id, host, port, timeout_ms, now),
            What::Bind { host, port } => return self.bind(id, host, port, AddressUse::Bind, now),
            What::Listen { host, port, backlog } => {
                let backlog = listening::backlog(backlog);
                return self.bind(id, host, port, AddressUse::Listen { backlog }, now);
            }
            What::Accept { host, port, backlog } => {
                let backlog = listening::backlog(backlog);
                return self.bind(id, host, port, AddressUse::Accept { backlog }, now);
            }
            What::ConnectUnix { path, timeout_ms } => {
                let knocking =
                    deadline(timeout_ms, now).and_then(|at| UnixConnectAttempt::new(path, now, at));
                return self.knock(id, knocking, now);
            }
            What::ListenUnix {
                path,
                umask,
                unlink_first,
                backlog,
            } => self
                .room()
                .and_then(|()| unix::listen(path, umask, unlink_first, listening::backlog(backlog))),
            What::AgentSocket => self.room().and_then(|()| unix::agent()),
            What::X11Display {
                first,
                last,
                any_address,
            } => {
                return match listening::display(first, last, any_address) {
                    Err(why) => Ok(Err(why)),
                    Ok((number, bound)) => {
                        let fds = bound.into_iter().map(|b| b.socket).collect();
                        self.answer(id, Done::Display { number }, fds).map(Ok)
                    }
                };
            }
            // Served by the caller.
            What::Cancel { .. } | What::Stop => return Ok(Ok(())),
        };
        match checked {
            Err(why) => Ok(Err(why)),
            Ok((socket, made)) => self.keep_file(id, socket, made).map(Ok),
        }
    }

    fn connect(
        &mut self,
        id: u32,
        host: CString,
        port: u16,
        timeout_ms: u32,
        now: i64,
    ) -> Result<Refusable<()>, End> {
        let understood = deadline(timeout_ms, now).and_then(|at| Ok((at, host::remote(&host, port)?)));
        match understood {
            Err(why) => Ok(Err(why)),
            Ok((at, Host::Name)) => Ok(self.ask(id, host, port, AddressUse::Connect, now, at)),
            Ok((at, Host::Addresses { list, .. })) => {
                let mut connecting = ConnectAttempt::new(&list, at);
                let progress = connecting.proceed(now);
                self.pending.push(PendingRequest {
                    id,
                    stage: Stage::TcpConnect(connecting),
                });
                self.progressed(self.pending.len() - 1, progress).map(|_| Ok(()))
            }
        }
    }

    fn ask(
        &mut self,
        id: u32,
        name: CString,
        port: u16,
        then: AddressUse,
        now: i64,
        until: i64,
    ) -> Refusable<()> {
        let asked = self.names.ask(name, port, now, until)?;
        self.pending.push(PendingRequest {
            id,
            stage: Stage::NameLookup(asked, then),
        });
        Ok(())
    }

    fn knock(
        &mut self,
        id: u32,
        knocking: Refusable<UnixConnectAttempt>,
        now: i64,
    ) -> Result<Refusable<()>, End> {
        let mut knocking = match knocking {
            Ok(knocking) => knocking,
            Err(why) => return Ok(Err(why)),
        };
        match knocking.proceed(now) {
            Some(Ok(socket)) => {
                let done = Done::Connected { peer: None };
                self.answer(id, done, alloc::vec![socket]).map(Ok)
            }
            Some(Err(why)) => Ok(Err(why)),
            None => {
                self.pending.push(PendingRequest {
                    id,
                    stage: Stage::UnixConnect(knocking),
                });
                Ok(Ok(()))
            }
        }
    }

    fn bind(
        &mut self,
        id: u32,
        host: CString,
        port: u16,
        then: AddressUse,
        now: i64,
    ) -> Result<Refusable<()>, End> {
        match host::local(&host, port) {
            Err(why) => Ok(Err(why)),
            Ok(Host::Name) => Ok(self.ask(id, host, port, then, now, now + NAME_TIME)),
            Ok(Host::Addresses { list, complete }) => self.listen(id, &list, complete, then).map(Ok),
        }
    }

    /// Binds to `list`, of which no more than [`MAX_ADDRESSES`] are taken, and answers.
    pub(super) fn listen(
        &mut self,
        id: u32,
        list: &[Address],
        complete: bool,
        then: AddressUse,
    ) -> Result<(), End> {
        let list = &list[..list.len().min(MAX_ADDRESSES)];
        let (backlog, keep) = match then {
            AddressUse::Connect | AddressUse::Bind => (None, false),
            AddressUse::Listen { backlog } => (Some(backlog), false),
            AddressUse::Accept { backlog } => (Some(backlog), true),
        };
        let room = if keep { self.room() } else { Ok(()) };
        let bound = match room.and_then(|()| listening::open(list, complete, backlog)) {
            Ok(bound) => bound,
            Err(why) => return self.refuse(id, why),
        };
        let local = bound.iter().map(|b| endpoint(&b.at)).collect();
        let mut fds = Vec::new();
        if keep {
            self.kept.push(Resource {
                id,
                what: ResourceKind::Listeners(bound),
            });
        } else {
            fds = bound.into_iter().map(|b| b.socket).collect();
        }
        self.answer(id, Done::Listening { local }, fds)
    }

    fn keep_file(&mut self, id: u32, socket: Fd, made: SocketPath) -> Result<(), End> {
        let path = made.path();
        self.kept.push(Resource {
            id,
            what: ResourceKind::File { _made: made },
        });
        self.answer(id, Done::UnixListening { path }, alloc::vec![socket])
    }

    /// Whether one more listener or file may be kept.
    fn room(&self) -> Refusable<()> {
        if self.kept.len() < MAX_KEPT_SOCKETS {
            return Ok(());
        }
        Err(refusal::too_many(
            "64 listeners are kept already; cancel one before asking for another",
        ))
    }
}

/// The moment until which a request may take.
fn deadline(timeout_ms: u32, now: i64) -> Refusable<i64> {
    if timeout_ms == 0 || timeout_ms > MAX_TIMEOUT_MS {
        return Err(refusal::bad("the timeout is not from 1 to 600000 milliseconds"));
    }
    Ok(now + timeout_ms as i64 * 1_000_000)
}
