//! What the proxy refused, counted for its page of metrics. It refuses nobody.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A connection was turned away because of a bound or a penalty.
pub(crate) const NO_PLACE: &str = "no_place";
/// What is refused.
const REFUSED: [&str; 7] = [
    NO_PLACE,
    "tls_refused",
    "jump_refused",
    "login_refused",
    "dial_denied",
    "connection_refused",
    "auth_not_reached",
];

/// What was refused, counted since this process began.
#[derive(Default)]
pub(crate) struct Refusals([AtomicU64; REFUSED.len()]);

impl Refusals {
    /// One more.
    pub(crate) fn count(&self, what: &str) {
        if let Some(at) = REFUSED.iter().position(|refused| *refused == what) {
            self.0[at].fetch_add(1, Relaxed);
        }
    }

    /// How often each was.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Relaxed));
        REFUSED.into_iter().zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_apart_and_no_other_is() {
        let refusals = Refusals::default();
        for what in ["dial_denied", NO_PLACE, "dial_denied", "something else"] {
            refusals.count(what);
        }
        let counts: Vec<_> = refusals.each().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counts, [(NO_PLACE, 1), ("dial_denied", 2)]);
    }
}
