//! Logins, as the loop drives them: each step of one, and what follows from it. A login that was proven gets its grant and
//! its front.

use crate::config::cluster::ClusterLogin;
use crate::monitor::Monitor;
use crate::monitor::audit::{ClusterUser, Event};
use crate::monitor::connections::{GRACE_MARGIN, Stage};
use crate::monitor::forwards::ToldForwards;
use crate::monitor::fronts::FrontOwner;
use crate::monitor::login::{LoginAttempt, LoginContext, ProvenLogin, Refusal, Step};
use crate::monitor::metrics::LoginResult;
use crate::monitor::open_login::OpenLogin;
use crate::monitor::strangers::StrangerEvent;
use crate::monitor::timers::now;
use crate::monitor::wakes::{Key, Owner};
use crate::monitor::workers::WorkerKind;
use fleetgate_launch::LaunchOutcome;
use fleetgate_launch::within_pam::SharedPam;
use fleetgate_orders::front_permits;
use fleetgate_policy::grant::How;
use fleetgate_policy::{Grant, GrantId};
use fleetgate_wire::node::lobby::ToLobby;
use fleetgate_wire::node::{ConnectionNumber, FrontPermit, FrontPermits, Verdict};
use std::time::Duration;

impl Monitor {
    /// Lets a login go on, and does what follows.
    pub(crate) fn drive_login(
        &mut self,
        number: ConnectionNumber,
        call: impl FnOnce(&mut LoginAttempt, &mut LoginContext<'_>) -> Step,
    ) {
        let Some(connection) = self.connections.of_lobby(number) else {
            return;
        };
        let Stage::LoggingIn(login) = &mut connection.stage else {
            return;
        };
        let mut refusals = Vec::new();
        let mut context = LoginContext {
            connection: number,
            source: connection.source.ip(),
            tunnelled: connection.via.is_some(),
            session_id: connection.exchanges.session_id(),
            host_key: connection.exchanges.host_key(),
            tools: &mut self.tools,
            refusals: &mut refusals,
        };
        let step = call(login, &mut context);
        let step = login.delay_refusal(step, &mut context);
        self.login_step(number, step, refusals);
        let talks = self
            .connections
            .get(number)
            .is_some_and(|c| matches!(&c.stage, Stage::LoggingIn(login) if login.needs_turn()));
        if !talks {
            self.tools.pam_turns.leave(number);
        }
    }

    /// Logins that waited for PAM go on where there is a place again.
    pub(crate) fn give_turns(&mut self) {
        let config = self.tools.config.clone();
        while let Some(number) = self.tools.pam_turns.next(config.limits.pam_places()) {
            self.drive_login(number, LoginAttempt::take_turn);
        }
    }

    /// The key files of a login were read.
    pub(crate) fn files_read(&mut self, number: ConnectionNumber, outcome: LaunchOutcome) {
        // Nobody waits for it any more: its helper is still to be waited for.
        let waits = self
            .connections
            .of_lobby(number)
            .is_some_and(|c| matches!(c.stage, Stage::LoggingIn(_)));
        match outcome {
            Ok((running, _)) if !waits => self.tools.zombies.take(running.pidfd),
            outcome => self.drive_login(number, |login, context| login.on_key_files(outcome, context)),
        }
    }

    /// What follows from a step of a login.
    pub(crate) fn login_step(&mut self, number: ConnectionNumber, step: Step, refusals: Vec<Refusal>) {
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
            Step::In(proven_login) => self.let_in(number, *proven_login),
            Step::Violation(why) => self.violated(WorkerKind::Lobby, self.lobby.worker, Some(number), why),
        }
    }

    pub(crate) fn tell_refusals(
        &mut self,
        number: ConnectionNumber,
        refusals: impl IntoIterator<Item = Refusal>,
    ) {
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
            let line = StrangerEvent {
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
    fn let_in(&mut self, number: ConnectionNumber, proven_login: ProvenLogin) {
        let Some(known) = self.connections.of_lobby(number) else {
            return;
        };
        let took = now().saturating_sub(known.step_began);
        known.step_began = now();
        if let Some(timer) = known.deadline.take() {
            self.tools.timers.cancel(timer);
        }
        let (source, addresses, via) = (known.source, known.addresses.clone(), known.proxy());
        self.timing(number, "login", took);
        self.grants += 1;
        let whose = FrontOwner::new(
            &proven_login.login,
            proven_login.account.ids.uid,
            &proven_login.proofs,
        );
        let open_login = OpenLogin {
            container_labels: None,
            container_by_id: false,
            connection: number,
            addresses,
            grant: Grant {
                id: GrantId(self.grants),
                proofs: proven_login.proofs,
                login: proven_login.login,
                permits: proven_login.permits,
                must_change_password: proven_login.must_change_password,
                source,
                expires: proven_login.expires,
            },
            cluster_logins: proven_login.cluster_logins,
            base: proven_login.base,
            uid: proven_login.account.ids.uid,
            pam: SharedPam::new(proven_login.pam),
            denials: 0,
            forwards: ToldForwards::default(),
        };
        let front = self.fronts.get_or_start(
            whose,
            number,
            &self.offer,
            &mut self.workers,
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
        let proven = &open_login.grant.proofs.proven;
        let by_password = proven
            .iter()
            .any(|how| matches!(how, How::Password | How::KeyboardInteractive));
        let account = open_login.grant.login.as_str().as_bytes();
        self.tools
            .strangers
            .logged_in(source.ip(), via.is_some(), account, by_password);
        tracing::info!(
            connection = number, %source, via, login = %open_login.grant.login, identity = %open_login.grant.proofs, "a login"
        );
        if open_login.grant.must_change_password {
            tracing::info!(
                connection = number,
                "its password has expired: its sessions are `passwd`"
            );
        }
        self.tools.audit.tell(Event::LoginAccepted {
            connection: number,
            source,
            login: open_login.grant.login.to_string(),
            identity: open_login.grant.proofs.to_string(),
            cluster: open_login.cluster_logins.first().map(audited),
            via,
        });
        self.connections.logged_in(number, Box::new(open_login), front);
        self.tell_lobby(&ToLobby::Verdict {
            connection: number,
            verdict: Verdict::Accepted {
                notes: proven_login.notes,
            },
        });
        // The lobby's grace for the hand-over: a connection that is in and stays there is nobody's.
        let timer = self
            .tools
            .timers
            .after(GRACE_MARGIN, Key::new(Owner::Connections, number));
        if let Some(known) = self.connections.of_lobby(number) {
            known.deadline = Some(timer);
        }
    }
}

/// What the front may ask the monitor for. What roles allow may change while the connection is open, and why they refuse a program is
/// for its user to read: that the front does not know, so it is to ask.
pub(super) fn front_permits_in_cluster(open_login: &OpenLogin, now: Duration) -> FrontPermits {
    let offered = front_permits(&open_login.grant, now);
    match open_login.cluster_logins.is_empty() {
        true => offered,
        false => [FrontPermit::Shell, FrontPermit::Exec, FrontPermit::Sftp]
            .into_iter()
            .chain(open_login.refuses_onward_ssh().map(|_| FrontPermit::NoOnwardSsh))
            .fold(offered, FrontPermits::with),
    }
}

/// Who somebody is in the cluster, as the audit log has it.
fn audited(cluster_login: &ClusterLogin) -> ClusterUser {
    ClusterUser {
        user: cluster_login.user().map(ToString::to_string).unwrap_or_default(),
        roles: cluster_login.roles(),
        mfa: cluster_login.identity.mfa,
        device: cluster_login.identity.device.as_ref().map(ToString::to_string),
    }
}
