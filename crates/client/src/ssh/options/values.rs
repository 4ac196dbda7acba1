//! The values of options and flags, read into types as ssh reads them. It knows no option by its name.

use crate::master_client::Keep;
use crate::ssh::forward::Forward;
use fleetgate_policy::pattern::fits;
use std::path::PathBuf;
use std::time::Duration;

/// `-R`: without a place it would be a SOCKS proxy on the far side.
pub(super) fn remote(value: &str) -> Result<Forward, String> {
    Forward::parse(value).map_err(|e| match Forward::parse_dynamic(value) {
        Ok(_) => format!(
            "-R {value}: a SOCKS proxy on the far side is not served; say where it leads: -R PORT:HOST:PORT"
        ),
        Err(_) => e.into(),
    })
}

/// ssh_config has a space between the two halves of a forward.
pub(super) fn joined(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(":")
}

/// Of all that there is, what a list of ssh's chooses: names with commas between them, best first; `-` takes away from all,
/// `^` puts in front, `+` adds, and here all is there already (ssh_config(5), Ciphers).
pub(super) fn chosen<T: Clone>(list: &str, all: &[T], name: impl Fn(&T) -> &str) -> Result<Vec<T>, String> {
    let (how, names) = match list.as_bytes() {
        [how @ (b'+' | b'-' | b'^'), ..] => (Some(*how), &list[1..]),
        _ => (None, list),
    };
    let names: Vec<&str> = names
        .split(',')
        .map(str::trim)
        .filter(|n| !n.is_empty())
        .collect();
    let fit = |n: &str, one: &T| fits(n.as_bytes(), name(one).as_bytes());
    let named = || {
        let each = names.iter().flat_map(|n| all.iter().filter(|one| fit(n, one)));
        each.cloned().collect::<Vec<T>>()
    };
    let rest = || {
        let others = all.iter().filter(|one| !names.iter().any(|n| fit(n, one)));
        others.cloned().collect::<Vec<T>>()
    };
    let chosen: Vec<T> = match how {
        None => named(),
        Some(b'-') => rest(),
        Some(b'^') => [named(), rest()].concat(),
        _ => all.to_vec(),
    };
    if chosen.is_empty() {
        let known: Vec<&str> = all.iter().map(&name).collect();
        return Err(format!(
            "none of these is known here; known are {}",
            known.join(",")
        ));
    }
    Ok(chosen)
}

/// As ssh reads it: seconds, or numbers with units; `yes` and 0 are for ever, which is a day here.
pub(super) fn persist(value: &str) -> Option<Keep> {
    const DAY: Duration = Duration::from_secs(86_400);
    match value.to_ascii_lowercase().as_str() {
        "yes" | "true" => Some(Keep::For(DAY)),
        "no" | "false" => Some(Keep::No),
        value => {
            let time = time(value)?;
            Some(Keep::For(if time.is_zero() { DAY } else { time.min(DAY) }))
        }
    }
}

/// Seconds, or numbers with units (sshd_config(5), TIME FORMATS).
pub(super) fn time(value: &str) -> Option<Duration> {
    const DAY: u64 = 86_400;
    let value = value.to_ascii_lowercase();
    if value.is_empty() {
        return None;
    }
    let (mut sum, mut number) = (0_u64, String::new());
    for c in value.chars() {
        let unit = match c {
            '0'..='9' => {
                number.push(c);
                continue;
            }
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => DAY,
            'w' => 7 * DAY,
            _ => return None,
        };
        let count: u64 = std::mem::take(&mut number).parse().ok()?;
        sum = sum.checked_add(count.checked_mul(unit)?)?;
    }
    if !number.is_empty() {
        sum = sum.checked_add(number.parse().ok()?)?;
    }
    Some(Duration::from_secs(sum))
}

/// Files, with spaces between them; `none` is none.
pub(super) fn paths(value: &str) -> Vec<PathBuf> {
    match value {
        "none" => vec!["/dev/null".into()],
        files => files.split_whitespace().map(path).collect(),
    }
}

pub(super) fn escape(value: &str) -> Result<Option<u8>, String> {
    match value.as_bytes() {
        b"none" => Ok(None),
        [one] => Ok(Some(*one)),
        [b'^', letter @ b'@'..=b'_' | letter @ b'a'..=b'z'] => Ok(Some(letter & 0x1f)),
        _ => Err(format!(
            "{value:?} is no escape: one character, ^ and a letter, or none"
        )),
    }
}

pub(super) fn path(value: &str) -> PathBuf {
    match (value.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => value.into(),
    }
}
