//! The command line of `fleetgate ssh`, as ssh reads its own: flags stand together, values with or without a space,
//! and everything behind the host is the command. It reads; it looks nothing up.

use super::forward::{Forward, MAX_FORWARDS, To};
use super::{Strict, Work};
use crate::held::{Keep, PERSIST};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// Whether a terminal is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tty {
    /// With a shell, where standard input is one.
    Auto,
    /// Never: `-T`.
    No,
    /// Where standard input is one: `-t`.
    Yes,
    /// Always: `-tt`.
    Force,
}

/// How to say where the time went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explain {
    /// As a picture.
    Text,
    /// As JSON.
    Json,
}

/// The command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// The account, if it was said.
    pub user: Option<String>,
    /// A node, or labels; with `direct` a host.
    pub host: String,
    /// Of a direct connection.
    pub port: Option<u16>,
    /// No proxy: an SSH server at an address, keys of files and the agent.
    pub direct: bool,
    /// The proxy to use: `-J`.
    pub proxy: Option<String>,
    /// Where the login lies.
    pub home: Option<String>,
    /// The work.
    pub work: Work,
    /// A terminal?
    pub tty: Tty,
    /// Standard input is read: not `-n`.
    pub input: bool,
    /// `-A`, ForwardAgent.
    pub agent: bool,
    /// `-i`.
    pub identities: Vec<PathBuf>,
    /// `-L`, `-D`.
    pub locals: Vec<Forward>,
    /// `-R`.
    pub remotes: Vec<Forward>,
    /// `-e`.
    pub escape: Option<u8>,
    /// `-v`, more for more.
    pub verbose: u8,
    /// `-q`.
    pub quiet: bool,
    /// `--explain`.
    pub explain: Option<Explain>,
    /// SetEnv.
    pub set_env: Vec<(String, String)>,
    /// SendEnv: patterns.
    pub send_env: Vec<String>,
    /// ServerAliveInterval.
    pub alive_interval: Duration,
    /// ServerAliveCountMax.
    pub alive_count: u32,
    /// StrictHostKeyChecking, for direct connections.
    pub strict: Strict,
    /// UserKnownHostsFile.
    pub known_hosts: Vec<PathBuf>,
    /// ConnectTimeout.
    pub connect_time: Option<Duration>,
    /// ExitOnForwardFailure.
    pub exit_on_forward_failure: bool,
    /// BatchMode.
    pub batch: bool,
    /// ControlPersist: whether the connection to the proxy is kept.
    pub keep: Keep,
    /// What is said before it begins.
    pub notes: Vec<String>,
}

/// The names that `-o` knows.
pub const KNOWN: [&str; 19] = [
    "BatchMode",
    "ConnectTimeout",
    "ControlPersist",
    "EscapeChar",
    "ExitOnForwardFailure",
    "ForwardAgent",
    "IdentityFile",
    "LocalForward",
    "LogLevel",
    "Port",
    "RemoteForward",
    "RequestTTY",
    "SendEnv",
    "ServerAliveCountMax",
    "ServerAliveInterval",
    "SetEnv",
    "StrictHostKeyChecking",
    "User",
    "UserKnownHostsFile",
];

/// Flags that take a value.
const VALUED: &[u8] = b"LRDJoilpWeFSBbcEmOQw";
/// The most words of a command line that are looked at.
pub const MAX_WORDS: usize = 1 << 16;

/// What `--help` says.
pub const HELP: &str = "\
Usage: fleetgate ssh [FLAGS] [USER@]NODE [COMMAND...]
       fleetgate ssh --direct [FLAGS] [USER@]HOST[:PORT] [COMMAND...]

Opens a shell on a node, or runs a command there. NODE is a name, or labels that choose one: env=prod,role=db.
Everything behind NODE is the command, as with ssh.

  -l USER          the account
  -t, -tt          ask for a terminal; even without one here
  -T               ask for none
  -n               read nothing from standard input
  -N               no command: forwards alone
  -s               the command is the name of a subsystem
  -A, -a           let the node use this machine's ssh-agent; do not
  -L [BIND:]PORT:HOST:PORT    listen here, connect there; sockets by their absolute paths
  -R [BIND:]PORT:HOST:PORT    listen there, connect here
  -D [BIND:]PORT   a SOCKS proxy here, whose connections begin there
  -W HOST:PORT     standard input and output are a connection from there to HOST:PORT
  -J HOST:PORT     go through this proxy instead of the login's own
  -e CHAR          what begins an escape at the start of a line; `none` for none (default: ~)
  -i FILE          a private key, for --direct
  -o NAME=VALUE    one of: BatchMode ConnectTimeout ControlPersist EscapeChar ExitOnForwardFailure ForwardAgent
                   IdentityFile LocalForward LogLevel Port RemoteForward RequestTTY SendEnv ServerAliveCountMax
                   ServerAliveInterval SetEnv StrictHostKeyChecking User UserKnownHostsFile. ControlPersist is how long
                   the connection to the proxy is kept for the next command (default: 10m; `no`: it ends with this one)
  -p PORT          with --direct; a node has no port and it is left aside
  -q, -v           say less, say more
  --direct         connect to an SSH server without a proxy, with keys of files and of the ssh-agent
  --explain        say where the time went; --explain=json for a program
  --home DIR       the login's directory, instead of ~/.fleetgate

The exit code is the command's; 255 where the connection failed, 2 for a command line that is wrong.
";

/// What the command line asks for.
#[derive(Debug)]
pub enum Asked {
    /// To do this.
    Run(Box<Options>),
    /// How to.
    Help,
}

impl Options {
    /// Reads the words behind `fleetgate ssh`.
    pub fn parse(words: &[OsString]) -> Result<Asked, String> {
        let mut line = Line::default();
        let mut rest = words.iter().take(MAX_WORDS);
        let mut host = None;
        while let Some(word) = rest.next() {
            let bytes = word.as_bytes();
            match bytes {
                b"--help" | b"-h" => return Ok(Asked::Help),
                b"--" => {
                    // ssh takes the host behind it, if there was none.
                    if host.is_none() {
                        host = rest.next();
                    }
                    break;
                }
                [b'-', b'-', ..] => line.long(&text(word)?, &mut rest)?,
                [b'-', flags @ ..] if !flags.is_empty() => line.short(flags, &mut rest)?,
                _ if host.is_some() => {
                    line.command.push(word.clone());
                    break;
                }
                _ => {
                    host = Some(word);
                    // Flags may still stand behind the host, before the command.
                    continue;
                }
            }
        }
        line.command.extend(rest.cloned());
        let Some(host) = host else {
            return Err("which node? `fleetgate ssh [USER@]NODE [COMMAND]`".into());
        };
        line.finish(&text(host)?)
            .map(|options| Asked::Run(Box::new(options)))
    }
}

struct Line {
    options: Options,
    command: Vec<OsString>,
    no_command: bool,
    subsystem: bool,
    to: Option<To>,
    port: Option<u16>,
}

impl Default for Line {
    fn default() -> Line {
        Line {
            options: Options {
                user: None,
                host: String::new(),
                port: None,
                direct: false,
                proxy: None,
                home: None,
                work: Work::Shell,
                tty: Tty::Auto,
                input: true,
                agent: false,
                identities: Vec::new(),
                locals: Vec::new(),
                remotes: Vec::new(),
                escape: Some(b'~'),
                verbose: 0,
                quiet: false,
                explain: None,
                set_env: Vec::new(),
                send_env: Vec::new(),
                alive_interval: Duration::ZERO,
                alive_count: 3,
                strict: Strict::Ask,
                known_hosts: Vec::new(),
                connect_time: None,
                exit_on_forward_failure: false,
                batch: false,
                keep: Keep::For(PERSIST),
                notes: Vec::new(),
            },
            command: Vec::new(),
            no_command: false,
            subsystem: false,
            to: None,
            port: None,
        }
    }
}

impl Line {
    fn long<'a>(&mut self, word: &str, rest: &mut impl Iterator<Item = &'a OsString>) -> Result<(), String> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word, None),
        };
        match (name, value) {
            ("--direct", None) => self.options.direct = true,
            ("--explain", None) => self.options.explain = Some(Explain::Text),
            ("--explain", Some(v)) if v == "json" => self.options.explain = Some(Explain::Json),
            ("--explain", Some(v)) => return Err(format!("--explain={v}: `--explain` or `--explain=json`")),
            ("--home", value) => self.options.home = Some(given("--home", value, rest)?),
            ("--proxy", value) => self.options.proxy = Some(given("--proxy", value, rest)?),
            _ => {
                return Err(format!(
                    "{word} is no flag of `fleetgate ssh`; try `fleetgate ssh --help`"
                ));
            }
        }
        Ok(())
    }

    fn short<'a>(
        &mut self,
        flags: &[u8],
        rest: &mut impl Iterator<Item = &'a OsString>,
    ) -> Result<(), String> {
        for (i, &flag) in flags.iter().enumerate() {
            if VALUED.contains(&flag) {
                let name = format!("-{}", char::from(flag));
                let inside = OsStr::from_bytes(&flags[i + 1..]);
                let inside = (!inside.is_empty()).then(|| text(inside)).transpose()?;
                let value = given(&name, inside, rest)?;
                return self.valued(flag, &value);
            }
            match flag {
                b't' if matches!(self.options.tty, Tty::Yes | Tty::Force) => self.options.tty = Tty::Force,
                b't' => self.options.tty = Tty::Yes,
                b'T' => self.options.tty = Tty::No,
                b'n' => self.options.input = false,
                b'N' => self.no_command = true,
                b's' => self.subsystem = true,
                b'A' => self.options.agent = true,
                b'a' => self.options.agent = false,
                b'q' => self.options.quiet = true,
                b'v' => self.options.verbose = self.options.verbose.saturating_add(1),
                // What is so anyway.
                b'4' | b'6' | b'C' | b'k' | b'x' => {
                    self.options.notes.push(format!(
                        "-{} has no meaning here and is left aside",
                        char::from(flag)
                    ));
                }
                b'f' => {
                    return Err(
                        "-f is not served: run it in the background with `&`, or with `systemd-run --user`"
                            .into(),
                    );
                }
                b'X' | b'Y' => {
                    return Err(
                        "X11 is not forwarded by `fleetgate ssh`; plain ssh does it (`fleetgate config ssh`)"
                            .into(),
                    );
                }
                _ => {
                    return Err(format!(
                        "-{} is no flag of `fleetgate ssh`; try `fleetgate ssh --help`",
                        char::from(flag).escape_default()
                    ));
                }
            }
        }
        Ok(())
    }

    fn valued(&mut self, flag: u8, value: &str) -> Result<(), String> {
        match flag {
            b'L' => self.forward(Forward::parse(value)?, true),
            b'R' => self.forward(remote(value)?, false),
            b'D' => self.forward(Forward::parse_dynamic(value)?, true),
            b'J' => {
                self.options.proxy = Some(value.to_owned());
                Ok(())
            }
            b'o' => self.option(value),
            b'i' => {
                self.options.identities.push(path(value));
                Ok(())
            }
            b'l' => {
                self.options.user = Some(value.to_owned());
                Ok(())
            }
            b'p' => {
                self.port = Some(value.parse().map_err(|_| format!("-p {value}: no port"))?);
                Ok(())
            }
            b'W' => {
                self.to = Some(To::parse(value)?);
                Ok(())
            }
            b'e' => {
                self.options.escape = escape(value)?;
                Ok(())
            }
            flag => Err(format!(
                "-{} is not served by `fleetgate ssh`; plain ssh does it (`fleetgate config ssh`)",
                char::from(flag)
            )),
        }
    }

    fn forward(&mut self, forward: Forward, local: bool) -> Result<(), String> {
        if self.options.locals.len() + self.options.remotes.len() == MAX_FORWARDS {
            return Err(format!("more than {MAX_FORWARDS} forwards"));
        }
        match local {
            true => self.options.locals.push(forward),
            false => self.options.remotes.push(forward),
        }
        Ok(())
    }

    fn option(&mut self, given: &str) -> Result<(), String> {
        let (name, value) = given
            .split_once('=')
            .or_else(|| given.split_once([' ', '\t']))
            .map(|(n, v)| (n.trim(), v.trim().trim_matches('"')))
            .ok_or_else(|| format!("-o {given}: NAME=VALUE"))?;
        let known = KNOWN.iter().find(|n| n.eq_ignore_ascii_case(name)).copied();
        let wrong = |what: &str| format!("-o {given}: {what}");
        let flag = || match value.to_ascii_lowercase().as_str() {
            "yes" | "true" => Ok(true),
            "no" | "false" => Ok(false),
            _ => Err(wrong("yes or no")),
        };
        let seconds = || {
            value
                .parse()
                .map(Duration::from_secs)
                .map_err(|_| wrong("a number of seconds"))
        };
        let o = &mut self.options;
        match known {
            Some("BatchMode") => o.batch = flag()?,
            Some("ConnectTimeout") => o.connect_time = Some(seconds()?).filter(|t| !t.is_zero()),
            Some("ControlPersist") => {
                o.keep = persist(value).ok_or_else(|| wrong("`no`, `yes`, or a time as 90, 10m or 1h30m"))?;
            }
            Some("EscapeChar") => o.escape = escape(value)?,
            Some("ExitOnForwardFailure") => o.exit_on_forward_failure = flag()?,
            Some("ForwardAgent") => o.agent = flag()?,
            Some("IdentityFile") => o.identities.push(path(value)),
            Some("LocalForward") => return self.forward(Forward::parse(&joined(value))?, true),
            Some("RemoteForward") => return self.forward(remote(&joined(value))?, false),
            Some("LogLevel") => match value.to_ascii_uppercase().as_str() {
                "QUIET" | "FATAL" | "ERROR" => o.quiet = true,
                "INFO" => o.quiet = false,
                "VERBOSE" | "DEBUG" | "DEBUG1" => o.verbose = 1,
                "DEBUG2" => o.verbose = 2,
                "DEBUG3" => o.verbose = 3,
                _ => {
                    return Err(wrong(
                        "QUIET, FATAL, ERROR, INFO, VERBOSE, DEBUG, DEBUG1, DEBUG2 or DEBUG3",
                    ));
                }
            },
            Some("Port") => self.port = Some(value.parse().map_err(|_| wrong("a port"))?),
            Some("RequestTTY") => {
                o.tty = match value.to_ascii_lowercase().as_str() {
                    "auto" => Tty::Auto,
                    "no" => Tty::No,
                    "yes" => Tty::Yes,
                    "force" => Tty::Force,
                    _ => return Err(wrong("auto, no, yes or force")),
                }
            }
            Some("SendEnv") => o.send_env.extend(value.split_whitespace().map(str::to_owned)),
            Some("ServerAliveCountMax") => {
                o.alive_count = value
                    .parse()
                    .ok()
                    .filter(|&n| n > 0)
                    .ok_or_else(|| wrong("a number above 0"))?;
            }
            Some("ServerAliveInterval") => o.alive_interval = seconds()?,
            Some("SetEnv") => {
                for pair in value.split_whitespace() {
                    let (name, value) = pair.split_once('=').ok_or_else(|| wrong("NAME=VALUE"))?;
                    o.set_env
                        .push((name.to_owned(), value.trim_matches('"').to_owned()));
                }
            }
            Some("StrictHostKeyChecking") => {
                o.strict = match value.to_ascii_lowercase().as_str() {
                    "yes" => Strict::Yes,
                    "ask" => Strict::Ask,
                    "accept-new" => Strict::AcceptNew,
                    "no" | "off" => Strict::No,
                    _ => return Err(wrong("yes, ask, accept-new or no")),
                }
            }
            Some("User") => o.user = Some(value.to_owned()),
            Some("UserKnownHostsFile") => o.known_hosts.extend(value.split_whitespace().map(path)),
            _ => {
                return Err(format!(
                    "-o {name} is not known here. Known are: {}. Plain ssh knows more (`fleetgate config ssh`)",
                    KNOWN.join(", ")
                ));
            }
        }
        Ok(())
    }

    fn finish(mut self, host: &str) -> Result<Options, String> {
        let o = &mut self.options;
        let (user, host) = match host.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, host),
        };
        if let Some(user) = user {
            // ssh: -l and User come first.
            o.user.get_or_insert_with(|| user.to_owned());
        }
        if o.user.as_deref() == Some("") || host.is_empty() {
            return Err("a name is missing: [USER@]NODE".into());
        }
        let (host, port) = match (o.direct, host.strip_prefix('[').and_then(|h| h.split_once(']'))) {
            (true, Some((host, port))) => (host, port.strip_prefix(':').filter(|p| !p.is_empty())),
            (true, None) if host.matches(':').count() == 1 => {
                let (host, port) = host.split_once(':').unwrap_or((host, ""));
                (host, Some(port))
            }
            _ => (host, None),
        };
        o.host = host.to_owned();
        let said = port
            .map(|p| p.parse().map_err(|_| format!("{p:?} is no port")))
            .transpose()?;
        o.port = said.or(self.port);
        if !o.direct {
            if self.port.is_some() {
                o.notes
                    .push("a node is reached through the proxy and has no port: it is left aside".into());
            }
            if !o.identities.is_empty() {
                o.notes
                    .push("-i is for --direct: to a node goes the login's own key; it is left aside".into());
            }
        } else if o.proxy.is_some() {
            return Err("--direct goes through no proxy: leave out -J, or leave out --direct".into());
        }
        let command = self.command.join(OsStr::new(" ")).into_vec();
        o.work = match (self.to, self.no_command, self.subsystem, command.is_empty()) {
            (Some(to), _, _, true) => Work::To(to),
            (Some(_), ..) => return Err("-W is a connection and takes no command".into()),
            (None, true, _, true) => Work::None,
            (None, true, ..) => return Err("-N says that there is no command, and there is one".into()),
            (None, false, true, true) => return Err("-s: which subsystem?".into()),
            (None, false, true, false) => Work::Subsystem(command),
            (None, false, false, true) => Work::Shell,
            (None, false, false, false) => Work::Exec(command),
        };
        Ok(self.options)
    }
}

/// A value: the rest of the word, or the next word.
fn given<'a>(
    name: &str,
    inside: Option<String>,
    rest: &mut impl Iterator<Item = &'a OsString>,
) -> Result<String, String> {
    match (inside, rest) {
        (Some(value), _) => Ok(value),
        (None, rest) => match rest.next() {
            Some(word) => text(word),
            None => Err(format!("{name} wants a value")),
        },
    }
}

/// `-R`: without a place it would be a SOCKS proxy on the far side.
fn remote(value: &str) -> Result<Forward, String> {
    Forward::parse(value).map_err(|e| match Forward::parse_dynamic(value) {
        Ok(_) => format!(
            "-R {value}: a SOCKS proxy on the far side is not served; say where it leads: -R PORT:HOST:PORT"
        ),
        Err(_) => e,
    })
}

/// ssh_config has a space between the two halves of a forward.
fn joined(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(":")
}

/// As ssh reads it: seconds, or numbers with units; `yes` and 0 are for ever, which is a day here.
fn persist(value: &str) -> Option<Keep> {
    const DAY: u64 = 86_400;
    let value = match value.to_ascii_lowercase().as_str() {
        "yes" | "true" => "0".to_owned(),
        "no" | "false" => return Some(Keep::No),
        "" => return None,
        time => time.to_owned(),
    };
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
    let time = if sum == 0 { DAY } else { sum.min(DAY) };
    Some(Keep::For(Duration::from_secs(time)))
}

fn escape(value: &str) -> Result<Option<u8>, String> {
    match value.as_bytes() {
        b"none" => Ok(None),
        [one] => Ok(Some(*one)),
        [b'^', letter @ b'@'..=b'_' | letter @ b'a'..=b'z'] => Ok(Some(letter & 0x1f)),
        _ => Err(format!(
            "{value:?} is no escape: one character, ^ and a letter, or none"
        )),
    }
}

fn path(value: &str) -> PathBuf {
    match (value.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => value.into(),
    }
}

fn text(word: &OsStr) -> Result<String, String> {
    word.to_str()
        .map(str::to_owned)
        .ok_or_else(|| format!("{word:?} is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, String> {
        let words: Vec<OsString> = line
            .split(' ')
            .filter(|w| !w.is_empty())
            .map(OsString::from)
            .collect();
        match Options::parse(&words)? {
            Asked::Run(options) => Ok(*options),
            Asked::Help => Err("help".into()),
        }
    }

    #[test]
    fn the_command_line_is_read_as_ssh_reads_its_own() {
        type Check = fn(&Options) -> bool;
        let table: [(&str, Check); 24] = [
            ("web1", |o| {
                o.host == "web1" && o.user.is_none() && o.work == Work::Shell
            }),
            ("root@web1 uname -a", |o| {
                o.user.as_deref() == Some("root") && o.work == Work::Exec(b"uname -a".to_vec())
            }),
            ("web1 ls -t -L x", |o| {
                o.work == Work::Exec(b"ls -t -L x".to_vec()) && o.locals.is_empty()
            }),
            ("web1 -t top", |o| {
                o.tty == Tty::Yes && o.work == Work::Exec(b"top".to_vec())
            }),
            ("-tt -- web1 top", |o| {
                o.tty == Tty::Force && o.work == Work::Exec(b"top".to_vec())
            }),
            ("-L8080:x:80 web1", |o| o.locals.len() == 1),
            ("-L 8080:x:80 -R 1:y:2 -D1080 web1", |o| {
                o.locals.len() == 2 && o.remotes.len() == 1
            }),
            ("-NTL 8080:x:80 web1", |o| {
                o.work == Work::None && o.tty == Tty::No && o.locals.len() == 1
            }),
            ("-lroot -nq web1", |o| {
                o.user.as_deref() == Some("root") && !o.input && o.quiet
            }),
            ("-l root ann@web1", |o| o.user.as_deref() == Some("root")),
            ("-W db:5432 web1", |o| {
                matches!(&o.work, Work::To(To::Tcp { port: 5432, .. }))
            }),
            ("-s web1 sftp", |o| o.work == Work::Subsystem(b"sftp".to_vec())),
            ("-p 2222 web1", |o| o.notes.len() == 1),
            ("--direct -p 2222 web1", |o| {
                o.port == Some(2222) && o.notes.is_empty()
            }),
            ("--direct me@web1:3022 true", |o| {
                o.port == Some(3022) && o.host == "web1"
            }),
            ("--direct [::1]:3022", |o| o.port == Some(3022) && o.host == "::1"),
            ("--explain=json -e none web1", |o| {
                o.explain == Some(Explain::Json) && o.escape.is_none()
            }),
            ("-e ^b -A -a web1", |o| o.escape == Some(2) && !o.agent),
            (
                "-oServerAliveInterval=5 -o setenv=A=b -o StrictHostKeyChecking=no -oConnectTimeout=3 web1",
                |o| {
                    o.alive_interval == Duration::from_secs(5)
                        && o.set_env == [("A".to_owned(), "b".to_owned())]
                        && o.strict == Strict::No
                        && o.connect_time == Some(Duration::from_secs(3))
                },
            ),
            ("env=prod,role=db", |o| o.host == "env=prod,role=db"),
            ("web1", |o| o.keep == Keep::For(PERSIST)),
            ("-o ControlPersist=no web1", |o| o.keep == Keep::No),
            ("-o ControlPersist=1h30 web1", |o| {
                o.keep == Keep::For(Duration::from_secs(3630))
            }),
            ("-o ControlPersist=yes web1", |o| {
                o.keep == Keep::For(Duration::from_secs(86_400))
            }),
        ];
        for (line, check) in table {
            let options = read(line).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert!(check(&options), "{line}: {options:?}");
        }
    }

    #[test]
    fn what_is_not_served_is_said() {
        for (line, words) in [
            ("", "which node"),
            ("-t", "which node"),
            ("-f web1", "in the background"),
            ("-X web1", "X11"),
            ("-L", "wants a value"),
            ("-L 80 web1", "is no forward"),
            ("-R 1080 web1", "SOCKS proxy on the far side"),
            ("-o Ciphers=none web1", "Known are: BatchMode, ConnectTimeout"),
            ("-o ConnectTimeout web1", "NAME=VALUE"),
            ("-o ForwardAgent=maybe web1", "yes or no"),
            ("-o ControlPersist=soon web1", "a time as 90, 10m or 1h30m"),
            ("-z web1", "no flag"),
            ("--explain=xml web1", "--explain=json"),
            ("--what web1", "no flag"),
            ("-F x web1", "plain ssh does it"),
            ("-N web1 true", "there is one"),
            ("-W db:1 web1 true", "takes no command"),
            ("-s web1", "which subsystem"),
            ("@web1", "a name is missing"),
            ("--direct -J p web1", "no proxy"),
        ] {
            let error = read(line).expect_err(line);
            assert!(error.contains(words), "{line}: {error}");
        }
        let most = "-L 1:x:1 ".repeat(MAX_FORWARDS);
        assert!(read(&format!("{most} web1")).is_ok());
        assert!(
            read(&format!("{most} -D 1 web1"))
                .unwrap_err()
                .contains("more than")
        );
    }

    #[test]
    fn every_name_that_is_told_is_known() {
        for name in KNOWN {
            assert!(HELP.contains(name), "{name}");
            let error = read(&format!("-o {name}=\u{1} web1")).err();
            assert!(!error.is_some_and(|e| e.contains("is not known")), "{name}");
        }
    }
}
