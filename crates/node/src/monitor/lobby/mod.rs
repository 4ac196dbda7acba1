//! The lobby's side: what arrives goes to it, and what it asks for is decided. It is believed in nothing: a message about
//! a connection that is not its own is as if it were about none, and one that no honest lobby says ends it.

mod logins;

use crate::monitor::Monitor;
use crate::monitor::accept::{NewConnection, RESUME};
use crate::monitor::audit::Event;
use crate::monitor::connections::exchanges::{Exchanges, cookie};
use crate::monitor::connections::{Connection, GRACE_MARGIN, Stage, quoted};
use crate::monitor::login::LoginAttempt;
use crate::monitor::strangers::{StrangerEvent, say_not_now};
use crate::monitor::timers::now;
use crate::monitor::wakes::{Key, Owner};
use crate::monitor::workers::{WorkerId, WorkerKind};
use fleetgate_sys::Errno;
use fleetgate_wire::node::front::ToFront;
use fleetgate_wire::node::lobby::{FromLobby, ToLobby};
use fleetgate_wire::node::{ConnectionNumber, FrozenConnection};
use logins::front_permits_in_cluster;
use std::time::Duration;

/// The lobby that there is.
pub struct Lobby {
    /// Its process.
    pub worker: WorkerId,
    /// Since when.
    since: Duration,
    /// How long nothing is accepted when it dies again.
    backoff: Duration,
}

/// A lobby that lived for so long is started again at once.
const SETTLED: Duration = Duration::from_secs(10);
/// The first wait of one that did not, doubled each time.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
impl Lobby {
    /// This process, from now on.
    pub fn new(worker: WorkerId) -> Lobby {
        Lobby {
            worker,
            since: now(),
            backoff: Duration::ZERO,
        }
    }
}

impl Monitor {
    /// Tells the lobby.
    pub(crate) fn tell_lobby(&mut self, message: &ToLobby) {
        self.workers
            .say(self.lobby.worker, message, Vec::new(), &self.tools.wakes);
    }

    /// A connection came; its number, or why it is refused, which is told.
    pub(crate) fn admit_connection(&mut self, arrived: NewConnection) -> Result<ConnectionNumber, String> {
        let config = self.tools.config.clone();
        let limits = &config.limits;
        let source = arrived.source;
        let tunnelled = arrived.via.is_some();
        if let Some(left) = self.tools.strangers.refuses_connection(source.ip(), tunnelled) {
            if !tunnelled {
                say_not_now(&arrived.socket);
            }
            let why = format!("its address has penalties for {} s more", left.as_secs() + 1);
            return Err(self.refused(arrived, why));
        }
        let counts_as = config.strangers.source(source.ip());
        let proxy = arrived.via.as_ref().map(|via| via.proxy.as_str());
        let room = self
            .connections
            .room(counts_as, proxy, limits, &self.tools.strangers);
        match room {
            Ok(None) => {}
            Ok(Some(other)) => self.end(other, "its place went to another source"),
            Err(full) => return Err(self.refused(arrived, full.why().to_owned())),
        }
        let number = self.connections.number();
        let taken = cookie().and_then(|cookie| {
            let socket = arrived.socket.duplicate(0)?;
            self.tools
                .wakes
                .watch(&arrived.socket, 0, Key::new(Owner::Connections, number))?;
            Ok((cookie, socket))
        });
        let (cookie, socket) = match taken {
            Ok(taken) => taken,
            Err(e) => {
                tracing::error!(%source, "a connection is refused: {e}");
                return Err(e.to_string());
            }
        };
        let grace = limits.login_grace.0;
        let timer = self
            .tools
            .timers
            .after(grace + GRACE_MARGIN, Key::new(Owner::Connections, number));
        self.tools.metrics.connection_opened();
        if arrived.via.is_some() {
            self.tools.metrics.connection_tunnelled();
        }
        tracing::debug!(connection = number, %source, via = ?arrived.via, "a connection");
        let message = ToLobby::Arrived {
            connection: number,
            addresses: arrived.addresses.clone(),
            cookie,
            grace_ms: limits.login_grace.as_millis(),
        };
        self.connections.add(Connection {
            number,
            addresses: arrived.addresses,
            source,
            counts_as,
            via: arrived.via,
            socket: arrived.socket,
            since: now(),
            offer: self.offer.clone(),
            exchanges: Exchanges::new(cookie),
            stage: Stage::LoggingIn(Box::new(LoginAttempt::new(self.trust.clone()))),
            deadline: Some(timer),
            step_began: now(),
            hung_up: false,
            parting: None,
            proofs: 0,
            waiting: Vec::new(),
        });
        self.workers
            .say(self.lobby.worker, &message, vec![socket], &self.tools.wakes);
        Ok(number)
    }

    /// Refuses it; the reason.
    fn refused(&mut self, arrived: NewConnection, reason: String) -> String {
        let source = arrived.source;
        self.tools.metrics.connection_refused();
        let line = StrangerEvent {
            source: source.ip(),
            tunnelled: arrived.via.is_some(),
            what: "connection_refused",
            is_user: false,
        };
        if self.has_line(line) {
            tracing::warn!(%source, "a connection is refused: {reason}");
            self.tools.audit.tell(Event::ConnectionRefused {
                source,
                reason: reason.clone(),
                via: arrived.via.map(|via| via.proxy),
            });
        }
        reason
    }

    /// A frame of the lobby's.
    pub(crate) fn lobby_says(&mut self, frame: &[u8]) {
        let message = match fleetgate_wire::decode::<FromLobby>(frame) {
            Ok(message) => message,
            Err(e) => return self.violated(WorkerKind::Lobby, self.lobby.worker, None, &e.to_string()),
        };
        match message {
            FromLobby::Ready => self.lobby_ready(),
            FromLobby::Sign { connection, exchange } => {
                if self.connections.of_lobby(connection).is_some() {
                    self.sign_when_due(connection, exchange.into());
                }
            }
            FromLobby::Auth { connection, request } => {
                if let Some(known) = self.connections.of_lobby(connection) {
                    known.step_began = now();
                    if !matches!(known.stage, Stage::LoggingIn(_)) {
                        let why = "a login request after the login";
                        return self.violated(WorkerKind::Lobby, self.lobby.worker, Some(connection), why);
                    }
                }
                if !self.is_parting(connection) {
                    self.drive_login(connection, |login, context| login.on_request(request, context));
                }
            }
            FromLobby::AuthInfo { connection, response } => {
                if !self.is_parting(connection) {
                    self.drive_login(connection, |login, context| login.on_answers(response, context));
                }
            }
            FromLobby::HandOver { connection, frozen } => self.handed_over(connection, frozen),
            FromLobby::Closed { connection, why } => {
                if self.connections.of_lobby(connection).is_some() {
                    self.charge_for_end(connection);
                    self.end(connection, &quoted(&why));
                }
            }
        }
    }

    /// Whether the lobby was told that this login is over: what crosses that message is no try any more. Else a lobby that
    /// is taken over could try passwords without end on one connection.
    fn is_parting(&mut self, number: ConnectionNumber) -> bool {
        self.connections
            .get(number)
            .is_some_and(|known| known.parting.is_some())
    }

    /// The frozen connection, for its front.
    fn handed_over(&mut self, number: ConnectionNumber, frozen: FrozenConnection) {
        let Some(known) = self.connections.of_lobby(number) else {
            return;
        };
        if known.parting.is_some() {
            return self.end(number, "it was locked");
        }
        let Some(front) = known.hand_over() else {
            let why = "a connection is handed over without a login";
            return self.violated(WorkerKind::Lobby, self.lobby.worker, Some(number), why);
        };
        let took = now().saturating_sub(known.step_began);
        if let Some(timer) = known.deadline.take() {
            self.tools.timers.cancel(timer);
        }
        let (cookie, made) = (known.exchanges.next_cookie(), known.socket.duplicate(0));
        let addresses = known.addresses.clone();
        let permits = known
            .open_login()
            .map(|open_login| front_permits_in_cluster(open_login, now()))
            .unwrap_or_default();
        self.timing(number, "handover", took);
        match made {
            Ok(socket) => {
                let message = ToFront::Arrived {
                    connection: number,
                    addresses,
                    frozen,
                    permits,
                    cookie,
                };
                self.workers.say(front, &message, vec![socket], &self.tools.wakes);
            }
            Err(e) => self.end(number, &format!("it could not be handed over: {e}")),
        }
    }

    fn lobby_ready(&mut self) {
        self.listeners.resume(&self.tools.wakes);
        self.tools.metrics.accepts(true);
        self.starter.ready();
    }

    /// It died: who was in it is out, and it is started again, later and later if it keeps dying.
    pub(crate) fn lobby_gone(&mut self) {
        let of_lobby = self.connections.numbers(|c| c.front().is_none());
        for number in of_lobby {
            self.end(number, "the lobby ended");
        }
        if self.draining {
            return;
        }
        let lived = now().saturating_sub(self.lobby.since);
        self.lobby.backoff = match lived >= SETTLED {
            true => Duration::ZERO,
            false => (self.lobby.backoff * 2).clamp(BACKOFF.0, BACKOFF.1),
        };
        self.listeners.pause(&self.tools.wakes);
        self.tools.metrics.accepts(false);
        self.tools
            .timers
            .after(self.lobby.backoff, Key::new(Owner::Listeners, RESUME));
    }

    /// A pause is over: for want of descriptors, or of a lobby.
    pub(crate) fn lobby_resume(&mut self) {
        if self.draining {
            return;
        }
        if self.workers.is_there(self.lobby.worker) {
            self.tools.metrics.accepts(true);
            return self.listeners.resume(&self.tools.wakes);
        }
        match self.start_lobby() {
            Ok(worker) => {
                let backoff = self.lobby.backoff;
                self.lobby = Lobby {
                    backoff,
                    ..Lobby::new(worker)
                };
            }
            Err(e) => {
                tracing::error!("the lobby is not started: {e}");
                self.tools
                    .timers
                    .after(BACKOFF.1, Key::new(Owner::Listeners, RESUME));
            }
        }
    }

    fn start_lobby(&mut self) -> Result<WorkerId, Errno> {
        let worker = self.workers.start(WorkerKind::Lobby, &self.tools.wakes)?;
        let settings = self.offer.settings.clone();
        let begin = ToLobby::Begin { settings };
        self.workers.say(worker, &begin, Vec::new(), &self.tools.wakes);
        Ok(worker)
    }
}
