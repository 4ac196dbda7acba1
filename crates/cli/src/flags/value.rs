//! What a flag or an operand may be. A word is read here once, where its place in the command is known; nobody is asked.

use super::shown;
use crate::admin::sessions;
use fleetgate_client::reach::has_port;
use fleetgate_client::time;
use fleetgate_policy::Login;
use fleetgate_policy::cluster::{Labels, Name, Selector};
use fleetgate_policy::text;
use std::ffi::OsStr;

/// What a flag takes.
#[derive(Clone, Copy, PartialEq)]
pub enum Value {
    /// Nothing.
    None,
    /// One of these words.
    Choice(&'static str, &'static [&'static str]),
    /// The id of a process.
    Pid,
    /// A file.
    Path(&'static str),
    /// An internet address with its port.
    Address,
    /// Any text.
    Text(&'static str),
    /// The name of something in the cluster.
    Name(&'static str),
    /// An account.
    Login,
    /// The name of a node, a pattern of names, or labels.
    Selector,
    /// The first digits of a session's id.
    Session,
    /// `USER@NODE`.
    UserAtNode,
    /// The number of a node's connection.
    Connection,
    /// A host, by name or address, with its port.
    HostPort,
    /// A proxy: a host, with its port or without.
    Proxy,
    /// A time, as `90s`, `10m`, `8h`, `7d`.
    Lifetime,
    /// The same, for what begins now: not none, and of at most a hundred years.
    Ttl,
    /// A moment: `yesterday`, `2026-01-31`, `"2026-01-31 14:00"`, or how long ago, as `90s`.
    Moment,
    /// A label: `key=value`. No key is given twice.
    Pair(&'static str),
    /// A number.
    Number(&'static str),
}

impl Value {
    /// Whether `word` is such a value. If not the sentence that says so: `place` is the flag that it stands behind.
    pub fn check(self, place: &str, word: &str) -> Result<(), String> {
        match self.read(word) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let (wants, hint) = (self.wants(), self.nearest(word));
                Err(format!(
                    "{place} wants {wants}, not `{}`{hint}",
                    text::printable(word)
                ))
            }
            Err(why) => Err(format!("{place}: {}", text::printable(&why))),
        }
    }

    /// The same for a word that is called `name`.
    pub fn check_operand(self, name: &str, word: &OsStr) -> Result<(), String> {
        let is_any = matches!(self, Value::Path(_));
        match word.to_str() {
            // A file may be called anything.
            None if is_any => Ok(()),
            None => Err(format!("{name} is text in UTF-8, not `{}`", shown(word))),
            Some(word) => match self.read(word) {
                Ok(true) => Ok(()),
                Ok(false) => {
                    let (wants, hint) = (self.wants(), self.nearest(word));
                    Err(format!(
                        "{name} is {wants}, not `{}`{hint}",
                        text::printable(word)
                    ))
                }
                Err(why) => Err(format!("{name}: {}", text::printable(&why))),
            },
        }
    }

    /// Whether `word` is such a value; an error says itself what is wrong with it.
    fn read(self, word: &str) -> Result<bool, String> {
        Ok(match self {
            Value::None => word.is_empty(),
            Value::Choice(_, words) => words.contains(&word),
            Value::Pid => pid(word).is_some(),
            Value::Path(_) | Value::Text(_) => !word.is_empty(),
            Value::Address => word.parse::<std::net::SocketAddr>().is_ok(),
            Value::Name(_) => Name::parse(word).map(|_| true)?,
            Value::Login => Login::parse(word.as_bytes())
                .map(|_| true)
                .map_err(|why| format!("{word:?}: {why}"))?,
            // None at all: every node.
            Value::Selector => word.is_empty() || Selector::parse(word).map(|_| true)?,
            Value::Session => sessions::id(word).map(|_| true)?,
            Value::UserAtNode => match word.split_once('@') {
                Some((user, node)) => Name::parse(user).and(Name::parse(node)).map(|_| true)?,
                None => false,
            },
            Value::Connection => word.parse::<u64>().is_ok_and(|n| n > 0),
            Value::HostPort => has_port(word),
            Value::Proxy => !word.is_empty() && (has_port(word) || is_host(word)),
            Value::Lifetime => lifetime(word).is_some(),
            Value::Ttl => lifetime(word).is_some_and(|seconds| (1..=u64::from(u32::MAX)).contains(&seconds)),
            Value::Moment => time::moment(word, time::now()).is_some(),
            Value::Pair(_) => match word.split_once('=').filter(|(key, _)| !key.is_empty()) {
                Some(pair) => Labels::of([pair]).map(|_| true)?,
                None => false,
            },
            Value::Number(_) => word.parse::<u32>().is_ok(),
        })
    }

    /// What it wants, in words.
    pub fn wants(self) -> String {
        match self {
            Value::None => "nothing".to_owned(),
            Value::Choice(_, words) => format!("one of {}", words.join(", ")),
            Value::Pid => "the id of a process".to_owned(),
            Value::Path("DIR") => "a directory".to_owned(),
            Value::Path(_) => "a file".to_owned(),
            Value::Address => "an address with its port, as 127.0.0.1:3022 or [::1]:3022".to_owned(),
            Value::Text(name) => format!("{name}, which is not empty"),
            Value::Name(name) => format!("{name}, a name of lower-case letters, digits and . _ -"),
            Value::Login => "the name of an account".to_owned(),
            Value::Selector => "a name, a pattern of names, or labels, as env=prod,role=db".to_owned(),
            Value::Session => "the id of a session, the first column of `fleetgate sessions ls`".to_owned(),
            Value::UserAtNode => "a user and a node, as ada@web1".to_owned(),
            Value::Connection => "the number of a connection, the field `connection` of events".to_owned(),
            Value::HostPort => "a host with its port, as proxy.example.org:3080".to_owned(),
            Value::Proxy => "a host, as proxy.example.org or proxy.example.org:3080".to_owned(),
            Value::Lifetime => "a time, as 90s, 10m, 8h or 7d".to_owned(),
            Value::Ttl => "a time of more than 0, as 90s, 10m, 8h or 7d".to_owned(),
            Value::Moment => {
                "a moment, as yesterday, 2026-01-31, \"2026-01-31 14:00\" or 14:00 (in UTC), or how long \
                              ago, as 90s, 10m, 8h or 7d"
                    .to_owned()
            }
            Value::Pair(name) => format!("{name}, a name and a value"),
            Value::Number(_) => "a number".to_owned(),
        }
    }

    fn nearest(self, word: &str) -> String {
        match self {
            Value::Choice(_, words) => nearest(word, words.iter().copied()),
            _ => None,
        }
        .map(|n| format!("; did you mean `{n}`?"))
        .unwrap_or_default()
    }
}

/// A process id: a number of its own, above zero.
pub fn pid(word: &str) -> Option<i32> {
    word.parse().ok().filter(|pid| *pid > 0)
}

/// A name or an address, without a port.
fn is_host(word: &str) -> bool {
    let bare = word.trim_start_matches('[').trim_end_matches(']');
    !word.contains(':') || bare.parse::<std::net::Ipv6Addr>().is_ok()
}

/// Seconds of a time as `90s`, `10m`, `8h`, `7d`; a number alone is seconds.
pub fn lifetime(word: &str) -> Option<u64> {
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let factor = match &word[end..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    word[..end].parse::<u64>().ok()?.checked_mul(factor)
}

/// The known word that a mistyped one is probably meant to be. The first letter is rarely the wrong one: a word that begins
/// otherwise has to be nearer by a letter. What `un` stands before is the opposite, and no near spelling.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let far = 1 + word.len() / 3;
    known
        .filter(|k| word.strip_prefix("un") != Some(k))
        .map(|k| (distance(word, k) + usize::from(!begins_alike(word, k)), k))
        .filter(|(d, _)| *d <= far)
        .min()
        .map(|(_, k)| k)
}

/// Whether the first letters are the same, or the first two changed places.
fn begins_alike(a: &str, b: &str) -> bool {
    let two = |word: &str| (word.chars().next(), word.chars().nth(1));
    let (a, b) = (two(a), two(b));
    a.0 == b.0 || (a.0 == b.1 && a.1 == b.0)
}

/// How many letters have to be changed, added or removed, or change places with the next.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, n) | (n, 0) => n,
                _ => {
                    let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let other = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                    let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    match swapped {
                        true => other.min(rows[i - 2][j - 2] + 1),
                        false => other,
                    }
                }
            };
        }
    }
    rows[a.len()][b.len()]
}
