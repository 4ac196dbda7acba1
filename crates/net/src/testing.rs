//! What the tests of several crates begin with: a cluster's authority and its certificates. Not a part of any program.

mod collector;

pub use collector::Collector;

use crate::tls::{Credentials, Trust};
use crate::x509::{Authority, Key, Leaf};
use fleetgate_policy::cluster::{Identity, Name, Subject};
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// An authority and what it signs.
pub struct Cluster {
    /// Its TLS authority.
    pub authority: Authority,
}

/// What a certificate of a test is to be.
#[derive(Clone)]
pub struct CertificateRequest {
    /// Who.
    pub subject: Option<Subject>,
    /// A user's roles.
    pub roles: Vec<Name>,
    /// The DNS names.
    pub names: Vec<String>,
    /// For whoever dials.
    pub client: bool,
    /// For whoever is dialled.
    pub server: bool,
    /// From when until when, in seconds from now.
    pub validity: Range<i64>,
}

/// A name that is one.
#[must_use]
pub fn name(text: &str) -> Name {
    Name::parse(text).expect("a good name")
}

/// Unix seconds.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970")
        .as_secs()
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster::new()
    }
}

impl Cluster {
    /// A new one, named "test".
    #[must_use]
    pub fn new() -> Cluster {
        let authority = Authority::generate("fleetgate test TLS", now() - 3600..now() + 86400);
        Cluster {
            authority: authority.expect("an authority"),
        }
    }

    /// Believes this cluster's certificates.
    #[must_use]
    pub fn trust(&self) -> Trust {
        Trust::new([self.authority.certificate().der()]).expect("its certificate is one")
    }

    /// Credentials as wanted.
    #[must_use]
    pub fn make(&self, wanted: &CertificateRequest) -> Credentials {
        let key = Key::generate();
        let identity = wanted.subject.clone().map(|subject| Identity {
            roles: wanted.roles.clone(),
            ..Identity::of(&name("test"), subject, now())
        });
        let at = |seconds: i64| now().saturating_add_signed(seconds);
        let leaf = self.authority.issue(&Leaf {
            public: key.public().spki(),
            names: &wanted.names,
            client: wanted.client,
            server: wanted.server,
            identity: identity.as_ref(),
            validity: at(wanted.validity.start)..at(wanted.validity.end),
        });
        let leaf = leaf.expect("a leaf");
        Credentials::new(key, [leaf.as_slice(), self.authority.certificate().der()])
            .expect("they belong together")
    }

    /// A server's.
    #[must_use]
    pub fn server(&self, dns: &str, subject: Subject) -> Credentials {
        self.make(&CertificateRequest {
            subject: Some(subject),
            names: vec![dns.to_owned()],
            client: true,
            server: true,
            ..CertificateRequest::default()
        })
    }

    /// A user's.
    #[must_use]
    pub fn user(&self, user: &str, roles: &[&str]) -> Credentials {
        self.make(&CertificateRequest {
            subject: Some(Subject::User(name(user))),
            roles: roles.iter().map(|role| name(role)).collect(),
            client: true,
            ..CertificateRequest::default()
        })
    }
}

impl Default for CertificateRequest {
    fn default() -> CertificateRequest {
        CertificateRequest {
            subject: None,
            roles: Vec::new(),
            names: Vec::new(),
            client: false,
            server: false,
            validity: -60..3600,
        }
    }
}
