//! Who asks, and what that alone allows: nobody yet, a certificate, or this machine's own administrator by the unix
//! socket.

use crate::limits::Source;
use fleetgate_net::x509::Certificate;
use fleetgate_policy::cluster::{Identity, Name};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// What is proven.
    pub who: CallerProof,
    /// Where from.
    pub address: Option<SocketAddr>,
}

/// What is proven of a caller.
#[derive(Clone, Debug)]
pub enum CallerProof {
    /// Nothing.
    Nobody,
    /// It has this certificate's key; TLS has verified both.
    Certificate(Arc<Identity>, Arc<Certificate>),
    /// A process of this user on this machine, by the unix socket.
    Local(u32),
}

impl Caller {
    /// For limits.
    pub fn source(&self) -> Source {
        match self.address {
            Some(address) => Source::of(address.ip()),
            None => Source::Local,
        }
    }

    /// For audit events: where from.
    pub fn from(&self) -> String {
        match (&self.who, self.address) {
            (_, Some(address)) => address.ip().to_canonical().to_string(),
            (CallerProof::Local(_), None) => "unix socket".to_string(),
            _ => String::new(),
        }
    }

    /// For audit events: who.
    pub fn by(&self) -> String {
        match &self.who {
            CallerProof::Nobody => "nobody".to_string(),
            CallerProof::Certificate(identity, _) => identity.subject.to_string(),
            CallerProof::Local(uid) => format!("uid {uid} (unix socket)"),
        }
    }

    /// When the certificate ends.
    pub fn expires(&self) -> u64 {
        match &self.who {
            CallerProof::Certificate(_, certificate) => certificate.validity().end,
            _ => 0,
        }
    }
}

/// What tries are counted by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The address.
    Source(Source),
    /// A device of the user's that has signed.
    Device(Name),
    /// A login of the user's, which began at this second: its certificate was shown.
    Login(Name, u64),
}

impl Origin {
    /// Of somebody who has shown nothing.
    pub fn of(caller: &Caller) -> Origin {
        Origin::Source(caller.source())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Source(Source::Address(address)) => write!(f, "{address}"),
            Origin::Source(Source::Local) => f.write_str("local"),
            Origin::Device(id) => write!(f, "device-{id}"),
            Origin::Login(_, began) => write!(f, "login-{began}"),
        }
    }
}
