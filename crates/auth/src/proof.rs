//! What a caller's certificate proves at this moment: it holds, the cluster still knows its owner, and no lock holds him.

use crate::cache::StateCache;
use crate::caller::{Caller, CallerProof};
use crate::documents::{Kind, Member};
use crate::error::{Refused, Result};
use crate::service::Service;
use crate::state::Published;
use fleetgate_net::x509::Certificate;
use fleetgate_policy::cluster::{Identity, Name, Subject, Target};
use std::time::Duration;

/// How often it is looked whether the certificate of an open connection still holds; changes are looked at as they come.
const LOOKED_AT: Duration = Duration::from_secs(1);

impl Caller {
    /// The identity of a certificate that holds now, is of this cluster, and whose owner the cluster still knows: a machine
    /// by this very key, and nobody whom a lock holds.
    pub fn identity(&self, service: &Service) -> Result<&Identity> {
        let CallerProof::Certificate(identity, certificate) = &self.who else {
            return Err(Refused::unproven(
                "this needs a certificate: run fleetgate login, or join the machine",
            ));
        };
        let (published, now) = (service.published.borrow(), service.now());
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
        is_known(&service.cache(), identity, certificate)?;
        locked(&published, identity, now)?;
        Ok(identity)
    }

    /// Waits until the certificate proves nothing any more, and says why. The connection of somebody without one has its
    /// time from elsewhere.
    pub async fn until_refused(&self, service: &Service) -> Refused {
        if !matches!(self.who, CallerProof::Certificate(..)) {
            return std::future::pending().await;
        }
        let (mut seen, mut published) = (service.ledger.seen(), service.published.clone());
        loop {
            if let Err(refused) = self.identity(service) {
                return refused;
            }
            tokio::select! {
                Ok(()) = seen.changed() => {}
                Ok(()) = published.changed() => {}
                // The certificate's own end.
                () = tokio::time::sleep(LOOKED_AT) => {}
            }
        }
    }

    /// The user.
    pub fn user(&self, service: &Service) -> Result<(&Identity, &Name)> {
        let identity = self.identity(service)?;
        let Some(user) = identity.user() else {
            return Err(Refused::forbidden(format!(
                "the certificate is for {}, and this is for users",
                identity.subject
            )));
        };
        Ok((identity, user))
    }

    /// The proxy.
    pub fn proxy(&self, service: &Service) -> Result<&Name> {
        let identity = self.identity(service)?;
        match &identity.subject {
            Subject::Proxy(name) => Ok(name),
            other => Err(Refused::forbidden(format!(
                "the certificate is for {other}, and this is for proxies"
            ))),
        }
    }
}

/// Refuses the certificate of a user or machine that was removed, and of a machine whose name belongs to another key.
fn is_known(cache: &StateCache, identity: &Identity, certificate: &Certificate) -> Result<()> {
    let (kind, name) = match &identity.subject {
        Subject::Node(name) => (Kind::Node, name),
        Subject::Proxy(name) => (Kind::Proxy, name),
        Subject::User(name) if cache.users.contains_key(name.as_str()) => return Ok(()),
        Subject::User(name) => return Err(Refused::unproven(format!("the user {name} was removed"))),
        Subject::Auth => return Ok(()),
    };
    key_of(cache, kind, name, certificate).map(|_| ())
}

/// The member that has this name, if this certificate is for the key that it is known by.
pub fn key_of<'a>(
    cache: &'a StateCache,
    kind: Kind,
    name: &Name,
    certificate: &Certificate,
) -> Result<&'a Member> {
    let stored = cache.members(kind).get(name.as_str()).ok_or_else(|| gone(name))?;
    match stored.document.key.as_deref() == Some(&certificate.pin().to_string()) {
        true => Ok(&stored.document),
        false => Err(Refused::unproven(format!(
            "the name {name} belongs to another key by now: remove it (fleetgate node rm {name}) and join again \
             with a new token"
        ))),
    }
}

/// A machine that is not, or no longer, a member.
pub fn gone(name: &Name) -> Refused {
    Refused::unproven(format!(
        "the machine {name} is not known here: it was removed; join again by another proxy with a new token (fleetgate token \
         add). Where a proxy was the only one, fleetgate backup and restore make another (docs/proxy.md)"
    ))
}

/// Refuses whoever a lock holds wherever it is: a user by himself, his device or a role, and a machine.
pub fn locked(published: &Published, identity: &Identity, now: u64) -> Result<()> {
    let subject = match &identity.subject {
        Subject::User(name) => Some(Target::User(name.clone())),
        Subject::Node(name) => Some(Target::Node(name.clone())),
        Subject::Proxy(name) => Some(Target::Proxy(name.clone())),
        Subject::Auth => None,
    };
    let device = identity.device.clone().map(Target::Device);
    let roles = identity.roles.iter().cloned().map(Target::Role);
    let locks = &published.state.locks;
    let mut targets = subject.into_iter().chain(device).chain(roles);
    match targets.find_map(|target| locks.on(&target, now, identity.serial)) {
        Some(lock) => Err(Refused::forbidden(lock.refusal().words)),
        None => Ok(()),
    }
}
