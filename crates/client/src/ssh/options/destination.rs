//! Where to, as ssh reads it: `[USER@]HOST`, or `ssh://[USER@]HOST[:PORT]`; and addresses with a port.

use super::Line;

/// The port of an SSH server that says none.
pub const SSH_PORT: u16 = 22;

/// The word, in its parts.
#[derive(Debug, PartialEq, Eq)]
struct Destination {
    user: Option<String>,
    host: String,
    port: Option<u16>,
}

impl Line {
    /// Takes user and port of the word, where no flag before it named them, and gives the host. ssh reads the word where it
    /// stands, so it counts before flags behind it, and before the file of `-F`.
    pub(super) fn destination(&mut self, word: &str) -> Result<String, String> {
        let place = match word.strip_prefix("ssh://") {
            Some(rest) => uri(rest).ok_or_else(|| format!("`{word}`: ssh://[USER@]HOST[:PORT]"))?,
            None => plain(word),
        };
        if place.user.as_deref() == Some("") || place.host.is_empty() {
            return Err("a name is missing: [USER@]NODE".into());
        }
        if let Some(user) = place.user
            && self.set.insert("User")
        {
            self.options.user = Some(user);
        }
        if let Some(port) = place.port
            && self.set.insert("Port")
        {
            self.port = Some(port);
        }
        Ok(place.host)
    }
}

fn plain(word: &str) -> Destination {
    let (user, host) = match word.rsplit_once('@') {
        Some((user, host)) => (Some(user.to_owned()), host),
        None => (None, word),
    };
    Destination {
        user,
        host: host.to_owned(),
        port: None,
    }
}

/// What stands behind `ssh://`. As with ssh the user may be percent-encoded and have parameters behind `;`, which do not
/// count, and there is no path.
fn uri(rest: &str) -> Option<Destination> {
    let (user, rest) = match rest.split_once('@') {
        Some((user, rest)) => {
            let name = user.split(';').next().unwrap_or_default();
            (Some(decoded(name).filter(|name| !name.is_empty())?), rest)
        }
        None => (None, rest),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, behind) = match rest.strip_prefix('[') {
        Some(inside) => inside.split_once(']')?,
        None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
    };
    let port = match behind.strip_prefix(':') {
        Some("") => None,
        Some(port) => Some(port.parse().ok().filter(|&port| port != 0)?),
        None if behind.is_empty() => None,
        None => return None,
    };
    let is_host = !host.is_empty() && !host.contains(['/', '@', ' ']);
    is_host.then(|| Destination {
        user,
        host: host.to_owned(),
        port,
    })
}

/// `%41` is `A` (RFC 3986 §2.1).
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = rest.get(..2).filter(|d| d.iter().all(u8::is_ascii_hexdigit))?;
        let byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        bytes.push(Some(byte).filter(|&b| b != 0)?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

/// Labels and patterns choose among nodes; anything else is a name.
pub fn is_selector(host: &str) -> bool {
    fleetgate_wire::master::is_selector(host.as_bytes())
}

/// Reads `HOST`, `HOST:PORT`, `ADDRESS` or `[ADDRESS]:PORT`.
pub fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let wrong = || format!("{text:?} is no address: HOST, HOST:PORT or [ADDRESS]:PORT");
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, ""))) => (host, None),
        Some(Some((host, rest))) => (host, Some(rest.strip_prefix(':').ok_or_else(wrong)?)),
        Some(None) => return Err(wrong()),
        None if text.matches(':').count() == 1 => {
            let (host, port) = text.split_once(':').ok_or_else(wrong)?;
            (host, Some(port))
        }
        None => (text, None),
    };
    let port = port.map_or(Ok(SSH_PORT), |port| port.parse().map_err(|_| wrong()))?;
    match host.is_empty() || port == 0 {
        true => Err(wrong()),
        false => Ok((host.to_owned(), port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_or_not() {
        for (text, host, port) in [
            ("web1", "web1", 22),
            ("web1:2222", "web1", 2222),
            ("10.0.0.5:3022", "10.0.0.5", 3022),
            ("2001:db8::1", "2001:db8::1", 22),
            ("[2001:db8::1]", "2001:db8::1", 22),
            ("[2001:db8::1]:3022", "2001:db8::1", 3022),
        ] {
            assert_eq!(host_and_port(text), Ok((host.to_owned(), port)), "{text}");
        }
        for text in [
            "",
            ":22",
            "web1:",
            "web1:ssh",
            "web1:0",
            "web1:65536",
            "[::1",
            "[::1]22",
            "[]:22",
        ] {
            let wrong = host_and_port(text).expect_err(text);
            assert!(wrong.contains("is no address"), "{wrong}");
        }
    }
}
