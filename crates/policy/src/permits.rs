//! What a login may do. Each source of trust (certificate, authorized_keys line, configuration) gives its own
//! `Permits`; what holds is what all of them allow, and a refusal names the one that refused.

use crate::Invalid;
use crate::commands::{self, Commands, NamedCommand};
use crate::pattern;
use crate::rule::{Denied, Rule};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most targets of permitopen and permitlisten that one source may list.
pub const MAX_TARGETS: usize = 256;
/// The most environment variables that one source may set, and the bytes of one.
pub const MAX_ENVIRONMENT: usize = 256;
/// The most bytes of one of them, name and value.
pub const MAX_VARIABLE: usize = 8192;

/// What a forced command begins with that names commands of the node's list.
const NAMED: &[u8] = b"fleetgate:";

/// The kinds of things that are asked for after a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The account's shell.
    Shell,
    /// A command line.
    Exec,
    /// File transfer.
    Sftp,
    /// A subsystem other than sftp.
    Subsystem,
    /// A terminal.
    Pty,
    /// Connecting from the host to a TCP address (`ssh -L`, `-D`, `-W`, `-J`).
    ConnectTcp,
    /// Listening on the host's TCP ports (`ssh -R`).
    ListenTcp,
    /// Connecting to the host's unix sockets.
    ConnectUnix,
    /// Listening on the host's unix sockets.
    ListenUnix,
    /// The user's agent, forwarded.
    Agent,
    /// X11 clients.
    X11,
    /// Environment variables that the client sends.
    Environment,
    /// `~/.ssh/rc`.
    UserRc,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 13] = [
        Kind::Shell,
        Kind::Exec,
        Kind::Sftp,
        Kind::Subsystem,
        Kind::Pty,
        Kind::ConnectTcp,
        Kind::ListenTcp,
        Kind::ConnectUnix,
        Kind::ListenUnix,
        Kind::Agent,
        Kind::X11,
        Kind::Environment,
        Kind::UserRc,
    ];

    /// All that `port-forwarding` means in a certificate and in authorized_keys: unix sockets too, as in sshd.
    pub const FORWARDING: [Kind; 4] = [
        Kind::ConnectTcp,
        Kind::ListenTcp,
        Kind::ConnectUnix,
        Kind::ListenUnix,
    ];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Shell => "a shell",
            Kind::Exec => "running a command",
            Kind::Sftp => "file transfer",
            Kind::Subsystem => "a subsystem",
            Kind::Pty => "a terminal",
            Kind::ConnectTcp => "forwarding to a TCP address",
            Kind::ListenTcp => "listening on a TCP port",
            Kind::ConnectUnix => "forwarding to a unix socket",
            Kind::ListenUnix => "listening on a unix socket",
            Kind::Agent => "agent forwarding",
            Kind::X11 => "X11 forwarding",
            Kind::Environment => "setting the environment",
            Kind::UserRc => "running ~/.ssh/rc",
        }
    }
}

/// One thing that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// The account's shell.
    Shell,
    /// A command line, as sent.
    Exec(&'a [u8]),
    /// A subsystem; `sftp` is one.
    Subsystem(&'a [u8]),
    /// A terminal.
    Pty,
    /// Connect to this host and port.
    ConnectTcp(&'a [u8], u16),
    /// Listen on this address (may be empty: all) and port (0: any).
    ListenTcp(&'a [u8], u16),
    /// Connect to this path.
    ConnectUnix(&'a [u8]),
    /// Listen on this path.
    ListenUnix(&'a [u8]),
    /// The user's agent, forwarded.
    Agent,
    /// X11 clients.
    X11,
    /// This variable, sent by the client.
    Environment(&'a [u8]),
    /// `~/.ssh/rc`.
    UserRc,
}

impl What<'_> {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            What::Shell => Kind::Shell,
            What::Exec(_) => Kind::Exec,
            What::Subsystem(b"sftp") => Kind::Sftp,
            What::Subsystem(_) => Kind::Subsystem,
            What::Pty => Kind::Pty,
            What::ConnectTcp(..) => Kind::ConnectTcp,
            What::ListenTcp(..) => Kind::ListenTcp,
            What::ConnectUnix(_) => Kind::ConnectUnix,
            What::ListenUnix(_) => Kind::ListenUnix,
            What::Agent => Kind::Agent,
            What::X11 => Kind::X11,
            What::Environment(_) => Kind::Environment,
            What::UserRc => Kind::UserRc,
        }
    }
}

/// What has to be started for a shell, a command or a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// The account's shell, as a login shell.
    Shell,
    /// A command line for the account's shell (`shell -c`).
    Line {
        /// What to run.
        command: Vec<u8>,
        /// What was asked for, when something else runs: SSH_ORIGINAL_COMMAND.
        original: Option<Vec<u8>>,
    },
    /// A program without a shell: a named command.
    Named(NamedCommand),
    /// The built-in file transfer, with the arguments that a forced `internal-sftp` has.
    Sftp {
        /// `-R`, `-d`, …
        arguments: Vec<u8>,
    },
    /// The program of a subsystem.
    Subsystem(Vec<u8>),
}

/// A target of permitopen or permitlisten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The host or address, lower case; `*` is any. For listening a pattern.
    pub host: String,
    /// None: any port.
    pub port: Option<u16>,
}

impl Target {
    /// `host:port`, `[2001:db8::1]:port`, `host:*`, `*:port`. For permitlisten a port alone means all addresses.
    pub fn parse(text: &str, listen: bool) -> Result<Target, Invalid> {
        let bad = || Invalid(format!("{text:?} is no host:port"));
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            rest.split_once("]:").ok_or_else(bad)?
        } else {
            match text.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') => (host, port),
                None if listen => ("*", text),
                _ => return Err(bad()),
            }
        };
        if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(bad());
        }
        let port = match port {
            "*" => None,
            digits if digits.bytes().all(|c| c.is_ascii_digit()) => {
                Some(digits.parse().ok().filter(|&p: &u16| p != 0).ok_or_else(bad)?)
            }
            _ => return Err(bad()),
        };
        Ok(Target {
            host: host.to_ascii_lowercase(),
            port,
        })
    }

    /// A wish to listen on all addresses (RFC 4254 §7.1: an empty one) needs a target that means all.
    fn fits(&self, host: &[u8], port: u16, listen: bool) -> bool {
        let host = host.to_ascii_lowercase();
        let all = listen && matches!(&host[..], b"" | b"*");
        let host_fits = match &self.host[..] {
            "*" => true,
            own if listen => !all && pattern::fits(own.as_bytes(), &host),
            // sshd knows no patterns here but `*`: a name like `*.example.com` would be whatever its owner says.
            own => own.as_bytes() == host,
        };
        host_fits && self.port.is_none_or(|p| p == port)
    }
}

/// A command that runs whatever was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ForcedCommand {
    command: Vec<u8>,
    rule: Rule,
    /// The node's own word; otherwise a key file's, which its user may write, or a certificate's.
    is_nodes: bool,
}

/// What a login may do. `Permits::all` is everything; each rule takes something away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permits {
    forbidden: BTreeMap<Kind, Rule>,
    /// Each list has to have a target that fits.
    connect: Vec<(Rule, Vec<Target>)>,
    listen: Vec<(Rule, Vec<Target>)>,
    forced: Option<ForcedCommand>,
    environment: Vec<(String, String)>,
    commands: Vec<(Rule, Arc<Commands>)>,
    /// Each list has to have the command, if it is one; other kinds are not its business.
    exec: Vec<(Rule, CommandList)>,
}

/// Names of commands and those that roles define, and then the commands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CommandList {
    Names {
        names: Vec<String>,
        defined: Commands,
    },
    Commands {
        commands: Arc<Commands>,
        /// Names that nothing is known of here: neither the node nor the role defines a command for them.
        unknown: Vec<String>,
    },
}

impl Permits {
    /// Everything.
    pub fn all() -> Permits {
        Permits::default()
    }

    /// Nothing at all, because of this rule.
    pub fn none(rule: &Rule) -> Permits {
        let mut permits = Permits::all();
        permits.forbid(&Kind::ALL, rule);
        permits
    }

    /// Takes these kinds away.
    pub fn forbid(&mut self, kinds: &[Kind], rule: &Rule) {
        for &kind in kinds {
            self.forbidden.entry(kind).or_insert_with(|| rule.clone());
        }
    }

    /// Gives these kinds back: only within one source, before it meets another.
    pub fn permit(&mut self, kinds: &[Kind]) {
        for kind in kinds {
            self.forbidden.remove(kind);
        }
    }

    /// Only these targets may be connected to.
    pub fn only_connect(&mut self, targets: Vec<Target>, rule: &Rule) {
        self.connect.push((rule.clone(), targets));
    }

    /// Only these may be listened on.
    pub fn only_listen(&mut self, targets: Vec<Target>, rule: &Rule) {
        self.listen.push((rule.clone(), targets));
    }

    /// This command runs, whatever is asked for: a key's or a certificate's word.
    pub fn force(&mut self, command: Vec<u8>, rule: &Rule) {
        self.forced = Some(ForcedCommand {
            command,
            rule: rule.clone(),
            is_nodes: false,
        });
    }

    /// This command runs on the node, whoever asks for whatever. It stands over a role's list of commands.
    pub fn force_for_all(&mut self, command: Vec<u8>, rule: &Rule) {
        self.force(command, rule);
        if let Some(forced) = &mut self.forced {
            forced.is_nodes = true;
        }
    }

    /// Only commands of this list run, without a shell.
    pub fn only_commands(&mut self, commands: Arc<Commands>, rule: &Rule) {
        self.commands.push((rule.clone(), commands));
    }

    /// Of command lines only those that name one of these commands of the node's list, or one that is defined here.
    pub fn only_exec(&mut self, names: &[&str], defined: Commands, rule: &Rule) {
        let names = names.iter().map(|name| name.to_string());
        let names = names.chain(defined.names().map(str::to_owned)).collect();
        self.exec
            .push((rule.clone(), CommandList::Names { names, defined }));
    }

    /// Sets a variable for whatever runs; the first of a name counts, as in sshd.
    pub fn set(&mut self, name: &str, value: &str) {
        if !self.environment.iter().any(|(n, _)| n == name) {
            self.environment.push((name.to_string(), value.to_string()));
        }
    }

    /// The variables that were set.
    pub fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// The forced command.
    pub fn forced(&self) -> Option<&[u8]> {
        self.forced.as_ref().map(|f| &f.command[..])
    }

    /// A forced command `fleetgate:disk,load` names commands of the node's list: these run and nothing else, by name
    /// and without a shell. Called once, when all sources were put together.
    pub fn name_commands(&mut self, all: &Commands) -> Result<(), Denied> {
        for (_, named) in &mut self.exec {
            if let CommandList::Names { names, defined } = named {
                // A role is for many nodes: what this one does not have cannot be run here, and that is all. Where the node
                // means another program by a name that a role defines, the node's is the one that is right there.
                let commands = Arc::new(all.those_of(names).or(defined));
                let mut unknown = std::mem::take(names);
                unknown.retain(|name| !commands.names().any(|known| known == name));
                *named = CommandList::Commands { commands, unknown };
            }
        }
        let Some(forced) = &self.forced else { return Ok(()) };
        let Some(names) = forced.command.strip_prefix(NAMED) else {
            return Ok(());
        };
        let rule = forced.rule.clone();
        let some = std::str::from_utf8(names).map_err(|_| Invalid::from("its command is no UTF-8"));
        let some = some.and_then(|names| all.subset(names));
        let some = some.map_err(|why| Denied::new(format!("nothing is allowed by {rule}: {why}")))?;
        self.forced = None;
        self.only_commands(Arc::new(some), &rule);
        Ok(())
    }

    /// Whether only commands of a list run: the root rule counts that as forced, and no login record is written.
    pub fn only_named(&self) -> bool {
        let others = [Kind::Shell, Kind::Sftp, Kind::Subsystem];
        let no_other = || others.iter().all(|kind| self.forbidden.contains_key(kind));
        !self.commands.is_empty() || !self.exec.is_empty() && no_other()
    }

    /// What both allow. Two forced commands have to be the same one (sshd refuses such a login as well).
    pub fn and(mut self, other: Permits) -> Result<Permits, Denied> {
        for (kind, rule) in other.forbidden {
            self.forbidden.entry(kind).or_insert(rule);
        }
        self.connect.extend(other.connect);
        self.listen.extend(other.listen);
        self.commands.extend(other.commands);
        self.exec.extend(other.exec);
        for (name, value) in &other.environment {
            self.set(name, value);
        }
        self.forced = match (self.forced, other.forced) {
            (Some(a), Some(b)) if a.command != b.command => {
                return Err(Denied::new(format!(
                    "{} and {} force different commands",
                    a.rule, b.rule
                )));
            }
            (a, b) => a.or(b),
        };
        Ok(self)
    }

    /// What a login with these may do within what the node allows everybody. The node's forced command stands over
    /// that of a key or certificate, as sshd's ForceCommand does.
    pub fn within(mut self, node: Permits) -> Permits {
        if node.forced.is_some() {
            self.forced = None;
        }
        self.and(node).expect("at most one of them forces a command")
    }

    /// Whether this may be done.
    pub fn allow(&self, what: &What<'_>) -> Result<(), Denied> {
        match what {
            What::Shell | What::Exec(_) | What::Subsystem(_) => return self.program(what).map(drop),
            _ => {}
        }
        self.allow_kind(what.kind())?;
        let (lists, host, port, listen) = match *what {
            What::ConnectTcp(host, port) => (&self.connect, host, port, false),
            What::ListenTcp(host, port) => (&self.listen, host, port, true),
            // Unlike sshd: a list of TCP targets would hold nobody who may reach any unix socket instead.
            What::ConnectUnix(_) => return self.no_list(&self.connect, what.kind()),
            What::ListenUnix(_) => return self.no_list(&self.listen, what.kind()),
            _ => return Ok(()),
        };
        for (rule, targets) in lists {
            if !targets.iter().any(|t| t.fits(host, port, listen)) {
                let shown = String::from_utf8_lossy(host);
                return Err(Denied::by(
                    format_args!("{} {shown:?} port {port}", what.kind().name()),
                    rule,
                ));
            }
        }
        Ok(())
    }

    /// What is to be started for a shell, a command or a subsystem.
    pub fn program(&self, what: &What<'_>) -> Result<Program, Denied> {
        if let Some(forced) = &self.forced {
            return self.forced_program(forced, what);
        }
        if let Some(program) = self.named(what)? {
            return Ok(program);
        }
        self.allow_kind(what.kind())?;
        Ok(match *what {
            What::Exec(command) => Program::Line {
                command: command.to_vec(),
                original: None,
            },
            What::Subsystem(b"sftp") => Program::Sftp {
                arguments: Vec::new(),
            },
            What::Subsystem(name) => Program::Subsystem(name.to_vec()),
            _ => Program::Shell,
        })
    }

    /// A kind without its particulars: whether it is worth offering at all.
    pub fn allow_kind(&self, kind: Kind) -> Result<(), Denied> {
        match self.forbidden.get(&kind) {
            Some(rule) => Err(Denied::by(kind.name(), rule)),
            None => Ok(()),
        }
    }

    /// A forced command takes the place of a shell, of any command and of any subsystem. A rule against commands altogether
    /// stands over it (or against sftp, when it is that). So does a role's list of commands, unless the node forces it: the
    /// user may have written the key file himself.
    fn forced_program(&self, forced: &ForcedCommand, what: &What<'_>) -> Result<Program, Denied> {
        if let Some(arguments) = internal_sftp(&forced.command) {
            self.allow_kind(Kind::Sftp)?;
            return Ok(Program::Sftp {
                arguments: arguments.to_vec(),
            });
        }
        self.allow_kind(Kind::Exec)?;
        if let Some((rule, _)) = self.exec.first().filter(|_| !forced.is_nodes) {
            return Err(Denied::by(format_args!("the command of {}", forced.rule), rule));
        }
        let original = match *what {
            What::Exec(line) | What::Subsystem(line) => Some(line.to_vec()),
            _ => None,
        };
        Ok(Program::Line {
            command: forced.command.clone(),
            original,
        })
    }

    /// All lists of named commands. A role's names that met no node's list allow nothing.
    fn command_lists(&self) -> impl Iterator<Item = (&Rule, Option<&Commands>, &[String])> {
        let of_roles = self.exec.iter().map(|(rule, list)| match list {
            CommandList::Commands { commands, unknown } => (rule, Some(&**commands), &unknown[..]),
            CommandList::Names { .. } => (rule, None, &[][..]),
        });
        let forced = self.commands.iter();
        forced
            .map(|(rule, commands)| (rule, Some(&**commands), &[][..]))
            .chain(of_roles)
    }

    /// With command lists, what stands in all of them.
    fn named(&self, what: &What<'_>) -> Result<Option<Program>, Denied> {
        let What::Exec(line) = what else {
            return match self.commands.first() {
                Some((rule, _)) => Err(Denied::by(what.kind().name(), rule)),
                None => Ok(None),
            };
        };
        let mut found: Option<NamedCommand> = None;
        for (rule, commands, unknown) in self.command_lists() {
            self.allow_kind(Kind::Exec)?;
            let commands = commands.ok_or_else(|| Denied::by(Kind::Exec.name(), rule))?;
            if let Some(name) = commands::name(line).filter(|name| unknown.contains(name)) {
                return Err(Denied::new(format!(
                    "{rule} lists the command {name:?}, and this node has none of that name: neither its own [commands] nor the role defines it"
                )));
            }
            let command = commands.find(line, rule)?;
            found = Some(match found {
                Some(other) => both(other, command, rule)?,
                None => command,
            });
        }
        Ok(found.map(Program::Named))
    }

    /// The named commands that these allow; none where a program is forced, or where any command line may be run.
    pub fn named_commands(&self) -> Option<Commands> {
        let is_named_only = self.forced.is_none() && self.allow_kind(Kind::Exec).is_ok();
        let mut lists = self.command_lists().filter(|_| is_named_only);
        let (_, first, _) = lists.next()?;
        let rest: Vec<_> = lists.map(|(_, list, _)| list).collect();
        let common = first.map(|first| first.common_with(&rest));
        Some(common.unwrap_or_default())
    }

    fn no_list(&self, lists: &[(Rule, Vec<Target>)], kind: Kind) -> Result<(), Denied> {
        match lists.first() {
            Some((rule, _)) => Err(Denied::by(kind.name(), rule)),
            None => Ok(()),
        }
    }
}

/// What two lists mean by a line: one program, with the limits of both.
fn both(one: NamedCommand, other: NamedCommand, rule: &Rule) -> Result<NamedCommand, Denied> {
    let same_program = one.argv == other.argv && one.user == other.user;
    if !same_program || one.environment != other.environment || one.secrets != other.secrets {
        return Err(Denied::new(format!(
            "{rule} means another program by this command's name"
        )));
    }
    Ok(NamedCommand {
        limits: one.limits.and(other.limits),
        cache: one.cache.zip(other.cache).map(|(one, other)| one.min(other)),
        ..one
    })
}

/// The arguments of a forced `internal-sftp`.
fn internal_sftp(command: &[u8]) -> Option<&[u8]> {
    let rest = command.strip_prefix(b"internal-sftp")?;
    match rest.first() {
        None => Some(rest),
        Some(b' ' | b'\t') => Some(rest.trim_ascii()),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests;
