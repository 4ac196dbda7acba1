//! Values of `node.toml` that are more than a number or a word, and how they are written.

use fleetgate_policy::cluster::{Size, is_variable};
use fleetgate_policy::toml_mistake::Example;
use fleetgate_policy::{AccountName, account_and_container, check_written_login};
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;

/// Lines that are right, for keys whose type does not say what they hold.
pub(super) const EXAMPLES: [Example; 27] = [
    ("listen", "listen = [\"[::]:22\"]"),
    ("host_keys", "host_keys = [\"/etc/ssh/ssh_host_ed25519_key\"]"),
    ("pam", "pam = \"auto\""),
    ("selinux", "selinux = \"auto\""),
    ("root_login", "root_login = \"prohibit-password\""),
    ("containers", "containers = [\"deploy+web*\"]"),
    (
        "authorized_keys_files",
        "authorized_keys_files = [\".ssh/authorized_keys\"]",
    ),
    (
        "authentication_methods",
        "authentication_methods = [\"publickey,keyboard-interactive\"]",
    ),
    ("allow_users", "allow_users = [\"deploy\", \"ada@10.0.0.0/8\"]"),
    ("deny_users", "deny_users = [\"guest*\"]"),
    ("allow_groups", "allow_groups = [\"wheel\"]"),
    ("deny_groups", "deny_groups = [\"guests\"]"),
    ("accept_env", "accept_env = [\"LANG\", \"LC_*\"]"),
    ("set_env", "set_env = { TZ = \"UTC\" }"),
    ("audit", "audit = \"commands\""),
    ("io_uring", "io_uring = \"refuse\""),
    ("unwatched", "unwatched = \"allow\""),
    ("recording.sessions", "sessions = \"output\""),
    ("on_failure", "on_failure = \"go-on\""),
    (
        "recipients",
        "recipients = [\"age1dc3xeggyp2p9556c0r8nplujq2tga0rguvtcp9hz97kwywghd4pqycqsp2\"]",
    ),
    ("commands", "[commands.NAME] and its keys in the lines below"),
    ("argv", "argv = [\"/usr/bin/uptime\"]"),
    ("args", "args = [\"word\"]"),
    ("labels", "labels = { env = \"prod\" }"),
    (
        "label_commands",
        "[label_commands.NAME] and its keys in the lines below",
    ),
    ("command", "command = [\"/usr/bin/uname\", \"-r\"]"),
    ("sftp_chroot", "sftp_chroot = \"/srv/sftp\""),
];

/// A time: `"90s"`, `"10m"`, `"1h"`, `"500ms"`, or seconds as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub std::time::Duration);

impl Duration {
    /// So many seconds.
    pub const fn from_secs(secs: u64) -> Duration {
        Duration(std::time::Duration::from_secs(secs))
    }

    /// As milliseconds, at most what a u32 holds.
    pub fn as_millis(self) -> u32 {
        u32::try_from(self.0.as_millis()).unwrap_or(u32::MAX)
    }
}

/// The smallest `rekey_bytes`: twice the largest packet of data. Below it nearly every packet would wait for a key
/// exchange, which is 3 KB itself.
const REKEY_BYTES_MIN: Size = Size(64 << 10);
/// The smallest `rekey_after`: an exchange takes some round trips, and the time is counted in whole seconds.
const REKEY_AFTER_MIN: Duration = Duration::from_secs(1);

/// `rekey_bytes`: 0, or enough for a session to live.
pub(super) fn rekey_bytes<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Size, D::Error> {
    match Size::deserialize(d)? {
        size if size == Size(0) || size >= REKEY_BYTES_MIN => Ok(size),
        Size(bytes) => Err(serde::de::Error::custom(format!(
            "rekey_bytes of {bytes}: no session can live with new keys so often; write \"64K\" or more, or 0 to leave \
             it to the cipher"
        ))),
    }
}

/// `rekey_after`: 0 for never, or enough for a session to live.
pub(super) fn rekey_after<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    match Duration::deserialize(d)? {
        time if time == Duration::from_secs(0) || time >= REKEY_AFTER_MIN => Ok(time),
        time => Err(serde::de::Error::custom(format!(
            "rekey_after of {} ms: no session can live with new keys so often; write \"1s\" or more, or 0 for never",
            time.as_millis()
        ))),
    }
}

/// When PAM is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PamUse {
    /// When its service has a file.
    Auto,
    /// Always; without the file every login is refused.
    On,
    /// Never.
    Off,
}

/// Whether sessions need a SELinux context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SelinuxUse {
    /// Where the kernel runs SELinux.
    Auto,
    /// Always: where the kernel does not run it, no session begins.
    Required,
}

/// How root may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RootLogin {
    /// In every way.
    Yes,
    /// By key or certificate.
    ProhibitPassword,
    /// By a key that runs one command.
    ForcedCommandsOnly,
    /// Not at all.
    No,
}

/// A command that says the value of a label.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelCommand {
    /// The program and its arguments; no shell is involved.
    pub command: Vec<String>,
    /// It is run so often.
    #[serde(default = "ten_minutes")]
    pub every: Duration,
    /// It has so long.
    #[serde(default = "ten_seconds")]
    pub timeout: Duration,
}

fn ten_minutes() -> Duration {
    Duration::from_secs(600)
}

fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

/// Reads a number with a unit from the table; a number alone is of `plain`.
fn with_unit(text: &str, units: &[(&str, u64)], plain: u64) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().ok()?;
    let unit = text[end..].trim();
    let factor = if unit.is_empty() {
        plain
    } else {
        units.iter().find(|(name, _)| *name == unit)?.1
    };
    number.checked_mul(factor)
}

struct Visit<T>(&'static str, fn(&str) -> Option<T>);

impl<T> serde::de::Visitor<'_> for Visit<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.1)(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        u64::try_from(number)
            .ok()
            .and_then(|n| (self.1)(&n.to_string()))
            .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        d.deserialize_any(Visit(
            "a time such as \"90s\", \"10m\", \"1h\" or a number of seconds",
            |text| {
                with_unit(
                    text,
                    &[
                        ("ms", 1),
                        ("s", 1000),
                        ("m", 60_000),
                        ("h", 3_600_000),
                        ("d", 86_400_000),
                    ],
                    1000,
                )
                .map(|ms| Duration(std::time::Duration::from_millis(ms)))
            },
        ))
    }
}

/// A path or text that is not empty.
pub(super) fn not_empty<'de, T: Deserialize<'de> + AsRef<std::ffi::OsStr>, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    let read = T::deserialize(from)?;
    match read.as_ref().is_empty() {
        true => Err(serde::de::Error::custom(EMPTY)),
        false => Ok(read),
    }
}

/// A command, if there is one: the empty one would run nothing for everybody.
pub(super) fn command<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    not_empty(from).map(Some)
}

/// A number of days. Other keys have times with a unit.
pub(super) fn days<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    // A text has none that is right.
    struct Days;
    impl serde::de::Visitor<'_> for Days {
        type Value = u32;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number of days without quotes, such as 90")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u32, E> {
            let days = with_unit(text, &[("d", 1), ("days", 1), ("w", 7), ("y", 365)], 1);
            Err(match days.and_then(|days| u32::try_from(days).ok()) {
                Some(days) => E::custom(format!(
                    "`keep_days` is a number of days without quotes: write keep_days = {days}"
                )),
                None => E::invalid_value(serde::de::Unexpected::Str(text), &self),
            })
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<u32, E> {
            u32::try_from(number).map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(number), &self))
        }
    }
    from.deserialize_any(Days)
}

/// A place that means the same wherever the node is started.
pub(super) fn from_root<'de, D: serde::Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    let path: PathBuf = not_empty(from)?;
    match path.is_absolute() {
        true => Ok(path),
        false => Err(serde::de::Error::custom(format!(
            "{path:?} is no path from / on: begin it with /"
        ))),
    }
}

/// A time in which somebody can do something.
pub(super) fn a_second_or_more<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    match Duration::deserialize(from)? {
        time if time < Duration::from_secs(1) => Err(serde::de::Error::custom(
            "less than a second would let nobody log in: write \"1s\" or more",
        )),
        time => Ok(time),
    }
}

/// A directory as `sftp_chroot` has it: from / on, or of the user's.
pub(super) fn chroot<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(from)?;
    match text.starts_with('/') || text.starts_with("%h") {
        true => Ok(Some(text)),
        false => Err(serde::de::Error::custom(format!(
            "{text:?} is no directory from / on: begin it with / or %h"
        ))),
    }
}

/// Patterns of the names of variables.
pub(super) fn patterns<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let patterns = Vec::<String>::deserialize(from)?;
    match patterns.iter().find(|pattern| !is_variable(pattern)) {
        Some(odd) => Err(serde::de::Error::custom(format!(
            "{odd:?} is no pattern of names: one name or pattern in each text of the list"
        ))),
        None => Ok(patterns),
    }
}

/// Logins into containers: an account, and a pattern of containers' names.
pub(super) fn containers<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let all = Vec::<String>::deserialize(from)?;
    for login in &all {
        container_login(login).map_err(|why| {
            serde::de::Error::custom(format!(
                "{login:?} fits no login: {why} (an entry is ACCOUNT+CONTAINER, as \"deploy+web*\")"
            ))
        })?;
    }
    Ok(all)
}

/// Whether it is an account and a pattern of containers.
fn container_login(login: &str) -> Result<(), String> {
    const PATTERN: [char; 5] = ['*', '?', '{', '}', '!'];
    if login.contains('=') {
        return Err(
            "labels choose containers in a cluster's roles only (`containers` of a role), here the names do: write an \
             account and a pattern of them"
                .to_owned(),
        );
    }
    check_written_login(login)?;
    let (account, container) = account_and_container(login);
    if container.is_none() {
        return Err(match account.contains(PATTERN) {
            true => format!("no account stands before it: write ACCOUNT+{account}, as root+{account}"),
            false => {
                format!("no container stands behind the account: write {account}+* for all of them")
            }
        });
    }
    if account.contains(PATTERN) {
        return Err(format!(
            "{account:?} is no account's name, and only the container may be a pattern: write a login for each account"
        ));
    }
    AccountName::parse(account.as_bytes())?;
    Ok(())
}

const EMPTY: &str = "is empty: leave the line out for the default";

/// A number that is not 0.
pub(super) fn one_or_more<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match serde::Deserialize::deserialize(from)? {
        0 => Err(serde::de::Error::custom(
            "0 would let nobody log in: it is 1 or more",
        )),
        number => Ok(number),
    }
}
