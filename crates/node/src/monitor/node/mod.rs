//! The loop that owns all parts and wires them: who is woken is called, and what one part says for another is carried
//! there. Each file beside this one has one side: the lobby, the fronts, the tunnel, connections' ends, reload and end.

mod cluster;
mod ends;
mod exchanges;
mod fronts;
mod lobby;
mod rejoin;
mod reload;
mod strangers;
mod tunnel;
mod watcher;

use super::arrivals::{Accepted, Arrivals, PAUSE, RESUME};
use super::audit::{Event, Writing};
use super::connections::{Connections, Stage};
use super::fronts::Fronts;
use super::label_commands::LabelCommands;
use super::login::{Login, Scene, Step};
use super::metrics::{Process, Serving};
use super::network::Networks;
use super::offer::Offer;
use super::running::Running;
use super::seats::{News, Seat, SeatId, Seats};
use super::sessions::Sessions;
use super::starter::Starter;
use super::timers::{Timer, now};
use super::tools::Tools;
use super::trust::Trust;
use super::tunnel::Tunnel;
use super::wakes::{Key, Owner};
use fleetgate_sys::Errno;
use fleetgate_wire::node::Connection as Number;
use fleetgate_wire::node::front::ToFront;
use fleetgate_wire::node::tunnel::ToTunnel;
use fleetgate_worker::rest::Rest;
pub use lobby::Lobby;
use std::sync::Arc;
use std::time::Duration;
pub use watcher::Pair;

/// How long the last audit events may take to the disk when the node ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// All of it.
pub struct Node {
    pub(super) tools: Tools,
    pub(super) seats: Seats,
    pub(super) arrivals: Arrivals,
    pub(super) connections: Connections,
    pub(super) fronts: Fronts,
    pub(super) sessions: Sessions,
    pub(super) networks: Networks,
    pub(super) starter: Starter,
    pub(super) offer: Arc<Offer>,
    pub(super) trust: Arc<Trust>,
    pub(super) lobby: Lobby,
    /// None: the machine did not join a cluster.
    pub(super) tunnel: Option<Tunnel>,
    /// Tunnels of who the node was before it left, or joined anew: until their sessions have ended.
    pub(super) parted: Vec<SeatId>,
    /// How many tunnels there were before the one that is there.
    pub(super) tunnels: u64,
    pub(super) resolver: SeatId,
    pub(super) config_path: Option<std::path::PathBuf>,
    pub(super) writing: Option<Writing>,
    /// The page of metrics; none: it is not served.
    pub(super) page: Option<Serving>,
    /// Who watches sessions.
    pub(super) watchers: Pair,
    /// No more are accepted; it ends with the last connection and the last session.
    pub(super) draining: bool,
    /// No other node runs with this one's identity. None: the machine did not join, or this monitor drains.
    pub(super) running: Option<Running>,
    /// Commands that say the node's labels.
    pub(super) label_commands: LabelCommands,
    /// When the state's age is looked at next.
    pub(super) age_timer: Option<Timer>,
    /// When sums of what strangers did are due.
    pub(super) strangers_timer: Option<Timer>,
    /// The next grant's number.
    pub(super) grants: u64,
    pub(super) done: bool,
}

impl Node {
    /// Serves until it is told to end and the last connection and session have.
    pub fn serve(mut self) -> Result<(), Errno> {
        let served = self.turn_until_done();
        self.tell_sums(true);
        let writing = self.writing.take();
        drop(self);
        // What is left of the audit log is written by a thread that ends with the last who may tell it something.
        if let Some(writing) = writing {
            let (done, wait) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                writing.finish();
                let _ = done.send(());
            });
            let _ = wait.recv_timeout(LAST_WORDS);
        }
        served
    }

    fn turn_until_done(&mut self) -> Result<(), Errno> {
        let mut keys = Vec::new();
        let mut rest = Rest::now();
        while !self.done {
            let wait = match self.tools.names.has_ready() {
                true => Some(0),
                false => self.tools.timers.wait_ms(now()),
            };
            if self.tools.reaper.looks() {
                rest.stir();
            }
            keys.clear();
            self.tools.wakes.wait(rest.wait(wait), &mut keys)?;
            // At first that is what only the start needed. Of an idle monitor's 5.5 MB it is 4.
            let rests = rest.woke(keys.len());
            self.look_around(rests);
            for key in &keys {
                self.wake(*key);
                self.deliver();
            }
            while let Some(key) = self.tools.timers.pop(now()) {
                self.wake(key);
                self.deliver();
            }
            if self.tools.names.has_ready() {
                self.wake(Key::new(Owner::Names, 0));
                self.deliver();
            }
            // A session may outlive its connection: whoever drains sees it to its end, or nobody would write that down.
            if self.draining && self.connections.len() == 0 && self.sessions.count() == 0 {
                self.done = true;
            }
        }
        Ok(())
    }

    /// What wakes nobody, since something else is sure to in a moment: helpers that end, fronts that begin.
    fn look_around(&mut self, rests: bool) {
        self.tools.reaper.look(rests, &self.tools.wakes);
        let mut news = Vec::new();
        self.seats.started(&self.tools.wakes, &mut news);
        if !news.is_empty() {
            self.take(news);
            self.deliver();
        }
    }

    fn wake(&mut self, key: Key) {
        let id = key.id;
        match key.owner {
            Owner::Starter => self.starter_woken(id),
            Owner::Arrivals => self.arrivals_woken(id),
            Owner::Seats => {
                let mut news = Vec::new();
                self.seats.woken(id, &self.tools.wakes, &mut news);
                self.take(news);
            }
            Owner::Starts if id == 0 => self.seats.rung(),
            Owner::Starts => self.fronts.idle(id, &mut self.seats),
            Owner::Names => {
                for (key, found) in self.tools.names.take() {
                    match key.owner {
                        Owner::Logins => self.login(key.id, |login, scene| login.named(found, scene)),
                        Owner::Connections => self.account_known(key.id, found),
                        Owner::Sessions => self.sessions.named(&mut self.tools, key.id, found),
                        Owner::Networks => self.networks.named(&mut self.tools, key.id, found),
                        Owner::Tunnel => self.proxy_named(key.id, found),
                        _ => {}
                    }
                }
            }
            Owner::Launches => {
                for (key, outcome) in self.tools.launches.take() {
                    match key.owner {
                        Owner::Logins => self.files_read(key.id, outcome),
                        Owner::Sessions => self.sessions.launched(&mut self.tools, key.id, outcome),
                        Owner::Networks => self.networks.launched(&mut self.tools, key.id, outcome),
                        Owner::Cluster => self.label_commands.launched(&mut self.tools, key.id, outcome),
                        _ => {}
                    }
                }
            }
            Owner::Connections => self.connection_woken(id),
            Owner::Logins => self.login(id, Login::heard),
            Owner::Sessions => self.sessions.woken(&mut self.tools, id),
            Owner::Networks => self.networks.woken(&mut self.tools, id),
            Owner::Exchanges => self.exchange_due(id),
            Owner::Reaper => self.tools.reaper.ended(id),
            Owner::Cluster => self.cluster_woken(id),
            Owner::Tunnel => self.tunnel_woken(id),
            Owner::Watcher => self.watcher_woken(id),
            Owner::Strangers => self.sums_due(),
            Owner::Metrics => {}
        }
    }

    /// Words of parts go to the fronts of their connections.
    fn deliver(&mut self) {
        self.give_turns();
        self.watch_sessions();
        while let Some((connection, word, fds)) = self.tools.words.pop() {
            let front = self.connections.get(connection).and_then(|c| match &c.stage {
                Stage::Open(_, front) if !c.hung_up => Some(*front),
                _ => None,
            });
            // The first session runs: whoever wants to know where the time went is told now.
            if matches!(word, ToFront::Started { .. })
                && let Some((seat, ticket, spans)) = self.tools.steps.take(connection)
            {
                let word = ToTunnel::Spans { ticket, spans };
                self.seats.say(seat, &word, Vec::new(), &self.tools.wakes);
            }
            if let Some(front) = front {
                self.seats.say(front, &word, fds, &self.tools.wakes);
            }
        }
    }

    /// What the processes said, and which of them ended.
    pub(super) fn take(&mut self, news: Vec<News>) {
        for one in news {
            match one {
                News::Heard(seat, frame) if seat == self.lobby.seat => self.lobby_says(&frame.bytes),
                News::Heard(seat, frame) if self.tunnel.as_ref().is_some_and(|t| t.is(seat)) => {
                    self.tunnel_says(seat, &frame.bytes);
                }
                News::Heard(seat, frame) if self.parted.contains(&seat) => {
                    self.parted_says(seat, &frame.bytes);
                }
                News::Heard(seat, frame) if self.watchers.is_watcher(seat) => {
                    self.watcher_says(seat, &frame.bytes);
                }
                News::Heard(seat, frame) => self.front_says(seat, &frame.bytes),
                News::Gone(seat, what, pid, how) => self.seat_gone(seat, what, pid, &how),
            }
        }
    }

    fn seat_gone(&mut self, seat: SeatId, what: Seat, pid: i32, how: &str) {
        let name = what.name();
        let is_leaving = what == Seat::Tunnel && self.tunnel.as_ref().is_none_or(|t| t.seat != Some(seat));
        if !(self.draining && what == Seat::Lobby || is_leaving) {
            tracing::error!(process = name, pid, "the {name} is gone: {how}");
            self.tools.metrics.died(match what {
                Seat::Lobby => Process::Lobby,
                Seat::Front => Process::Front,
                Seat::Resolver => Process::Resolver,
                Seat::Tunnel => Process::Tunnel,
                Seat::Watcher => Process::Watcher,
                Seat::Guardian => Process::Guardian,
            });
            self.tools.audit.tell(Event::ProcessDied {
                process: name.to_owned(),
                pid,
                how: how.to_owned(),
            });
        }
        match what {
            Seat::Lobby if seat == self.lobby.seat => self.lobby_gone(),
            Seat::Front => {
                for connection in self.fronts.forget(seat) {
                    self.end(connection, "its front ended");
                }
            }
            Seat::Resolver if seat == self.resolver => self.restart_resolver(),
            Seat::Tunnel => self.tunnel_gone(seat),
            Seat::Watcher | Seat::Guardian => self.watcher_gone(seat),
            _ => {}
        }
    }

    fn arrivals_woken(&mut self, id: u64) {
        if id == RESUME {
            return self.lobby_resume();
        }
        for _ in 0..self.arrivals.per_turn() {
            match self.arrivals.accept(id) {
                // A refusal is told there.
                Accepted::One(arrived) => drop(self.arrived(arrived)),
                Accepted::Empty => return,
                Accepted::Short(e) => {
                    tracing::error!(
                        "no connection can be accepted: {e}; raise LimitNOFILE or lower limits.connections"
                    );
                    self.arrivals.pause(&self.tools.wakes);
                    self.tools.timers.after(PAUSE, Key::new(Owner::Arrivals, RESUME));
                    return;
                }
            }
        }
    }

    /// Lets a login go on, and does what follows.
    fn login(&mut self, number: Number, go: impl FnOnce(&mut Login, &mut Scene<'_>) -> Step) {
        let Some(connection) = self.connections.of_lobby(number) else {
            return;
        };
        let Stage::Login(login) = &mut connection.stage else {
            return;
        };
        let mut refusals = Vec::new();
        let mut scene = Scene {
            connection: number,
            source: connection.source.ip(),
            tunnelled: connection.via.is_some(),
            session_id: connection.exchanges.session_id(),
            host_key: connection.exchanges.host_key(),
            tools: &mut self.tools,
            refusals: &mut refusals,
        };
        let step = go(login, &mut scene);
        let step = login.hold(step, &mut scene);
        self.login_step(number, step, refusals);
        let talks = self
            .connections
            .get(number)
            .is_some_and(|c| matches!(&c.stage, Stage::Login(login) if login.needs_turn()));
        if !talks {
            self.tools.pam_turns.leave(number);
        }
    }

    /// Logins that waited for PAM go on where there is a place again.
    fn give_turns(&mut self) {
        let config = self.tools.config.clone();
        while let Some(number) = self.tools.pam_turns.next(&config.limits) {
            self.login(number, Login::take_turn);
        }
    }

    fn files_read(&mut self, number: Number, outcome: super::launches::Outcome) {
        // Nobody waits for it any more: its helper is still to be waited for.
        let waits = self
            .connections
            .of_lobby(number)
            .is_some_and(|c| matches!(c.stage, Stage::Login(_)));
        match outcome {
            Ok((running, _)) if !waits => self.tools.reaper.take(running.pidfd),
            outcome => self.login(number, |login, scene| login.read(outcome, scene)),
        }
    }

    fn restart_resolver(&mut self) {
        match self.seats.start_resolver(&self.tools.wakes) {
            Ok((seat, control)) => {
                self.resolver = seat;
                self.tools.resolver = Arc::new(control);
                self.attach_names();
            }
            Err(e) => tracing::error!("the resolver is not started again: {e}"),
        }
    }

    pub(super) fn attach_names(&mut self) {
        let deadline = self.tools.config.limits.name_service.as_millis();
        let resolver = self.tools.resolver.clone();
        if let Err(e) = self.tools.names.attach(&resolver, deadline, &self.tools.wakes) {
            tracing::error!("the resolver takes no questions: {e}");
        }
    }
}
