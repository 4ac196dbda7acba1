//! Penalties of a login that fails: what it costs its source, and what the audit log gets of it. It refuses nobody by itself.

use super::{LoginAttempt, LoginContext, LoginMethod, Purpose, Refusal};
use crate::config::cluster::ClusterLogin;
use fleetgate_policy::grant::How;
use fleetgate_policy::strangers::Offence;

impl LoginAttempt {
    /// The refusal of a key that the audit log does not have yet, for the end of the connection: clients ask about each of
    /// their keys, and one refusal for all of them is enough.
    pub fn unreported_refusal(&mut self) -> Option<Refusal> {
        let reason = self.refused_key.take()?;
        Some(Refusal {
            login: String::from_utf8_lossy(self.user.as_deref().unwrap_or_default()).into_owned(),
            method: LoginMethod::PublicKey.name().to_owned(),
            reason,
            user: None,
            rule: None,
        })
    }

    /// The cluster's user who has proven who he is. What refuses him, PAM for instance, may know nothing of the cluster.
    pub(super) fn proven_user(&self) -> Option<String> {
        self.cluster_logins
            .iter()
            .find_map(ClusterLogin::user)
            .map(ToString::to_string)
    }

    /// What it did wrong, should it end now.
    pub fn offence_at_end(&self) -> Option<Offence> {
        match self.progress.has_failed() {
            _ if self.was_charged => None,
            true => Some(Offence::WrongKey),
            false => Some(Offence::NoLogin),
        }
    }

    /// A password, or answers, did not do.
    pub(super) fn charge_wrong_password(&mut self, context: &mut LoginContext<'_>) {
        if let Some(talk) = &self.talk
            && !matches!(talk.purpose, Purpose::Account)
        {
            self.was_charged = true;
            let account = self.account();
            context
                .tools
                .strangers
                .wrong_password(context.source, context.tunnelled, account);
        }
    }

    /// Why a password is not tried now.
    pub(super) fn why_no_password(
        &self,
        purpose: &Purpose,
        context: &mut LoginContext<'_>,
    ) -> Option<String> {
        if matches!(purpose, Purpose::Account) {
            return None;
        }
        let account = self.account();
        let strangers = &mut context.tools.strangers;
        let left = strangers.refuses_password(context.source, context.tunnelled, account)?;
        Some(format!(
            "not tried: there were too many wrong passwords from its address; {} s to wait",
            left.as_secs() + 1
        ))
    }
}

/// Whether it is the same key, and a key at all.
pub(super) fn same_key(a: &How, b: &How) -> bool {
    let key = |how: &How| match how {
        How::Key { fingerprint } | How::Certificate { fingerprint, .. } => Some(fingerprint.clone()),
        _ => None,
    };
    key(a).is_some_and(|a| Some(a) == key(b))
}
