//! One option of ssh_config(5), from `-o` or a file: by its rule (`names`) it is used, ignored or refused.

use super::names::{self, Rule};
use super::values::{chosen, escape, joined, path, paths, persist, remote, time};
use super::{Line, LogLevel, Tty};
use crate::master_client::Keep;
use crate::ssh::Strict;
use crate::ssh::forward::Forward;
use fleetgate_ssh::settings::Settings;
use std::num::NonZeroU16;

impl Line {
    /// `NAME=VALUE`, or as a line of a file has it.
    pub(super) fn option_word(&mut self, given: &str) -> Result<(), String> {
        let (name, value) = given
            .split_once('=')
            .filter(|(name, _)| !name.trim().contains([' ', '\t']))
            .or_else(|| given.trim().split_once([' ', '\t']))
            .map(|(n, v)| (n.trim(), v.trim().trim_start_matches('=').trim()))
            .filter(|(_, v)| !v.is_empty())
            .ok_or_else(|| format!("-o {given}: NAME=VALUE"))?;
        let quoted = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
        self.option(name, quoted.unwrap_or(value))
    }

    /// An option whose letter counts, whatever `-o` said before it.
    pub(super) fn anew(&mut self, name: &'static str, value: &str) -> Result<(), String> {
        self.set.remove(name);
        self.option(name, value)
    }

    /// One option, by the rule that it has.
    pub(super) fn option(&mut self, name: &str, value: &str) -> Result<(), String> {
        let Some((name, rule)) = names::find(name) else {
            if names::is_ignored(&self.ignored, name) {
                return Ok(());
            }
            return Err(format!(
                "-o: neither ssh nor fleetgate knows an option `{name}`; where IgnoreUnknown names it before, it is ignored"
            ));
        };
        match rule {
            Rule::Ignored(anyway) if names::is_so_anyway(anyway, value) => Ok(()),
            Rule::Ignored(_) => {
                self.ignore(&format!("-o {name}={value}"));
                Ok(())
            }
            Rule::Refused(anyway, _) if names::is_so_anyway(anyway, value) => Ok(()),
            Rule::Refused(_, why) => Err(format!(
                "-o {name}={value} is not served, and it would be unsafe to ignore it: {why}"
            )),
            Rule::Used => {
                let repeats = matches!(
                    name,
                    "DynamicForward"
                        | "IdentityFile"
                        | "LocalForward"
                        | "RemoteForward"
                        | "SendEnv"
                        | "SetEnv"
                );
                if !repeats && !self.set.insert(name) {
                    return Ok(());
                }
                self.used(name, value)
                    .map_err(|what| format!("-o {name}={value}: {what}"))
            }
        }
    }

    fn used(&mut self, name: &'static str, value: &str) -> Result<(), String> {
        let wrong = |what: &str| format!("{name} takes {what}");
        let flag = || match value.to_ascii_lowercase().as_str() {
            "yes" | "true" => Ok(true),
            "no" | "false" => Ok(false),
            _ => Err(wrong("yes or no")),
        };
        let seconds = || time(value).ok_or_else(|| wrong("a number of seconds, or a time as 10m"));
        let no_ways = "none of these ways of login is known here";
        let settings = Settings::default;
        let o = &mut self.options;
        match name {
            "BatchMode" => o.batch = flag()?,
            "Ciphers" => o.algorithms.ciphers = Some(chosen(value, &settings().ciphers, |c| c.name())?),
            "MACs" => o.algorithms.macs = Some(chosen(value, &settings().macs, |m| m.name())?),
            "KexAlgorithms" => o.algorithms.kex = Some(chosen(value, &settings().kex, |k| k.name())?),
            "HostKeyAlgorithms" => {
                o.algorithms.host_keys =
                    Some(chosen(value, &settings().host_key_algorithms, |a| a.as_str())?);
            }
            "ClearAllForwardings" => self.clear = flag()?,
            "ConnectTimeout" => {
                o.connect_time = match value {
                    "none" => None,
                    _ => Some(seconds()?).filter(|t| !t.is_zero()),
                }
            }
            "ControlPath" => match value {
                "none" => o.keep = Keep::No,
                _ => self.ignore(&format!("-o {name}={value}")),
            },
            "ControlPersist" => {
                let keep =
                    persist(value).ok_or_else(|| wrong("`no`, `yes`, or a time as 90, 10m or 1h30m"))?;
                if !self.set.contains("ControlPath") || o.keep != Keep::No {
                    o.keep = keep;
                }
            }
            "DynamicForward" => return self.forward(Forward::parse_dynamic(value)?, true),
            "EscapeChar" => o.escape = escape(value)?,
            "ExitOnForwardFailure" => o.exit_on_forward_failure = flag()?,
            "ForkAfterAuthentication" => o.background = flag()?,
            "ForwardAgent" => {
                o.agent =
                    flag().map_err(|_| wrong("yes or no; SSH_AUTH_SOCK names another agent's socket"))?;
            }
            "ForwardX11" => self.x11 = flag()?,
            "ForwardX11Trusted" => self.trusted = flag()?,
            "GlobalKnownHostsFile" => o.global_hosts = Some(paths(value)),
            "HostKeyAlias" => o.alias = Some(value.to_owned()),
            "Hostname" => self.host_name = Some(value.to_owned()),
            "IdentitiesOnly" => o.identities_only = flag()?,
            "IdentityFile" if value == "none" => {}
            "IdentityFile" => o.identities.push(path(value)),
            "IgnoreUnknown" => self.ignored.push(value.to_owned()),
            "KbdInteractiveAuthentication" => o.ways.keyboard &= flag()?,
            "LocalForward" => return self.forward(Forward::parse(&joined(value))?, true),
            "RemoteForward" => return self.forward(remote(&joined(value))?, false),
            "LogLevel" => match value.to_ascii_uppercase().as_str() {
                "QUIET" => o.level = LogLevel::Quiet,
                "FATAL" | "ERROR" => o.level = LogLevel::Error,
                "INFO" => o.level = LogLevel::Info,
                "VERBOSE" | "DEBUG" | "DEBUG1" => o.verbose = 1,
                "DEBUG2" => o.verbose = 2,
                "DEBUG3" => o.verbose = 3,
                _ => {
                    return Err(wrong(
                        "QUIET, FATAL, ERROR, INFO, VERBOSE, DEBUG, DEBUG1, DEBUG2 or DEBUG3",
                    ));
                }
            },
            "NumberOfPasswordPrompts" => {
                o.ways.prompts = value.parse().map_err(|_| wrong("a number"))?;
            }
            "PasswordAuthentication" => o.ways.password &= flag()?,
            "PubkeyAuthentication" => {
                o.ways.keys &= !matches!(value, "no" | "false");
                match value {
                    "yes" | "true" | "no" | "false" | "unbound" | "host-bound" => {}
                    _ => return Err(wrong("yes, no, unbound or host-bound")),
                }
            }
            "PreferredAuthentications" => {
                let has = |way: &str| value.split(',').any(|w| w.trim() == way);
                o.ways.keys &= has("publickey");
                o.ways.keyboard &= has("keyboard-interactive");
                o.ways.password &= has("password");
                if !(has("publickey") || has("keyboard-interactive") || has("password")) {
                    return Err(no_ways.to_owned());
                }
            }
            "Port" => {
                let port: NonZeroU16 = value.parse().map_err(|_| wrong("a number from 1 to 65535"))?;
                self.port = Some(port.get());
            }
            "ProxyJump" if value == "none" => {}
            "ProxyJump" if value.contains(',') => return Err("a node is reached by one proxy".to_owned()),
            "ProxyJump" => {
                o.proxy.get_or_insert_with(|| value.to_owned());
            }
            "RemoteCommand" if value == "none" => {}
            "RemoteCommand" => self.remote_command = Some(value.to_owned()),
            "RequestTTY" => {
                o.tty = match value.to_ascii_lowercase().as_str() {
                    "auto" => Tty::Auto,
                    "no" => Tty::No,
                    "yes" => Tty::Yes,
                    "force" => Tty::Force,
                    _ => return Err(wrong("auto, no, yes or force")),
                }
            }
            "SendEnv" => o.send_env.extend(value.split_whitespace().map(str::to_owned)),
            "ServerAliveCountMax" => {
                o.alive_count = value
                    .parse()
                    .ok()
                    .filter(|&n| n > 0)
                    .ok_or_else(|| wrong("a number above 0"))?;
            }
            "ServerAliveInterval" => o.alive_interval = seconds()?,
            "SessionType" => match value.to_ascii_lowercase().as_str() {
                "none" => self.no_command = true,
                "subsystem" => self.subsystem = true,
                "default" => {}
                _ => return Err(wrong("none, subsystem or default")),
            },
            "SetEnv" => {
                for pair in value.split_whitespace() {
                    let (name, value) = pair.split_once('=').ok_or_else(|| wrong("NAME=VALUE"))?;
                    if !o.set_env.iter().any(|(earlier, _)| earlier == name) {
                        o.set_env
                            .push((name.to_owned(), value.trim_matches('"').to_owned()));
                    }
                }
            }
            "StdinNull" => o.input = !flag()?,
            "StrictHostKeyChecking" => {
                o.strict = match value.to_ascii_lowercase().as_str() {
                    "yes" => Strict::Yes,
                    "ask" => Strict::Ask,
                    "accept-new" => Strict::AcceptNew,
                    "no" | "off" => Strict::No,
                    _ => return Err(wrong("yes, ask, accept-new or no")),
                }
            }
            "User" => o.user = Some(value.to_owned()),
            "UserKnownHostsFile" => o.known_hosts.extend(paths(value)),
            // The table's test sees to it that there is none.
            _ => self.ignore(&format!("-o {name}")),
        }
        Ok(())
    }
}
