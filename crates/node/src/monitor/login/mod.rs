//! One connection's way to its login: requests as the lobby received them, verified here, over the monitor's own session
//! id. It answers nobody by itself: each call gives the step that follows.

mod account;
mod calendar;
mod conversation;
mod decide;
mod facts;
mod methods;
pub mod pam;
mod penalties;
mod refusal_delay;
mod refusals;

pub use facts::viewer;

use super::tools::Tools;
use crate::config::cluster::ClusterLogin;
use crate::config::trust::{LoginMethod, Trust};
use conversation::{LoginConversation, Purpose};
use facts::AccountLookups;
use fleetgate_launch::pam::PamSession;
use fleetgate_launch::{Begun, LaunchError, RunningHelper};
use fleetgate_policy::grant::{How, Proofs};
use fleetgate_policy::{AccountName, Permits};
use fleetgate_ssh::auth::{InfoResponse, Request};
use fleetgate_ssh::key::Restrictions;
use fleetgate_wire::common::Account;
use fleetgate_wire::names::Found;
use fleetgate_wire::node::{ConnectionNumber, Verdict};
use fleetgate_wire::pam::Secret;
use methods::Progress;
use pam::{Conversation, PamAnswer};
use refusal_delay::RefusalDelay;
use refusals::end;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use zeroize::{Zeroize, Zeroizing};

/// DISCONNECT's reason for what cannot be read (RFC 4253 §11.1).
const PROTOCOL_ERROR: u32 = 2;

/// What follows.
pub enum Step {
    /// Nothing yet: an answer is on its way.
    Wait,
    /// Say this.
    Say(Verdict),
    /// He is in.
    In(Box<ProvenLogin>),
    /// The process that asked is not honest.
    Violation(&'static str),
}

/// A login that was proven.
pub struct ProvenLogin {
    /// The account, as it is now.
    pub account: Account,
    /// Its name.
    pub login: AccountName,
    /// The proofs that it was let in by.
    pub proofs: Proofs,
    /// What he may do.
    pub permits: Permits,
    /// The same without what roles take away, which may change.
    pub base: Permits,
    /// As whom of the cluster.
    pub cluster_logins: Vec<ClusterLogin>,
    /// Until when, on the boot-time clock.
    pub expires: Option<Duration>,
    /// What PAM said that the user shall read.
    pub notes: Vec<u8>,
    /// PAM's conversation, accepted and not opened.
    pub pam: Option<PamSession>,
    /// PAM says that the password has to be changed before anything else.
    pub must_change_password: bool,
}

/// Where a login happens.
pub struct LoginContext<'a> {
    /// On which connection.
    pub connection: ConnectionNumber,
    /// From where.
    pub source: IpAddr,
    /// By a proxy, whose claim that is.
    pub tunnelled: bool,
    /// The monitor's session id; none: no key exchange was signed.
    pub session_id: Option<&'a [u8]>,
    /// The host key that it began with.
    pub host_key: &'a [u8],
    /// For what is asked.
    pub tools: &'a mut Tools,
    /// What refusals are told to.
    pub refusals: &'a mut Vec<Refusal>,
}

/// A refusal, for log and audit.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Whom it was for, as asked.
    pub login: String,
    /// By which way.
    pub method: String,
    /// Why.
    pub reason: String,
    /// The cluster's user, where it is known.
    pub user: Option<String>,
    /// The role or lock that refused.
    pub rule: Option<String>,
}

/// One connection's login: what was asked, what is known by now, what was proven.
pub struct LoginAttempt {
    trust: Arc<Trust>,
    user: Option<Vec<u8>>,
    progress: Progress,
    attempts: u32,
    facts: AccountLookups,
    proven: Vec<(How, Restrictions)>,
    /// Those of them that are of the cluster.
    cluster_logins: Vec<ClusterLogin>,
    /// The request that is being decided.
    pending: Option<Zeroizing<Vec<u8>>>,
    talk: Option<LoginConversation>,
    /// A conversation that waits for its turn.
    queued: Option<Purpose>,
    refusal_delay: RefusalDelay,
    /// What PAM said beside its questions, and nobody has read yet.
    notes: Vec<u8>,
    /// A conversation that PAM accepted.
    accepted: Option<Conversation>,
    /// That one says so of the password.
    must_change_password: bool,
    /// Its source was charged for wrong passwords.
    was_charged: bool,
    /// The last key that would not do, unless something else was refused since: told when the connection ends.
    refused_key: Option<String>,
}

impl LoginAttempt {
    /// Nothing was asked yet.
    pub fn new(trust: Arc<Trust>) -> LoginAttempt {
        LoginAttempt {
            user: None,
            progress: Progress::new(&trust.required, &trust.ways),
            trust,
            attempts: 0,
            facts: AccountLookups::default(),
            proven: Vec::new(),
            cluster_logins: Vec::new(),
            pending: None,
            talk: None,
            queued: None,
            refusal_delay: RefusalDelay::default(),
            notes: Vec::new(),
            accepted: None,
            must_change_password: false,
            was_charged: false,
            refused_key: None,
        }
    }

    /// The name that was asked for; none: no login has such a name.
    fn login(&self) -> Option<AccountName> {
        self.trust.login(self.user.as_deref()?)
    }

    /// The account that it is of, as it was asked for.
    fn account(&self) -> &[u8] {
        let user = self.user.as_deref().unwrap_or_default();
        self.login().map_or(user, |login| &user[..login.account().len()])
    }

    /// Whether it talks to PAM, or waits for its turn to.
    pub fn needs_turn(&self) -> bool {
        self.talk.is_some() || self.queued.is_some()
    }

    /// Its turn to talk to PAM has come.
    pub fn take_turn(&mut self, context: &mut LoginContext<'_>) -> Step {
        match self.queued.take() {
            Some(purpose) => self.talk(purpose, context),
            None => Step::Wait,
        }
    }

    /// A USERAUTH_REQUEST.
    pub fn on_request(&mut self, request: Vec<u8>, context: &mut LoginContext<'_>) -> Step {
        let request = Zeroizing::new(request);
        if context.session_id.is_none() {
            return Step::Violation("a login before the first key exchange was signed");
        }
        match self.talk.take() {
            // The user gives up what he was asked, and tries something else.
            Some(talk) if talk.asked.is_some() => {
                talk.conversation.abort();
                self.pending = None;
                self.progress.failed(u32::MAX);
            }
            talk => self.talk = talk,
        }
        if self.pending.is_some() || self.refusal_delay.is_holding() {
            return Step::Violation("a login request before the last one was answered");
        }
        self.attempts += 1;
        self.pending = Some(request);
        self.go(context)
    }

    /// A USERAUTH_INFO_RESPONSE.
    pub fn on_answers(&mut self, mut response: Vec<u8>, context: &mut LoginContext<'_>) -> Step {
        let parsed = InfoResponse::parse(&response);
        response.zeroize();
        let Some((talk, asked)) = self.talk.as_mut().and_then(|t| t.asked.take().map(|n| (t, n))) else {
            return end(PROTOCOL_ERROR, c"an answer to a question that was not asked");
        };
        let Ok(parsed) = parsed else {
            return end(PROTOCOL_ERROR, c"the answers cannot be read");
        };
        if parsed.answers.len() != asked {
            return end(
                PROTOCOL_ERROR,
                c"as many answers are wanted as there were questions",
            );
        }
        let secrets: Option<Vec<Secret>> = parsed.answers.iter().map(|a| pam::secret(a)).collect();
        match secrets {
            Some(secrets) => {
                talk.conversation.answer(secrets);
                Step::Wait
            }
            None => {
                talk.conversation.abort();
                self.fail("an answer holds a zero byte, or is too long", context)
            }
        }
    }

    /// The resolver's answer.
    pub fn on_name(&mut self, found: Found, context: &mut LoginContext<'_>) -> Step {
        if let Err(why) = self.facts.named(found) {
            tracing::warn!(connection = context.connection, "{why}");
        }
        self.go(context)
    }

    /// The key files.
    pub fn on_key_files(
        &mut self,
        outcome: Result<(RunningHelper, Begun), LaunchError>,
        context: &mut LoginContext<'_>,
    ) -> Step {
        let account = self.account().to_vec();
        self.facts.read(&account, outcome, &self.trust, context.tools);
        self.go(context)
    }

    /// PAM says something, or had no room for the conversation a moment ago; or a refusal was held until now.
    pub fn on_pam(&mut self, context: &mut LoginContext<'_>) -> Step {
        if let Some(verdict) = self.refusal_delay.take() {
            return Step::Say(verdict);
        }
        if self.queued.is_some() && context.tools.pam_turns.is_running(context.connection) {
            return self.take_turn(context);
        }
        while let Some(talk) = &mut self.talk {
            match talk.conversation.hear() {
                PamAnswer::Nothing => return Step::Wait,
                PamAnswer::Ask(prompts) => {
                    if let Some(step) = self.prompted(prompts) {
                        return step;
                    }
                }
                PamAnswer::Accepted(user, must_change) => {
                    self.must_change_password = must_change;
                    return self.accepted(&user, context);
                }
                PamAnswer::Refused { why, at } => return self.turned_away(&why, at, context),
                PamAnswer::Broken(why) => {
                    let why = talk.unanswered.map_or(why, str::to_owned);
                    return self.fail(&why, context);
                }
            }
        }
        Step::Wait
    }

    /// Goes on with the pending request as far as what is known reaches.
    fn go(&mut self, context: &mut LoginContext<'_>) -> Step {
        let Some(bytes) = self.pending.take() else {
            return Step::Wait;
        };
        let step = match Request::parse(&bytes) {
            Ok(request) => self.decide(&request, context),
            Err(e) => {
                tracing::debug!(
                    connection = context.connection,
                    "a login request cannot be read: {e}"
                );
                end(PROTOCOL_ERROR, c"the login request cannot be read")
            }
        };
        // Only a request that still waits is kept: for a fact, or for PAM's account phase.
        if matches!(step, Step::Wait) {
            self.pending = Some(bytes);
        }
        step
    }
}

#[cfg(test)]
mod tests;
