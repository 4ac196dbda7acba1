//! Refusals of a login: what is noted for log and audit, and what the client is answered.

use super::conversation::Purpose;
use super::{LoginAttempt, LoginContext, Refusal, Step};
use fleetgate_wire::node::Verdict;
use std::ffi::CString;

/// DISCONNECT's reason for too many tries (RFC 4253 §11.1).
const NO_MORE_AUTH_METHODS: u32 = 14;

impl LoginAttempt {
    /// A refusal of what is pending.
    pub(super) fn fail(&mut self, why: &str, context: &mut LoginContext<'_>) -> Step {
        let queued = self.queued.take();
        let purpose = self.talk.take().map(|t| t.purpose).or(queued);
        self.refuse(purpose.as_ref().map_or("login", Purpose::method), why, context)
    }

    pub(super) fn refuse(&mut self, method: &str, why: &str, context: &mut LoginContext<'_>) -> Step {
        self.note(method, why, (None, None), context);
        self.rejected_counted(context)
    }

    /// A refusal that its user, who has proven who he is, reads himself.
    pub(super) fn deny(
        &mut self,
        method: &str,
        user: Option<String>,
        refusal: fleetgate_policy::cluster::Refusal,
        context: &mut LoginContext<'_>,
    ) -> Step {
        self.note(method, &refusal.words, (user, Some(refusal.rule)), context);
        self.rejected_for(refusal.words, context)
    }

    pub(super) fn note(
        &mut self,
        method: &str,
        why: &str,
        (user, rule): (Option<String>, Option<String>),
        context: &mut LoginContext<'_>,
    ) {
        self.refused_key = None;
        context.refusals.push(Refusal {
            login: String::from_utf8_lossy(self.user.as_deref().unwrap_or_default()).into_owned(),
            method: method.to_owned(),
            reason: why.to_owned(),
            user: user.or_else(|| self.proven_user()),
            rule,
        });
    }

    pub(super) fn rejected_counted(&mut self, context: &LoginContext<'_>) -> Step {
        self.pending = None;
        self.talk = None;
        self.queued = None;
        if self.progress.failed(context.tools.config.limits.tries) {
            return end(NO_MORE_AUTH_METHODS, c"too many tries to log in");
        }
        self.rejected(false)
    }

    /// The same, and the user reads why.
    pub(super) fn rejected_for(&mut self, words: String, context: &LoginContext<'_>) -> Step {
        match self.rejected_counted(context) {
            Step::Say(Verdict::Rejected { methods, .. }) => Step::Say(Verdict::Refused {
                methods,
                words: CString::new(words).unwrap_or_default(),
            }),
            end => end,
        }
    }

    pub(super) fn rejected(&mut self, partial: bool) -> Step {
        self.pending = None;
        let open = self.progress.open();
        let methods = open
            .iter()
            .filter_map(|way| CString::new(way.name()).ok())
            .collect();
        Step::Say(Verdict::Rejected { methods, partial })
    }
}

pub(super) fn end(reason: u32, text: &std::ffi::CStr) -> Step {
    Step::Say(Verdict::End {
        reason,
        text: text.into(),
    })
}
