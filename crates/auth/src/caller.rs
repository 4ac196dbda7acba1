//! Who asks, and what that alone allows: nobody yet, a certificate, or this machine's own administrator by the unix
//! socket.

use crate::error::{Refused, Result};
use crate::limits::Source;
use crate::state::Published;
use fleetgate_net::x509::Certificate;
use fleetgate_policy::cluster::{Identity, Name, Subject, Target};
use std::net::SocketAddr;
use std::sync::Arc;

/// How old a second factor may be for administering from afar, in seconds.
pub const ADMIN_MFA: u64 = 3600;

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// What is proven.
    pub who: Who,
    /// Where from.
    pub address: Option<SocketAddr>,
}

/// What is proven of a caller.
#[derive(Clone, Debug)]
pub enum Who {
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
            (Who::Local(_), None) => "unix socket".to_string(),
            _ => String::new(),
        }
    }

    /// For audit events: who.
    pub fn by(&self) -> String {
        match &self.who {
            Who::Nobody => "nobody".to_string(),
            Who::Certificate(identity, _) => identity.subject.to_string(),
            Who::Local(uid) => format!("uid {uid} (unix socket)"),
        }
    }

    /// The identity of a certificate that holds now and is of this cluster.
    pub fn identity(&self, published: &Published, now: u64) -> Result<&Identity> {
        let Who::Certificate(identity, certificate) = &self.who else {
            return Err(Refused::unproven(
                "this needs a certificate: run fleetgate login, or join the machine",
            ));
        };
        if identity.cluster != published.state.cluster {
            return Err(Refused::forbidden(format!(
                "the certificate is of the cluster {}, and this is {}",
                identity.cluster, published.state.cluster
            )));
        }
        // TLS looked when the connection began, which may be long ago.
        if now >= certificate.validity().end {
            return Err(Refused::unproven(format!(
                "the certificate of {} has expired: log in again, or let the machine renew it",
                identity.subject
            )));
        }
        Ok(identity)
    }

    /// When the certificate ends.
    pub fn expires(&self) -> u64 {
        match &self.who {
            Who::Certificate(_, certificate) => certificate.validity().end,
            _ => 0,
        }
    }

    /// The user, whom no lock holds.
    pub fn user(&self, published: &Published, now: u64) -> Result<(&Identity, &Name)> {
        let identity = self.identity(published, now)?;
        let Some(user) = identity.user() else {
            return Err(Refused::forbidden(format!(
                "the certificate is for {}, and this is for users",
                identity.subject
            )));
        };
        locked(published, identity, now)?;
        Ok((identity, user))
    }

    /// The proxy.
    pub fn proxy(&self, published: &Published, now: u64) -> Result<&Name> {
        let identity = self.identity(published, now)?;
        match &identity.subject {
            Subject::Proxy(name) => Ok(name),
            other => Err(Refused::forbidden(format!(
                "the certificate is for {other}, and this is for proxies"
            ))),
        }
    }
}

/// Whether a lock holds against a user wherever it is.
pub fn locked(published: &Published, identity: &Identity, now: u64) -> Result<()> {
    let user = identity.user().cloned().map(Target::User);
    let device = identity.device.clone().map(Target::Device);
    let roles = identity.roles.iter().cloned().map(Target::Role);
    let locks = &published.state.locks;
    let mut targets = user.into_iter().chain(device).chain(roles);
    match targets.find_map(|target| locks.on(&target, now, identity.issued)) {
        Some(lock) => Err(Refused::forbidden(lock.refusal().words)),
        None => Ok(()),
    }
}
