//! Whether a host's key or certificate is the right one: by `known_hosts` files, in which a cluster's authorities stand as
//! `@cert-authority`. It writes nothing but a new host's line, and that only when told so.

use crate::prompt::Terminal;
use crate::time;
use base64ct::{Base64, Encoding};
use fleetgate_policy::pattern::fits;
use fleetgate_policy::text::is_unseen;
use fleetgate_ssh::key::certificate::CertificateRefused;
use fleetgate_ssh::key::{Algorithm, Certificate, KeyOrCertificate, PublicKey};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

/// The largest known_hosts file that is read.
pub const MAX_FILE: u64 = 16 << 20;
/// By how many seconds the clocks of host and user may differ.
pub const CLOCK_SKEW: u64 = 60;

/// What becomes of a host that nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strict {
    /// It is refused.
    Yes,
    /// It is asked for; without a terminal it is refused.
    Ask,
    /// It is put down and let in; one that changed is refused.
    AcceptNew,
    /// It is let in, and one that changed too, with a warning.
    No,
}

/// Whom to believe to be whom.
#[derive(Debug)]
pub struct Hosts {
    /// The name that a certificate has to have, and that stands in the files: `web1`, `[10.0.0.1]:3022`.
    name: String,
    /// The files; a new host goes into the first.
    files: Vec<PathBuf>,
    strict: Strict,
    /// Only certificates count: the host is one of a cluster's.
    certificates: bool,
    entries: Vec<Entry>,
}

/// A line that is about this host.
#[derive(Debug)]
struct Entry {
    mark: Mark,
    key: PublicKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Key,
    Authority,
    Revoked,
}

impl Hosts {
    /// A node of a cluster, whose authorities stand in this file.
    pub fn of_cluster(node: &str, file: PathBuf) -> Hosts {
        let mut hosts = Hosts {
            name: node.to_owned(),
            files: vec![file],
            strict: Strict::Yes,
            certificates: true,
            entries: Vec::new(),
        };
        hosts.read(|_| true);
        hosts
    }

    /// Some host at a port.
    pub fn known(host: &str, port: u16, files: Vec<PathBuf>, strict: Strict) -> Hosts {
        let name = match port {
            22 => host.to_owned(),
            port => format!("[{host}]:{port}"),
        };
        let mut hosts = Hosts {
            name: name.to_ascii_lowercase(),
            files,
            strict,
            certificates: false,
            entries: Vec::new(),
        };
        let name = hosts.name.clone();
        hosts.read(|patterns| is_named(patterns, &name));
        hosts
    }

    /// Whether any line is about this host.
    pub(super) fn has_entries(&self) -> bool {
        !self.entries.is_empty()
    }

    /// The host key algorithms to ask for, those first by which it is known.
    pub fn algorithms(&self, all: &[String]) -> Vec<String> {
        let authority = self.certificates || self.entries.iter().any(|e| e.mark == Mark::Authority);
        let rank = |name: &String| match Algorithm::parse(name) {
            Some(a) if a.is_certificate() => usize::from(!authority),
            Some(a) => {
                let known = |e: &Entry| e.mark == Mark::Key && e.key.key_type() == a.key_type();
                if self.entries.iter().any(known) { 0 } else { 2 }
            }
            None => 3,
        };
        let mut names = all.to_vec();
        if self.certificates {
            names.retain(|n| Algorithm::parse(n).is_some_and(|a| a.is_certificate()));
        }
        names.sort_by_key(rank);
        names
    }

    /// Whether this is the host. What is wrong, in words; a warning where it is let in all the same.
    pub(crate) fn check(&self, blob: &[u8]) -> Result<Option<String>, String> {
        let presented =
            KeyOrCertificate::parse(blob).map_err(|e| format!("the host key of {}: {e}", self.name))?;
        let with = |mark: Mark| self.entries.iter().filter(move |e| e.mark == mark);
        if with(Mark::Revoked).any(|e| e.key == *presented.key()) {
            return Err(format!(
                "the host key of {} is revoked in {}",
                self.name,
                self.files_named()
            ));
        }
        if let KeyOrCertificate::Certificate(certificate) = &presented {
            match self.certificate(certificate) {
                Ok(()) => return Ok(None),
                Err(why) if self.certificates => return Err(why),
                // sshd shows a certificate to whoever takes one; its key may be known all the same.
                Err(_) => {}
            }
        } else if self.certificates {
            return Err(format!(
                "{} shows a key without a certificate: it is no node of this cluster, or was not joined",
                self.name
            ));
        }
        let key = presented.key();
        if with(Mark::Key).any(|e| e.key == *key) {
            return Ok(None);
        }
        if with(Mark::Key).any(|e| e.key.key_type() == key.key_type()) {
            let words = format!(
                "THE HOST KEY OF {} HAS CHANGED: it now shows {}, and another one stands in {}. Somebody may be in \
                 between, or the host was installed anew: then remove its line with `ssh-keygen -R '{}'`",
                self.name,
                key.fingerprint(),
                self.files_named(),
                self.name
            );
            return match self.strict {
                Strict::No => Ok(Some(words)),
                _ => Err(words),
            };
        }
        self.unknown(key)
    }

    fn certificate(&self, certificate: &Certificate) -> Result<(), String> {
        let authority = |ca: &PublicKey| {
            self.entries
                .iter()
                .any(|e| e.mark == Mark::Authority && e.key == *ca)
        };
        let now = time::now();
        // A certificate names the host; only keys are known by name and port.
        let name = self
            .name
            .strip_prefix('[')
            .and_then(|n| n.split(']').next())
            .unwrap_or(&self.name);
        let about = |what: String| Err(format!("the host certificate of {name}: {what}"));
        match certificate.check_host(name, now, CLOCK_SKEW, authority) {
            Ok(()) => Ok(()),
            Err(CertificateRefused::TooEarly) => about(format!(
                "it is valid from {}, and this machine's clock says {}, {} earlier: compare the clocks ({CLOCK_SKEW} s \
                 of difference are allowed)",
                time::utc(certificate.valid_after()),
                time::utc(now),
                time::span(certificate.valid_after().saturating_sub(now))
            )),
            Err(CertificateRefused::Expired) => about(format!(
                "it expired at {}, and this machine's clock says {}: the node does not renew it (is it connected?), or \
                 this clock is {} ahead",
                time::utc(certificate.valid_before()),
                time::utc(now),
                time::span(now.saturating_sub(certificate.valid_before()))
            )),
            Err(CertificateRefused::Principal) => about(format!(
                "it is for {}: this is another node",
                certificate
                    .principals()
                    .join(", ")
                    .chars()
                    .filter(|c| !is_unseen(*c))
                    .take(256)
                    .collect::<String>()
            )),
            Err(why @ CertificateRefused::Ca(_)) if self.certificates => about(format!(
                "{why}: {} has no line of it, or a damaged one. `fleetgate login` writes that file anew; after that, {name} \
                 is no node of this cluster",
                self.files_named()
            )),
            Err(why) => about(why.to_string()),
        }
    }

    fn unknown(&self, key: &PublicKey) -> Result<Option<String>, String> {
        let print = format!("{} key {}", key.key_type().name(), key.fingerprint());
        match self.strict {
            Strict::Yes => Err(format!(
                "nobody here knows {}: it shows the {print}, and no line for it stands in {}",
                self.name,
                self.files_named()
            )),
            Strict::Ask => {
                let Some(mut terminal) = Terminal::open() else {
                    return Err(format!(
                        "nobody here knows {} (it shows the {print}), and there is no terminal to ask on: use \
                         -o StrictHostKeyChecking=accept-new if it is right",
                        self.name
                    ));
                };
                let question = format!(
                    "Nobody here knows {}. It shows the {print}.\nIs that right (yes/no)? ",
                    self.name
                );
                let answer = terminal.line(&question).map_err(|e| e.to_string())?;
                match answer.trim() {
                    "yes" => self.put_down(key),
                    answer if answer == key.fingerprint() => self.put_down(key),
                    _ => Err(format!("the host key of {} was not accepted", self.name)),
                }
            }
            Strict::AcceptNew | Strict::No => self.put_down(key),
        }
    }

    /// Adds a line; where that fails, the user is told and goes on.
    fn put_down(&self, key: &PublicKey) -> Result<Option<String>, String> {
        let Some(file) = self.files.first() else {
            return Ok(None);
        };
        let write = || {
            if let Some(folder) = file.parent() {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            }
            let mut out = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(file)?;
            out.write_all(format!("{} {}\n", self.name, key.line()).as_bytes())
        };
        Ok(match write() {
            Ok(()) => Some(format!("{} is now known, as {} says", self.name, file.display())),
            Err(e) => Some(format!(
                "{} cannot be put down in {}: {e}",
                self.name,
                file.display()
            )),
        })
    }

    /// A file that is not there, or a line that cannot be read, says nothing.
    fn read(&mut self, about: impl Fn(&str) -> bool) {
        for file in &self.files {
            let small = fs::metadata(file).is_ok_and(|m| m.len() <= MAX_FILE);
            let Some(text) = small.then(|| fs::read(file).ok()).flatten() else {
                continue;
            };
            let text = String::from_utf8_lossy(&text);
            self.entries
                .extend(text.lines().filter_map(|line| entry(line, &about)));
        }
    }

    fn files_named(&self) -> String {
        let names: Vec<String> = self.files.iter().map(|f| f.display().to_string()).collect();
        names.join(", ")
    }
}

fn entry(line: &str, about: &impl Fn(&str) -> bool) -> Option<Entry> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (mark, rest) = match line.split_once([' ', '\t']) {
        Some(("@cert-authority", rest)) => (Mark::Authority, rest),
        Some(("@revoked", rest)) => (Mark::Revoked, rest),
        Some((word, _)) if word.starts_with('@') => return None,
        _ => (Mark::Key, line),
    };
    let (patterns, key) = rest.trim_start().split_once([' ', '\t'])?;
    if !about(patterns) {
        return None;
    }
    let key = PublicKey::from_line(key.trim_start()).ok()?;
    Some(Entry { mark, key })
}

/// Whether a list of patterns, or a hashed name, is about this host.
fn is_named(patterns: &str, name: &str) -> bool {
    if let Some(hashed) = patterns.strip_prefix("|1|") {
        let Some((salt, hash)) = hashed.split_once('|') else {
            return false;
        };
        let (Ok(salt), Ok(hash)) = (Base64::decode_vec(salt), Base64::decode_vec(hash)) else {
            return false;
        };
        // ssh-keygen -H: what a hashed name hides is the name, so SHA-1 does.
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt);
        return ring::hmac::verify(&key, name.as_bytes(), &hash).is_ok();
    }
    let mut named = false;
    for pattern in patterns.split(',') {
        match pattern.strip_prefix('!') {
            Some(not) if fits(not.to_ascii_lowercase().as_bytes(), name.as_bytes()) => return false,
            Some(_) => {}
            None => named |= fits(pattern.to_ascii_lowercase().as_bytes(), name.as_bytes()),
        }
    }
    named
}
