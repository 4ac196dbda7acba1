//! The command line of `fleetgate ssh`, as ssh reads its own: flags stand together, values with or without a space,
//! and everything behind the host is the command. It reads; it looks nothing up.

mod destination;
mod file;
mod finish;
pub mod flags;
pub mod names;
mod option;
pub mod printed;
mod values;

pub(crate) use destination::{SSH_PORT, host_and_port, is_selector};

use super::forward::{Forward, MAX_FORWARDS, Target};
use super::login::LoginMethods;
use super::{Algorithms, Strict, Work};
use crate::master_client::{Keep, PERSIST};
use fleetgate_policy::Invalid;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;
use values::{escape, path, remote};

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

/// What is wanted of the master: `-O`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Whether there is one.
    Check,
    /// That it ends, with every session.
    Exit,
    /// That it begins nothing more.
    Stop,
}

/// What is said on standard error (ssh_config(5), LogLevel); each says what the ones before it say, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing but that the host or the user is refused: `-q`.
    Quiet,
    /// Errors.
    Error,
    /// Warnings and information.
    Info,
}

/// How X11 is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum X11 {
    /// With a cookie that the display distrusts: `-X`.
    Untrusted,
    /// With the display's own trust: `-Y`.
    Trusted,
}

/// The command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// The account, if it was said.
    pub user: Option<String>,
    /// A container of the node's, if one is meant and not the node itself.
    pub container: Option<String>,
    /// A node, or labels; with `direct` a host.
    pub host: String,
    /// Of a direct connection.
    pub port: Option<u16>,
    /// No proxy: an SSH server at an address, keys of files and the agent.
    pub direct: bool,
    /// The proxy to use: `-J`.
    pub proxy: Option<String>,
    /// No proxy: a node's own port here, `HOST[:PORT]`, with the login's certificate.
    pub address: Option<String>,
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
    /// `-q`, LogLevel.
    pub level: LogLevel,
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
    /// `-f`: to the background when all stands.
    pub background: bool,
    /// `-G`: the options are printed, and nothing is done.
    pub print: bool,
    /// `-O`.
    pub control: Option<Control>,
    /// `-X`, `-Y`.
    pub x11: Option<X11>,
    /// GlobalKnownHostsFile, for direct connections; none: the system's.
    pub global_hosts: Option<Vec<PathBuf>>,
    /// HostKeyAlias, for direct connections.
    pub alias: Option<String>,
    /// IdentitiesOnly: keys of files alone.
    pub identities_only: bool,
    /// How the user may prove himself.
    pub ways: LoginMethods,
    /// What is offered in key exchanges.
    pub algorithms: Algorithms,
}

impl Options {
    /// Whether a proxy is between here and the node.
    pub(crate) fn goes_by_proxy(&self) -> bool {
        !self.direct && self.address.is_none()
    }

    /// Whether the command line leaves to the program what is offered in key exchanges.
    pub(crate) fn has_usual_algorithms(&self) -> bool {
        let a = &self.algorithms;
        a.ciphers.is_none() && a.macs.is_none() && a.kex.is_none() && a.host_keys.is_none()
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            user: None,
            host: String::new(),
            port: None,
            container: None,
            direct: false,
            proxy: None,
            address: None,
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
            level: LogLevel::Info,
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
            background: false,
            print: false,
            control: None,
            x11: None,
            global_hosts: None,
            alias: None,
            identities_only: false,
            ways: LoginMethods::default(),
            algorithms: Algorithms::default(),
        }
    }
}

/// The most words of a command line that are looked at.
pub const MAX_WORDS: usize = 1 << 16;

/// What the command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// To do this.
    Run(Box<Options>),
    /// How to.
    Help,
    /// The version: `-V`.
    Version,
}

/// The options of a file for a host, for the fuzz target.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn read_file(text: &str, host: &str) -> Result<usize, String> {
    file::options(text, host).map(|lines| lines.len())
}

impl Options {
    /// What the node is asked to let in: the account, by default what `account` says for the container, and behind a `+` the
    /// container.
    pub fn login(&self, account: impl FnOnce(Option<&str>) -> String) -> String {
        let named = self.user.clone();
        let account = named.unwrap_or_else(|| account(self.container.as_deref()));
        match &self.container {
            Some(container) => format!("{account}+{container}"),
            None => account,
        }
    }

    /// Reads the words behind `fleetgate ssh`.
    pub fn parse(words: &[OsString]) -> Result<Invocation, Invalid> {
        let mut line = Line::default();
        let mut rest = words.iter().take(MAX_WORDS);
        let mut host = None;
        while let Some(word) = rest.next() {
            let bytes = word.as_bytes();
            match bytes {
                b"--help" | b"-h" => return Ok(Invocation::Help),
                b"-V" => return Ok(Invocation::Version),
                b"--" => {
                    // ssh takes the host behind it, if there was none.
                    if host.is_none()
                        && let Some(word) = rest.next()
                    {
                        host = Some(line.destination(&text(word)?)?);
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
                    host = Some(line.destination(&text(word)?)?);
                    // Flags may still stand behind the host, before the command.
                    continue;
                }
            }
        }
        line.command.extend(rest.cloned());
        let Some(host) = host.or_else(|| line.options.control.map(|_| "*".to_owned())) else {
            return Err("NODE is missing: `fleetgate ssh [USER@]NODE [COMMAND]`".into());
        };
        let host = line.node_of(&host)?;
        line.files(host)?;
        Ok(Invocation::Run(Box::new(line.finish(host)?)))
    }
}

#[derive(Default)]
struct Line {
    options: Options,
    command: Vec<OsString>,
    no_command: bool,
    subsystem: bool,
    to: Option<Target>,
    port: Option<u16>,
    /// Options whose first value counts, and that have one (ssh_config(5): the first value obtained).
    set: BTreeSet<&'static str>,
    /// IgnoreUnknown.
    ignored: Vec<String>,
    /// `-F`.
    config: Option<PathBuf>,
    /// RemoteCommand.
    remote_command: Option<String>,
    /// ClearAllForwardings: forwards are not added any more.
    clear: bool,
    /// ForwardX11Trusted.
    trusted: bool,
    /// ForwardX11, `-X`, `-Y`.
    x11: bool,
    /// HostName.
    host_name: Option<String>,
}

impl Line {
    fn long<'a>(&mut self, word: &str, rest: &mut impl Iterator<Item = &'a OsString>) -> Result<(), String> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word, None),
        };
        match (name, value) {
            ("--direct", Some(_)) => return Err("`--direct` takes no value".to_owned()),
            ("--direct", None) => self.options.direct = true,
            ("--explain", None) => self.options.explain = Some(Explain::Text),
            ("--explain", Some(v)) if v == "json" => self.options.explain = Some(Explain::Json),
            ("--explain", Some(v)) => return Err(format!("`--explain` wants nothing or json, not `{v}`")),
            ("--no-master", Some(_)) => return Err("`--no-master` takes no value".to_owned()),
            ("--no-master", None) => return self.anew("ControlPersist", "no"),
            ("--address", value) => self.options.address = Some(given("--address", value, rest)?),
            ("--container", value) => self.options.container = Some(given("--container", value, rest)?),
            ("--home", value) => self.options.home = Some(given("--home", value, rest)?),
            ("--proxy", value) => {
                self.options.proxy = Some(given("--proxy", value, rest)?);
                self.set.insert("ProxyJump");
            }
            _ => {
                return Err(format!("there is no flag `{name}`"));
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
            if flags::takes_value(flag) {
                let name = format!("-{}", char::from(flag));
                let inside = OsStr::from_bytes(&flags[i + 1..]);
                let inside = (!inside.is_empty()).then(|| text(inside)).transpose()?;
                let value = given(&name, inside, rest)?;
                let placed = |why: String| in_its_place(&name, &value, why);
                return self.valued(flag, &value).map_err(placed);
            }
            self.set.extend(flags::stands_for(flag));
            match flag {
                b't' if matches!(self.options.tty, Tty::Yes | Tty::Force) => self.options.tty = Tty::Force,
                b't' => self.options.tty = Tty::Yes,
                b'T' => self.options.tty = Tty::No,
                b'n' => self.options.input = false,
                b'N' => self.no_command = true,
                b's' => self.subsystem = true,
                b'A' => self.options.agent = true,
                b'a' => self.options.agent = false,
                b'q' => (self.options.level, self.options.verbose) = (LogLevel::Quiet, 0),
                b'v' => {
                    self.options.level = LogLevel::Info;
                    self.options.verbose = self.options.verbose.saturating_add(1);
                }
                b'f' => self.options.background = true,
                b'G' => self.options.print = true,
                b'X' => self.x11 = true,
                b'Y' => (self.x11, self.trusted) = (true, true),
                b'x' => self.x11 = false,
                // What is so anyway.
                b'k' | b'2' => {}
                b'4' | b'6' | b'C' | b'K' | b'M' | b'P' | b'g' | b'y' => {
                    self.ignore(&format!("-{}", char::from(flag)))
                }
                _ => {
                    return Err(format!(
                        "there is no flag `-{}`",
                        char::from(flag).escape_default()
                    ));
                }
            }
        }
        Ok(())
    }

    fn valued(&mut self, flag: u8, value: &str) -> Result<(), String> {
        self.set.extend(flags::stands_for(flag));
        match flag {
            b'L' => self.forward(Forward::parse(value)?, true),
            b'R' => self.forward(remote(value)?, false),
            b'D' => self.forward(Forward::parse_dynamic(value)?, true),
            b'J' => {
                self.options.proxy = Some(value.to_owned());
                Ok(())
            }
            b'o' => self.option_word(value),
            b'c' => self.anew("Ciphers", value),
            b'm' => self.anew("MACs", value),
            b'S' => self.anew("ControlPath", value),
            b'F' => {
                self.config = Some(path(value)).filter(|_| value != "none");
                Ok(())
            }
            b'O' => {
                self.options.control = Some(match value {
                    "check" => Control::Check,
                    "exit" => Control::Exit,
                    "stop" => Control::Stop,
                    _ => {
                        return Err(format!(
                            "`-O` wants `check`, `exit` or `stop`, not `{value}`; forwards are made by -L, -R and -D \
                             of a command of their own"
                        ));
                    }
                });
                Ok(())
            }
            b'b' | b'B' => {
                self.ignore(&format!("-{}", char::from(flag)));
                Ok(())
            }
            b'i' => {
                self.options.identities.push(path(value));
                Ok(())
            }
            b'l' => self.option("User", value),
            b'p' => self.option("Port", value),
            b'W' => {
                self.to = Some(Target::parse(value)?);
                Ok(())
            }
            b'e' => {
                self.options.escape = escape(value)?;
                Ok(())
            }
            flag => {
                let instead = flags::NOT_SERVED.iter().find(|(l, _)| *l == char::from(flag));
                Err(format!(
                    "-{} is not served by `fleetgate ssh`: {}",
                    char::from(flag),
                    instead.map_or("plain ssh does it (`fleetgate config ssh`)", |(_, words)| words)
                ))
            }
        }
    }

    fn ignore(&mut self, what: &str) {
        self.options
            .notes
            .push(format!("{what} has no effect here and is ignored"));
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
}

/// What is wrong with a letter's value, said of the letter: some letters are options by another name.
fn in_its_place(letter: &str, value: &str, why: String) -> String {
    if why.trim_start_matches('`').starts_with(letter) {
        return why;
    }
    match why
        .strip_prefix("-o ")
        .and_then(|why| why.split_once(&format!("={value}: ")))
    {
        Some((_, what)) => format!("`{letter}`: `{value}`: {what}"),
        None => format!("`{letter}`: {why}"),
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
            None => Err(format!("`{name}` wants a value")),
        },
    }
}

fn text(word: &OsStr) -> Result<String, String> {
    word.to_str()
        .map(str::to_owned)
        .ok_or_else(|| format!("{word:?} is not UTF-8"))
}

#[cfg(test)]
mod tests;
