//! The lobby: every connection until its login. One loop, no user's data, no key of a host or of a user: exchange
//! hashes are signed and logins decided by the monitor, and a connection whose login was accepted leaves for a front.
//! What it waits for on one connection holds up no other.

mod connection;

use crate::rest::Rest;
use crate::start::{Control, Log, Start, WorkerEnd, c_text, ssh_settings};
use connection::{AfterTurn, Context, LobbyConnection};
use fleetgate_ssh::event::Reason;
use fleetgate_ssh::settings::{Limits, Settings};
use fleetgate_sys::Fd;
use fleetgate_sys::epoll::{Epoll, Event};
use fleetgate_wire::node::lobby::{FromLobby, ToLobby};
use fleetgate_wire::node::{self, FrozenConnection, MAX_KEXINIT};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The longest packet before a login: a KEXINIT, or a login request with a certificate. With one such packet half read
/// and [`connection::READ_MAX`] behind it, a connection's unread bytes stay below [`node::MAX_UNREAD`].
#[expect(clippy::cast_possible_truncation, reason = "a constant of 16 KB")]
const MAX_PACKET: u32 = MAX_KEXINIT as u32 + 2048;
/// What a peer may make us say before it reads: banners, refusals.
const MAX_OUTPUT: usize = 64 * 1024;
/// So many events are taken at once.
const EVENTS: usize = 64;
/// The control socket's key; connections have their numbers.
const CONTROL: u64 = u64::MAX;

/// All of it.
struct Lobby {
    control: Control,
    log: Log,
    epoll: Epoll,
    rest: Rest,
    started: Instant,
    settings: Option<Arc<Settings>>,
    banner: Vec<u8>,
    connections: BTreeMap<node::ConnectionNumber, LobbyConnection>,
    draining: bool,
}

/// Serves until the monitor ends it.
pub(crate) fn run(start: &Start) -> WorkerEnd {
    // The lobby lives long, and may not read files: it learns now where its program lies in memory.
    let rest = Rest::now();
    let epoll = match Epoll::new() {
        Ok(epoll) => epoll,
        Err(e) => return WorkerEnd::at("making an epoll")(e),
    };
    if let Err(ended) = start.confine(&[]) {
        return ended;
    }
    let mut lobby = Lobby {
        control: Control::inherited(),
        log: start.log,
        epoll,
        rest,
        started: Instant::now(),
        settings: None,
        banner: Vec::new(),
        connections: BTreeMap::new(),
        draining: false,
    };
    let Err(ended) = lobby.run();
    ended
}

impl Lobby {
    fn run(&mut self) -> Result<std::convert::Infallible, WorkerEnd> {
        self.control.watch(&self.epoll, CONTROL)?;
        self.control.say(&FromLobby::Ready)?;
        let mut events = [Event::EMPTY; EVENTS];
        loop {
            let timeout = self.rest.wait(self.next_deadline());
            self.control.will_wait(&self.epoll)?;
            let count = self
                .epoll
                .wait(&mut events, timeout)
                .map_err(WorkerEnd::at("waiting"))?;
            if self.rest.woke(count) {
                fleetgate_ssh::release_buffers();
            }
            let now = self.started.elapsed();
            for event in &events[..count] {
                match event.key() {
                    CONTROL => self.hear()?,
                    number => {
                        if let Some(client) = self.connections.get_mut(&number) {
                            client.ready(event.readable(), event.writable());
                            self.turn(number)?;
                        }
                    }
                }
            }
            self.pass_deadlines(now)?;
            if self.draining && self.connections.is_empty() {
                return Err(WorkerEnd::Quietly);
            }
        }
    }

    /// Everything the monitor has to say now.
    fn hear(&mut self) -> Result<(), WorkerEnd> {
        let was_congested = self.control.is_congested();
        self.control.flush()?;
        while let Some((message, fds)) = self.control.receive::<ToLobby>()? {
            self.obey(message, fds)?;
        }
        if was_congested && !self.control.is_congested() {
            // They were not read meanwhile, and their edges are gone.
            let all: Vec<node::ConnectionNumber> = self.connections.keys().copied().collect();
            for number in all {
                self.turn(number)?;
            }
        }
        Ok(())
    }

    fn obey(&mut self, message: ToLobby, fds: Vec<Fd>) -> Result<(), WorkerEnd> {
        let number = match message {
            ToLobby::Begin { settings } => {
                let limits = Limits {
                    max_packet: MAX_PACKET,
                    kexinit_max: MAX_KEXINIT,
                    ..Limits::default()
                };
                self.banner.clone_from(&settings.banner);
                let mut core = ssh_settings(&settings, limits).map_err(WorkerEnd::Because)?;
                if let Some(core) = Arc::get_mut(&mut core) {
                    core.limits.max_buffered = MAX_OUTPUT;
                    // The time for logging in is the one that counts.
                    core.keepalive = None;
                }
                self.settings = Some(core);
                return Ok(());
            }
            ToLobby::Arrived {
                connection,
                cookie,
                grace_ms,
                addresses: _,
            } => {
                let (Some(settings), Some(socket)) = (&self.settings, fds.into_iter().next()) else {
                    return Err(WorkerEnd::Because(
                        "a connection came without a socket, or before the settings".to_owned(),
                    ));
                };
                let deadline = self.started.elapsed() + std::time::Duration::from_millis(grace_ms.into());
                let client = LobbyConnection::new(
                    settings.clone(),
                    socket,
                    cookie,
                    deadline,
                    !self.banner.is_empty(),
                );
                if let Err(e) = self.epoll.add_edges(client.socket(), connection) {
                    let why = format!("watching its socket: {e}");
                    return self.control.say(&closed(connection, &why));
                }
                self.connections.insert(connection, client);
                connection
            }
            ToLobby::Signed {
                connection,
                signature,
                cookie,
            } => {
                // A connection that is gone by now is no error: our message about it and this one crossed.
                let Some(client) = self.connections.get_mut(&connection) else {
                    return Ok(());
                };
                self.log.timing("signature", client.answered());
                client.signed(&signature, cookie);
                connection
            }
            ToLobby::Verdict { connection, verdict } => {
                let Some(client) = self.connections.get_mut(&connection) else {
                    return Ok(());
                };
                self.log.timing("decision", client.answered());
                client.decided(verdict);
                connection
            }
            ToLobby::End {
                connection,
                reason,
                text,
            } => {
                let Some(client) = self.connections.get_mut(&connection) else {
                    return Ok(());
                };
                client.end(reason_of(reason), &text.to_string_lossy());
                connection
            }
            ToLobby::Drain => {
                self.draining = true;
                return Ok(());
            }
        };
        self.turn(number)
    }

    /// Gives a connection its turn, and says to the monitor what came of it.
    fn turn(&mut self, number: node::ConnectionNumber) -> Result<(), WorkerEnd> {
        let Some(client) = self.connections.get_mut(&number) else {
            return Ok(());
        };
        let may_read = !self.control.is_congested();
        let context = Context {
            control: &mut self.control,
            log: self.log,
            connection: number,
            banner: &self.banner,
        };
        match client.turn(self.started.elapsed(), may_read, context)? {
            AfterTurn::Stay => {}
            AfterTurn::Leave(why) => {
                self.control.say(&closed(number, &why))?;
                if let Some(client) = self.connections.remove(&number) {
                    client.leave();
                }
            }
            AfterTurn::Move => {
                if let Some(client) = self.connections.remove(&number) {
                    let (socket, mut frozen) = client.hand_over();
                    // The monitor has a descriptor too: the kernel would go on telling us of it.
                    let _ = self.epoll.remove(&socket);
                    if frozen.len() > node::MAX_FRAME - 64 {
                        self.control
                            .say(&closed(number, "its state is too long to be handed over"))?;
                    } else {
                        self.control.say(&FromLobby::HandOver {
                            connection: number,
                            frozen: FrozenConnection::new(std::mem::take(&mut *frozen)),
                        })?;
                    }
                }
            }
        }
        Ok(())
    }

    fn next_deadline(&self) -> Option<u32> {
        let next = self.connections.values().map(LobbyConnection::deadline).min()?;
        let left = next.saturating_sub(self.started.elapsed());
        // Rounded up: a wait that ends too early would be made again for nothing.
        Some(u32::try_from(left.as_millis() + 1).unwrap_or(u32::MAX))
    }

    fn pass_deadlines(&mut self, now: std::time::Duration) -> Result<(), WorkerEnd> {
        let late: Vec<node::ConnectionNumber> = self
            .connections
            .iter()
            .filter(|(_, g)| g.deadline() <= now)
            .map(|(n, _)| *n)
            .collect();
        for number in late {
            if let Some(client) = self.connections.get_mut(&number) {
                client.late();
            }
            self.turn(number)?;
        }
        Ok(())
    }
}

fn closed(connection: node::ConnectionNumber, why: &str) -> FromLobby {
    FromLobby::Closed {
        connection,
        why: c_text(why.as_bytes()),
    }
}

/// The reason as the core spells it; numbers that nobody of ours sends are the owner's wish.
pub(crate) fn reason_of(number: u32) -> Reason {
    use Reason::{
        ByApplication, ConnectionLost, HostKeyNotVerifiable, KeyExchangeFailed, MacError, NoMoreAuthMethods,
        ProtocolError, ServiceNotAvailable, TooManyConnections, VersionNotSupported,
    };
    [
        ProtocolError,
        KeyExchangeFailed,
        MacError,
        ServiceNotAvailable,
        VersionNotSupported,
        HostKeyNotVerifiable,
        ConnectionLost,
        TooManyConnections,
        NoMoreAuthMethods,
    ]
    .into_iter()
    .find(|r| *r as u32 == number)
    .unwrap_or(ByApplication)
}
