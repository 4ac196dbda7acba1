//! What servers took when they were last connected to. The next connection sends ahead what will hold, and takes fewer round
//! trips.
//!
//! It is one file in the login's directory, a line a server, the one that was written last at its end. Nothing in it is secret,
//! and nothing in it is believed. It decides when something is sent, and never what: a list of algorithms stays as it is, and
//! the user's name, key and command wait for the host's signature as always. If a server is not as it was, the connection is
//! made anew at the price of one round trip. A file that cannot be read or written is as good as none.

mod file;

use crate::profile::Home;
use crate::time;
use fleetgate_ssh::info::{ConnectionInfo, ServerOffer};
use fleetgate_ssh::kex::Method;
use fleetgate_ssh::key::Algorithm;
use fleetgate_ssh::settings::FirstShare;
use std::path::PathBuf;

/// The file, in the login's directory.
pub(crate) const FILE: &str = "servers";
/// A line is written anew when it was used after so many days, so that its place and age say when it was of use.
const REFRESH_DAYS: u64 = 7;
const DAY: u64 = 86_400;

/// What is known of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Facts {
    /// Its version line. What stands below about channels is true of this version alone.
    version: String,
    offer: ServerOffer,
    /// The number that it gave to the first channel of a connection.
    first_channel: Option<u32>,
    /// Whether it passes on what comes right behind a login (RFC 4252 §5.1 asks for it). None: that was not tried.
    reads_on: Option<bool>,
}

/// How much may be sent in one flight with a login to a server whose numbering of channels is not known by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoginFlight {
    /// The login alone.
    Login,
    /// The request for a channel too. Nothing is begun by it, so it can be done again elsewhere.
    Channel,
    /// All of the session.
    Session,
}

/// What is known of the server that is being connected to.
#[derive(Debug, Default)]
pub struct ServerMemory {
    file: Option<PathBuf>,
    /// Its name in the file.
    place: String,
    /// When its line was written, as a day since 1970, and what it says.
    line: Option<(u64, Facts)>,
    /// What counts for the next attempt: what the line says, or what was learned since.
    facts: Option<Facts>,
    /// Attempts that failed because the facts were wrong.
    failures: u8,
}

impl ServerMemory {
    /// Of a node of the cluster.
    pub(crate) fn of_node(home: &Home, node: &str) -> ServerMemory {
        ServerMemory::of(home, node.to_ascii_lowercase())
    }

    /// Of some host at a port. No node's name looks like that.
    pub(crate) fn of_host(home: &Home, host: &str, port: u16) -> ServerMemory {
        ServerMemory::of(home, format!("[{}]:{port}", host.to_ascii_lowercase()))
    }

    fn of(home: &Home, place: String) -> ServerMemory {
        if !file::is_name(&place) || home.check_mode().is_err() {
            return ServerMemory::default();
        }
        let path = home.file(FILE);
        let line = file::find(&path, &place, today());
        ServerMemory {
            facts: line.as_ref().map(|(_, facts)| facts.clone()),
            file: Some(path),
            place,
            line,
            failures: 0,
        }
    }

    /// When to send the first share, if these are our lists.
    pub(super) fn first_share(&self, kex: &[Method], host_keys: &[String]) -> FirstShare {
        match &self.facts {
            Some(facts) if self.failures < 2 => facts.first_share(kex, host_keys),
            None if self.failures == 0 => FirstShare::Guessed,
            // Two answers of one server that contradict each other: it is several, behind one name.
            _ => FirstShare::Waits,
        }
    }

    /// What may go with the login to a server that says this version.
    pub(super) fn login_flight(&self, version: &[u8]) -> LoginFlight {
        let facts = self
            .facts
            .as_ref()
            .filter(|facts| facts.version.as_bytes() == version);
        match facts.map(|facts| (facts.reads_on, facts.first_channel)) {
            None | Some((Some(false), _) | (None, None)) => LoginFlight::Login,
            Some((Some(true), Some(0))) => LoginFlight::Session,
            Some(_) => LoginFlight::Channel,
        }
    }

    /// The facts were wrong, and the connection ended in its key exchange. What it said before that counts for the next one,
    /// and is written nowhere: nobody has signed it.
    pub(super) fn share_was_wrong(&mut self, info: &ConnectionInfo) {
        self.failures = self.failures.saturating_add(1);
        self.facts = Facts::of(info);
    }

    /// The connection ended when more than the login was sent. `reads_on`: what is known of it now.
    pub(super) fn flight_was_lost(&mut self, reads_on: Option<bool>) {
        if let Some(facts) = &mut self.facts {
            facts.reads_on = reads_on;
        }
        self.write();
    }

    /// The login succeeded, or the first channel stands: what the server is, for the next time. `first_channel` is the
    /// server's number, where it is of use.
    pub(super) fn note(
        &mut self,
        info: &ConnectionInfo,
        (kex, host_keys): (&[Method], &[String]),
        channel: Option<(LoginFlight, u32)>,
        is_well_known: bool,
    ) {
        let Some(mut facts) = Facts::of(info) else {
            return;
        };
        if let Some((flight, number)) = channel {
            let before = self.facts.as_ref().filter(|f| f.version == facts.version);
            facts.first_channel = Some(number);
            facts.reads_on = match flight {
                LoginFlight::Login => before.and_then(|f| f.reads_on),
                LoginFlight::Channel | LoginFlight::Session => Some(true),
            };
        }
        // Of such a server there is nothing to remember, and most are such: the file stays small.
        let is_usual = is_well_known && facts.first_share(kex, host_keys) == FirstShare::Guessed;
        self.facts = (!is_usual).then_some(facts);
        self.write();
    }

    /// Writes what is known, if that is news.
    fn write(&mut self) {
        let today = today();
        let is_written = match (&self.line, &self.facts) {
            (Some((day, line)), Some(facts)) => line == facts && today.saturating_sub(*day) < REFRESH_DAYS,
            (None, None) => true,
            _ => false,
        };
        if is_written {
            return;
        }
        if let Some(path) = &self.file {
            file::replace(path, &self.place, self.facts.as_ref(), today);
        }
        self.line = self.facts.clone().map(|facts| (today, facts));
    }
}

impl Facts {
    /// None before the server's lists are known.
    fn of(info: &ConnectionInfo) -> Option<Facts> {
        Some(Facts {
            version: String::from_utf8(info.peer_version.clone()).ok()?,
            offer: info.offered.clone()?,
            first_channel: None,
            reads_on: None,
        })
    }

    fn first_share(&self, kex: &[Method], host_keys: &[String]) -> FirstShare {
        // RFC 4253 §7.1: the first of the client's that the server has too.
        let Some(agreed) = kex.iter().find(|method| self.offer.kex.contains(method)) else {
            return FirstShare::Waits;
        };
        let best_host_key = self.offer.best_host_key.as_ref().map(Algorithm::name);
        let guess_is_right = kex.first() == Some(agreed)
            && self.offer.best_kex == Some(*agreed)
            && host_keys.first().map(String::as_str) == best_host_key;
        match guess_is_right {
            true => FirstShare::Guessed,
            false => FirstShare::Known(*agreed),
        }
    }
}

fn today() -> u64 {
    time::now() / DAY
}

#[cfg(test)]
mod tests;
