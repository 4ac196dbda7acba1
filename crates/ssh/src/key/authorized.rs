//! authorized_keys and principals files: which line lets a key or a certificate in, and with what. A line that cannot
//! be read is reported and passed over, as in sshd; a file that is too large is not read at all.

use super::options::{self, Claimant, Options};
use super::{KeyError, KeyOrCertificate, KeyType, PublicKey, Restrictions, UserCheck};
use fleetgate_policy::Rule;

/// The largest file.
pub const MAX_FILE: usize = 1024 * 1024;
/// The most lines that are read, of those that are not empty or comments.
pub const MAX_LINES: usize = 10_000;
/// The longest line.
pub const MAX_LINE: usize = 32 * 1024;
/// The most bad lines that are reported one by one.
pub const MAX_REPORTED: usize = 32;

/// An authorized_keys file.
#[derive(Clone, Debug)]
pub struct AuthorizedKeys {
    name: String,
    lines: Vec<Line<PublicKey>>,
    bad: Vec<BadLine>,
}

/// A principals file: which of a certificate's names are good for an account.
#[derive(Clone, Debug)]
pub struct Principals {
    name: String,
    lines: Vec<Line<String>>,
    bad: Vec<BadLine>,
}

#[derive(Clone, Debug)]
struct Line<T> {
    number: usize,
    options: Options,
    subject: T,
}

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub number: usize,
    /// Why.
    pub reason: String,
}

/// What a file said about somebody.
#[derive(Clone, Debug, Default)]
pub struct LineMatch {
    /// The first line that lets him in, and with what. The signature is still to be verified, with `touch`.
    pub line: Option<(usize, Restrictions)>,
    /// The lines that were about him and did not, with their reasons.
    pub refusals: Vec<(usize, String)>,
}

impl AuthorizedKeys {
    /// Reads a file. `name` is what its rules are called by, like `/home/alice/.ssh/authorized_keys`.
    pub fn parse(file: &[u8], name: &str) -> Result<AuthorizedKeys, KeyError> {
        let (lines, bad) = read(file, false, |text| {
            let (options, rest) = match begins_with_key(text) {
                true => (Options::default(), text),
                false => Options::parse(text)?,
            };
            let rest = rest.trim_start_matches([' ', '\t']);
            let key = PublicKey::from_line(rest).map_err(|error| error.to_string())?;
            Ok((options, key))
        })?;
        Ok(AuthorizedKeys {
            name: name.to_string(),
            lines,
            bad,
        })
    }

    /// The lines that could not be read.
    pub fn bad(&self) -> &[BadLine] {
        &self.bad
    }

    /// Which line lets this key or certificate in. Whether it is revoked is asked of `Krl`.
    pub fn find(&self, presented: &KeyOrCertificate, claimant: &Claimant<'_>) -> LineMatch {
        let mut found = LineMatch::default();
        for line in &self.lines {
            let authority = line.options.cert_authority;
            let about = match presented {
                KeyOrCertificate::Key(key) => !authority && *key == line.subject,
                KeyOrCertificate::Certificate(certificate) => authority && *certificate.ca() == line.subject,
            };
            if !about {
                continue;
            }
            match line.admit(presented, claimant, &self.name) {
                Ok(restrictions) => {
                    found.line = Some((line.number, restrictions));
                    return found;
                }
                Err(reason) => found.refusals.push((line.number, reason)),
            }
        }
        found
    }
}

impl Line<PublicKey> {
    fn admit(
        &self,
        presented: &KeyOrCertificate,
        claimant: &Claimant<'_>,
        name: &str,
    ) -> Result<Restrictions, String> {
        // sshd refuses it too: whoever wrote that meant to bind a CA and let a key in.
        if self.options.principals.is_some() && !self.options.cert_authority {
            return Err("its principals= means nothing without cert-authority".to_string());
        }
        self.options.admit(claimant)?;
        let own = self.options.restrictions(claimant, &rule(name, self.number));
        let KeyOrCertificate::Certificate(certificate) = presented else {
            return Ok(own);
        };
        let names: Vec<&str> = match &self.options.principals {
            Some(names) => names.iter().map(String::as_str).collect(),
            None => vec![claimant.login],
        };
        let trusted = |ca: &PublicKey| *ca == self.subject;
        let check = UserCheck {
            trusted: &trusted,
            principals: &names,
            now: claimant.now,
            skew: claimant.skew,
            source: claimant.source,
        };
        let theirs = certificate
            .check_user(&check)
            .map_err(|refused| refused.to_string())?;
        own.and(theirs).map_err(|denied| denied.to_string())
    }
}

impl Principals {
    /// Reads a file: a principal in each line, options before it.
    pub fn parse(file: &[u8], name: &str) -> Result<Principals, KeyError> {
        let (lines, bad) = read(file, true, |text| match text.rsplit_once([' ', '\t']) {
            None => Ok((Options::default(), text.to_string())),
            Some((before, principal)) => {
                let (options, rest) = Options::parse(before.trim_end())?;
                if options.cert_authority || options.principals.is_some() {
                    return Err(
                        "cert-authority and principals= have no place in a principals file".to_string(),
                    );
                }
                match rest.is_empty() {
                    true => Ok((options, principal.to_string())),
                    false => Err("something stands between the options and the principal".to_string()),
                }
            }
        })?;
        Ok(Principals {
            name: name.to_string(),
            lines,
            bad,
        })
    }

    /// The lines that could not be read.
    pub fn bad(&self) -> &[BadLine] {
        &self.bad
    }

    /// Which line lets this certificate in, of a CA that `trusted` knows.
    pub fn find(
        &self,
        certificate: &super::Certificate,
        trusted: &dyn Fn(&PublicKey) -> bool,
        claimant: &Claimant<'_>,
    ) -> LineMatch {
        let mut found = LineMatch::default();
        for line in self
            .lines
            .iter()
            .filter(|l| certificate.principals().contains(&l.subject))
        {
            let check = UserCheck {
                trusted,
                principals: &[&line.subject],
                now: claimant.now,
                skew: claimant.skew,
                source: claimant.source,
            };
            let admitted = line.options.admit(claimant).and_then(|()| {
                let own = line
                    .options
                    .restrictions(claimant, &rule(&self.name, line.number));
                let theirs = certificate
                    .check_user(&check)
                    .map_err(|refused| refused.to_string())?;
                own.and(theirs).map_err(|denied| denied.to_string())
            });
            match admitted {
                Ok(restrictions) => {
                    found.line = Some((line.number, restrictions));
                    return found;
                }
                Err(reason) => found.refusals.push((line.number, reason)),
            }
        }
        found
    }
}

fn rule(name: &str, number: usize) -> Rule {
    Rule::new(format!("{name} line {number}"))
}

type Lines<T> = (Vec<Line<T>>, Vec<BadLine>);

/// Goes through a file's lines. In a principals file a `#` begins a comment anywhere.
fn read<T>(
    file: &[u8],
    comments: bool,
    one: impl Fn(&str) -> Result<(Options, T), String>,
) -> Result<Lines<T>, KeyError> {
    if file.len() > MAX_FILE {
        return Err(KeyError::TooLarge {
            what: "the bytes of the file",
            most: MAX_FILE,
        });
    }
    let (mut lines, mut bad, mut seen) = (Vec::new(), Vec::new(), 0);
    for (number, bytes) in (1..).zip(file.split(|&b| b == b'\n')) {
        let bytes = match bytes.iter().position(|&b| b == b'#').filter(|_| comments) {
            Some(at) => &bytes[..at],
            None => bytes,
        };
        let bytes = bytes.trim_ascii();
        if bytes.is_empty() || bytes[0] == b'#' {
            continue;
        }
        seen += 1;
        if seen > MAX_LINES {
            report(
                &mut bad,
                number,
                format!("only {MAX_LINES} lines are read; those from here on do not count"),
            );
            break;
        }
        let parsed = match std::str::from_utf8(bytes) {
            _ if bytes.len() > MAX_LINE => Err(format!("it is longer than {MAX_LINE} bytes")),
            _ if bytes.contains(&0) => Err("it holds a zero byte".to_string()),
            Err(_) => Err("it is no UTF-8".to_string()),
            Ok(text) => one(text),
        };
        match parsed {
            Ok((options, subject)) => lines.push(Line {
                number,
                options,
                subject,
            }),
            Err(reason) => report(&mut bad, number, reason),
        }
    }
    Ok((lines, bad))
}

fn report(bad: &mut Vec<BadLine>, number: usize, reason: String) {
    if bad.len() < MAX_REPORTED {
        bad.push(BadLine { number, reason });
    }
}

/// Whether a line has no options: its first word is a type of key, known or not.
fn begins_with_key(text: &str) -> bool {
    let first = &text[..options::end(text)];
    KeyType::parse(first).is_some()
        || ["ssh-", "ecdsa-", "sk-"]
            .iter()
            .any(|p| first.starts_with(p) && !first.contains(['"', '=', ',']))
}

#[cfg(test)]
mod tests;
