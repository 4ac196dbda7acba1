//! The cluster's documents and its one decision: names, identities, roles, locks, the signed state, and who may come in
//! where. Pure: no file, no socket, no clock, no signature; whoever uses it brings bytes and times.

mod decide;
#[cfg(feature = "documents")]
pub(crate) mod documents;
mod identity;
mod labels;
mod lock;
mod name;
mod recordings;
mod refusal;
mod role;
mod selector;
mod state;

pub use decide::{
    Allowed, Attempt, NO_ACCOUNT, NO_CONTAINERS, decide, decide_identity, explain, lifetime_of, logins_of,
    renewal_of,
};
#[cfg(feature = "documents")]
pub use documents::forms::{Size, Span, is_variable, variables};
#[cfg(feature = "documents")]
pub use documents::{CommandArgument, CommandEntry, listing, parse_roles, write_roles};
pub use identity::{
    Identity, MAX_IDENTITY, MAX_ROLES, SSH_EXTENSION, Subject, X509_EXTENSION, X509_EXTENSION_TEXT,
};
pub use labels::{Labels, MAX_LABEL_KEY, MAX_LABEL_VALUE, MAX_LABELS};
pub use lock::{Lock, Locks, MAX_REASON, REMOVED, SESSION_DIGITS, Target};
pub use name::{MAX_NAME, Name};
pub use recordings::{
    ADMIN_MFA, RecordingRight, RecordingRights, ViewAllowed, ViewAttempt, ViewedSession, explain_view,
    may_see,
};
pub use refusal::{Reason, Refusal};
pub use role::{
    ContainerLabels, Limits, MAX_LIFETIME, MAX_RECORDING_KEEP, MAX_RENEWAL, MAX_ROLE_ENTRIES, MIN_LIFETIME,
    MIN_RECORDING_KEEP, Role, USER,
};
pub use selector::{MAX_SELECTOR, Selector};
pub use state::{
    FRESH_SIGNED, Fresh, MAX_CLUSTER_ROLES, MAX_KEY, MAX_LOCKS, MAX_PROXIES, MAX_RECEIPT, MAX_STATE,
    MAX_TRUSTED, RECEIPT_SIGNED, RecordingReceipt, Retiring, STALE, STATE_SIGNED, State, Trust,
};
