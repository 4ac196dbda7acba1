//! What a login request comes to: which way it goes, whether the proof holds, and whether it is the last one that is needed.

use super::account::{allowed, closed};
use super::calendar::calendar;
use super::conversation::{self, Purpose};
use super::penalties::same_key;
use super::refusals::end;
use super::{LoginAttempt, LoginContext, PROTOCOL_ERROR, ProvenLogin, Step};
use crate::config::cluster::ClusterLogin;
use crate::config::publickey::{self, ClosedAccount, Decision, Files, SshExchange};
use crate::config::trust::{LoginMethod, Trust};
use crate::monitor::names::Lane;
use crate::monitor::timers;
use crate::monitor::wakes::{Key, Owner};
use fleetgate_policy::access::{self, ProofKind};
use fleetgate_policy::cluster::{ContainerLabels, Refusal};
use fleetgate_policy::grant::{How, Proofs};
use fleetgate_policy::{AccountName, Kind, Rule};
use fleetgate_ssh::auth::{Method, PublicKey, Request};
use fleetgate_ssh::key::{Claimant, Restrictions};
use fleetgate_wire::node::Verdict;
use std::time::Duration;
use zeroize::Zeroizing;

/// How long PAM may take to each of its answers once a session is being made.
const PAM_PATIENCE: Duration = Duration::from_secs(30);

impl LoginAttempt {
    pub(super) fn decide(&mut self, request: &Request<'_>, context: &mut LoginContext<'_>) -> Step {
        if request.service != "ssh-connection" {
            return end(PROTOCOL_ERROR, c"there is no such service");
        }
        if self.user.get_or_insert_with(|| request.user.to_vec()) != request.user {
            return end(PROTOCOL_ERROR, c"the user name may not change");
        }
        let account = self.account().to_vec();
        let name = self.login();
        let way = match &request.method {
            // The first is how clients ask what there is.
            Method::None if self.attempts == 1 => return self.rejected(false),
            Method::None => return self.refuse("none", "the method none", context),
            Method::PublicKey(_) => LoginMethod::PublicKey,
            Method::Password { .. } => LoginMethod::Password,
            Method::KeyboardInteractive { .. } => LoginMethod::KeyboardInteractive,
            Method::Other { .. } => return self.refuse("other", "a method that is not there", context),
        };
        let is_viewer = name.as_ref().is_some_and(AccountName::is_viewer);
        if is_viewer && way != LoginMethod::PublicKey {
            return self.refuse(
                way.name(),
                "who only watches sessions shows a certificate",
                context,
            );
        }
        if !self.progress.open().contains(&way) {
            return self.refuse(way.name(), "the method is not open", context);
        }
        self.refusal_delay.begin();
        let wake_key = Key::new(Owner::Logins, context.connection);
        let trust = self.trust.clone();
        let wants_files = way == LoginMethod::PublicKey;
        let Some(known) = self.facts.gather(
            &account,
            wants_files,
            &trust,
            context.tools,
            (Lane::of(context.source), wake_key),
        ) else {
            return Step::Wait;
        };
        let closed_because = name.as_ref().and_then(|_| closed(known.account, context));
        let by_lists = match (known.account, &name) {
            // The lists are about accounts.
            _ if is_viewer => Ok(()),
            (Some(account), Some(name)) => allowed(account, name, known.groups, &trust, context),
            _ => Err("there is no such account".to_owned()),
        };
        match &request.method {
            Method::PublicKey(request) => {
                // Whom the lists refuse has no files where a key is only shown: the answer is that for a name that nobody has.
                let nothing = Files::default();
                let is_hidden = request.signature.is_none() && closed_because.is_none() && by_lists.is_err();
                let files = if is_hidden { &nothing } else { known.files };
                let login = name.as_ref().map_or("", AccountName::as_str);
                let decision = check_presented_key(request, login, files, &trust, context);
                // For a closed account the decision itself is the refusal, and for one that the lists refuse once the key is proven.
                let is_proven = matches!(decision, Decision::Proven { .. });
                let (by_lists, closed_because) = match (by_lists, closed_because) {
                    (_, Some(closed)) => (Ok(()), Some(closed)),
                    (Err(why), None) if is_proven => (Ok(()), Some(ClosedAccount::NotInUse(why))),
                    (by_lists, None) => (by_lists, None),
                };
                let decision = match closed_because {
                    Some(closed) => {
                        let cluster = context.tools.cluster.as_ref();
                        publickey::without_account(decision, login, &closed, &trust, cluster)
                    }
                    None => decision,
                };
                self.with_key(by_lists, decision, request.signature.is_none(), context)
            }
            Method::Password { new: Some(_), .. } => self.refuse(
                way.name(),
                "passwords are not changed this way: use keyboard-interactive",
                context,
            ),
            Method::Password { password, .. } => {
                // Who may not come in at all is asked for his password as everybody, and it is wrong.
                let password = match &by_lists {
                    Ok(()) => Zeroizing::new(password.to_vec()),
                    Err(_) => Zeroizing::new(b"\x08\n\r\x7f".to_vec()),
                };
                self.talk(Purpose::Password(Some(password)), context)
            }
            _ => self.talk(Purpose::Interactive, context),
        }
    }

    /// What a key comes to, which was only shown (`is_query`) or has signed.
    fn with_key(
        &mut self,
        by_lists: Result<(), String>,
        decision: Decision,
        is_query: bool,
        context: &mut LoginContext<'_>,
    ) -> Step {
        match (by_lists, decision) {
            // A certificate is answered so also where the lists refuse: the refusal comes with the signature.
            (_, Decision::KeyAcceptable) => Step::Say(Verdict::KeyOk),
            (
                Ok(()),
                Decision::Proven {
                    how,
                    restrictions,
                    cluster_login,
                },
            ) => self.proven(
                LoginMethod::PublicKey,
                how,
                *restrictions,
                cluster_login.map(|m| *m),
                context,
            ),
            (Ok(()), Decision::Denied(denied)) => {
                let publickey::ClusterRefusal { user, refusal } = *denied;
                self.deny(LoginMethod::PublicKey.name(), user, refusal, context)
            }
            (Err(why), _) | (_, Decision::Refused(why)) if is_query => {
                tracing::debug!(connection = context.connection, "a key would not do: {why}");
                self.refused_key = Some(why);
                self.rejected_counted(context)
            }
            (Err(why), _) | (_, Decision::Refused(why)) => {
                self.refuse(LoginMethod::PublicKey.name(), &why, context)
            }
        }
    }

    /// One way was gone to its end.
    pub(super) fn proven(
        &mut self,
        way: LoginMethod,
        how: How,
        restrictions: Restrictions,
        cluster_login: Option<ClusterLogin>,
        context: &mut LoginContext<'_>,
    ) -> Step {
        let by_role = |cluster_login: &ClusterLogin| cluster_login.allowed.permits.only_named();
        let proof = match way {
            LoginMethod::PublicKey => ProofKind::Key {
                forced: publickey::is_forced(&restrictions) || cluster_login.as_ref().is_some_and(by_role),
            },
            _ => ProofKind::Password,
        };
        if let Some(account) = self.facts.account() {
            let account = access::Account {
                name: account.name.to_str().unwrap_or_default(),
                uid: account.ids.uid,
                groups: &[],
            };
            if let Err(denied) = self.trust.access.root().allow(&account, proof) {
                let words = denied.to_string();
                let Some(cluster_login) = cluster_login else {
                    return self.refuse(way.name(), &words, context);
                };
                let user = cluster_login.user().map(ToString::to_string);
                return self.deny(way.name(), user, Refusal::of_node("account", words), context);
            }
        }
        if self.proven.iter().any(|(earlier, _)| same_key(earlier, &how)) {
            return self.refuse(
                way.name(),
                "the same key again, where another is asked for",
                context,
            );
        }
        self.proven.push((how, restrictions));
        self.cluster_logins.extend(cluster_login);
        self.pending = None;
        if !self.progress.went(way) {
            return self.rejected(true);
        }
        let is_viewer = self.login().is_some_and(|login| login.is_viewer());
        if context.tools.pam && self.accepted.is_none() && !is_viewer {
            return self.talk(Purpose::Account, context);
        }
        self.conclude(context)
    }

    /// Whether a key or certificate was proven.
    pub(super) fn has_key(&self) -> bool {
        let is_key = |how: &How| matches!(how, How::Key { .. } | How::Certificate { .. });
        self.proven.iter().any(|(how, _)| is_key(how))
    }

    /// All was proven: joins what each proof allows, decides about the cluster once more, and gives the login.
    pub(super) fn conclude(&mut self, context: &mut LoginContext<'_>) -> Step {
        let name = self.login();
        let (Some(account), Some(login)) = (self.facts.account().cloned(), name) else {
            return self.fail("there is no such account", context);
        };
        let mut all = publickey::unrestricted();
        let mut proven = Vec::new();
        for (how, restrictions) in std::mem::take(&mut self.proven) {
            all = match all.and(restrictions) {
                Ok(both) => both,
                Err(denied) => return self.fail(&denied.to_string(), context),
            };
            proven.push(how);
        }
        let (now, _) = calendar();
        // A lock of the node or the account is for whoever comes without the cluster, too.
        let lock = context
            .tools
            .cluster
            .as_ref()
            .and_then(|c| c.locked(login.as_str(), now));
        if let Some(refusal) = lock.map(fleetgate_policy::cluster::Lock::refusal) {
            return self.deny("login", None, refusal, context);
        }
        // While PAM was asked the state may have changed.
        let mut cluster_logins = std::mem::take(&mut self.cluster_logins);
        if let Some(cluster) = &context.tools.cluster {
            let again = cluster_logins.iter_mut().find_map(|cluster_login| {
                let container = ContainerLabels::before_looking(&login);
                let decided =
                    cluster_login.decide_again(cluster, login.as_str(), container, now, self.trust.skew);
                let user = cluster_login.user().map(ToString::to_string);
                decided.err().map(|refusal| (user, refusal))
            });
            if let Some((user, refusal)) = again {
                return self.deny("login", user, refusal, context);
            }
        }
        if login.is_viewer() && cluster_logins.is_empty() {
            return self.fail("only users of the cluster watch sessions", context);
        }
        let base = all.permits.within(self.trust.permits.clone());
        if let Some(container) = login.container()
            && cluster_logins.is_empty()
            && !self.trust.lets_into(&login)
        {
            let words = format!("`containers` does not let {} into {container}", login.account());
            return self.fail(&words, context);
        }
        let mut permits = base.clone();
        for cluster_login in &cluster_logins {
            permits = match cluster_login.within(permits) {
                Ok(permits) => permits,
                Err(denied) => return self.fail(&denied.to_string(), context),
            };
        }
        if let Err(denied) = permits.name_commands(&self.trust.commands) {
            return self.fail(&denied.to_string(), context);
        }
        if let Some(container) = login.container() {
            // Neither of their sockets would be found inside.
            let rule = Rule::new(format!("the container {container}"));
            permits.forbid(&[Kind::Agent, Kind::X11, Kind::UserRc], &rule);
        }
        let expires = all
            .expires
            .map(|end| timers::now() + Duration::from_secs(end.saturating_sub(now)));
        let pam = self
            .accepted
            .take()
            .map(|conversation| conversation.into_session(&context.tools.wakes, PAM_PATIENCE));
        Step::In(Box::new(ProvenLogin {
            account,
            login,
            proofs: Proofs { proven },
            permits,
            base,
            cluster_logins,
            expires,
            notes: conversation::lines(&std::mem::take(&mut self.notes)),
            pam,
            must_change_password: self.must_change_password,
        }))
    }
}

/// Holds a key against the account's files and the cluster.
fn check_presented_key(
    request: &PublicKey<'_>,
    login: &str,
    files: &Files,
    trust: &Trust,
    context: &LoginContext<'_>,
) -> Decision {
    let (now, utc_offset) = calendar();
    let claimant = Claimant {
        login,
        source: context.source,
        now,
        skew: trust.skew,
        utc_offset,
        environment: trust.user_environment,
    };
    let ssh = SshExchange {
        id: context.session_id.unwrap_or_default(),
        host_key: context.host_key,
    };
    let cluster = context.tools.cluster.as_ref();
    publickey::check_key(request, ssh, &claimant, files, trust, cluster)
}
