//! Who somebody is in the cluster: the bytes that stand in SSH and X.509 certificates. It checks their form and no
//! signature: whoever reads them has verified the certificate they stand in.

use super::name::Name;
use crate::Invalid;
use std::fmt;

/// The extension of an SSH certificate that carries an identity (names of one's own: PROTOCOL.certkeys). Its value is
/// the identity's bytes within an SSH string.
pub const SSH_EXTENSION: &str = "identity@fleetgate";
/// The extension of an X.509 certificate that carries one, its value the identity's bytes. An object identifier made of
/// a UUID by the arcs below 1.2.840.113556.1.8000.2554: an arc of 128 bits below 2.25 is more than the libraries read.
pub const X509_EXTENSION: &[u64] = &[
    1, 2, 840, 113556, 1, 8000, 2554, 21467, 63377, 16245, 19914, 34302, 13354493, 4076646,
];
/// The same as text.
pub const X509_EXTENSION_TEXT: &str =
    "1.2.840.113556.1.8000.2554.21467.63377.16245.19914.34302.13354493.4076646";
/// The most bytes of one: 64 roles with names of 128 bytes, and the rest.
pub const MAX_IDENTITY: usize = 9 * 1024;
/// The most roles of one.
pub const MAX_ROLES: usize = 64;

/// The first byte. A later form that older readers must not accept has another; one that they may gets new fields.
const VERSION: u8 = 1;
const CLUSTER: u8 = 1;
const SUBJECT: u8 = 2;
const ROLES: u8 = 3;
const ISSUED: u8 = 4;
const MFA: u8 = 5;
const DEVICE: u8 = 6;
const SERIAL: u8 = 7;
const ENDS: u8 = 8;

/// What a certificate says about whom it was made for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Whose authority said it.
    pub cluster: Name,
    /// Who.
    pub subject: Subject,
    /// A user's roles.
    pub roles: Vec<Name>,
    /// When the login began, Unix seconds; a refreshed certificate keeps it.
    pub issued: u64,
    /// The serial of the state that it was made by; a refreshed certificate keeps it. Serials grow however clocks are set, so
    /// what ends earlier certificates goes by them. 0: not known, and earlier than any.
    pub serial: u64,
    /// When the second factor was last shown, Unix seconds.
    pub mfa: Option<u64>,
    /// The approved device whose key was used.
    pub device: Option<Name>,
    /// When the login ends, Unix seconds, where its user wanted it shorter than his roles allow. Nothing makes it longer.
    pub ends: Option<u64>,
}

/// Who or what a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A person.
    User(Name),
    /// A machine.
    Node(Name),
    /// A proxy.
    Proxy(Name),
    /// The auth service.
    Auth,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::User(name) => write!(f, "user {name}"),
            Subject::Node(name) => write!(f, "node {name}"),
            Subject::Proxy(name) => write!(f, "proxy {name}"),
            Subject::Auth => f.write_str("the auth service"),
        }
    }
}

impl Identity {
    /// A node's, a proxy's or auth's: without roles.
    pub fn of(cluster: &Name, subject: Subject, issued: u64) -> Identity {
        Identity {
            cluster: cluster.clone(),
            subject,
            roles: Vec::new(),
            issued,
            serial: 0,
            mfa: None,
            device: None,
            ends: None,
        }
    }

    /// The user, if it is one.
    pub fn user(&self) -> Option<&Name> {
        match &self.subject {
            Subject::User(name) => Some(name),
            _ => None,
        }
    }

    /// The one form of it in bytes: a version, then fields (number, length as two bytes, value) in ascending order.
    /// Roles stand sorted and once.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        field(&mut out, CLUSTER, self.cluster.as_str().as_bytes());
        let (kind, name) = match &self.subject {
            Subject::User(name) => (1, name.as_str()),
            Subject::Node(name) => (2, name.as_str()),
            Subject::Proxy(name) => (3, name.as_str()),
            Subject::Auth => (4, ""),
        };
        field(&mut out, SUBJECT, &[&[kind], name.as_bytes()].concat());
        let mut roles: Vec<&Name> = self.roles.iter().collect();
        roles.sort();
        roles.dedup();
        if !roles.is_empty() {
            let list: Vec<u8> = roles
                .iter()
                .flat_map(|r| {
                    [
                        &[u8::try_from(r.as_str().len()).unwrap_or(u8::MAX)],
                        r.as_str().as_bytes(),
                    ]
                    .concat()
                })
                .collect();
            field(&mut out, ROLES, &list);
        }
        field(&mut out, ISSUED, &self.issued.to_be_bytes());
        if let Some(mfa) = self.mfa {
            field(&mut out, MFA, &mfa.to_be_bytes());
        }
        if let Some(device) = &self.device {
            field(&mut out, DEVICE, device.as_str().as_bytes());
        }
        if self.serial != 0 {
            field(&mut out, SERIAL, &self.serial.to_be_bytes());
        }
        if let Some(ends) = self.ends {
            field(&mut out, ENDS, &ends.to_be_bytes());
        }
        out
    }

    /// What was encoded. Fields behind those it knows are skipped; anything else out of form is refused.
    pub fn parse(bytes: &[u8]) -> Result<Identity, Invalid> {
        read(bytes).map_err(|why| Invalid(format!("the certificate's identity {why}")))
    }
}

fn field(out: &mut Vec<u8>, number: u8, value: &[u8]) {
    out.push(number);
    // More than 64 KB (512 roles) is cut here and refused by whoever reads it.
    out.extend_from_slice(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(value);
}

fn read(bytes: &[u8]) -> Result<Identity, String> {
    if bytes.len() > MAX_IDENTITY {
        return Err(format!("is longer than {MAX_IDENTITY} bytes"));
    }
    let Some((&version, mut rest)) = bytes.split_first() else {
        return Err("is empty".to_string());
    };
    if version != VERSION {
        return Err(format!(
            "has the form {version}, and this fleetgate reads form {VERSION}: upgrade it"
        ));
    }
    let (mut cluster, mut subject, mut issued) = (None, None, None);
    let (mut roles, mut mfa, mut device, mut serial) = (Vec::new(), None, None, 0);
    let mut ends = None;
    let mut last = 0;
    while !rest.is_empty() {
        let &[number, high, low, ref behind @ ..] = rest else {
            return Err("is cut off".to_string());
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (value, behind) = behind.split_at_checked(length).ok_or("is cut off")?;
        rest = behind;
        if number <= last {
            return Err("has fields out of order".to_string());
        }
        last = number;
        match number {
            CLUSTER => cluster = Some(name(value)?),
            SUBJECT => subject = Some(read_subject(value)?),
            ROLES => roles = read_roles(value)?,
            ISSUED => issued = Some(integer(value)?),
            MFA => mfa = Some(integer(value)?),
            DEVICE => device = Some(name(value)?),
            SERIAL => {
                serial = integer(value)?;
                if serial == 0 {
                    return Err("has a serial of none".to_string());
                }
            }
            ENDS => ends = Some(integer(value)?),
            _ => {}
        }
    }
    Ok(Identity {
        cluster: cluster.ok_or("names no cluster")?,
        subject: subject.ok_or("names nobody")?,
        roles,
        issued: issued.ok_or("does not say when it was made")?,
        serial,
        mfa,
        device,
        ends,
    })
}

fn read_subject(value: &[u8]) -> Result<Subject, String> {
    let (&kind, rest) = value.split_first().ok_or("names nobody")?;
    Ok(match kind {
        1 => Subject::User(name(rest)?),
        2 => Subject::Node(name(rest)?),
        3 => Subject::Proxy(name(rest)?),
        4 if rest.is_empty() => Subject::Auth,
        _ => return Err("is of a kind that is not known here".to_string()),
    })
}

fn read_roles(mut value: &[u8]) -> Result<Vec<Name>, String> {
    let mut roles: Vec<Name> = Vec::new();
    while let Some((&length, rest)) = value.split_first() {
        let (one, rest) = rest.split_at_checked(usize::from(length)).ok_or("is cut off")?;
        value = rest;
        let role = name(one)?;
        if roles.last().is_some_and(|last| *last >= role) {
            return Err("has roles out of order".to_string());
        }
        if roles.len() == MAX_ROLES {
            return Err(format!("has more than {MAX_ROLES} roles"));
        }
        roles.push(role);
    }
    if roles.is_empty() {
        return Err("has an empty list of roles".to_string());
    }
    Ok(roles)
}

fn name(value: &[u8]) -> Result<Name, String> {
    let text = std::str::from_utf8(value).map_err(|_| "has a name that is no UTF-8")?;
    Name::parse(text).map_err(|why| format!("is out of form: {why}"))
}

fn integer(value: &[u8]) -> Result<u64, String> {
    let bytes = value.try_into().map_err(|_| "has a number out of form")?;
    Ok(u64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests;
