//! A grant: what the monitor notes when a login was proven, and checks every request against. It holds no secret and
//! no clock; whoever asks brings the time.

use crate::account_name::AccountName;
use crate::permits::{Permits, Program, What};
use crate::rule::Denied;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// A grant's number: given once, never again while the node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantId(pub u64);

/// The proofs that a login was let in by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proofs {
    /// The deciding way first; more than one where a list of methods is required.
    pub proven: Vec<How>,
}

/// One way of proving a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// A key.
    Key {
        /// `SHA256:…`
        fingerprint: String,
    },
    /// A certificate.
    Certificate {
        /// The CA's words for whom it was made for.
        key_id: String,
        /// Its number at the CA.
        serial: u64,
        /// The fingerprint of the key that it is for.
        fingerprint: String,
        /// The CA's.
        ca: String,
    },
    /// A password, asked by PAM.
    Password,
    /// PAM's own questions.
    KeyboardInteractive,
}

impl fmt::Display for How {
    /// One line; what comes from outside is escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            How::Key { fingerprint } => write!(f, "key {fingerprint}"),
            How::Certificate {
                key_id,
                serial,
                fingerprint,
                ca,
            } => {
                write!(
                    f,
                    "certificate {key_id:?} (serial {serial}) of {fingerprint}, CA {ca}"
                )
            }
            How::Password => f.write_str("password"),
            How::KeyboardInteractive => f.write_str("keyboard-interactive"),
        }
    }
}

impl fmt::Display for Proofs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, how) in self.proven.iter().enumerate() {
            write!(f, "{}{how}", if i > 0 { " and " } else { "" })?;
        }
        Ok(())
    }
}

/// A login that was proven, and what it may do.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Its number.
    pub id: GrantId,
    /// How it was proven.
    pub proofs: Proofs,
    /// As which account.
    pub login: AccountName,
    /// What of.
    pub permits: Permits,
    /// The account's password has expired: until its user logs in again a session is `passwd`, and nothing else is allowed.
    pub must_change_password: bool,
    /// From where.
    pub source: SocketAddr,
    /// Up to when on the boot-time clock, which nobody sets; none: as long as its connection.
    pub expires: Option<Duration>,
}

/// A request, as far as the grant decides about it.
#[derive(Clone, Copy, Debug)]
pub struct GrantRequest<'a> {
    /// The account that it is for.
    pub login: &'a AccountName,
    /// The boot-time clock.
    pub now: Duration,
    /// What is asked for.
    pub what: What<'a>,
}

impl Grant {
    /// Whether this may be done now.
    pub fn allows(&self, request: &GrantRequest<'_>) -> Result<(), Denied> {
        self.holds(request)?;
        self.permits.allow(&request.what)
    }

    /// What is to be started for a shell, a command or a subsystem.
    pub fn program(&self, request: &GrantRequest<'_>) -> Result<Program, Denied> {
        self.holds(request)?;
        self.permits.program(&request.what)
    }

    fn holds(&self, request: &GrantRequest<'_>) -> Result<(), Denied> {
        if *request.login != self.login {
            return Err(Denied::new(format!(
                "the request is for {}, and the grant for {}",
                request.login, self.login
            )));
        }
        match self.expires {
            Some(end) if request.now >= end => Err(Denied::new(format!(
                "the login of {} has expired: log in again",
                self.login
            ))),
            _ if self.must_change_password && !is_of_a_session(&request.what) => Err(Denied::new(format!(
                "the password of {} has expired: log in with a terminal (ssh -t) and change it",
                self.login
            ))),
            _ => Ok(()),
        }
    }
}

/// What a session with `passwd` in the place of its program may be asked for.
fn is_of_a_session(what: &What<'_>) -> bool {
    matches!(
        what,
        What::Shell | What::Exec(_) | What::Pty | What::Environment(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Rule};

    #[test]
    fn a_grant_is_for_one_account_and_for_its_time() {
        let mut permits = Permits::all();
        permits.forbid(&[Kind::X11], &Rule::new("node.toml (x11 = false)"));
        let alice = AccountName::parse(b"alice").unwrap();
        let bob = AccountName::parse(b"bob").unwrap();
        let grant = Grant {
            id: GrantId(1),
            proofs: Proofs {
                proven: vec![How::Password],
            },
            login: alice.clone(),
            permits,
            must_change_password: false,
            source: "192.0.2.1:22".parse().unwrap(),
            expires: Some(Duration::from_secs(10)),
        };
        for (login, now, what, want) in [
            (&alice, 9, What::Shell, Ok(())),
            (
                &alice,
                9,
                What::X11,
                Err("X11 forwarding is not allowed by node.toml (x11 = false)"),
            ),
            (
                &alice,
                10,
                What::Shell,
                Err("the login of alice has expired: log in again"),
            ),
            (
                &bob,
                9,
                What::Shell,
                Err("the request is for bob, and the grant for alice"),
            ),
        ] {
            let asked = GrantRequest {
                login,
                now: Duration::from_secs(now),
                what,
            };
            assert_eq!(
                grant.allows(&asked).map_err(|d| d.to_string()),
                want.map_err(str::to_string)
            );
            if what == What::Shell {
                assert_eq!(grant.program(&asked).is_ok(), want.is_ok());
            }
        }
    }

    #[test]
    fn with_a_password_that_has_expired_there_is_a_session_and_nothing_else() {
        let alice = AccountName::parse(b"alice").unwrap();
        let grant = |must_change_password| Grant {
            id: GrantId(1),
            proofs: Proofs { proven: Vec::new() },
            login: alice.clone(),
            permits: Permits::all(),
            must_change_password,
            source: "192.0.2.1:22".parse().unwrap(),
            expires: None,
        };
        for (what, allowed) in [
            (What::Shell, true),
            (What::Exec(b"id"), true),
            (What::Pty, true),
            (What::Environment(b"LANG"), true),
            (What::Subsystem(b"sftp"), false),
            (What::Subsystem(b"netconf"), false),
            (What::ConnectTcp(b"db", 5432), false),
            (What::ListenTcp(b"", 0), false),
            (What::ConnectUnix(b"/run/x"), false),
            (What::ListenUnix(b"/run/x"), false),
            (What::Agent, false),
            (What::X11, false),
            (What::UserRc, false),
        ] {
            let asked = GrantRequest {
                login: &alice,
                now: Duration::ZERO,
                what,
            };
            let refused = grant(true).allows(&asked).map_err(|d| d.to_string());
            assert_eq!(refused.is_ok(), allowed, "{what:?}");
            let words = refused.err().unwrap_or_default();
            assert_eq!(
                words.contains("has expired: log in with a terminal"),
                !allowed,
                "{words}"
            );
            // Whatever it is, it is the password that stands in the way.
            assert!(grant(false).allows(&asked).is_ok(), "{what:?}");
        }
    }

    #[test]
    fn proofs_are_one_line() {
        let how = How::Certificate {
            key_id: "a\nb".into(),
            serial: 7,
            fingerprint: "SHA256:x".into(),
            ca: "SHA256:y".into(),
        };
        let proofs = Proofs {
            proven: vec![how, How::Password],
        };
        let want = "certificate \"a\\nb\" (serial 7) of SHA256:x, CA SHA256:y and password";
        assert_eq!(proofs.to_string(), want);
    }
}
