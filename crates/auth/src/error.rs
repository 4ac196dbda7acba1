//! Why a request is refused: a kind, which becomes gRPC's code, and a sentence that names the thing, the reason and the
//! remedy. No secret is in it, and nothing that tells whether there is a user of some name.

use crate::audit::AuditError;
use crate::password::NotDone;
use crate::secret::NoRandom;
use fleetgate_store::Error as StoreError;
use std::fmt;
use tonic::Status;

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Of which kind.
    pub kind: RefusedKind,
    /// Why, and what to do.
    pub words: String,
}

/// What kind of refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedKind {
    /// The request makes no sense.
    Invalid,
    /// Not proven who it is: password, code, secret, certificate.
    Unproven,
    /// It is proven, and not allowed.
    Forbidden,
    /// There is no such thing.
    Missing,
    /// There is one already.
    Exists,
    /// Not in the state that things are in.
    State,
    /// Too many, too often.
    Busy,
    /// The machine said no: nothing was done.
    Unavailable,
}

/// The usual answer.
pub type Result<T> = std::result::Result<T, Refused>;

macro_rules! kinds {
    ($($name:ident $kind:ident $doc:literal),*) => {
        impl Refused {
            $(#[doc = $doc]
            pub fn $name(words: impl Into<String>) -> Refused {
                Refused { kind: RefusedKind::$kind, words: words.into() }
            })*
        }
    };
}

kinds!(
    invalid Invalid "The request makes no sense.",
    unproven Unproven "It is not proven who it is.",
    forbidden Forbidden "It is not allowed.",
    missing Missing "There is no such thing.",
    exists Exists "There is one already.",
    state State "Not now.",
    busy Busy "Too many, too often.",
    unavailable Unavailable "The machine said no."
);

impl Refused {
    /// Try again when so many seconds are over.
    pub fn later(what: &str, seconds: u64) -> Refused {
        Refused::busy(format!("{what}: try again in {seconds} s"))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Status {
        let words = refused.words;
        match refused.kind {
            RefusedKind::Invalid => Status::invalid_argument(words),
            RefusedKind::Unproven => Status::unauthenticated(words),
            RefusedKind::Forbidden => Status::permission_denied(words),
            RefusedKind::Missing => Status::not_found(words),
            RefusedKind::Exists => Status::already_exists(words),
            RefusedKind::State => Status::failed_precondition(words),
            RefusedKind::Busy => Status::resource_exhausted(words),
            RefusedKind::Unavailable => Status::unavailable(words),
        }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Refused {
        match error {
            StoreError::Busy | StoreError::Watches => Refused::busy(error.to_string()),
            other => {
                tracing::error!("{other}");
                Refused::of_store(&other)
            }
        }
    }
}

impl Refused {
    /// The same for a command, which says by itself why it failed: a service's log is where others read it.
    pub(crate) fn of_store(error: &StoreError) -> Refused {
        Refused::unavailable(match error {
            StoreError::Locked(_) => format!("{error} (`systemctl stop fleetgate`, or end `fleetgate up`)"),
            other => other.to_string(),
        })
    }
}

impl From<AuditError> for Refused {
    fn from(error: AuditError) -> Refused {
        match error {
            AuditError::Busy => Refused::busy(error.to_string()),
            other => Refused::unavailable(other.to_string()),
        }
    }
}

impl From<NoRandom> for Refused {
    fn from(_: NoRandom) -> Refused {
        Refused::unavailable("the kernel gave no random numbers; nothing was done")
    }
}

impl From<NotDone> for Refused {
    fn from(error: NotDone) -> Refused {
        match error {
            NotDone::Busy => Refused::later("many people log in at this moment", 2),
            NotDone::Damaged => Refused::unavailable(
                "what is stored of the password cannot be read: an administrator resets it with fleetgate user reset",
            ),
            NotDone::NoRandom => NoRandom.into(),
        }
    }
}
