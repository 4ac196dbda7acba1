//! The loop: it waits, and calls the part that a descriptor, a timer or an answer is for. What a part does is in the part's
//! own module; this file only dispatches.

use super::accept::Listeners;
use super::audit::{Event, WriterThread};
use super::connections::Connections;
use super::draining::NextMonitor;
use super::fronts::Fronts;
use super::label_commands::LabelCommands;
use super::live;
use super::lobby::Lobby;
use super::login::LoginAttempt;
use super::metrics::{MetricsServer, Process};
use super::network::Networks;
use super::recorder::{Housekeeping, RecorderProcess};
use super::sessions::Sessions;
use super::starter::Starter;
use super::timers::{Timer, now};
use super::tools::Tools;
use super::tunnel::Tunnel;
use super::wakes::{Key, Owner};
use super::watcher::WatcherProcesses;
use super::workers::{WorkerEvent, WorkerId, WorkerKind, Workers};
use crate::config::node_lock::NodeLock;
use crate::config::offer::Offer;
use crate::config::trust::Trust;
use fleetgate_sys::Errno;
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::front::ToFront;
use fleetgate_wire::node::tunnel::ToTunnel;
use fleetgate_worker::rest::Rest;
use std::sync::Arc;
use std::time::Duration;

/// How long the last audit events may take to the disk when the node ends.
const AUDIT_FLUSH: Duration = Duration::from_secs(1);

/// All of the monitor's state. A method stands in the file of its matter, as `impl Monitor`. What other files call, and what
/// ARCHITECTURE.md names:
///
/// | file | methods | what they change |
/// |---|---|---|
/// | `event_loop` | `serve`, `wake`, `take`, `deliver` | nothing of their own: they call the others |
/// | `accept` | `listeners_woken` | `listeners` |
/// | `lobby` | `admit_connection`, `lobby_says`, `handed_over`, `tell_lobby`, `start_lobby`, `lobby_gone`, `lobby_resume` | `lobby`, `connections` |
/// | `lobby::logins` | `drive_login`, `give_turns`, `files_read`, `login_step`, `tell_refusals`, `let_in` | a connection's `stage`, `fronts` |
/// | `connections::exchanges` | `sign_when_due`, `exchange_due` | a connection's `exchanges` |
/// | `connections::ending` | `connection_woken`, `hung_up`, `end`, `end_with`, `violated`, `charge_for_end`, `tell_ends` | `connections`, `sessions`, `networks` |
/// | `fronts` | `front_says` | `fronts` |
/// | `requests` | `request`, `account_known`, `containers_seen` | a connection's `waiting`; then `sessions` or `networks` |
/// | `cluster` | `join_cluster`, `cluster_state`, `cluster_fresh`, `cluster_changed`, `cluster_reloaded`, `cluster_woken`, `say_age`, `look_for_locks` | the cluster in `tools`, `connections`, `sessions` |
/// | `draining` | `follow_next`, `refresh_by_next`, `look_at_next` | `next` |
/// | `tunnel::process`, `tunnel::handler` | `open_tunnel`, `start_tunnel`, `drain_tunnel`, `tell_tunnel`, `tunnel_gone`, `tunnel_again`, `keep_states`; `tunnel_woken`, `tunnel_says`, `proxy_named`, `ship` | `tunnel`, `connections` |
/// | `tunnel::rejoin`, `tunnel::renewal`, `tunnel::state` | `tunnel_reloaded`, `parted_says`; `plan_renewal`, `renew`, `renewed`; `state_came`, `tell_facts`, `renew_statements`, `make_statements`, `settings` | `tunnel`, `parted` |
/// | `watcher` | `watch_sessions`, `watcher_says`, `watcher_woken`, `watcher_gone` | `watchers` |
/// | `recorder` | `record_sessions`, `recorder_says`, `recorder_woken`, `recorder_gone`, `recorder_is_stuck` | `recorder`, `recordings` in `tools` |
/// | `live` (functions) | `ask`, `seen_since`, `recorded`, `recorder_gone`, `too_slow`, `woken`, `end_those_over`, `channel_closed`, `connection_over`, `decide_again` | `views` in `tools` |
/// | `starter` | `starter_woken`, `reload`, `offer_this`, `drain` | `starter`, `offer`, `trust`, `draining` |
/// | `names`, `spans`, `strangers` | `restart_resolver`, `attach_names`; `timing`; `has_line`, `sums_due`, `tell_sums` | their tool |
pub struct Monitor {
    /// What every part may use.
    pub(crate) tools: Tools,
    /// The processes that it started, with their sockets.
    pub(crate) workers: Workers,
    pub(crate) listeners: Listeners,
    pub(crate) connections: Connections,
    /// Which front has which login.
    pub(crate) fronts: Fronts,
    pub(crate) sessions: Sessions,
    /// Networking helpers and what they listen on.
    pub(crate) networks: Networks,
    /// The process that systemd knows.
    pub(crate) starter: Starter,
    /// What new connections may negotiate.
    pub(crate) offer: Arc<Offer>,
    /// How new connections may log in; requests of open ones are decided about by it too.
    pub(crate) trust: Arc<Trust>,
    pub(crate) lobby: Lobby,
    /// None: the machine did not join a cluster.
    pub(crate) tunnel: Option<Tunnel>,
    /// Tunnels of who the node was before it left, or joined anew: until their sessions have ended.
    pub(crate) parted: Vec<WorkerId>,
    /// How many tunnels there were before the one that is there.
    pub(crate) tunnels: u64,
    /// It is started and ended as a worker; what it says is for [`Tools::names`], which has its socket.
    pub(crate) resolver: WorkerId,
    pub(crate) config_path: Option<std::path::PathBuf>,
    /// The audit log's thread.
    pub(crate) writing: Option<WriterThread>,
    /// The page of metrics; none: it is not served.
    pub(crate) page: Option<MetricsServer>,
    /// Who watches sessions.
    pub(crate) watchers: WatcherProcesses,
    /// Who records them.
    pub(crate) recorder: RecorderProcess,
    /// Finishes recordings that were left, and removes old ones.
    pub(crate) housekeeping: Housekeeping,
    /// No more are accepted; it ends with the last connection and the last session.
    pub(crate) draining: bool,
    /// No other node runs with this one's identity. None: the machine did not join, or this monitor drains.
    pub(crate) node_lock: Option<NodeLock>,
    /// Commands that say the node's labels.
    pub(crate) label_commands: LabelCommands,
    /// When the state's age is looked at next.
    pub(crate) age_timer: Option<Timer>,
    /// What the monitor that took its place learns of the cluster; none: this one does not drain, or did not join.
    pub(crate) next: Option<NextMonitor>,
    /// When sums of what strangers did are due.
    pub(crate) strangers_timer: Option<Timer>,
    /// Ends of connections that are not told yet.
    pub(crate) untold_ends: Vec<(ConnectionNumber, Event)>,
    /// The next grant's number.
    pub(crate) grants: u64,
    pub(crate) done: bool,
}

impl Monitor {
    /// Serves until it is told to end and the last connection and session have.
    pub fn serve(mut self) -> Result<(), Errno> {
        let served = self.turn_until_done();
        self.tell_ends(true);
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
            let _ = wait.recv_timeout(AUDIT_FLUSH);
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
            if self.tools.zombies.looks() {
                rest.stir();
            }
            keys.clear();
            self.tools.wakes.wait(rest.wait(wait), &mut keys)?;
            // `woke` gives back the pages of code that only the time before needed: the first time the start's, 4 of 5.5 MB.
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
            self.sessions.make_ahead();
            // A session may outlive its connection: whoever drains sees it to its end, or nobody would write that down.
            let is_idle = self.connections.len() == 0 && self.sessions.count() == 0;
            if self.draining && is_idle && self.recordings_are_done() {
                self.done = true;
            }
        }
        Ok(())
    }

    /// What wakes nobody, since something else is sure to in a moment: helpers that end, fronts that begin.
    fn look_around(&mut self, rests: bool) {
        self.tools.zombies.look(rests, &self.tools.wakes);
        let mut news = Vec::new();
        self.workers.started(&self.tools.wakes, &mut news);
        if !news.is_empty() {
            self.take(news);
            self.deliver();
        }
    }

    fn wake(&mut self, key: Key) {
        let id = key.id;
        match key.owner {
            Owner::Starter => self.starter_woken(id),
            Owner::Listeners => self.listeners_woken(id),
            Owner::Workers => {
                let mut news = Vec::new();
                self.workers.woken(id, &self.tools.wakes, &mut news);
                self.take(news);
            }
            Owner::StartedWorkers => self.workers.rung(),
            Owner::IdleFronts => self.fronts.idle(id, &mut self.workers),
            Owner::Names => {
                for (key, found) in self.tools.names.take() {
                    match key.owner {
                        Owner::Logins => {
                            self.drive_login(key.id, |login, context| login.on_name(found, context))
                        }
                        Owner::Connections => self.account_known(key.id, found),
                        Owner::Sessions => self.sessions.named(&mut self.tools, key.id, found),
                        Owner::Networks => self.networks.named(&mut self.tools, key.id, found),
                        Owner::Tunnel => self.proxy_named(key.id, found),
                        _ => {}
                    }
                }
            }
            Owner::Launches => {
                self.containers_seen();
                for (key, outcome) in self.tools.launches.take() {
                    match key.owner {
                        Owner::Logins => self.files_read(key.id, outcome),
                        Owner::Sessions => self.sessions.launched(&mut self.tools, key.id, outcome),
                        Owner::Networks => {
                            self.tell_refused_forwards(key.id, &outcome);
                            self.networks.launched(&mut self.tools, key.id, outcome);
                        }
                        Owner::Cluster => self.label_commands.launched(&mut self.tools, key.id, outcome),
                        _ => {}
                    }
                }
            }
            Owner::Connections => self.connection_woken(id),
            Owner::Logins => self.drive_login(id, LoginAttempt::on_pam),
            Owner::Sessions => self.sessions.woken(&mut self.tools, id),
            Owner::Networks => self.networks.woken(&mut self.tools, id),
            Owner::Exchanges => self.exchange_due(id),
            Owner::Zombies => self.tools.zombies.ended(id),
            Owner::Cluster => self.cluster_woken(id),
            Owner::Tunnel => self.tunnel_woken(id),
            Owner::Watcher => self.watcher_woken(id),
            Owner::Strangers => self.sums_due(),
            Owner::Recorder => self.recorder_woken(id),
        }
    }

    /// Messages of parts go to the fronts of their connections.
    fn deliver(&mut self) {
        self.give_turns();
        live::end_those_over(&mut self.tools);
        self.watch_sessions();
        self.record_sessions();
        self.tell_ends(false);
        while let Some((connection, message, fds)) = self.tools.to_fronts.pop() {
            let known = self.connections.get(connection).filter(|c| !c.hung_up);
            let front = known.and_then(|c| c.front());
            // The first session runs: whoever wants to know where the time went is told now.
            if matches!(message, ToFront::Started { .. })
                && let Some((worker, ticket, spans)) = self.tools.spans.take(connection)
            {
                let message = ToTunnel::Spans { ticket, spans };
                self.workers.say(worker, &message, Vec::new(), &self.tools.wakes);
            }
            if let Some(front) = front {
                self.workers.say(front, &message, fds, &self.tools.wakes);
            }
        }
        self.sessions.kill_announced();
    }

    /// What the processes said, and which of them ended.
    pub(crate) fn take(&mut self, news: Vec<WorkerEvent>) {
        for one in news {
            match one {
                WorkerEvent::Heard(worker, frame) if worker == self.lobby.worker => {
                    self.lobby_says(&frame.bytes)
                }
                WorkerEvent::Heard(worker, frame) if self.tunnel.as_ref().is_some_and(|t| t.is(worker)) => {
                    self.tunnel_says(worker, &frame.bytes);
                }
                WorkerEvent::Heard(worker, frame) if self.parted.contains(&worker) => {
                    self.parted_says(worker, &frame.bytes);
                }
                WorkerEvent::Heard(worker, frame) if self.watchers.is_watcher(worker) => {
                    self.watcher_says(worker, &frame.bytes);
                }
                WorkerEvent::Heard(worker, frame) if self.recorder.is(worker) => {
                    self.recorder_says(worker, &frame.bytes);
                }
                WorkerEvent::Heard(worker, frame) => self.front_says(worker, &frame.bytes),
                WorkerEvent::Gone(worker, what, pid, how) => self.worker_gone(worker, what, pid, &how),
            }
        }
    }

    fn worker_gone(&mut self, worker: WorkerId, what: WorkerKind, pid: i32, how: &str) {
        let name = what.name();
        let is_leaving =
            what == WorkerKind::Tunnel && self.tunnel.as_ref().is_none_or(|t| t.worker != Some(worker));
        if !(self.draining && what == WorkerKind::Lobby || is_leaving) {
            tracing::error!(process = name, pid, "the {name} is gone: {how}");
            self.tools.metrics.died(match what {
                WorkerKind::Lobby => Process::Lobby,
                WorkerKind::Front => Process::Front,
                WorkerKind::Resolver => Process::Resolver,
                WorkerKind::Tunnel => Process::Tunnel,
                WorkerKind::Recorder => Process::Recorder,
                WorkerKind::Watcher => Process::Watcher,
                WorkerKind::Guardian => Process::Guardian,
            });
            self.tools.audit.tell(Event::ProcessDied {
                process: name.to_owned(),
                pid,
                how: how.to_owned(),
            });
        }
        match what {
            WorkerKind::Lobby if worker == self.lobby.worker => self.lobby_gone(),
            WorkerKind::Front => {
                for connection in self.fronts.forget(worker) {
                    self.end(connection, "its front ended");
                }
            }
            WorkerKind::Resolver if worker == self.resolver => self.restart_resolver(),
            WorkerKind::Tunnel => self.tunnel_gone(worker),
            WorkerKind::Watcher | WorkerKind::Guardian => self.watcher_gone(worker),
            WorkerKind::Recorder => self.recorder_gone(worker),
            _ => {}
        }
    }
}
