//! The lobby's side: what arrives goes to it, and what it asks for is decided. It is believed in nothing: a word about
//! a connection that is not its own is as if it were about none, and one that no honest lobby says ends it.

use super::Node;
use super::ends::quoted;
use super::strangers::say_not_now;
use crate::monitor::arrivals::{Arrived, RESUME};
use crate::monitor::audit::{AsAudited, Event};
use crate::monitor::connections::{Connection, GRACE_MARGIN, Stage};
use crate::monitor::exchange::{Exchanges, cookie};
use crate::monitor::fronts::Whose;
use crate::monitor::granted::Granted;
use crate::monitor::login::{Entry, Login, Refusal, Step};
use crate::monitor::metrics::LoginResult;
use crate::monitor::seats::{Seat, SeatId};
use crate::monitor::sessions::offered;
use crate::monitor::strangers::Line;
use crate::monitor::timers::now;
use crate::monitor::wakes::{Key, Owner};
use fleetgate_policy::{Grant, GrantId, How};
use fleetgate_sys::Errno;
use fleetgate_wire::node::Connection as Number;
use fleetgate_wire::node::front::ToFront;
use fleetgate_wire::node::lobby::{FromLobby, ToLobby};
use fleetgate_wire::node::{Kind, Permits, State, Verdict};
use std::time::Duration;

/// The lobby that there is.
pub struct Lobby {
    /// Its process.
    pub seat: SeatId,
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
    pub fn new(seat: SeatId) -> Lobby {
        Lobby {
            seat,
            since: now(),
            backoff: Duration::ZERO,
        }
    }
}

impl Node {
    /// Tells the lobby.
    pub(super) fn tell_lobby(&mut self, word: &ToLobby) {
        self.seats
            .say(self.lobby.seat, word, Vec::new(), &self.tools.wakes);
    }

    /// A connection came; its number, or why it is refused, which is told.
    pub(super) fn arrived(&mut self, arrived: Arrived) -> Result<Number, String> {
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
        let word = ToLobby::Arrived {
            connection: number,
            ends: arrived.ends.clone(),
            cookie,
            grace_ms: limits.login_grace.as_millis(),
        };
        self.connections.add(Connection {
            number,
            ends: arrived.ends,
            source,
            counts_as,
            via: arrived.via,
            socket: arrived.socket,
            since: now(),
            offer: self.offer.clone(),
            exchanges: Exchanges::new(cookie),
            stage: Stage::Login(Box::new(Login::new(self.trust.clone()))),
            grace: Some(timer),
            clock: now(),
            hung_up: false,
            parting: None,
            proofs: 0,
            waiting: Vec::new(),
        });
        self.seats
            .say(self.lobby.seat, &word, vec![socket], &self.tools.wakes);
        Ok(number)
    }

    /// Refuses it; the reason.
    fn refused(&mut self, arrived: Arrived, reason: String) -> String {
        let source = arrived.source;
        self.tools.metrics.connection_refused();
        let line = Line {
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
    pub(super) fn lobby_says(&mut self, frame: &[u8]) {
        let word = match fleetgate_wire::decode::<FromLobby>(frame) {
            Ok(word) => word,
            Err(e) => return self.violated(Seat::Lobby, self.lobby.seat, None, &e.to_string()),
        };
        match word {
            FromLobby::Ready => self.lobby_ready(),
            FromLobby::Sign { connection, exchange } => {
                if self.connections.of_lobby(connection).is_some() {
                    self.exchange(connection, exchange.into());
                }
            }
            FromLobby::Auth { connection, request } => {
                if let Some(known) = self.connections.of_lobby(connection) {
                    known.clock = now();
                    if !matches!(known.stage, Stage::Login(_)) {
                        let why = "a login request after the login";
                        return self.violated(Seat::Lobby, self.lobby.seat, Some(connection), why);
                    }
                }
                if !self.is_parting(connection) {
                    self.login(connection, |login, scene| login.asked(request, scene));
                }
            }
            FromLobby::AuthInfo { connection, response } => {
                if !self.is_parting(connection) {
                    self.login(connection, |login, scene| login.answered(response, scene));
                }
            }
            FromLobby::HandOver { connection, state } => self.handed_over(connection, state),
            FromLobby::Closed { connection, why } => {
                if self.connections.of_lobby(connection).is_some() {
                    self.charge_for_end(connection);
                    self.end(connection, &quoted(&why));
                }
            }
        }
    }

    /// Whether the lobby was told that this login is over: what crosses that word is no try any more. Else a lobby that
    /// is taken over could try passwords without end on one connection.
    fn is_parting(&mut self, number: Number) -> bool {
        self.connections
            .get(number)
            .is_some_and(|known| known.parting.is_some())
    }

    /// What follows from a step of a login.
    pub(super) fn login_step(&mut self, number: Number, step: Step, refusals: Vec<Refusal>) {
        self.tell_refusals(number, refusals);
        match step {
            Step::Wait => {}
            Step::Say(verdict) => {
                if let (Verdict::End { text, .. }, Some(known)) = (&verdict, self.connections.get(number)) {
                    known.parting = Some(text.to_string_lossy().into_owned());
                }
                self.tell_lobby(&ToLobby::Verdict {
                    connection: number,
                    verdict,
                });
            }
            Step::In(entry) => self.let_in(number, *entry),
            Step::Violation(why) => self.violated(Seat::Lobby, self.lobby.seat, Some(number), why),
        }
    }

    pub(super) fn tell_refusals(&mut self, number: Number, refusals: impl IntoIterator<Item = Refusal>) {
        let Some((source, via)) = self.connections.get(number).map(|c| (c.source, c.proxy())) else {
            return;
        };
        for Refusal {
            login,
            method,
            reason,
            user,
            rule,
        } in refusals
        {
            self.tools.metrics.login(LoginResult::Refused);
            let line = Line {
                source: source.ip(),
                tunnelled: via.is_some(),
                what: "login_refused",
                is_user: user.is_some(),
            };
            if !self.has_line(line) {
                tracing::debug!(connection = number, %source, ?login, method, "a login is refused: {reason}");
                continue;
            }
            tracing::info!(connection = number, %source, ?login, method, "a login is refused: {reason}");
            self.tools.audit.tell(Event::LoginRefused {
                connection: number,
                source,
                login,
                method,
                reason,
                user,
                rule,
                via: via.clone(),
            });
        }
    }

    /// A login was proven: the grant is noted, and its front begins to start while the lobby freezes the connection.
    fn let_in(&mut self, number: Number, entry: Entry) {
        let Some(known) = self.connections.of_lobby(number) else {
            return;
        };
        let took = now().saturating_sub(known.clock);
        known.clock = now();
        if let Some(timer) = known.grace.take() {
            self.tools.timers.cancel(timer);
        }
        let (source, ends, via) = (known.source, known.ends.clone(), known.proxy());
        self.timing(number, "login", took);
        self.grants += 1;
        let whose = Whose::new(&entry.login, entry.account.ids.uid, &entry.identity);
        let granted = Granted {
            connection: number,
            ends,
            grant: Grant {
                id: GrantId(self.grants),
                identity: entry.identity,
                login: entry.login,
                permits: entry.permits,
                must_change_password: entry.must_change_password,
                source,
                expires: entry.expires,
            },
            members: entry.members,
            base: entry.base,
            uid: entry.account.ids.uid,
            pam: entry.pam,
        };
        let front = self.fronts.seat(
            whose,
            number,
            &self.offer,
            &mut self.seats,
            &self.tools.wakes,
            &mut self.tools.timers,
        );
        let front = match front {
            Ok(front) => front,
            Err(e) => {
                tracing::error!(connection = number, "no front can be started for a login: {e}");
                return self.end(number, "no front can be started for its login");
            }
        };
        self.tools.metrics.login(LoginResult::Accepted);
        let proven = &granted.grant.identity.proven;
        let by_password = proven
            .iter()
            .any(|how| matches!(how, How::Password | How::KeyboardInteractive));
        let account = granted.grant.login.as_str().as_bytes();
        self.tools
            .strangers
            .logged_in(source.ip(), via.is_some(), account, by_password);
        tracing::info!(
            connection = number, %source, via, login = %granted.grant.login, identity = %granted.grant.identity, "a login"
        );
        if granted.grant.must_change_password {
            tracing::info!(
                connection = number,
                "its password has expired: its sessions are `passwd`"
            );
        }
        self.tools.audit.tell(Event::LoginAccepted {
            connection: number,
            source,
            login: granted.grant.login.to_string(),
            identity: granted.grant.identity.to_string(),
            cluster: granted.members.first().map(AsAudited::new),
            via,
        });
        self.connections.logged_in(number, Box::new(granted), front);
        self.tell_lobby(&ToLobby::Verdict {
            connection: number,
            verdict: Verdict::Accepted { notes: entry.notes },
        });
        // The lobby's grace for the hand-over: a connection that is in and stays there is nobody's.
        let timer = self
            .tools
            .timers
            .after(GRACE_MARGIN, Key::new(Owner::Connections, number));
        if let Some(known) = self.connections.of_lobby(number) {
            known.grace = Some(timer);
        }
    }

    /// The frozen connection, for its front.
    fn handed_over(&mut self, number: Number, state: State) {
        let Some(known) = self.connections.of_lobby(number) else {
            return;
        };
        if known.parting.is_some() {
            return self.end(number, "it was locked");
        }
        let Some(front) = known.open() else {
            let why = "a connection is handed over without a login";
            return self.violated(Seat::Lobby, self.lobby.seat, Some(number), why);
        };
        let took = now().saturating_sub(known.clock);
        if let Some(timer) = known.grace.take() {
            self.tools.timers.cancel(timer);
        }
        let (cookie, made) = (known.exchanges.next_cookie(), known.socket.duplicate(0));
        let ends = known.ends.clone();
        let permits = known.granted().map(|g| to_offer(g, now())).unwrap_or_default();
        self.timing(number, "handover", took);
        match made {
            Ok(socket) => {
                let word = ToFront::Arrived {
                    connection: number,
                    ends,
                    state,
                    permits,
                    cookie,
                };
                self.seats.say(front, &word, vec![socket], &self.tools.wakes);
            }
            Err(e) => self.end(number, &format!("it could not be handed over: {e}")),
        }
    }

    fn lobby_ready(&mut self) {
        self.arrivals.resume(&self.tools.wakes);
        self.starter.ready();
    }

    /// It died: who was in it is out, and it is started again, later and later if it keeps dying.
    pub(super) fn lobby_gone(&mut self) {
        let of_lobby = self.connections.numbers(|c| !matches!(c.stage, Stage::Open(..)));
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
        self.arrivals.pause(&self.tools.wakes);
        self.tools
            .timers
            .after(self.lobby.backoff, Key::new(Owner::Arrivals, RESUME));
    }

    /// A pause is over: for want of descriptors, or of a lobby.
    pub(super) fn lobby_resume(&mut self) {
        if self.draining {
            return;
        }
        if self.seats.is_there(self.lobby.seat) {
            return self.arrivals.resume(&self.tools.wakes);
        }
        match self.start_lobby() {
            Ok(seat) => {
                let backoff = self.lobby.backoff;
                self.lobby = Lobby {
                    backoff,
                    ..Lobby::new(seat)
                };
            }
            Err(e) => {
                tracing::error!("the lobby is not started: {e}");
                self.tools
                    .timers
                    .after(BACKOFF.1, Key::new(Owner::Arrivals, RESUME));
            }
        }
    }

    fn start_lobby(&mut self) -> Result<SeatId, Errno> {
        let seat = self.seats.start(Seat::Lobby, &self.tools.wakes)?;
        let settings = self.offer.settings.clone();
        let begin = ToLobby::Begin { settings };
        self.seats.say(seat, &begin, Vec::new(), &self.tools.wakes);
        Ok(seat)
    }
}

/// What the front may ask for. What roles allow may change while the connection is open, and why they refuse a program is
/// for its user to read: that the front does not know, so it is to ask.
fn to_offer(granted: &Granted, now: Duration) -> Permits {
    let offered = offered(&granted.grant, now);
    match granted.members.is_empty() {
        true => offered,
        false => [Kind::Shell, Kind::Exec, Kind::Sftp]
            .into_iter()
            .fold(offered, Permits::with),
    }
}

impl Node {
    /// One step of a login's way, for benchmarks and for those who ask.
    pub(super) fn timing(&mut self, connection: Number, step: &str, took: Duration) {
        tracing::debug!(connection, step, micros = took.as_micros() as u64, "timing");
        self.tools.steps.add(connection, c"node", step, took);
    }
}
