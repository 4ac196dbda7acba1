//! The options of a line in authorized_keys or in a principals file, quoted as sshd quotes them. Host names in
//! `from=` never fit: no name is looked up in a login.

use super::{Restrictions, Touch};
use fleetgate_policy::address::Sources;
use fleetgate_policy::permits::{MAX_ENVIRONMENT, MAX_TARGETS, MAX_VARIABLE, Target};
use fleetgate_policy::text::shortened;
use fleetgate_policy::{Kind, Permits, Rule};
use std::net::IpAddr;

/// The most names in `principals=`.
pub const MAX_PRINCIPALS: usize = 256;

/// Who asks to come in, from where and when; and what the node says about the files.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// The account.
    pub login: &'a str,
    /// Where he comes from.
    pub source: IpAddr,
    /// Seconds since 1970.
    pub now: u64,
    /// By how many seconds clocks may differ, for certificates.
    pub skew: u64,
    /// The host's time zone, in seconds east of UTC: `expiry-time` without a Z is local time.
    pub utc_offset: i32,
    /// Whether `environment=` counts (sshd: PermitUserEnvironment).
    pub environment: bool,
}

/// What a line's options say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) cert_authority: bool,
    pub(super) principals: Option<Vec<String>>,
    from: Option<Sources>,
    expiry: Option<Expiry>,
    /// In the order of the line: `restrict,pty` and `pty,restrict` differ.
    switches: Vec<(bool, &'static [Kind])>,
    command: Option<String>,
    permit_open: Vec<Target>,
    permit_listen: Vec<Target>,
    environment: Vec<(String, String)>,
    no_touch: bool,
    verify: bool,
}

/// Seconds since 1970, and whether a Z said that they are UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expiry {
    seconds: u64,
    utc: bool,
}

/// What `restrict` takes away.
const RESTRICTED: [Kind; 8] = [
    Kind::Pty,
    Kind::ConnectTcp,
    Kind::ListenTcp,
    Kind::ConnectUnix,
    Kind::ListenUnix,
    Kind::Agent,
    Kind::X11,
    Kind::UserRc,
];

/// Options that switch something on, and off with `no-`.
const SWITCHES: [(&str, &[Kind]); 5] = [
    ("pty", &[Kind::Pty]),
    ("port-forwarding", &Kind::FORWARDING),
    ("agent-forwarding", &[Kind::Agent]),
    ("x11-forwarding", &[Kind::X11]),
    ("user-rc", &[Kind::UserRc]),
];

impl Options {
    /// The options at the front of a line, and the rest of it.
    pub(super) fn parse(text: &str) -> Result<(Options, &str), String> {
        let mut options = Options::default();
        let mut rest = text;
        loop {
            let end = rest.find(['=', ',', ' ', '\t']).unwrap_or(rest.len());
            let (name, behind) = rest.split_at(end);
            let name = name.to_ascii_lowercase();
            rest = match behind.strip_prefix('=') {
                Some(value) => {
                    let (value, behind) = dequote(value).map_err(|why| format!("{name}: {why}"))?;
                    options.valued(&name, value)?;
                    behind
                }
                None => {
                    options.flag(&name)?;
                    behind
                }
            };
            match rest.chars().next() {
                None | Some(' ' | '\t') => return Ok((options, rest.trim_start_matches([' ', '\t']))),
                Some(',') => rest = &rest[1..],
                Some(_) => return Err(format!("{name}: something stands behind its closing quote")),
            }
        }
    }

    fn flag(&mut self, name: &str) -> Result<(), String> {
        let (on, plain) = match name.strip_prefix("no-") {
            Some(plain) => (false, plain),
            None => (true, name),
        };
        match (plain, on) {
            // sshd passes over a comma too many.
            ("", true) => {}
            ("restrict", true) => self.switches.push((false, &RESTRICTED)),
            ("cert-authority", true) => self.cert_authority = true,
            ("touch-required", _) => self.no_touch = !on,
            ("verify-required", _) => self.verify = on,
            _ => match SWITCHES.iter().find(|(n, _)| *n == plain) {
                Some((_, kinds)) => self.switches.push((on, kinds)),
                None if VALUED.contains(&name) => return Err(format!("{name} needs a value in quotes")),
                None => return Err(format!("the option {:?} is not known", shortened(name))),
            },
        }
        if self.switches.len() > MAX_TARGETS {
            return Err(format!("it has more than {MAX_TARGETS} switches"));
        }
        Ok(())
    }

    fn valued(&mut self, name: &str, value: String) -> Result<(), String> {
        let once = |there: bool| match there {
            true => Err(format!("{name} stands there twice")),
            false => Ok(()),
        };
        match name {
            "command" => {
                once(self.command.is_some())?;
                self.command = Some(value);
            }
            "from" => {
                once(self.from.is_some())?;
                self.from = Some(Sources::parse(&value).map_err(|why| format!("from: {why}"))?);
            }
            "principals" => {
                once(self.principals.is_some())?;
                let names: Vec<_> = value.split(',').map(|n| n.trim().to_string()).collect();
                if names.len() > MAX_PRINCIPALS || names.iter().any(String::is_empty) {
                    return Err(format!("principals needs 1 to {MAX_PRINCIPALS} names"));
                }
                self.principals = Some(names);
            }
            "expiry-time" => {
                let time = time(&value).ok_or("expiry-time is no YYYYMMDD[HHMM[SS]][Z]")?;
                // sshd: the first to come counts.
                self.expiry = Some(self.expiry.filter(|e| e.seconds <= time.seconds).unwrap_or(time));
            }
            "environment" => {
                let (variable, value) = value.split_once('=').ok_or("environment is no NAME=value")?;
                let named =
                    !variable.is_empty() && variable.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
                if !named || variable.len() + value.len() > MAX_VARIABLE {
                    return Err("environment is no NAME=value".to_string());
                }
                if self.environment.len() == MAX_ENVIRONMENT {
                    return Err(format!("it sets more than {MAX_ENVIRONMENT} variables"));
                }
                self.environment.push((variable.to_string(), value.to_string()));
            }
            "permitopen" => target(&mut self.permit_open, &value, false)?,
            "permitlisten" => target(&mut self.permit_listen, &value, true)?,
            // Tunnels are not served at all; a line that has one still lets in.
            "tunnel" if value == "any" || value.parse::<u32>().is_ok() => {}
            "tunnel" => return Err("tunnel is no number".to_string()),
            _ => return Err(format!("the option {:?} is not known", shortened(name))),
        }
        Ok(())
    }

    /// Whether the line lets this claimant in now.
    pub(super) fn admit(&self, claimant: &Claimant<'_>) -> Result<(), String> {
        if self.from.as_ref().is_some_and(|from| !from.fit(claimant.source)) {
            return Err(format!("its from= does not have {}", claimant.source));
        }
        match self.expires(claimant) {
            Some(end) if claimant.now >= end => Err("its expiry-time has passed".to_string()),
            _ => Ok(()),
        }
    }

    fn expires(&self, claimant: &Claimant<'_>) -> Option<u64> {
        let expiry = self.expiry?;
        Some(match expiry.utc {
            true => expiry.seconds,
            false => expiry
                .seconds
                .saturating_add_signed(-i64::from(claimant.utc_offset)),
        })
    }

    /// What goes with a login by this line.
    pub(super) fn restrictions(&self, claimant: &Claimant<'_>, rule: &Rule) -> Restrictions {
        let mut permits = Permits::all();
        for (on, kinds) in &self.switches {
            match on {
                true => permits.permit(kinds),
                false => permits.forbid(kinds, rule),
            }
        }
        if let Some(command) = &self.command {
            permits.force(command.as_bytes().to_vec(), rule);
        }
        if !self.permit_open.is_empty() {
            permits.only_connect(self.permit_open.clone(), rule);
        }
        if !self.permit_listen.is_empty() {
            permits.only_listen(self.permit_listen.clone(), rule);
        }
        if claimant.environment {
            for (name, value) in &self.environment {
                permits.set(name, value);
            }
        }
        Restrictions {
            permits,
            touch: Touch {
                presence: !self.no_touch,
                verification: self.verify,
            },
            expires: self.expires(claimant),
        }
    }
}

/// Options that have a value.
const VALUED: [&str; 8] = [
    "command",
    "from",
    "principals",
    "expiry-time",
    "environment",
    "permitopen",
    "permitlisten",
    "tunnel",
];

/// Where the options of a line end: at the first blank outside of quotes.
pub(super) fn end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut quoted, mut at) = (false, 0);
    while at < bytes.len() {
        match bytes[at] {
            b' ' | b'\t' if !quoted => break,
            b'\\' if bytes.get(at + 1) == Some(&b'"') => at += 1,
            b'"' => quoted = !quoted,
            _ => {}
        }
        at += 1;
    }
    at
}

/// `"a \"quoted\" word"` → the word, and what stands behind it. No other backslash means anything.
fn dequote(text: &str) -> Result<(String, &str), &'static str> {
    let mut rest = text.strip_prefix('"').ok_or("its value has no quotes")?;
    let mut value = String::new();
    loop {
        let at = rest.find(['"', '\\']).ok_or("its closing quote is missing")?;
        value.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(behind) = rest.strip_prefix("\\\"") {
            value.push('"');
            rest = behind;
        } else if let Some(behind) = rest.strip_prefix('"') {
            return Ok((value, behind));
        } else {
            value.push('\\');
            rest = &rest[1..];
        }
    }
}

fn target(list: &mut Vec<Target>, value: &str, listen: bool) -> Result<(), String> {
    if list.len() == MAX_TARGETS {
        return Err(format!("it lists more than {MAX_TARGETS} targets"));
    }
    list.push(Target::parse(value, listen)?);
    Ok(())
}

/// `YYYYMMDD`, `YYYYMMDDHHMM`, `YYYYMMDDHHMMSS`, each with a Z for UTC.
fn time(text: &str) -> Option<Expiry> {
    let (digits, utc) = match text.strip_suffix("UTC").or_else(|| text.strip_suffix(['Z', 'z'])) {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    if !matches!(digits.len(), 8 | 12 | 14) || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let part = |from: usize, to: usize| digits.get(from..to).map_or(Some(0), |d| d.parse::<u64>().ok());
    let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(8, 10)?, part(10, 12)?, part(12, 14)?);
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let days = |m: u64| match m {
        4 | 6 | 9 | 11 => 30,
        2 if leap(year) => 29,
        2 => 28,
        _ => 31,
    };
    let right = year >= 1970 && (1..=12).contains(&month) && (1..=days(month)).contains(&day);
    if !right || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let before: u64 = (1970..year).map(|y| if leap(y) { 366 } else { 365 }).sum();
    let days = before + (1..month).map(days).sum::<u64>() + day - 1;
    Some(Expiry {
        seconds: days * 86400 + hour * 3600 + minute * 60 + second,
        utc,
    })
}
