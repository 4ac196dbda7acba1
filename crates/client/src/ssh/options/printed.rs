//! What `-G` prints: the options that hold, one a line, in ssh's spelling of `ssh -G` (small letters).

use super::{Options, Tty, X11};
use crate::master_client::Keep;
use crate::ssh::forward::Target;
use crate::ssh::{Strict, Work};
use std::fmt::{Display, Write};
use std::path::PathBuf;

/// The lines.
pub fn lines(o: &Options) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &dyn Display| {
        // Writing to a String does not fail.
        let _ = writeln!(out, "{name} {value}");
    };
    let flag = |is: bool| if is { "yes" } else { "no" };
    line("hostname", &o.host);
    if let Some(user) = &o.user {
        line("user", user);
    }
    if let Some(container) = &o.container {
        line("container", container);
    }
    if let Some(port) = o.port.filter(|_| o.direct) {
        line("port", &port);
    }
    if let Some(proxy) = &o.proxy {
        line("proxyjump", proxy);
    }
    if let Some(address) = &o.address {
        line("address", address);
    }
    line("batchmode", &flag(o.batch));
    line("exitonforwardfailure", &flag(o.exit_on_forward_failure));
    line("forkafterauthentication", &flag(o.background));
    line("forwardagent", &flag(o.agent));
    line("forwardx11", &flag(o.x11.is_some()));
    line("forwardx11trusted", &flag(o.x11 == Some(X11::Trusted)));
    line("stdinnull", &flag(!o.input));
    line("identitiesonly", &flag(o.identities_only));
    line("passwordauthentication", &flag(o.ways.password));
    line("kbdinteractiveauthentication", &flag(o.ways.keyboard));
    line("pubkeyauthentication", &flag(o.ways.keys));
    line("numberofpasswordprompts", &o.ways.prompts);
    let tty = match o.tty {
        Tty::Auto => "auto",
        Tty::No => "false",
        Tty::Yes => "true",
        Tty::Force => "force",
    };
    line("requesttty", &tty);
    let session = match o.work {
        Work::None | Work::To(_) => "none",
        Work::Subsystem(_) => "subsystem",
        Work::Shell | Work::Exec(_) => "default",
    };
    line("sessiontype", &session);
    let strict = match (o.direct, o.strict) {
        (false, _) | (true, Strict::Yes) => "true",
        (true, Strict::Ask) => "ask",
        (true, Strict::AcceptNew) => "accept-new",
        (true, Strict::No) => "false",
    };
    line("stricthostkeychecking", &strict);
    line("serveraliveinterval", &o.alive_interval.as_secs());
    line("serveralivecountmax", &o.alive_count);
    match o.connect_time {
        Some(time) => line("connecttimeout", &time.as_secs()),
        None => line("connecttimeout", &"none"),
    }
    match o.keep {
        Keep::No => line("controlpersist", &"no"),
        Keep::For(time) => line("controlpersist", &time.as_secs()),
    }
    let algorithms = &o.algorithms;
    let listed = |names: Option<Vec<&str>>| names.map(|n| n.join(","));
    let ciphers = algorithms
        .ciphers
        .as_ref()
        .map(|c| c.iter().map(|c| c.name()).collect());
    let macs = algorithms
        .macs
        .as_ref()
        .map(|m| m.iter().map(|m| m.name()).collect());
    let kex = algorithms
        .kex
        .as_ref()
        .map(|k| k.iter().map(|k| k.name()).collect());
    let host_keys = algorithms.host_keys.as_ref();
    let host_keys = host_keys.map(|h| h.iter().map(String::as_str).collect());
    for (name, list) in [
        ("ciphers", ciphers),
        ("macs", macs),
        ("kexalgorithms", kex),
        ("hostkeyalgorithms", host_keys),
    ] {
        if let Some(list) = listed(list) {
            line(name, &list);
        }
    }
    let joined = |paths: &[PathBuf]| {
        let paths: Vec<_> = paths.iter().map(|p| p.display().to_string()).collect();
        paths.join(" ")
    };
    if !o.known_hosts.is_empty() {
        line("userknownhostsfile", &joined(&o.known_hosts));
    }
    if let Some(paths) = &o.global_hosts {
        line("globalknownhostsfile", &joined(paths));
    }
    if let Some(alias) = &o.alias {
        line("hostkeyalias", alias);
    }
    for path in &o.identities {
        line("identityfile", &path.display());
    }
    for forward in &o.locals {
        let name = match forward.to {
            Target::Socks => "dynamicforward",
            _ => "localforward",
        };
        match forward.to {
            Target::Socks => line(name, &forward.listen),
            _ => line(name, &format_args!("{} {}", forward.listen, forward.to)),
        }
    }
    for forward in &o.remotes {
        line(
            "remoteforward",
            &format_args!("{} {}", forward.listen, forward.to),
        );
    }
    for pattern in &o.send_env {
        line("sendenv", pattern);
    }
    for (name, value) in &o.set_env {
        line("setenv", &format!("{name}={value}"));
    }
    out
}
