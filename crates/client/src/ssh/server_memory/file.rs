//! The file of what is known of servers: how a line looks, and how many there are.
//!
//! A line has six fields with a tab between them: the server's name, the day, its version line, its methods of key exchange
//! (the best one first; `-` in front where the best one is unknown here), its best host key algorithm or `-`, and what is
//! known of its channels.

use super::Facts;
use crate::files;
use fleetgate_policy::text::is_unseen;
use fleetgate_ssh::info::ServerOffer;
use fleetgate_ssh::kex::Method;
use fleetgate_ssh::key::Algorithm;
use std::collections::VecDeque;
use std::path::Path;

/// What the file begins with.
const HEAD: &str = "fleetgate servers 1";
/// Servers, at most. The ones that were of no use for the longest time go first.
pub(super) const MAX_SERVERS: usize = 4096;
/// A line that was of no use for so many days goes.
pub(super) const MAX_DAYS: u64 = 180;
/// A name of a server, at most.
const MAX_NAME: usize = 300;
/// A version line, at most (RFC 4253 §4.2).
const MAX_VERSION: usize = 253;
/// Where there is nothing to say.
const NONE: &str = "-";

/// Whether a line can begin with this name.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && !name.contains([' ', '\t']) && !name.chars().any(is_unseen)
}

/// The line of this server, if it is not too old.
pub(super) fn find(path: &Path, name: &str, today: u64) -> Option<(u64, Facts)> {
    let text = files::read_text(path).ok()?;
    let lines = text.strip_prefix(HEAD)?.strip_prefix('\n')?;
    // The last one counts, as it does where the file is written.
    let line = lines.lines().rev().find(|line| name_of(line) == Some(name))?;
    let (_, day, facts) = parse(line, today)?;
    Some((day, facts))
}

/// Puts a line for this server at the end of the file, or removes the one that is there. What cannot be read goes.
pub(super) fn replace(path: &Path, name: &str, facts: Option<&Facts>, today: u64) {
    let Some(folder) = path.parent() else { return };
    if !folder.exists() && (facts.is_none() || files::private_directory(folder).is_err()) {
        return;
    }
    let text = files::read_text(path).unwrap_or_default();
    let lines = text
        .strip_prefix(HEAD)
        .and_then(|rest| rest.strip_prefix('\n'))
        .unwrap_or_default();
    let is_kept = |line: &&str| parse(line, today).is_some_and(|(other, ..)| other != name);
    let mut kept: VecDeque<&str> = lines.lines().filter(is_kept).collect();
    let line = facts.map(|facts| render(name, today, facts));
    kept.extend(line.as_deref());
    while kept.len() > MAX_SERVERS {
        kept.pop_front();
    }
    let mut text = String::with_capacity(lines.len() + 1024);
    for line in std::iter::once(HEAD).chain(kept) {
        text.push_str(line);
        text.push('\n');
    }
    // A line that is lost costs a round trip, and no command waits for the disk.
    let _ = files::write_unsynced(path, 0o600, text.as_bytes());
}

fn name_of(line: &str) -> Option<&str> {
    line.split('\t').next()
}

fn render(name: &str, day: u64, facts: &Facts) -> String {
    let Facts { offer, .. } = facts;
    let best = offer.kex.first().filter(|first| offer.best_kex == Some(**first));
    let unknown = best.is_none().then_some(NONE);
    let kex: Vec<&str> = unknown
        .into_iter()
        .chain(offer.kex.iter().map(|m| m.name()))
        .collect();
    let reads_on = match facts.reads_on {
        None => NONE,
        Some(true) => "reads-on",
        Some(false) => "waits",
    };
    let number = facts
        .first_channel
        .map_or_else(|| NONE.to_owned(), |number| number.to_string());
    format!(
        "{name}\t{day}\t{}\t{}\t{}\t{number},{reads_on}",
        facts.version,
        kex.join(","),
        offer.best_host_key.as_ref().map_or(NONE, Algorithm::name),
    )
}

fn parse(line: &str, today: u64) -> Option<(&str, u64, Facts)> {
    let mut fields = line.split('\t');
    let mut field = || fields.next();
    let name = field().filter(|name| is_name(name))?;
    // A day to come was written by another clock.
    let day = field()?
        .parse()
        .ok()
        .filter(|day| *day <= today && today - day <= MAX_DAYS)?;
    let version = field().filter(|version| {
        version.starts_with("SSH-") && version.len() <= MAX_VERSION && !version.chars().any(is_unseen)
    })?;
    let listed = field()?;
    let (is_best_known, listed) = match listed.strip_prefix(NONE) {
        Some(rest) => (false, rest.strip_prefix(',').unwrap_or(rest)),
        None => (true, listed),
    };
    let mut kex = Vec::new();
    for name in listed.split(',').filter(|name| !name.is_empty()) {
        let method = Method::named(name).filter(|method| !kex.contains(method))?;
        kex.push(method);
    }
    let best_host_key = match field()? {
        NONE => None,
        name => Some(Algorithm::parse(name)?),
    };
    let (number, reads_on) = field()?.split_once(',')?;
    let facts = Facts {
        version: version.to_owned(),
        offer: ServerOffer {
            best_kex: kex.first().copied().filter(|_| is_best_known),
            kex,
            best_host_key,
        },
        first_channel: match number {
            NONE => None,
            number => Some(number.parse().ok()?),
        },
        reads_on: match reads_on {
            NONE => None,
            "reads-on" => Some(true),
            "waits" => Some(false),
            _ => return None,
        },
    };
    field().is_none().then_some((name, day, facts))
}
