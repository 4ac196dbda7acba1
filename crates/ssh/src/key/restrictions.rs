//! What a source of trust says about a login beside yes: what it may do, what its token has to show, and until when.

use super::Touch;
use fleetgate_policy::{Denied, Permits};

/// What goes with a login by a key or a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restrictions {
    /// What it may do.
    pub permits: Permits,
    /// What the signature's token has to show: for `verify_touched`.
    pub touch: Touch,
    /// Seconds since 1970 at which it ends.
    pub expires: Option<u64>,
}

impl Restrictions {
    /// What both say.
    pub fn and(self, other: Restrictions) -> Result<Restrictions, Denied> {
        Ok(Restrictions {
            permits: self.permits.and(other.permits)?,
            touch: self.touch.and(other.touch),
            expires: match (self.expires, other.expires) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
        })
    }
}
