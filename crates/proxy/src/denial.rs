//! What a client hears whose dial is refused.

use fleetgate_policy::cluster::{Reason, Refusal};
use fleetgate_proto::v1::Denied;
pub(crate) use fleetgate_proto::v1::denied::Reason as Why;

/// With a reason of the proxy's own.
pub(crate) fn denied(reason: Why, words: &str) -> Denied {
    Denied {
        reason: reason.into(),
        words: words.to_owned(),
        rule: String::new(),
    }
}

/// Words and rule of a decision.
pub(crate) fn refused(refusal: &Refusal) -> Denied {
    let reason = match refusal.reason {
        Reason::Role => Why::Role,
        Reason::Lock => Why::Lock,
        Reason::Mfa => Why::Mfa,
        Reason::Device => Why::Device,
        Reason::Expired => Why::Expired,
    };
    Denied {
        reason: reason.into(),
        words: refusal.words.clone(),
        rule: refusal.rule.clone(),
    }
}
