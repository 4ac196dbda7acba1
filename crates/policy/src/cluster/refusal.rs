//! Why the cluster refuses an attempt.

use std::fmt;

/// What kind of rule refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// No role allows it.
    Role,
    /// A lock.
    Lock,
    /// A fresher second factor is wanted.
    Mfa,
    /// An approved device is wanted.
    Device,
    /// The certificate's time: over, or not begun.
    Expired,
}

/// A no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Of which kind.
    pub reason: Reason,
    /// Which rule: `role dba`, `lock 7`, `the certificate`.
    pub rule: String,
    /// A sentence for the user, with the remedy.
    pub words: String,
}

impl Reason {
    /// In audit events.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Role => "role",
            Reason::Lock => "lock",
            Reason::Mfa => "mfa",
            Reason::Device => "device",
            Reason::Expired => "expired",
        }
    }
}

impl Refusal {
    /// What the node itself has against a login that roles allow.
    pub fn of_node(rule: &str, words: String) -> Refusal {
        Refusal {
            reason: Reason::Role,
            rule: rule.to_owned(),
            words,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Refusal {}
