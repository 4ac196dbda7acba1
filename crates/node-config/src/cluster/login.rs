//! A login by a certificate of the cluster: what the certificate says, what was decided, and the decision made anew for each
//! of its requests. It verifies no signature; the certificate that it is made of was verified.

use super::{Cluster, ClusterError};
use fleetgate_policy::cluster::{Allowed, ContainerLabels, Identity, Name, Refusal, SSH_EXTENSION};
use fleetgate_policy::{Denied, Permits};
use fleetgate_ssh::codec::Reader;
use fleetgate_ssh::key::Certificate;

/// A verified login by the cluster, with the last decision about it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterLogin {
    /// What the certificate says.
    pub identity: Identity,
    /// When it ends, Unix seconds.
    pub expires: Option<u64>,
    /// What was decided last.
    pub allowed: Allowed,
    /// Of which state.
    serial: u64,
}

impl ClusterLogin {
    /// The identity in a certificate of the cluster's user CA.
    pub fn identity(certificate: &Certificate) -> Result<Identity, ClusterError> {
        let Some(data) = certificate.extension(SSH_EXTENSION) else {
            return Err(ClusterError(format!(
                "the certificate has no {SSH_EXTENSION}: it is not one of fleetgate login"
            )));
        };
        let mut reader = Reader::new(data);
        let bytes = reader.string("identity").map_err(|e| e.to_string())?;
        reader.end().map_err(|e| e.to_string())?;
        Ok(Identity::parse(bytes)?)
    }

    /// Whether this certificate, verified, lets its user log in as `login`.
    pub fn decide(
        certificate: &Certificate,
        cluster: &Cluster,
        login: &str,
        container: ContainerLabels<'_>,
        now: u64,
        skew: u64,
    ) -> Result<Result<ClusterLogin, Refusal>, ClusterError> {
        let identity = ClusterLogin::identity(certificate)?;
        let expires = Some(certificate.valid_before()).filter(|end| *end != u64::MAX);
        let decided = cluster.decide_login(&identity, expires, login, container, now, skew);
        Ok(decided.map(|allowed| ClusterLogin {
            identity,
            expires,
            allowed,
            serial: cluster.state().serial,
        }))
    }

    /// The same again, as the cluster's state and the time are now. Whether what is allowed may have changed.
    pub fn decide_again(
        &mut self,
        cluster: &Cluster,
        login: &str,
        container: ContainerLabels<'_>,
        now: u64,
        skew: u64,
    ) -> Result<bool, Refusal> {
        let allowed = cluster.decide_login(&self.identity, self.expires, login, container, now, skew)?;
        let serial = cluster.state().serial;
        let is_other = serial != self.serial || allowed.roles != self.allowed.roles;
        self.allowed = allowed;
        self.serial = serial;
        Ok(is_other)
    }

    /// Whether one of the user's roles looks at the labels of the container that `login` leads into.
    pub fn looks_at_labels(&self, cluster: &Cluster, login: &str) -> bool {
        let roles = &cluster.state().roles;
        let held = self.identity.roles.iter().filter_map(|name| roles.get(name));
        held.into_iter().any(|role| role.looks_at_labels(login))
    }

    /// What was decided last did not come to count.
    pub fn doubt(&mut self) {
        self.serial = 0;
    }

    /// What is left of `permits` under what the roles allow.
    pub fn within(&self, permits: Permits) -> Result<Permits, Denied> {
        permits.and(self.allowed.permits.clone())
    }

    /// The roles that allow it, between commas.
    pub fn roles(&self) -> String {
        let names: Vec<&str> = self.allowed.roles.iter().map(Name::as_str).collect();
        names.join(",")
    }

    /// The user, for the log.
    pub fn user(&self) -> Option<&Name> {
        self.identity.user()
    }
}
