//! The cluster's side: a state that was brought, what of open connections it ends, and each request decided about anew (without a
//! cluster by `containers` of node.toml).
//! Whoever brings a state is believed in nothing; see [`Cluster`].

use super::Monitor;
use super::audit::{EndCommand, Event};
use super::connections::{FRONTS_REPORT, Stage};
use super::label_commands::Value;
use super::live;
use super::open_login::OpenLogin;
use super::settings::worker_user;
use super::timers::unix_seconds;
use super::tools::Tools;
use super::tunnel::Tunnel;
use super::wakes::{Key, Owner};
use crate::config::cluster::{Change, Cluster, ClusterLogin, SignedState};
use crate::config::trust::Trust;
use crate::identity::is_joined;
use fleetgate_orders::SessionRefusal;
use fleetgate_policy::AccountName;
use fleetgate_policy::cluster::{ContainerLabels, Identity, Reason, Refusal};
use fleetgate_sys::process;
use fleetgate_wire::common::SessionId;
use fleetgate_wire::node::ConnectionNumber;
use fleetgate_wire::node::front::ToFront;
use fleetgate_wire::node::lobby::ToLobby;
use std::ffi::CString;
use std::time::Duration;

/// How often the state's age is looked at.
const LOOK: Duration = Duration::from_secs(60);
/// The timer for that.
const AGE: u64 = 0;
/// The timer of a monitor that drains. Label commands have no ids without low bits.
pub(super) const FOLLOW: u64 = 1 << 2;
/// DISCONNECT's reason (RFC 4253 §11.1): by application.
const BY_APPLICATION: u32 = 11;

impl Monitor {
    /// Begins with the cluster that the machine joined, if it did.
    pub(crate) fn join_cluster(&mut self) {
        let Some(cluster) = &self.tools.cluster else {
            return;
        };
        tracing::info!(
            cluster = %cluster.state().cluster, node = %cluster.node(), serial = cluster.state().serial,
            "the node belongs to a cluster"
        );
        self.look_at_age();
        let ids = match self.tools.user_mode {
            true => (process::effective_uid(), process::effective_gid()),
            false => worker_user(&self.tools.config.user),
        };
        self.label_commands.replace(&mut self.tools, ids);
    }

    /// A state that somebody brought.
    pub(crate) fn cluster_state(&mut self, signed: SignedState) {
        let Some(cluster) = &mut self.tools.cluster else {
            return;
        };
        match cluster.receive_state(&signed.document, &signed.signature) {
            Ok(change) => {
                if let Some(writer) = &self.tools.state_writer {
                    writer.write(signed);
                }
                if change == Change::State {
                    self.cluster_changed();
                }
            }
            Err(why) => {
                let serial = cluster.state().serial;
                tracing::error!(serial, "a state of the cluster is not taken: {why}");
                let refused = Some(why.into());
                self.tools.audit.tell(Event::ClusterState {
                    serial,
                    refused,
                    sessions: None,
                });
            }
        }
    }

    /// A sign that the state still holds.
    pub(crate) fn cluster_fresh(&mut self, document: Vec<u8>, signature: Vec<u8>) {
        let Some(cluster) = &mut self.tools.cluster else {
            return;
        };
        match cluster.receive_fresh(&document, &signature) {
            Ok(()) => {
                if let Some(writer) = &self.tools.state_writer {
                    writer.write_fresh(SignedState { document, signature });
                }
                self.say_age();
            }
            Err(why) => tracing::warn!("a sign that the cluster's state holds is refused: {why}"),
        }
    }

    /// The state is another: what its locks are for is ended now.
    pub(crate) fn cluster_changed(&mut self) {
        let Some(cluster) = &self.tools.cluster else {
            return;
        };
        let serial = cluster.state().serial;
        tracing::info!(serial, "the cluster's state was replaced");
        // Auth forgets with a restore which sessions ended since the backup; a restored state is a new one.
        let sessions = self.sessions.ids(&self.tools.config.runtime_directory);
        self.tools.audit.tell(Event::ClusterState {
            serial,
            refused: None,
            sessions,
        });
        self.say_age();
        self.look_for_locks();
    }

    /// The configuration was read again: the machine may have joined or left, and its labels be others.
    pub(crate) fn cluster_reloaded(&mut self, loaded: Option<(Tunnel, Cluster)>) {
        let joined = is_joined(&self.tools.config.state_directory);
        self.tools.metrics.joined(joined);
        let (tunnel, loaded) = loaded.unzip();
        let both = self.tunnel.as_ref().zip(tunnel.as_ref());
        let is_same = both.is_some_and(|(known, loaded)| known.is_of(loaded));
        let known = self.tools.cluster.take().filter(|_| is_same);
        self.tools.cluster = match (known, loaded) {
            // What a proxy brought is mostly newer than what stands on the disk; the other way round, an
            // administrator put it there, and it is taken like any other.
            (Some(mut known), Some(loaded)) => {
                // Those of commands are told again in a moment.
                known.set_labels(loaded.labels().clone());
                let signed = loaded.signed().clone();
                let is_newer = loaded.state().serial > known.state().serial;
                self.tools.cluster = Some(known);
                if is_newer {
                    self.cluster_state(signed);
                }
                self.tools.cluster.take()
            }
            (_, loaded) => loaded,
        };
        if self.tools.cluster.is_none() {
            self.label_commands.end(&mut self.tools);
            self.tools.metrics.cluster(0, 0);
        }
        self.join_cluster();
        self.tunnel_reloaded(tunnel);
        self.look_for_locks();
    }

    /// A timer of the cluster's.
    pub(crate) fn cluster_woken(&mut self, id: u64) {
        if id == AGE {
            self.age_timer = None;
            return self.look_at_age();
        }
        if id == FOLLOW {
            return self.follow_next();
        }
        let Some(Value { key, value }) = self.label_commands.woken(&mut self.tools, id) else {
            return;
        };
        let Some(cluster) = &mut self.tools.cluster else {
            return;
        };
        match cluster.set_label(&key, &value) {
            Ok(true) => {
                tracing::info!(key, value, "a label has another value");
                self.tell_facts();
            }
            Ok(false) => {}
            Err(why) => tracing::warn!("the command of a label: {why}"),
        }
    }

    fn look_at_age(&mut self) {
        self.refresh_by_next();
        self.say_age();
        // A second factor may have grown too old.
        live::decide_again(&mut self.tools, self.trust.skew);
        if self.tools.cluster.is_some() && self.age_timer.is_none() {
            let timer = self.tools.timers.after(LOOK, Key::new(Owner::Cluster, AGE));
            self.age_timer = Some(timer);
        }
    }

    pub(super) fn say_age(&mut self) {
        let now = unix_seconds();
        let Some(cluster) = &mut self.tools.cluster else {
            return;
        };
        self.tools
            .metrics
            .cluster(cluster.state().serial, cluster.state().as_of);
        if let Some(words) = cluster.grows_old(now) {
            tracing::warn!("{words}");
        }
    }

    /// Ends what a lock is for, on every way in.
    pub(super) fn look_for_locks(&mut self) {
        let now = unix_seconds();
        let all = self
            .connections
            .numbers(|c| !matches!(c.stage, Stage::LoggingIn(_)));
        for number in all {
            let Some(cluster) = &self.tools.cluster else {
                return;
            };
            let Some(known) = self.connections.get(number) else {
                continue;
            };
            if known.hung_up || known.parting.is_some() {
                continue;
            }
            // The proxies' sessions end with the tunnel. Here their clients hear why, and what runs is killed.
            let removal = cluster.removal(now).filter(|_| known.via.is_some());
            let refusal = known.open_login().and_then(|open_login| {
                let identities = open_login.cluster_logins.iter().map(|of| &of.identity);
                lock(identities, open_login.grant.login.as_str(), cluster, now)
                    .or_else(|| removal.map(|lock| lock.refusal()))
            });
            if let Some(refusal) = refusal {
                self.end_locked(number, &refusal);
            }
        }
        self.end_locked_sessions(now);
        self.end_commanded_sessions(now);
        live::decide_again(&mut self.tools, self.trust.skew);
    }

    /// Ends sessions that go on without their connection, where a lock is against who began them.
    fn end_locked_sessions(&mut self, now: u64) {
        let Some(cluster) = &self.tools.cluster else {
            return;
        };
        let against = |(number, login, identities): (u64, &str, &[Identity])| {
            Some((number, lock(identities.iter(), login, cluster, now)?))
        };
        let locked: Vec<_> = self.sessions.without_connection().filter_map(against).collect();
        for (number, refusal) in locked {
            self.sessions.end_locked(&self.tools, number, &refusal);
        }
    }

    /// Ends single sessions that the state says are to end. Their connections stay, with whatever else they carry.
    fn end_commanded_sessions(&mut self, now: u64) {
        let Some(cluster) = &self.tools.cluster else {
            return;
        };
        let commands: Vec<_> = cluster
            .state()
            .locks
            .on_sessions(now)
            .filter_map(|(id, lock)| Some((session_id(id)?, lock)))
            .map(|(id, lock)| {
                let (by, reason) = (lock.by.clone(), lock.reason.clone());
                (id, EndCommand { by, reason })
            })
            .collect();
        for (id, command) in commands {
            if self.sessions.end_by_command(&mut self.tools, &id, &command) {
                tracing::info!(
                    by = command.by,
                    reason = command.reason,
                    "a session is ended by order"
                );
            }
        }
    }

    /// Ends a connection and its sessions because of a lock. Its client is told; whoever does not tell it in time is
    /// passed by.
    fn end_locked(&mut self, number: ConnectionNumber, refusal: &Refusal) {
        let Some(known) = self.connections.get(number) else {
            return;
        };
        let source = known.source;
        known.parting = Some(refusal.words.clone());
        known.waiting.clear();
        let at_front = known.front();
        if let Some(timer) = known.deadline.take() {
            self.tools.timers.cancel(timer);
        }
        let timer = self
            .tools
            .timers
            .after(FRONTS_REPORT, Key::new(Owner::Connections, number));
        known.deadline = Some(timer);
        let Some(open_login) = known.open_login() else {
            return;
        };
        // Nothing is asked for with it any more.
        open_login.grant.expires = Some(Duration::ZERO);
        let login = open_login.grant.login.to_string();
        let user = open_login.user();
        let text = CString::new(refusal.words.clone()).unwrap_or_default();
        match at_front {
            Some(front) => {
                let message = ToFront::End {
                    connection: number,
                    reason: BY_APPLICATION,
                    text,
                };
                self.workers.say(front, &message, Vec::new(), &self.tools.wakes);
            }
            None => self.tell_lobby(&ToLobby::End {
                connection: number,
                reason: BY_APPLICATION,
                text,
            }),
        }
        tracing::info!(connection = number, %source, login, "a connection is ended: {refusal}");
        self.tools.audit.tell(Event::Locked {
            connection: number,
            source,
            login,
            user,
            rule: refusal.rule.clone(),
            reason: refusal.words.clone(),
        });
        self.sessions.end_all(number);
        live::connection_over(&mut self.tools, number);
        self.networks.connection_ended(number);
    }
}

/// A session's id from its hexadecimal digits.
fn session_id(digits: &str) -> Option<SessionId> {
    u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)
}

/// The lock that holds against a login that is open.
fn lock<'a>(
    mut identities: impl Iterator<Item = &'a Identity>,
    login: &str,
    cluster: &Cluster,
    now: u64,
) -> Option<Refusal> {
    let locks = &cluster.state().locks;
    identities
        .find_map(|identity| locks.against(identity, cluster.node(), login, now))
        .or_else(|| cluster.locked(login, now))
        .map(|lock| lock.refusal())
}

/// Decides about an open login again, before each request: whether `containers` of node.toml still lets it in, and in a cluster
/// what roles and locks say now, by what is known of the container. What was a yes an hour ago may be a no, or a smaller yes.
pub(crate) fn decide_request_again(
    open_login: &mut OpenLogin,
    tools: &Tools,
    trust: &Trust,
    container: ContainerLabels<'_>,
) -> Result<(), SessionRefusal> {
    let decided = decide_again(open_login, tools, trust, container);
    if decided.is_err() {
        // What was decided and not applied is decided and applied by the next request.
        open_login.cluster_logins.iter_mut().for_each(ClusterLogin::doubt);
    }
    decided
}

fn decide_again(
    open_login: &mut OpenLogin,
    tools: &Tools,
    trust: &Trust,
    container: ContainerLabels<'_>,
) -> Result<(), SessionRefusal> {
    let now = unix_seconds();
    let name = &open_login.grant.login;
    // With `containers = []` a name has no such part, whoever has it.
    let has_container = |name: AccountName| name.container().is_some();
    let may_have =
        name.container().is_none() || trust.login(name.as_str().as_bytes()).is_some_and(has_container);
    if !may_have || open_login.cluster_logins.is_empty() && !trust.lets_into(name) {
        let why = SessionRefusal::new("`containers` does not let you in here any more");
        return Err(why.finally());
    }
    open_login.container_by_id = trust.lets_into_by_id(name);
    let login = open_login.grant.login.as_str();
    let Some(cluster) = &tools.cluster else {
        return match open_login.cluster_logins.is_empty() {
            true => Ok(()),
            false => Err(SessionRefusal::new(
                "this node has left the cluster: log in again",
            )),
        };
    };
    if let Some(lock) = cluster.locked(login, now) {
        return Err(SessionRefusal::new(lock.refusal().words));
    }
    let is_known = matches!(container, ContainerLabels::Known { .. });
    let mut is_other = false;
    for cluster_login in &mut open_login.cluster_logins {
        is_other |= cluster_login
            .decide_again(cluster, login, container, now, trust.skew)
            .map_err(|refusal| SessionRefusal {
                // The roles are the certificate's: a connection with the same one is refused for the same container.
                is_final: is_known && refusal.reason == Reason::Role,
                words: refusal.words,
            })?;
    }
    if !open_login.cluster_logins.is_empty() {
        let all = &open_login.cluster_logins;
        open_login.container_by_id = all.iter().all(|one| one.allowed.container_by_id);
    }
    if is_other {
        let mut permits = open_login.base.clone();
        for cluster_login in &open_login.cluster_logins {
            permits = cluster_login
                .within(permits)
                .map_err(|denied| SessionRefusal::new(denied.to_string()))?;
        }
        permits
            .name_commands(&trust.commands)
            .map_err(|denied| SessionRefusal::new(denied.to_string()))?;
        open_login.grant.permits = permits;
    }
    Ok(())
}
