//! What a node remembers of connections that are not logged in: penalties of their sources, sources of recent logins, and audit lines so
//! far. The rules are `fleetgate_policy::strangers`'; this file knows the clocks. It decides nothing about logins.
//!
//! A source that a proxy names is the proxy's claim. Such sources are remembered apart, so that a proxy which makes them up
//! harms nobody who comes without it.

use fleetgate_policy::address::Network;
use fleetgate_policy::strangers::{Lines, Offence, Penalties, Settings, Sum};
use fleetgate_sys::clock::{self, Time};
use std::net::IpAddr;
use std::time::Duration;

/// Of all connections.
#[derive(Debug)]
pub struct Strangers {
    direct: Side,
    tunnelled: Side,
}

/// Of those that came by themselves, or of those that came by a proxy.
#[derive(Debug)]
struct Side {
    penalties: Penalties,
    lines: Lines<Time>,
}

/// A line about somebody who is not logged in.
#[derive(Clone, Copy, Debug)]
pub struct StrangerEvent {
    /// From where.
    pub source: IpAddr,
    /// By a proxy.
    pub tunnelled: bool,
    /// The event.
    pub what: &'static str,
    /// The cluster knows who it is.
    pub is_user: bool,
}

impl Side {
    fn new(settings: &Settings) -> Side {
        Side {
            penalties: Penalties::new(settings.clone()),
            lines: Lines::new(settings.lines),
        }
    }

    fn set(&mut self, settings: &Settings) {
        self.penalties.set(settings.clone());
        self.lines.set_lines(settings.lines);
    }
}

impl Strangers {
    /// Nothing is known of anybody.
    pub fn new(settings: &Settings) -> Strangers {
        Strangers {
            direct: Side::new(settings),
            tunnelled: Side::new(settings),
        }
    }

    /// By these rules from now on.
    pub fn set(&mut self, settings: &Settings) {
        self.direct.set(settings);
        self.tunnelled.set(settings);
    }

    fn of(&mut self, tunnelled: bool) -> &mut Side {
        match tunnelled {
            true => &mut self.tunnelled,
            false => &mut self.direct,
        }
    }

    /// For how long this address may not connect.
    pub fn refuses_connection(&mut self, source: IpAddr, tunnelled: bool) -> Option<Duration> {
        self.of(tunnelled).penalties.refuses_connection(source, now())
    }

    /// For how long nobody there is to try a password for this account.
    pub fn refuses_password(&mut self, source: IpAddr, tunnelled: bool, account: &[u8]) -> Option<Duration> {
        self.of(tunnelled)
            .penalties
            .refuses_password(source, account, now())
    }

    /// A password was wrong.
    pub fn wrong_password(&mut self, source: IpAddr, tunnelled: bool, account: &[u8]) {
        self.of(tunnelled)
            .penalties
            .wrong_password(source, account, now());
    }

    /// Somebody there did wrong.
    pub fn offend(&mut self, source: IpAddr, tunnelled: bool, offence: Offence) {
        self.of(tunnelled).penalties.offend(source, offence, now());
    }

    /// Somebody logged in.
    pub fn logged_in(&mut self, source: IpAddr, tunnelled: bool, account: &[u8], by_password: bool) {
        self.of(tunnelled)
            .penalties
            .logged_in(source, account, by_password, now());
    }

    /// Whether somebody logged in from there lately.
    pub fn is_known(&self, source: &Network, tunnelled: bool) -> bool {
        let side = match tunnelled {
            true => &self.tunnelled,
            false => &self.direct,
        };
        side.penalties.is_known(source, now())
    }

    /// Whether this has a line of its own; if not it is summed.
    pub fn has_line(&mut self, line: StrangerEvent) -> bool {
        let side = self.of(line.tunnelled);
        let source = side.penalties.settings().source(line.source);
        let is_known = line.is_user;
        side.lines
            .has_line(source, line.what, is_known, clock::wall(), now())
    }

    /// When the first sum is due.
    pub fn due(&self) -> Option<Duration> {
        let ends = [self.direct.lines.ends(), self.tunnelled.lines.ends()];
        ends.into_iter().flatten().min()
    }

    /// The sums that are due, and whether their connections came by a proxy; `all`: those too that are not.
    pub fn take(&mut self, all: bool) -> Vec<(Sum<Time>, bool)> {
        let now = now();
        let mut taken = Vec::new();
        for (side, tunnelled) in [(&mut self.direct, false), (&mut self.tunnelled, true)] {
            let sums = match all {
                true => side.lines.take(),
                false => side.lines.take_due(now),
            };
            taken.extend(sums.into_iter().map(|sum| (sum, tunnelled)));
        }
        taken
    }
}

/// The clock that goes on while the machine sleeps.
fn now() -> Duration {
    Duration::from_nanos(u64::try_from(clock::boot().as_nanos()).unwrap_or(0))
}
