//! Connections that are not logged in yet: penalties of their sources, places where there is no room for all, and which
//! events get an audit line of their own. Pure: times, addresses and random numbers come from the
//! caller, and nothing here knows a socket. The node and the proxy decide by the same rules; auth takes the sums from
//! here, and has limits of its own.

#[cfg(feature = "documents")]
mod form;
mod penalties;
mod places;
mod sums;
#[cfg(test)]
mod tests;

#[cfg(feature = "documents")]
pub use form::Form;
pub use penalties::{Costs, MAX_SOURCES, Offence, Penalties};
pub use places::{Admission, Bounds, Full, WaitingConnections};
pub use sums::{Lines, MAX_SUMMED, Sum, Sums, WINDOW};

use crate::Invalid;
use crate::address::Network;
use std::net::IpAddr;
use std::time::Duration;

/// How strangers are treated. An operator sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether sources pay for offences at all.
    pub penalties: bool,
    /// What each offence costs.
    pub costs: Costs,
    /// A source whose offences add up to this is refused until they have decayed.
    pub least: Duration,
    /// No source is refused for longer.
    pub most: Duration,
    /// Addresses that never pay.
    pub exempt: Vec<Network>,
    /// What counts as one source.
    pub prefixes: Prefixes,
    /// For how long a source is known after a login from it.
    pub known_for: Duration,
    /// Audit lines of each kind that the strangers of one source have in one [`WINDOW`]; the rest is summed.
    pub lines: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            penalties: true,
            costs: Costs::default(),
            least: Duration::from_secs(15),
            most: Duration::from_secs(600),
            exempt: Vec::new(),
            prefixes: Prefixes::default(),
            known_for: Duration::from_secs(86_400),
            lines: 10,
        }
    }
}

impl Settings {
    /// A sentence that says what cannot be.
    pub fn check(&self) -> Result<(), Invalid> {
        if !(1..=32).contains(&self.prefixes.v4) {
            return Err("ipv4_prefix is to be from 1 to 32".into());
        }
        if !(1..=128).contains(&self.prefixes.v6) {
            return Err("ipv6_prefix is to be from 1 to 128".into());
        }
        if self.most < self.least {
            return Err("penalty_max is shorter than penalty_min: no source would ever be refused".into());
        }
        if self.most > MAX_PENALTY {
            return Err("penalty_max is longer than a day".into());
        }
        if self.least.is_zero() {
            let words = "penalty_min is 0: the first slip would shut a source out; `penalties = false` turns them off";
            return Err(words.into());
        }
        let costs = &self.costs;
        let spans = [
            ("wrong_password", costs.wrong_password),
            ("wrong_key", costs.wrong_key),
            ("no_login", costs.no_login),
            ("too_late", costs.too_late),
            ("garbage", costs.garbage),
            ("known_for", self.known_for),
        ];
        if let Some((name, _)) = spans.iter().find(|(_, span)| *span > MAX_SPAN) {
            return Err(Invalid(format!("{name} is longer than a year")));
        }
        if self.exempt.len() > MAX_EXEMPT {
            return Err(Invalid(format!("exempt may name {MAX_EXEMPT} networks")));
        }
        if self.lines > MAX_LINES {
            return Err(Invalid(format!("lines is at most {MAX_LINES}")));
        }
        Ok(())
    }

    /// Whether this address never pays.
    pub fn is_exempt(&self, address: IpAddr) -> bool {
        self.exempt.iter().any(|network| network.contains(address))
    }

    /// What this address counts as.
    pub fn source(&self, address: IpAddr) -> Network {
        self.prefixes.source(address)
    }
}

/// The longest that a source may be refused, whatever is configured.
const MAX_PENALTY: Duration = Duration::from_secs(86_400);
/// The longest that an offence may cost, and that a source may be known: times are added to the clock, which has an end.
const MAX_SPAN: Duration = Duration::from_secs(365 * 86_400);
/// Networks that never pay.
pub const MAX_EXEMPT: usize = 1_024;
/// Lines that one source may have.
pub const MAX_LINES: u32 = 1_000_000;

/// Which addresses count as one source: those that share so many bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixes {
    /// Of IPv4.
    pub v4: u8,
    /// Of IPv6: a provider's customer mostly has a /64.
    pub v6: u8,
}

impl Default for Prefixes {
    fn default() -> Prefixes {
        Prefixes { v4: 32, v6: 64 }
    }
}

impl Prefixes {
    /// The source that this address belongs to. An IPv4 address that came over an IPv6 socket counts as IPv4.
    pub fn source(self, address: IpAddr) -> Network {
        let address = address.to_canonical();
        let bits = match address {
            IpAddr::V4(_) => self.v4,
            IpAddr::V6(_) => self.v6,
        };
        Network::around(address, bits)
    }
}
