//! Whether a user's certificate lets him in, and with what. A pure function: the time, the address and the names that
//! are good for the account are given to it. Revocation is asked of `Krl`, by the same caller.

use super::certificate::{Certificate, CertificateKind, CertificateRefused};
use super::{PublicKey, Restrictions, Touch};
use fleetgate_policy::{Kind, Permits, Rule};
use std::net::IpAddr;

/// What a certificate is held against.
pub struct UserCheck<'a> {
    /// Whether a CA's key is trusted.
    pub trusted: &'a dyn Fn(&PublicKey) -> bool,
    /// The names that are good for the account: its own, or those of its principals file.
    pub principals: &'a [&'a str],
    /// Seconds since 1970.
    pub now: u64,
    /// By how many seconds clocks may differ.
    pub skew: u64,
    /// Where the user comes from.
    pub source: IpAddr,
}

impl Certificate {
    /// Whether it lets its user in. The signature of the login itself is still to be verified, with
    /// `Restrictions::touch`.
    pub fn check_user(&self, check: &UserCheck<'_>) -> Result<Restrictions, CertificateRefused> {
        if !(check.trusted)(self.ca()) {
            return Err(CertificateRefused::Ca(self.ca().fingerprint()));
        }
        if self.kind() != CertificateKind::User {
            return Err(CertificateRefused::Kind);
        }
        self.check_time(check.now, check.skew)?;
        // OpenSSH before 10 takes a certificate without names for everybody's where authorized_keys names the CA.
        if self.principals().is_empty() {
            return Err(CertificateRefused::NoPrincipals);
        }
        if !self
            .principals()
            .iter()
            .any(|p| check.principals.contains(&p.as_str()))
        {
            return Err(CertificateRefused::Principal);
        }
        let critical = self.critical();
        if critical
            .source_address
            .as_ref()
            .is_some_and(|list| !list.contain(check.source))
        {
            return Err(CertificateRefused::Source);
        }
        // Last, because it costs most.
        self.signature_holds().map_err(CertificateRefused::Signature)?;
        Ok(self.restrictions(check.skew))
    }

    fn restrictions(&self, skew: u64) -> Restrictions {
        let rule = Rule::new(format!("the certificate {:?}", self.key_id()));
        let mut permits = Permits::all();
        let extensions: [(&str, &[Kind]); 5] = [
            ("permit-pty", &[Kind::Pty]),
            ("permit-port-forwarding", &Kind::FORWARDING),
            ("permit-agent-forwarding", &[Kind::Agent]),
            ("permit-X11-forwarding", &[Kind::X11]),
            ("permit-user-rc", &[Kind::UserRc]),
        ];
        for (name, kinds) in extensions {
            if !self.has_extension(name) {
                permits.forbid(kinds, &rule);
            }
        }
        if let Some(command) = &self.critical().force_command {
            permits.force(command.as_bytes().to_vec(), &rule);
        }
        Restrictions {
            permits,
            touch: Touch {
                presence: !self.has_extension("no-touch-required"),
                verification: self.critical().verify_required,
            },
            expires: self.expires(skew),
        }
    }
}
