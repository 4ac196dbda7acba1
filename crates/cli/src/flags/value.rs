//! What a flag or an operand may be. A word is read here once, where its place in the command is known; nobody is asked.

use super::printable_word;
use super::times::{lifetime, moment};
use fleetgate_client::connect::has_port;
use fleetgate_client::time;
use fleetgate_policy::AccountName;
use fleetgate_policy::cluster::{Labels, Name, Selector};
use fleetgate_policy::text;
use std::ffi::OsStr;
use std::ops::RangeInclusive;

/// A session's name in hexadecimal digits; so many of them are enough.
const SESSION_DIGITS: RangeInclusive<usize> = 8..=32;

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
    AccountName,
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
        self.check_word(place, "wants", word)
    }

    /// The same for a word that is called `name`.
    pub fn check_operand(self, name: &str, word: &OsStr) -> Result<(), String> {
        match (word.to_str(), self) {
            (Some(word), _) => self.check_word(name, "is", word),
            // A file may be called anything.
            (None, Value::Path(_)) => Ok(()),
            (None, _) => Err(format!("{name} is text in UTF-8, not `{}`", printable_word(word))),
        }
    }

    fn check_word(self, subject: &str, verb: &str, word: &str) -> Result<(), String> {
        match self.read(word) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let hint = match self {
                    Value::Choice(_, words) => did_you_mean(word, "", words.iter().copied()),
                    _ => String::new(),
                };
                let wants = match self {
                    // The word has that name itself.
                    Value::Text(name) if name == subject => "a word that is not empty".to_owned(),
                    _ => self.wants(),
                };
                let word = text::printable(word);
                Err(format!("{subject} {verb} {wants}, not `{word}`{hint}"))
            }
            Err(why) => Err(format!("{subject}: {}", text::printable(&why))),
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
            Value::AccountName => AccountName::parse(word.as_bytes())
                .map(|_| true)
                .map_err(|why| format!("{word:?}: {why}"))?,
            // None at all: every node.
            Value::Selector => word.is_empty() || Selector::parse(word).map(|_| true)?,
            Value::Session => session_id(word).map(|_| true)?,
            Value::UserAtNode => match word.split_once('@') {
                Some((user, node)) if word.contains('+') => {
                    return Err(format!("{word:?}: {}", container_of(user, node)));
                }
                Some((user, node)) => Name::parse(user).and(Name::parse(node)).map(|_| true)?,
                None => false,
            },
            Value::Connection => word.parse::<u64>().is_ok_and(|n| n > 0),
            Value::HostPort => has_port(word),
            Value::Proxy => !word.is_empty() && (has_port(word) || is_host(word)),
            Value::Lifetime => lifetime(word).is_some(),
            Value::Ttl => lifetime(word).is_some_and(|seconds| (1..=u64::from(u32::MAX)).contains(&seconds)),
            Value::Moment => moment(word, time::now()).is_some(),
            Value::Pair(_) => match word.split_once('=').filter(|(key, _)| !key.is_empty()) {
                Some(pair) => Labels::of([pair]).map(|_| true)?,
                None => false,
            },
            Value::Number(_) => word.parse::<u32>().is_ok(),
        })
    }

    /// What it wants, in words.
    pub fn wants(self) -> String {
        self.description().1
    }

    /// What help calls it; empty where there is no value.
    pub fn name(self) -> &'static str {
        self.description().0
    }

    fn description(self) -> (&'static str, String) {
        let (name, wants) = match self {
            Value::Choice(name, words) => return (name, format!("one of {}", words.join(", "))),
            Value::Text(name) => return (name, format!("{name}, which is not empty")),
            Value::Name(name) => {
                return (
                    name,
                    format!("{name}, a name of lower-case letters, digits and . _ -"),
                );
            }
            Value::Pair(name) => return (name, format!("{name}, a name and a value")),
            Value::None => ("", "nothing"),
            Value::Pid => ("PID", "the id of a process"),
            Value::Path("DIR") => ("DIR", "a directory"),
            Value::Path(name) => (name, "a file"),
            Value::Address => (
                "ADDRESS:PORT",
                "an address with its port, as 127.0.0.1:3022 or [::1]:3022",
            ),
            Value::AccountName => ("LOGIN", "the name of an account"),
            Value::Selector => (
                "SELECTOR",
                "a name, a pattern of names, or labels, as env=prod,role=db",
            ),
            Value::Session => (
                "SESSION",
                "the id of a session, the first column of `fleetgate sessions ls`",
            ),
            Value::UserAtNode => ("USER@NODE", "a user and a node, as ada@web1"),
            Value::Connection => (
                "NUMBER",
                "the number of a connection, the field `connection` of events",
            ),
            Value::HostPort => ("HOST:PORT", "a host with its port, as host.example.org:3080"),
            Value::Proxy => (
                "HOST[:PORT]",
                "a host, as proxy.example.org or proxy.example.org:3080",
            ),
            Value::Lifetime => ("TIME", "a time, as 90s, 10m, 8h or 7d"),
            Value::Ttl => (
                "TIME",
                "a time of more than 0 and less than 136 years, as 90s, 10m, 8h or 7d",
            ),
            Value::Moment => (
                "WHEN",
                "a moment, as yesterday, 2026-01-31, \"2026-01-31 14:00\" or 14:00 (in UTC), or how long ago, as 90s, \
                 10m, 8h or 7d",
            ),
            Value::Number(name) => (name, "a number"),
        };
        (name, wants.to_owned())
    }
}

/// The remedy where a container is named with a user or a node.
fn container_of(user: &str, node: &str) -> String {
    let (user, of_user) = user.split_once('+').unwrap_or((user, ""));
    let (node, of_node) = node.split_once('+').unwrap_or((node, ""));
    let container = if of_user.is_empty() { of_node } else { of_user };
    format!("a container is part of the login: write {user}@{node} --login {user}+{container}")
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

/// A session's id, or enough of its beginning, as events have it.
pub fn session_id(word: &str) -> Result<String, String> {
    let is_id = SESSION_DIGITS.contains(&word.len()) && word.bytes().all(|b| b.is_ascii_hexdigit());
    match is_id {
        true => Ok(word.to_ascii_lowercase()),
        false => Err(format!(
            "{:?} names no session: it is {} to {} hexadecimal digits, the first column of `fleetgate sessions ls`",
            text::printable(word),
            SESSION_DIGITS.start(),
            SESSION_DIGITS.end()
        )),
    }
}

/// The end of a message about a mistyped word: the known word that is probably meant, if there is one.
pub fn did_you_mean<'a>(word: &str, dashes: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |n| format!("; did you mean `{dashes}{n}`?"))
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
